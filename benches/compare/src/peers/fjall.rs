//! A log-structured merge tree.

use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::peer::{CACHE_BYTES, Event, Peer, Result, key};

pub struct Fjall {
    database: Database,
    events: Keyspace,
}

pub fn open(dir: &Path) -> Result<Fjall> {
    let database = Database::builder(dir.join("fjall")).cache_size(CACHE_BYTES as u64).open()?;
    let events = database.keyspace("events", KeyspaceCreateOptions::default)?;
    Ok(Fjall { database, events })
}

impl Peer for Fjall {
    fn append(&self, events: &[Event<'_>]) -> Result<()> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for event in events {
            batch.insert(&self.events, key(event.session, event.seq), event.bytes);
        }
        Ok(batch.commit()?)
    }

    fn scan(&self, session: u32, from: u64, each: &mut dyn FnMut(&[u8])) -> Result<bool> {
        for guard in self.events.range(key(session, from)..=key(session, u64::MAX)) {
            each(&guard.value()?);
        }
        Ok(true)
    }

    fn settle(&self) -> Result<()> {
        self.events.rotate_memtable_and_wait()?;
        Ok(self.events.major_compact()?)
    }
}
