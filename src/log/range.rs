//! Ranges of events: where they begin and end, and the iterator over them.

use std::fmt;
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo};
use std::sync::Arc;

use crate::entry::{Seq, StoredEntry};
use crate::error::{Error, Result};
use crate::store::block::Block;

use super::snapshot::SnapshotInner;

/// A place in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Position {
    /// The first event.
    Start,
    /// Behind the last event.
    End,
    /// The event of this seq.
    Seq(Seq),
    /// The n-th message, from 0.
    Message(u64),
    /// The n-th user turn, from 0.
    UserTurn(u64),
    /// The first event of the n-th run, from 0.
    Run(u64),
    /// The first event of the last run.
    LastRun,
    /// The n-th checkpoint, from 0.
    Checkpoint(u64),
    /// The last checkpoint.
    LastCheckpoint,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Start => f.write_str("start"),
            Position::End => f.write_str("end"),
            Position::Seq(n) => write!(f, "event {n}"),
            Position::Message(n) => write!(f, "message {n}"),
            Position::UserTurn(n) => write!(f, "user turn {n}"),
            Position::Run(n) => write!(f, "run {n}"),
            Position::LastRun => f.write_str("run"),
            Position::Checkpoint(n) => write!(f, "checkpoint {n}"),
            Position::LastCheckpoint => f.write_str("checkpoint"),
        }
    }
}

/// A range of events of one session: from one position up to, not including, another.
///
/// Made of `..`, of ranges of seqs, or with [`EventRange::between`]. Seqs beyond the end are no
/// error; the range just ends there.
///
/// ```
/// use eventlog::{EventRange, Position};
///
/// let all = EventRange::from(..);
/// let some = EventRange::from(10..20);
/// let resume = EventRange::between(Position::LastCheckpoint, Position::End);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRange {
    pub(super) from: Position,
    pub(super) to: Position,
}

impl EventRange {
    /// The events from `from` up to, not including, `to`.
    pub fn between(from: Position, to: Position) -> EventRange {
        EventRange { from, to }
    }
}

impl From<RangeFull> for EventRange {
    fn from(_: RangeFull) -> EventRange {
        EventRange::between(Position::Start, Position::End)
    }
}

impl From<Range<Seq>> for EventRange {
    fn from(range: Range<Seq>) -> EventRange {
        EventRange::between(Position::Seq(range.start), Position::Seq(range.end))
    }
}

impl From<RangeFrom<Seq>> for EventRange {
    fn from(range: RangeFrom<Seq>) -> EventRange {
        EventRange::between(Position::Seq(range.start), Position::End)
    }
}

impl From<RangeTo<Seq>> for EventRange {
    fn from(range: RangeTo<Seq>) -> EventRange {
        EventRange::between(Position::Start, Position::Seq(range.end))
    }
}

impl From<RangeInclusive<Seq>> for EventRange {
    fn from(range: RangeInclusive<Seq>) -> EventRange {
        let end = range.end().saturating_add(1);
        EventRange::between(Position::Seq(*range.start()), Position::Seq(end))
    }
}

/// The events of a range, forwards and (with [`Iterator::rev`]) backwards.
///
/// Holds one block at each end it is read from. After an error it ends.
pub struct Events {
    snapshot: Arc<SnapshotInner>,
    session: u64,
    next: Seq,
    end: Seq,
    front: Option<Chunk>,
    back: Option<Chunk>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("next", &self.next).field("end", &self.end).finish()
    }
}

enum Chunk {
    Stored(Block),
    InMemory { first: Seq, entries: Vec<StoredEntry> },
}

/// How many events are taken out of a memtable at a time.
const MEMORY_CHUNK: usize = 64;

impl Chunk {
    fn entry(&self, seq: Seq) -> Option<StoredEntry> {
        match self {
            Chunk::Stored(block) => block.entry(seq),
            Chunk::InMemory { first, entries } => {
                let index = usize::try_from(seq.checked_sub(*first)?).ok()?;
                entries.get(index).cloned()
            }
        }
    }
}

impl Events {
    pub(super) fn new(snapshot: Arc<SnapshotInner>, session: u64, next: Seq, end: Seq) -> Events {
        Events { snapshot, session, next, end, front: None, back: None }
    }

    /// The seqs that are still to come.
    pub fn remaining(&self) -> Range<Seq> {
        self.next..self.end
    }

    /// Loads what holds `seq`, and of a memtable the events around it that lie in `within`.
    fn load(&self, seq: Seq, within: Range<Seq>) -> Result<Chunk> {
        for table in &self.snapshot.memtables {
            let table = table.read();
            let Some(session) = table.sessions.get(&self.session) else { continue };
            if session.entry(seq).is_none() {
                continue;
            }
            let first = within.start.max(session.first_seq);
            let entries = (first..within.end).map_while(|seq| session.entry(seq)).collect();
            return Ok(Chunk::InMemory { first, entries });
        }
        self.snapshot.reader.block_at(self.session, seq).map(Chunk::Stored)
    }

    fn take(&mut self, seq: Seq, entry: Option<StoredEntry>) -> Result<StoredEntry> {
        entry.ok_or_else(|| {
            let place = format!("events.redb, session {}", self.session);
            Error::corrupt(place, None, format_args!("event {seq} is missing"))
        })
    }

    fn fail<T>(&mut self, error: Error) -> Option<Result<T>> {
        self.next = self.end;
        Some(Err(error))
    }
}

impl Iterator for Events {
    type Item = Result<StoredEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.end {
            return None;
        }
        let seq = self.next;
        let mut entry = self.front.as_ref().and_then(|chunk| chunk.entry(seq));
        if entry.is_none() {
            let to = self.end.min(seq + MEMORY_CHUNK as u64);
            match self.load(seq, seq..to) {
                Ok(chunk) => entry = self.front.insert(chunk).entry(seq),
                Err(error) => return self.fail(error),
            }
        }
        match self.take(seq, entry) {
            Ok(entry) => {
                self.next += 1;
                Some(Ok(entry))
            }
            Err(error) => self.fail(error),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.end - self.next).ok();
        (0, left)
    }
}

impl DoubleEndedIterator for Events {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.next >= self.end {
            return None;
        }
        let seq = self.end - 1;
        let mut entry = self.back.as_ref().and_then(|chunk| chunk.entry(seq));
        if entry.is_none() {
            let from = self.next.max(self.end.saturating_sub(MEMORY_CHUNK as u64));
            match self.load(seq, from..self.end) {
                Ok(chunk) => entry = self.back.insert(chunk).entry(seq),
                Err(error) => return self.fail(error),
            }
        }
        match self.take(seq, entry) {
            Ok(entry) => {
                self.end -= 1;
                Some(Ok(entry))
            }
            Err(error) => self.fail(error),
        }
    }
}
