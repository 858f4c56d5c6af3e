//! A B-tree behind a write-ahead log.

use std::path::Path;

use canopydb::{Database, DbOptions, EnvOptions, Environment};

use crate::peer::{CACHE_BYTES, Event, Peer, Result, key};

pub struct Canopy {
    database: Database,
    _environment: Environment,
}

pub fn open(dir: &Path) -> Result<Canopy> {
    let dir = dir.join("canopydb");
    std::fs::create_dir_all(&dir)?;
    let mut options = EnvOptions::new(&dir);
    options.page_cache_size = CACHE_BYTES;
    let environment = Environment::with_options(options)?;
    let database = environment.get_or_create_database_with("events", DbOptions::new())?;
    let write = database.begin_write()?;
    write.get_or_create_tree(b"events")?;
    write.commit_with(true)?;
    Ok(Canopy { database, _environment: environment })
}

impl Peer for Canopy {
    fn append(&self, events: &[Event<'_>]) -> Result<()> {
        let write = self.database.begin_write()?;
        {
            let mut tree = write.get_or_create_tree(b"events")?;
            for event in events {
                tree.insert(&key(event.session, event.seq), event.bytes)?;
            }
        }
        write.commit_with(true)?;
        Ok(())
    }

    fn scan(&self, session: u32, from: u64, each: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let read = self.database.begin_read()?;
        let tree = read.get_tree(b"events")?.ok_or("the tree is missing")?;
        for row in tree.range(key(session, from)..=key(session, u64::MAX))? {
            each(&row?.1);
        }
        Ok(true)
    }

    fn settle(&self) -> Result<()> {
        Ok(self.database.checkpoint()?)
    }
}
