//! A view of the log at one moment, and what is known of its sessions.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::entry::{Kind, Seq};
use crate::error::{Error, ErrorKind, Result};
use crate::journal;
use crate::memtable::{Attributes, Fork, Mark, MemInner, Memtable, Rewind};
use crate::store::{SessionRecord, StoreReader};

use super::range::{EventRange, Events, Position};

/// Everything that was durable at one moment, across all sessions. Later appends do not show.
///
/// Cheap to make and to clone. It pins space in the store: drop it when done, and take a new one to
/// see what is new.
#[derive(Clone)]
pub struct Snapshot {
    pub(super) inner: Arc<SnapshotInner>,
}

pub(super) struct SnapshotInner {
    pub(super) reader: StoreReader,
    /// Oldest first.
    pub(super) memtables: Vec<Arc<Memtable>>,
    /// Everything up to here is visible.
    pub(super) end: journal::Position,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("lsn", &self.inner.end.lsn.0).finish_non_exhaustive()
    }
}

/// What the log knows of a session without looking into its events.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// The session's id.
    pub id: String,
    /// What it is beside its events.
    pub attributes: Attributes,
    /// When its first event was written, in microseconds since the Unix epoch.
    pub created_unix_micros: u64,
    /// When its last event was written.
    pub updated_unix_micros: u64,
    /// How many events it has: the seq of the next one.
    pub events: u64,
    /// How many user turns.
    pub user_turns: u64,
    /// How many runs.
    pub runs: u64,
    /// The name of the latest run.
    pub last_run: Option<String>,
    /// Bytes of all lines with their line ends: the size of an export, but for torn ends that the
    /// file has lost since ([`Entry::replaces_tail`](crate::Entry::replaces_tail)).
    pub bytes: u64,
    /// Bytes of its blocks in the store; what is still in the journal is not counted.
    pub stored_bytes: u64,
    counts: [u64; 8],
}

impl SessionInfo {
    /// When it was deleted, in microseconds since the Unix epoch; `None` for one that is not.
    pub fn deleted_unix_micros(&self) -> Option<u64> {
        self.attributes.deleted_at()
    }

    /// The turns that were taken back, oldest first.
    pub fn rewinds(&self) -> &[Rewind] {
        self.attributes.rewinds.as_deref().unwrap_or_default()
    }

    /// Where it began as a copy of another session.
    pub fn fork(&self) -> Option<&Fork> {
        self.attributes.fork.as_ref()
    }

    /// The events that count: all but those that were taken back.
    pub fn kept(&self) -> Vec<Range<Seq>> {
        let mut kept = Vec::from([Range { start: 0, end: self.events }]);
        for rewind in self.rewinds() {
            let parts = kept.into_iter().flat_map(|range| {
                let before = range.start..range.end.min(rewind.from);
                let behind = range.start.max(rewind.to)..range.end;
                [before, behind].into_iter().filter(|part| part.start < part.end)
            });
            kept = parts.collect();
        }
        kept
    }

    /// How many events of a kind it has.
    pub fn count(&self, kind: Kind) -> u64 {
        self.counts.get(kind as usize).copied().unwrap_or_default()
    }
}

impl From<SessionRecord> for SessionInfo {
    fn from(record: SessionRecord) -> SessionInfo {
        SessionInfo {
            id: record.id,
            attributes: record.attributes,
            created_unix_micros: record.created_unix_micros,
            updated_unix_micros: record.updated_unix_micros,
            events: record.next_seq,
            user_turns: record.user_turns,
            runs: record.runs,
            last_run: record.last_run,
            bytes: record.bytes,
            stored_bytes: record.stored_bytes,
            counts: record.counts,
        }
    }
}

impl Snapshot {
    pub(super) fn new(
        reader: StoreReader,
        memtables: Vec<Arc<Memtable>>,
        end: journal::Position,
    ) -> Snapshot {
        Snapshot { inner: Arc::new(SnapshotInner { reader, memtables, end }) }
    }

