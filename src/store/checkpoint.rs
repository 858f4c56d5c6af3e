//! A checkpoint: one durable transaction that takes a frozen memtable in.
//!
//! Everything or nothing: blocks, session records, ids, marks and the applied position. With quick
//! repair, so that a reopen after a kill does not read the whole file. A commit that returned an
//! error may still have happened; replaying the journal over it is harmless because the applied
//! position tells.
//!
//! The thread that has the transaction looks up and writes rows; a large checkpoint makes them
//! ([`super::rows`]) on a second one.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use redb::{ReadableTable, WriteTransaction};

use crate::error::{Error, ErrorKind, Result};
use crate::journal::{Epoch, Position};
use crate::memtable::{MemInner, SessionView};
use crate::planted::planted;

use super::block::{BLOCK_BYTES_MAX, SMALL_BLOCK_BYTES_MAX};
use super::rows::{Addition, Maker, Rows};
use super::tables::{
    self, EVENTS, MARKS, META, META_APPLIED, META_OPENED, MarkKey, SESSION_IDS, SESSIONS,
};
use super::{Store, begin_durable, guarded, translate};

/// From this many sessions in one checkpoint on, blocks are small.
const MANY_SESSIONS: usize = 10_000;
/// From so much memory on a second thread is worth its start.
const LARGE_BYTES: usize = 1 << 20;
/// So many sessions, or a session with so many events, are looked up at a time.
const GROUP_SESSIONS: usize = 64;
const GROUP_EVENTS: usize = 512;
/// Groups and rows that wait for the other thread at most.
const WAITING: usize = 4;

impl Store {
    /// Remembers the segment that this open begins with. Durable when this returns.
    pub(crate) fn set_opened(&self, epoch: Epoch) -> Result<()> {
        let handle = self.handle();
        let database = handle.writer()?;
        guarded("write", || {
            let transaction = begin_durable(database)?;
            transaction.open_table(META)?.insert(META_OPENED, &*tables::encode_meta(&epoch))?;
            Ok(transaction.commit()?)
        })
    }

    /// Writes a memtable out, and returns the position behind everything that the store holds now;
    /// on a second thread as well if there `may_be_threads`. Durable when this returns.
    pub(crate) fn checkpoint(&self, memtable: &MemInner, may_be_threads: bool) -> Result<Position> {
        let handle = self.handle();
        let database = handle.writer()?;
        let seed = tables::seed(self.id);
        let many = memtable.sessions.len() >= MANY_SESSIONS;
        let limit = if many { SMALL_BLOCK_BYTES_MAX } else { BLOCK_BYTES_MAX };
        let in_two = may_be_threads && memtable.bytes() >= LARGE_BYTES;
        guarded("write", || {
            let transaction = begin_durable(database)?;
            let mut tables = Tables::open(&transaction, limit)?;
            let sessions = memtable.views(memtable.end);
            let written = if in_two {
                write_in_two(&mut tables, sessions, seed)
            } else {
                write(&mut tables, sessions, seed)
            };
            if let Err(error) = written {
                return Ok(Err(error));
            }
            drop(tables);
            if !planted("applied_position_stays") {
                let applied = tables::encode_meta(&memtable.end);
                transaction.open_table(META)?.insert(META_APPLIED, &*applied)?;
            }
            transaction.commit()?;
            Ok(Ok(memtable.end))
        })?
    }
}

/// Looks up, makes and writes in turns.
fn write<'m>(
    tables: &mut Tables<'_>,
    sessions: impl Iterator<Item = (u64, SessionView<'m>)>,
    seed: u32,
) -> Result<()> {
    let mut maker = Maker::new(seed, tables.limit)?;
    for (number, session) in sessions {
        let addition = tables.look_up(number, session)?;
        maker.add(&addition, &mut |rows| tables.write(&rows))?;
    }
    maker.flush(&mut |rows| tables.write(&rows))
}

