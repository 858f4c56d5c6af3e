//! A checkpoint: one durable transaction that takes a frozen memtable in.
//!
//! Everything or nothing: blocks, session records, ids, marks and the applied position. With quick
//! repair, so that a reopen after a kill does not read the whole file. A commit that returned an
//! error may still have happened; replaying the journal over it is harmless because the applied
//! position tells.

use std::sync::mpsc::sync_channel;

use redb::ReadableTable as _;
use redb::WriteTransaction;

use crate::error::{Error, ErrorKind, Result};
use crate::journal::{Epoch, Position};
use crate::memtable::MemInner;
use crate::planted::planted;

use super::rows::{self, Rows, Sink};
use super::tables::{
    self, EVENTS, MARKS, META, META_APPLIED, META_OPENED, MarkKey, SESSION_IDS, SESSIONS, STRANDED,
};
use super::{Store, translate};

/// From so much memory on a second thread is worth its start.
const LARGE_BYTES: usize = 1 << 20;
/// So many handfuls of rows wait to be written at most.
const WAITING: usize = 8;

/// Makes rows, and hands them over bit by bit.
type Make<'m> = dyn Fn(&mut Sink<'_>) -> Result<()> + Sync + 'm;

impl Store {
    /// Remembers the segment that this open begins with. Durable when this returns.
    pub(crate) fn set_opened(&self, epoch: Epoch) -> Result<()> {
        self.write(|transaction| {
            transaction.open_table(META)?.insert(META_OPENED, &*tables::encode_meta(&epoch))?;
            Ok(Ok((true, ())))
        })
    }

    /// Writes a memtable out, and returns the position behind everything that the store holds now.
    /// The rows of a large one are made on a second thread if `threads` are allowed. Durable when
    /// this returns. After `Full` the same memtable can be written again.
    pub(crate) fn checkpoint(&self, memtable: &MemInner, threads: bool) -> Result<Position> {
        self.write(|transaction| {
            // A commit that returned an error may have happened: then only its flush is missing.
            let is_there = applied(transaction)? == memtable.end;
            if !is_there && let Err(error) = self.write_rows(transaction, memtable, threads)? {
                return Ok(Err(error));
            }
            if !planted("applied_position_stays") {
                let applied = tables::encode_meta(&memtable.end);
                transaction.open_table(META)?.insert(META_APPLIED, &*applied)?;
            }
            Ok(Ok((true, memtable.end)))
        })
    }

    fn write_rows(
        &self,
        transaction: &WriteTransaction,
        memtable: &MemInner,
        threads: bool,
    ) -> Result<Result<()>, redb::Error> {
        let mut tables = Tables::open(transaction)?;
        let make = |sink: &mut Sink<'_>| rows::make(self, memtable, sink);
        let mut write = |rows| tables.write(&rows);
        Ok(match threads && memtable.bytes() >= LARGE_BYTES {
            true => on_two_threads(&make, &mut write),
            false => make(&mut write),
        })
    }
}

/// The position up to which the store holds the journal; the start where that cannot be read.
fn applied(transaction: &WriteTransaction) -> Result<Position, redb::Error> {
    let meta = transaction.open_table(META)?;
    let stored = meta.get(META_APPLIED)?;
    let decoded = stored.and_then(|value| tables::decode_meta(META_APPLIED, value.value()).ok());
    Ok(decoded.unwrap_or_default())
}

/// Makes rows on another thread, and writes them on this one.
fn on_two_threads(make: &Make<'_>, write: &mut Sink<'_>) -> Result<()> {
    std::thread::scope(|scope| {
        let (to_writer, made) = sync_channel(WAITING);
        let mut hand_over = move |rows| {
            let gone = |_| Error::new(ErrorKind::Poisoned, "the checkpoint has failed");
            to_writer.send(rows).map_err(gone)
        };
        let thread = std::thread::Builder::new().name("eventlog-rows".into());
        let Ok(maker) = thread.spawn_scoped(scope, move || make(&mut hand_over)) else {
            // Where no more threads can be had, one does it all.
            return make(write);
        };
        // Ends with the maker, or with the first error; the maker's next rows then find nobody.
        let written = made.into_iter().try_for_each(write);
        let made = maker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        written.and(made)
    })
}

/// The tables that a checkpoint writes to.
struct Tables<'t> {
    transaction: &'t WriteTransaction,
    events: redb::Table<'t, (u64, u64), &'static [u8]>,
    sessions: redb::Table<'t, u64, &'static [u8]>,
    ids: redb::Table<'t, &'static str, (u64, u32)>,
    marks: redb::Table<'t, MarkKey, (u64, u32)>,
}

