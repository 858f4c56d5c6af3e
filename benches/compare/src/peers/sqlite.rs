//! SQLite with the schema and the settings that are best for this.

use std::path::Path;
use std::sync::Mutex;

use rusqlite::{Connection, params};

use crate::peer::{CACHE_BYTES, Event, Peer, Result};

pub struct Sqlite(Mutex<Connection>);

pub fn open(dir: &Path) -> Result<Sqlite> {
    let connection = Connection::open(dir.join("events.sqlite"))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -((CACHE_BYTES >> 10) as i64))?;
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS events (s INTEGER, q INTEGER, bytes BLOB, UNIQUE (s, q))",
    )?;
    Ok(Sqlite(Mutex::new(connection)))
}

impl Peer for Sqlite {
    fn append(&self, events: &[Event<'_>]) -> Result<()> {
        let mut connection = self.0.lock().unwrap();
        let transaction = connection.transaction()?;
        {
            let mut insert = transaction
                .prepare_cached("INSERT INTO events (s, q, bytes) VALUES (?1, ?2, ?3)")?;
            for event in events {
                insert.execute(params![event.session, event.seq as i64, event.bytes])?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn scan(&self, session: u32, from: u64, each: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let connection = self.0.lock().unwrap();
        let mut select = connection
            .prepare_cached("SELECT bytes FROM events WHERE s = ?1 AND q >= ?2 ORDER BY q")?;
        let mut rows = select.query(params![session, from as i64])?;
        while let Some(row) = rows.next()? {
            each(row.get_ref(0)?.as_blob()?);
        }
        Ok(true)
    }

    fn settle(&self) -> Result<()> {
        let connection = self.0.lock().unwrap();
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }
}