/// Looks up and writes here, and makes on another thread.
fn write_in_two<'m>(
    tables: &mut Tables<'_>,
    mut sessions: impl Iterator<Item = (u64, SessionView<'m>)>,
    seed: u32,
) -> Result<()> {
    let limit = tables.limit;
    std::thread::scope(|scope| {
        // Wherever this returns, both ends are dropped before the scope waits for the thread.
        let (to_maker, additions) = sync_channel::<Vec<Addition<'m>>>(WAITING);
        let (to_writer, made) = sync_channel(WAITING);
        let make = move || {
            let maker = Maker::new(seed, limit);
            let result = maker.and_then(|maker| make_groups(maker, additions, &to_writer));
            _ = result.or_else(|error| to_writer.send(Err(error)));
        };
        let thread = std::thread::Builder::new().name("eventlog-blocks".into());
        let Ok(thread) = thread.spawn_scoped(scope, make) else {
            // Where no more threads can be had, one does it all.
            return write(tables, sessions, seed);
        };
        'groups: loop {
            let mut group = tables.look_up_group(&mut sessions)?;
            if group.is_empty() {
                break;
            }
            while let Err(refused) = to_maker.try_send(group) {
                // The thread has ended, and says below why.
                let TrySendError::Full(waiting) = refused else { break 'groups };
                group = waiting;
                // Every group gives rows, so that one of those that wait gives its place.
                let Ok(rows) = made.recv() else { break 'groups };
                tables.write(&rows?)?;
            }
        }
        drop(to_maker);
        made.into_iter().try_for_each(|rows| tables.write(&rows?))?;
        let ended = |_| Error::new(ErrorKind::Poisoned, "a thread of the checkpoint has ended");
        thread.join().map_err(ended)
    })
}

/// Makes rows of groups of additions until there are no more.
fn make_groups(
    mut maker: Maker,
    groups: Receiver<Vec<Addition<'_>>>,
    to_writer: &SyncSender<Result<Rows>>,
) -> Result<()> {
    let mut sink = |rows| {
        let nobody = |_| Error::new(ErrorKind::Poisoned, "the checkpoint has ended");
        to_writer.send(Ok(rows)).map_err(nobody)
    };
    for group in groups {
        for addition in &group {
            maker.add(addition, &mut sink)?;
        }
        maker.flush(&mut sink)?;
    }
    Ok(())
}

fn failed(error: redb::Error) -> Error {
    translate("write", error)
}

/// A session's record, and its last block if that is short.
type Found = (Option<Vec<u8>>, Option<(u64, Vec<u8>)>);

/// The tables that a checkpoint writes to.
struct Tables<'t> {
    events: redb::Table<'t, (u64, u64), &'static [u8]>,
    sessions: redb::Table<'t, u64, &'static [u8]>,
    ids: redb::Table<'t, &'static str, (u64, u32)>,
    marks: redb::Table<'t, MarkKey, (u64, u32)>,
    /// The largest block.
    limit: usize,
}

impl<'t> Tables<'t> {
    fn open(transaction: &'t WriteTransaction, limit: usize) -> Result<Tables<'t>, redb::Error> {
        Ok(Tables {
            events: transaction.open_table(EVENTS)?,
            sessions: transaction.open_table(SESSIONS)?,
            ids: transaction.open_table(SESSION_IDS)?,
            marks: transaction.open_table(MARKS)?,
            limit,
        })
    }

    /// The next sessions with what there is of them already; none when there are no more.
    fn look_up_group<'m>(
        &self,
        sessions: &mut impl Iterator<Item = (u64, SessionView<'m>)>,
    ) -> Result<Vec<Addition<'m>>> {
        let mut group = Vec::new();
        let mut events = 0;
        while group.len() < GROUP_SESSIONS && events < GROUP_EVENTS {
            let Some((number, session)) = sessions.next() else { break };
            events += session.entries().size_hint().0;
            group.push(self.look_up(number, session)?);
        }
        Ok(group)
    }