impl<'t> Tables<'t> {
    fn open(transaction: &'t WriteTransaction) -> Result<Tables<'t>, redb::Error> {
        Ok(Tables {
            transaction,
            events: transaction.open_table(EVENTS)?,
            sessions: transaction.open_table(SESSIONS)?,
            ids: transaction.open_table(SESSION_IDS)?,
            marks: transaction.open_table(MARKS)?,
        })
    }

    fn write(&mut self, rows: &Rows) -> Result<()> {
        self.insert(rows).map_err(|error| translate("write", error))
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
        if !rows.stranded.is_empty() {
            let mut stranded = self.transaction.open_table(STRANDED)?;
            for (key, stored) in &rows.stranded {
                stranded.insert(key, &**stored)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::entry::{Flags, Kind, Terminator};
    use crate::io::StdDir;
    use crate::journal::Lsn;
    use crate::journal::batch::EntryHead;
    use crate::memtable::{Attributes, Change, Memtable};
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

    #[derive(Debug, Default, PartialEq)]
    struct Content {
        /// Session, first seq, and length of each block.
        blocks: Vec<(u64, u64, u64)>,
        events: Vec<(u64, Kind, Flags, Vec<u8>)>,
        records: Vec<SessionRecord>,
        marks: Vec<(MarkKey, u64, bool)>,
        applied: Position,
    }

    fn content(store: &Store) -> Content {
        let reader = store.reader().unwrap();
        let mut content = Content { applied: reader.applied().end, ..Content::default() };
        for row in reader.blocks().unwrap().map(|row| row.unwrap()) {
            content.blocks.push((row.session, row.first_seq, row.stored_len));
            for entry in row.block.unwrap().entries() {
                let bytes = entry.bytes().to_vec();
                content.events.push((entry.seq(), entry.kind(), entry.flags, bytes));
            }
        }
        for number in reader.numbers_from(0) {
            content.records.push(reader.record(number.unwrap()).unwrap().unwrap());
        }
        let marks = reader.marks().unwrap().map(|mark| mark.unwrap());
        content.marks.extend(marks.map(|mark| (mark.key, mark.seq, mark.whole)));
        content
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
            assert_eq!((alone.records.len(), alone.applied), (301, end));
            assert_eq!(alone.events.len() as u64, (first_seq + each) * (299 + 250 + 1));
        }
    }

    #[test]
    fn what_does_not_follow_on_is_stranded_and_everything_else_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let store = new_store(&dir);
        // The store knows nothing of the last session.
        let table = Memtable::new(Position::default());
        add(&table, 1..250, 0, 20);
        add(&table, 250..251, 20, 20);
        let end = table.end();
        assert_eq!(store.checkpoint(&table.read(), true).unwrap(), end);
        let found = content(&store);
        assert_eq!((found.records.len(), found.events.len()), (249, 249 * 20));
        let stranded = store.reader().unwrap().stranded().unwrap();
        let rows: Vec<_> = stranded
            .into_iter()
            .map(|(number, row)| row.map(|row| (number, row.events, row.says)).unwrap())
            .collect();
        assert_eq!(rows, [(250, 20, 0), (250, 0, 20)]);
    }

    #[test]
    fn a_failing_write_ends_the_maker_and_is_what_is_reported() {
        let mut written = 0;
        let make = |sink: &mut Sink<'_>| loop {
            sink(Rows::default())?;
        };
        let result = on_two_threads(&make, &mut |_| {
            written += 1;
            match written {
                3 => Err(Error::new(ErrorKind::Io, "the third")),
                _ => Ok(()),
            }
        });
        assert_eq!((result.unwrap_err().to_string().as_str(), written), ("the third", 3));
    }

    #[test]
    fn what_the_maker_fails_with_is_reported_behind_what_it_has_made() {
        let mut written = 0;
        let make = |sink: &mut Sink<'_>| {
            (0..2 * WAITING).try_for_each(|_| sink(Rows::default()))?;
            Err(Error::new(ErrorKind::Corrupt, "the last"))
        };
        let result = on_two_threads(&make, &mut |_| {
            written += 1;
            Ok(())
        });
        assert_eq!(result.unwrap_err().to_string(), "the last");
        assert_eq!(written, 2 * WAITING);
    }

    #[test]
    fn rows_of_sessions_without_events_are_handed_over_bit_by_bit() {
        let dir = tempfile::tempdir().unwrap();
        let store = new_store(&dir);
        let table = Memtable::new(Position::default());
        let meta = Attributes { meta: Some("m".repeat(32 << 10)), ..Attributes::default() };
        let changes = (1..100).flat_map(|session| {
            let id = format!("s-{session}").into();
            let attributes = meta.clone();
            [Change::Declare { session, id }, Change::Describe { session, attributes }]
        });
        table.apply(changes, Arc::default(), Position { batch: 1, ..Position::default() }, 1);
        let (mut records, mut most) = (0, 0);
        rows::make(&store, &table.read(), &mut |rows| {
            most = most.max(rows.records.len());
            records += rows.records.len();
            Ok(())
        })
        .unwrap();
        assert!(records == 99 && most <= 9, "{records}, {most} at once");
    }
}
