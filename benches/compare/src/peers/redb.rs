//! The store below eventlog, a row for each event.

use std::path::Path;

use redb::{Database, ReadableDatabase, TableDefinition};

use crate::peer::{CACHE_BYTES, Event, Peer, Result};

const EVENTS: TableDefinition<'_, (u64, u64), &[u8]> = TableDefinition::new("events");

pub struct Redb(Database);

pub fn open(dir: &Path) -> Result<Redb> {
    let database = Database::builder().set_cache_size(CACHE_BYTES).create(dir.join("redb"))?;
    let write = database.begin_write()?;
    write.open_table(EVENTS)?;
    write.commit()?;
    Ok(Redb(database))
}

impl Peer for Redb {
    fn append(&self, events: &[Event<'_>]) -> Result<()> {
        let write = self.0.begin_write()?;
        {
            let mut table = write.open_table(EVENTS)?;
            for event in events {
                table.insert((u64::from(event.session), event.seq), event.bytes)?;
            }
        }
        Ok(write.commit()?)
    }

    fn scan(&self, session: u32, from: u64, each: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let table = self.0.begin_read()?.open_table(EVENTS)?;
        let session = u64::from(session);
        for row in table.range((session, from)..=(session, u64::MAX))? {
            each(row?.1.value());
        }
        Ok(true)
    }
}
