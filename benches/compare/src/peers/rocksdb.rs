//! The log-structured merge tree that others are measured by.

use std::path::Path;

use rocksdb::{BlockBasedOptions, Cache, DB, DBCompressionType, Direction, IteratorMode, Options};
use rocksdb::{WriteBatch, WriteOptions};

use crate::peer::{CACHE_BYTES, Event, Peer, Result, key};

pub struct Rocks(DB);

pub fn open(dir: &Path) -> Result<Rocks> {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(CACHE_BYTES));
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::Zstd);
    Ok(Rocks(DB::open(&options, dir.join("rocksdb"))?))
}

impl Peer for Rocks {
    fn append(&self, events: &[Event<'_>]) -> Result<()> {
        let mut batch = WriteBatch::default();
        for event in events {
            batch.put(key(event.session, event.seq), event.bytes);
        }
        let mut options = WriteOptions::default();
        options.set_sync(true);
        Ok(self.0.write_opt(batch, &options)?)
    }

    fn scan(&self, session: u32, from: u64, each: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let to = key(session, u64::MAX);
        let from = key(session, from);
        for row in self.0.iterator(IteratorMode::From(&from, Direction::Forward)) {
            let (key, bytes) = row?;
            if *key > to[..] {
                break;
            }
            each(&bytes);
        }
        Ok(true)
    }

    fn settle(&self) -> Result<()> {
        self.0.flush()?;
        self.0.compact_range(None::<&[u8]>, None::<&[u8]>);
        Ok(())
    }
}