    /// A session with what there is of it already.
    fn look_up<'m>(&self, number: u64, session: SessionView<'m>) -> Result<Addition<'m>> {
        self.find(number, &session)
            .map(|(record, short_tail)| Addition { number, session, record, short_tail })
            .map_err(failed)
    }

    fn find(&self, number: u64, session: &SessionView<'_>) -> Result<Found, redb::Error> {
        let record = self.sessions.get(number)?.map(|guard| guard.value().to_vec());
        if session.entries().next().is_none() {
            return Ok((record, None));
        }
        let last = self.events.range((number, 0)..=(number, u64::MAX))?.next_back().transpose()?;
        let short_tail = last.and_then(|(key, value)| {
            let stored = value.value();
            (stored.len() < self.limit / 2).then(|| (key.value().1, stored.to_vec()))
        });
        Ok((record, short_tail))
    }

    fn write(&mut self, rows: &Rows) -> Result<()> {
        self.insert(rows).map_err(failed)
    }

    fn insert(&mut self, rows: &Rows) -> Result<(), redb::Error> {
        for (key, block) in &rows.blocks {
            self.events.insert(key, &**block)?;
        }
        for (key, mark) in &rows.marks {
            self.marks.insert(key, mark)?;
        }
        for (id, number) in &rows.ids {
            self.ids.insert(&**id, number)?;
        }
        for (number, record) in &rows.records {
            self.sessions.insert(number, &**record)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::entry::{Flags, Kind, Terminator};
    use crate::error::ErrorKind;
    use crate::io::StdDir;
    use crate::journal::Lsn;
    use crate::journal::batch::EntryHead;
    use crate::memtable::{Change, Memtable};
    use crate::store::{self, SessionRecord};

    /// A batch with `each` events, from `first_seq` on, of each of `sessions`.
    fn add(table: &Memtable, sessions: std::ops::Range<u64>, first_seq: u64, each: u64) {
        let (mut bytes, mut changes) = (Vec::new(), Vec::new());
        let mut end = table.end();
        end.batch += 1;
        for session in sessions {
            if first_seq == 0 {
                changes.push(Change::Declare { session, id: format!("s-{session}").into() });
            }
            for seq in first_seq..first_seq + each {
                let start = bytes.len();
                let line = format!("{{\"session\":{session},\"text\":{:?}}}", "word ".repeat(99));
                bytes.extend_from_slice(line.as_bytes());
                let head = EntryHead {
                    session,
                    seq,
                    kind: if seq % 7 == 0 { Kind::Checkpoint } else { Kind::Message },
                    terminator: Terminator::Lf,
                    flags: if seq % 3 == 0 { Flags::USER_TURN } else { Flags::default() },
                    detail: 0,
                };
                changes.push(Change::Entry { head, range: start..bytes.len() });
                end.lsn = Lsn(end.lsn.0 + 1);
            }
        }
        table.apply(changes, Arc::new(bytes), end, 1);
    }

    fn new_store(dir: &tempfile::TempDir) -> Store {
        let dir = Arc::new(StdDir::open(dir.path()).unwrap());
        store::create(&*dir, 7).unwrap();
        Store::open(dir, 1 << 20).unwrap()
    }

    /// Session, first seq and length of each block; the records; how many marks.
    type Content = (Vec<(u64, u64, u64)>, Vec<SessionRecord>, usize, Position);

    fn content(store: &Store) -> Content {
        let reader = store.reader().unwrap();
        let blocks = reader.blocks().unwrap().map(|row| row.unwrap());
        let blocks = blocks.map(|row| (row.session, row.first_seq, row.stored_len)).collect();
        let numbers = reader.numbers_from(0).map(|number| number.unwrap());
        let records = numbers.map(|number| reader.record(number).unwrap().unwrap()).collect();
        (blocks, records, reader.marks().unwrap().count(), reader.applied().end)
    }

    #[test]
    fn on_two_threads_a_checkpoint_writes_what_it_writes_on_one() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let stores = dirs.each_ref().map(new_store);
        let mut end = Position::default();
        // One long session among many short ones, whose last blocks are then written again.
        for (first_seq, each) in [(0, 20), (20, 11)] {
            let table = Memtable::new(end);
            add(&table, 1..300, first_seq, each);
            add(&table, 300..301, first_seq * 250, each * 250);
            add(&table, 301..302, first_seq, each);
            assert!(table.bytes() > LARGE_BYTES);
            end = table.end();
            for (store, may_be_threads) in stores.iter().zip([false, true]) {
                assert_eq!(store.checkpoint(&table.read(), may_be_threads).unwrap(), end);
            }
            let [alone, in_two] = stores.each_ref().map(content);
            assert_eq!(alone, in_two);
            assert_eq!((alone.1.len(), alone.3), (301, end));
        }
    }

    #[test]
    fn what_does_not_follow_on_ends_both_threads_and_writes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = new_store(&dir);
        // The store knows nothing of the last session, and of a hundred before it.
        for gap in [250, 150] {
            let table = Memtable::new(Position::default());
            add(&table, 1..gap, 0, 20);
            add(&table, gap..251, 20, 20);
            let error = store.checkpoint(&table.read(), true).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.to_string().contains(&format!("session {gap}")), "{error}");
            assert_eq!(content(&store), (Vec::new(), Vec::new(), 0, Position::default()));
        }
    }
}