    /// The session called `id`, if it is there; also one that is deleted.
    ///
    /// # Errors
    ///
    /// `Corrupt`, `Io`.
    pub fn session(&self, id: &str) -> Result<Option<SessionInfo>> {
        Ok(self.record(id)?.map(SessionInfo::from))
    }

    /// All sessions that are not deleted, in the order in which they were created, one at a time.
    ///
    /// A damaged record is an item of its own, which names its session, and hides no other one.
    pub fn sessions(&self) -> impl Iterator<Item = Result<SessionInfo>> + '_ {
        let is_there = |session: &SessionInfo| session.deleted_unix_micros().is_none();
        self.all_sessions().filter(move |session| session.as_ref().map_or(true, is_there))
    }

    /// All sessions that are deleted and not removed for good.
    pub fn deleted_sessions(&self) -> impl Iterator<Item = SessionInfo> + '_ {
        let sessions = self.all_sessions().flatten();
        sessions.filter(|session| session.deleted_unix_micros().is_some())
    }

    pub(super) fn all_sessions(&self) -> impl Iterator<Item = Result<SessionInfo>> + '_ {
        self.numbers().filter_map(|number| {
            let record = number.and_then(|number| {
                self.inner.record(number).map_err(|error| match self.inner.reader.id_of(number) {
                    Some(id) => error.with_context(&format!("it is that of {id:?}")),
                    None => error,
                })
            });
            record.transpose().map(|record| record.map(SessionInfo::from))
        })
    }

    /// Reads events of the session `id`: all of them with `..`, or a range of seqs, or from one
    /// [`Position`] to another. The iterator goes both ways and holds one block at each end.
    ///
    /// # Errors
    ///
    /// `NotFound` for a session or a position that is not there; `Corrupt`, `Io`.
    pub fn read(&self, id: &str, range: impl Into<EventRange>) -> Result<Events> {
        let record = self.record(id)?.ok_or_else(|| no_session(id))?;
        let range = range.into();
        let resolve = |position: Position| {
            self.resolve(&record, position)?.ok_or_else(|| {
                let message = format!("session {id:?} has no {position}");
                Error::new(ErrorKind::NotFound, message)
            })
        };
        let start = resolve(range.from)?;
        let end = resolve(range.to)?;
        Ok(self.events(&record, start, end))
    }

    /// The seq of a position of the session `id`, `None` when the session has no such event.
    ///
    /// # Errors
    ///
    /// `NotFound` for a session that is not there; `Corrupt`, `Io`.
    pub fn find(&self, id: &str, position: Position) -> Result<Option<Seq>> {
        let record = self.record(id)?.ok_or_else(|| no_session(id))?;
        self.resolve(&record, position)
    }

    fn events(&self, record: &SessionRecord, start: Seq, end: Seq) -> Events {
        let end = end.min(record.next_seq);
        Events::new(self.inner.clone(), record.number, start.min(end), end)
    }

    fn resolve(&self, record: &SessionRecord, position: Position) -> Result<Option<Seq>> {
        let (mark, ordinal) = match position {
            Position::Start => return Ok(Some(0)),
            Position::End => return Ok(Some(record.next_seq)),
            Position::Seq(seq) => return Ok(Some(seq)),
            Position::Message(n) => (Mark::Message, n),
            Position::UserTurn(n) => (Mark::UserTurn, n),
            Position::Run(n) => (Mark::Run, n),
            Position::Checkpoint(n) => (Mark::Checkpoint, n),
            Position::LastRun => (Mark::Run, record.runs.wrapping_sub(1)),
            Position::LastCheckpoint => {
                (Mark::Checkpoint, record.marked(Mark::Checkpoint).wrapping_sub(1))
            }
        };
        if ordinal >= record.marked(mark) {
            return Ok(None);
        }
        let stored = self.inner.reader.record(record.number)?.unwrap_or_default();
        let found = match ordinal.checked_sub(stored.marked(mark)) {
            Some(n) => self.inner.find_in_memory(record.number, mark, n, stored.next_seq),
            None => self.find_in_store(record, mark, ordinal)?,
        };
        if found.is_some() {
            return Ok(found);
        }
        let place = format!("events.redb, session {}", record.number);
        Err(Error::corrupt(place, None, "the session's counts and its events disagree"))
    }

    /// Finds an event in the store: from the nearest one known to have such a number on.
    fn find_in_store(
        &self,
        record: &SessionRecord,
        mark: Mark,
        ordinal: u64,
    ) -> Result<Option<Seq>> {
        let known = self.inner.reader.mark_at_or_before(record.number, mark, ordinal)?;
        let (mut reached, from) = known.unwrap_or((0, 0));
        for event in self.events(record, from, record.next_seq) {
            let event = event?;
            if mark.is_on(event.kind, event.flags) {
                if reached == ordinal {
                    return Ok(Some(event.seq));
                }
                reached += 1;
            }
        }
        Ok(None)
    }

    /// The record of the session `id` with what is in memory counted in.
    pub(super) fn record(&self, id: &str) -> Result<Option<SessionRecord>> {
        let found = self.inner.memtables.iter().find_map(|table| table.read().number(id));
        let number = match found {
            Some(number) => Some(number),
            None => self.inner.reader.number(id)?,
        };
        number.map_or(Ok(None), |number| self.inner.record(number))
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = Result<u64>> + '_ {
        let mut fresh = BTreeSet::new();
        for table in &self.inner.memtables {
            let table = table.read();
            let views = table.views(self.inner.end);
            let declared = views.filter(|(_, session)| session.declared().is_some());
            fresh.extend(declared.map(|(number, _)| number));
        }
        let reader = &self.inner.reader;
        let stored = reader.numbers_from(0);
        // A session that is in both is the store's.
        let fresh = fresh.into_iter().filter_map(move |number| match reader.record(number) {
            Ok(None) => Some(Ok(number)),
            Ok(Some(_)) | Err(_) => None,
        });
        stored.chain(fresh)
    }
}

