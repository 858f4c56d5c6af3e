//! LMDB: a B-tree in a memory map.

use std::path::Path;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvOpenOptions};

use crate::peer::{Event, Peer, Result, key};

/// Address space, not disk.
const MAP_BYTES: usize = 64 << 30;

pub struct Lmdb {
    env: Env,
    events: Database<'static, Bytes, Bytes>,
}

pub fn open(dir: &Path) -> Result<Lmdb> {
    // SAFETY: the directory is this process's own, and the file is not changed in another way.
    let env = unsafe { EnvOpenOptions::new().map_size(MAP_BYTES).open(dir)? };
    let write = env.write_txn()?;
    let events = env
        .create_databases_and_commit(write, |opener, write| {
            opener.create_database(write, None).map(CommitOrAbort::<_, ()>::Commit)
        })?
        .unwrap_commit();
    Ok(Lmdb { env, events })
}

impl Peer for Lmdb {
    fn append(&self, events: &[Event<'_>]) -> Result<()> {
        let mut write = self.env.write_txn()?;
        for event in events {
            self.events.put(&mut write, &key(event.session, event.seq), event.bytes)?;
        }
        Ok(write.commit()?)
    }

    fn scan(&self, session: u32, from: u64, each: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let read = self.env.read_txn()?;
        let (from, to) = (key(session, from), key(session, u64::MAX));
        let range = (std::ops::Bound::Included(&from[..]), std::ops::Bound::Included(&to[..]));
        for row in self.events.range(&read, &range)? {
            each(row?.1);
        }
        Ok(true)
    }
}
