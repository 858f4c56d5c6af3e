//! A write-ahead log without an index: the nearest to the floor that a library comes.

use std::path::Path;

use okaywal::{LogVoid, WriteAheadLog};

use crate::peer::{Event, Peer, Result, key};

pub struct Wal(WriteAheadLog);

pub fn open(dir: &Path) -> Result<Wal> {
    Ok(Wal(WriteAheadLog::recover(dir.join("wal"), LogVoid)?))
}

impl Peer for Wal {
    fn append(&self, events: &[Event<'_>]) -> Result<()> {
        let mut writer = self.0.begin_entry()?;
        for event in events {
            let mut chunk = writer.begin_chunk(16 + event.bytes.len() as u32)?;
            std::io::Write::write_all(&mut chunk, &key(event.session, event.seq))?;
            std::io::Write::write_all(&mut chunk, event.bytes)?;
            chunk.finish()?;
        }
        writer.commit()?;
        Ok(())
    }

    fn scan(&self, _: u32, _: u64, _: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(false)
    }
}