impl SnapshotInner {
    pub(super) fn record(&self, number: u64) -> Result<Option<SessionRecord>> {
        let mut record = self.reader.record(number)?;
        for table in &self.memtables {
            self.count_in(&mut record, number, &table.read());
        }
        Ok(record)
    }

    /// Counts in what `table` has beyond the record.
    fn count_in(&self, record: &mut Option<SessionRecord>, number: u64, table: &MemInner) {
        let Some(session) = table.view(number, self.end) else { return };
        if record.is_none() {
            *record = session.declared().map(|id| SessionRecord::begin(number, id, &session));
        }
        let Some(record) = record else { return };
        // What the store has already is not counted twice.
        record.add(&session.tally_from(record.next_seq));
        record.take_over(&session);
    }

    /// Returns the seq of the `n`-th event, from 0, that `mark` numbers among those in memory from
    /// `from` on.
    fn find_in_memory(&self, number: u64, mark: Mark, n: u64, from: Seq) -> Option<Seq> {
        let (mut left, mut from) = (n, from);
        for table in &self.memtables {
            let table = table.read();
            let Some(session) = table.view(number, self.end) else { continue };
            let here = session.tally_from(from).marked(mark);
            if left < here {
                return session.nth_marked(from, mark, left);
            }
            left -= here;
            from = from.max(session.end_seq());
        }
        None
    }
}

pub(super) fn no_session(id: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no session {id:?} in this log"))
        .with_hint("`eventlog sessions` lists them")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Entry;
    use crate::log::{EventLog, Sync};
    use crate::steps;

    /// A log with `count` events of one session in memory, and some in the store.
    fn log_of(count: u64) -> (tempfile::TempDir, EventLog) {
        let dir = tempfile::tempdir().unwrap();
        let log = EventLog::builder().background(false).sync(Sync::Os).open(dir.path()).unwrap();
        let session = log.session("s").unwrap();
        let event = |n: u64| match n % 100 {
            0 => Entry::new(Kind::Checkpoint, b"{}"),
            n => Entry::new(Kind::Message, b"{}").user_turn(n == 50),
        };
        for seqs in [0..1000, 1000..1000 + count] {
            session.append_batch(&seqs.map(event).collect::<Vec<_>>()).unwrap();
            if session.head() == 1000 {
                log.checkpoint().unwrap();
            }
        }
        (dir, log)
    }

    #[test]
    fn reads_and_lookups_take_no_more_steps_with_more_events_in_memory() {
        let looks: [fn(&EventLog, u64); 6] = [
            |log, end| assert_eq!(log.read("s", end - 1..).unwrap().count(), 1),
            |log, end| {
                let newest = log.read("s", ..).unwrap().next_back().unwrap().unwrap();
                assert_eq!(newest.seq(), end - 1);
            },
            |log, end| {
                let found = log.snapshot().unwrap().find("s", Position::LastCheckpoint).unwrap();
                assert_eq!(found, Some(end - 100));
            },
            |log, end| {
                let turn = Position::UserTurn(end / 200);
                let found = log.snapshot().unwrap().find("s", turn).unwrap();
                assert_eq!(found, Some(end / 200 * 100 + 50));
            },
            |log, end| {
                let session = log.snapshot().unwrap().session("s").unwrap().unwrap();
                assert_eq!((session.events, session.user_turns), (end, end / 100));
                assert_eq!(session.count(Kind::Checkpoint), end / 100);
            },
            |log, end| assert_eq!(log.sessions().unwrap()[0].events, end),
        ];
        let logs = [10_000, 20_000].map(|count| (1000 + count, log_of(count).1));
        for (n, look) in looks.into_iter().enumerate() {
            let [small, large] = logs.each_ref().map(|(end, log)| steps::of(|| look(log, *end)).1);
            assert!(small <= 200 && large <= 200, "{n}: {small} steps, then {large}");
        }
    }

    #[test]
    fn counts_and_marks_are_those_of_the_events_at_every_snapshot() {
        let dir = tempfile::tempdir().unwrap();
        let log = EventLog::builder().background(false).sync(Sync::Os).open(dir.path()).unwrap();
        let session = log.session("s").unwrap();
        let mut snapshots = Vec::new();
        for n in 0..300u64 {
            let kind = if n % 7 == 3 { Kind::Checkpoint } else { Kind::Message };
            let entry = Entry::new(kind, vec![b'x'; (n % 5) as usize]).user_turn(n % 11 == 4);
            session.append(entry.run(format!("run {}", n / 40))).unwrap();
            if n == 150 {
                log.checkpoint().unwrap();
            }
            snapshots.push(log.snapshot().unwrap());
        }
        for (n, snapshot) in (0..).zip(&snapshots) {
            let info = snapshot.session("s").unwrap().unwrap();
            let events: Vec<_> = snapshot.read("s", ..).unwrap().map(|e| e.unwrap()).collect();
            assert_eq!((info.events, events.len() as u64), (n + 1, n + 1));
            let checkpoints: Vec<_> =
                events.iter().filter(|e| e.kind() == Kind::Checkpoint).map(|e| e.seq()).collect();
            assert_eq!(info.count(Kind::Checkpoint), checkpoints.len() as u64);
            let turns: Vec<_> = (0..=n).filter(|n| n % 11 == 4).collect();
            assert_eq!(info.user_turns, turns.len() as u64);
            assert_eq!(info.last_run.as_deref(), Some(&*format!("run {}", n / 40)));
            let bytes: u64 = (0..=n).map(|n| n % 5 + 1).sum();
            assert_eq!(info.bytes, bytes);
            for (at, seq) in (0..).zip(&checkpoints) {
                assert_eq!(snapshot.find("s", Position::Checkpoint(at)).unwrap(), Some(*seq));
            }
            for (at, seq) in (0..).zip(&turns) {
                assert_eq!(snapshot.find("s", Position::UserTurn(at)).unwrap(), Some(*seq));
            }
            assert_eq!(snapshot.find("s", Position::Run(n / 40)).unwrap(), Some(n / 40 * 40));
        }
    }
}
