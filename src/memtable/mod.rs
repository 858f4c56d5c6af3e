//! What is durable in the journal and not in the store yet.
//!
//! Per session a contiguous suffix of its entries; their bytes stay in the batches they were
//! written with, shared, not copied. There are at most two memtables: the live one, to which the
//! leader of group commit adds whole batches, and the frozen one that a checkpoint is writing out.
//! A read is the store's blocks, then the frozen memtable, then the live one: a concatenation,
//! never a merge.
//!
//! Invariant I3: per session the seqs of a memtable are without gap. I6: `end` is the position
//! behind the last batch in it, and all of that batch is in it.

mod tally;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use bincode::error::{DecodeError, EncodeError};

use crate::bytes::within;
use crate::entry::{Flags, Kind, Seq, SharedBytes, StoredEntry, Terminator};
use crate::error::{Error, Result};
use crate::journal::batch::{EntryHead, Record, records};
use crate::journal::recover::ReplayedBatch;
use crate::journal::{Lsn, Position};
use crate::locks::{Rank, ReadGuard, RwLock};
use crate::steps;

pub(crate) use tally::{Mark, Tally};

/// What a session is beside its events; every field is set by its owner and may be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attributes {
    /// The name of the format of its lines.
    pub format: Option<String>,
    /// The directory that the agent works in.
    pub workspace: Option<String>,
    /// The id of the session that started this one.
    pub parent: Option<String>,
    /// Where it was imported from.
    pub origin: Option<String>,
    /// The description that stood beside its transcript, as it was; at most 32 KiB. Where it and
    /// the events differ, the events are right.
    pub meta: Option<String>,
    /// The call of the parent session that started this one.
    pub parent_call: Option<String>,
    /// The turns that were taken back.
    pub(crate) rewinds: Option<Vec<Rewind>>,
    /// When the session was deleted, in microseconds since the Unix epoch; 0 when it was brought
    /// back.
    pub(crate) deleted: Option<u64>,
    /// The session that this one began as a copy of, and how many events of it.
    pub(crate) fork: Option<Fork>,
}

/// Events that do not count any more. They stay in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
#[non_exhaustive]
pub struct Rewind {
    /// The first of them.
    pub from: Seq,
    /// The first event behind them: where the session stood.
    pub to: Seq,
}

/// Where a session began as a copy of another.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
#[non_exhaustive]
pub struct Fork {
    /// The other.
    pub session: String,
    /// How many of its events.
    pub events: u64,
}

/// Nothing in it is longer.
const LIMITED: bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Varint,
    bincode::config::Limit<{ 60 << 10 }>,
> = bincode::config::standard().with_limit();

// The fields of the first day. What came later stands behind them, or in a place of its own.
impl bincode::Encode for Attributes {
    fn encode<E: bincode::enc::Encoder>(&self, to: &mut E) -> std::result::Result<(), EncodeError> {
        self.format.encode(to)?;
        self.workspace.encode(to)?;
        self.parent.encode(to)?;
        self.origin.encode(to)
    }
}

impl<C> bincode::Decode<C> for Attributes {
    fn decode<D: bincode::de::Decoder<Context = C>>(
        from: &mut D,
    ) -> std::result::Result<Self, DecodeError> {
        Ok(Attributes {
            format: bincode::Decode::decode(from)?,
            workspace: bincode::Decode::decode(from)?,
            parent: bincode::Decode::decode(from)?,
            origin: bincode::Decode::decode(from)?,
            ..Attributes::default()
        })
    }
}

bincode::impl_borrow_decode!(Attributes);

impl Attributes {
    /// Takes over the fields that are set in `newer`.
    pub(crate) fn update(&mut self, newer: &Attributes) {
        fn take<T: Clone>(field: &mut Option<T>, value: &Option<T>) {
            if value.is_some() {
                field.clone_from(value);
            }
        }
        take(&mut self.format, &newer.format);
        take(&mut self.workspace, &newer.workspace);
        take(&mut self.parent, &newer.parent);
        take(&mut self.origin, &newer.origin);
        take(&mut self.meta, &newer.meta);
        take(&mut self.parent_call, &newer.parent_call);
        take(&mut self.rewinds, &newer.rewinds);
        take(&mut self.deleted, &newer.deleted);
        take(&mut self.fork, &newer.fork);
    }

    /// When the session was deleted, in microseconds since the epoch, unless it was brought back.
    pub(crate) fn deleted_at(&self) -> Option<u64> {
        self.deleted.filter(|when| *when > 0)
    }

    /// The bytes of the longest field but the description.
    pub(crate) fn longest(&self) -> Option<usize> {
        let fields = [&self.format, &self.workspace, &self.parent, &self.origin, &self.parent_call];
        fields.into_iter().flatten().map(String::len).max()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = crate::frame::encode_header(self);
        bytes.extend_from_slice(&self.encode_later());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Attributes> {
        let (mut attributes, len): (Attributes, usize) =
            bincode::decode_from_slice(bytes, LIMITED).ok()?;
        attributes.decode_later(bytes.get(len..)?)?;
        Some(attributes)
    }

    /// What came after the first day; nothing when none of it is set.
    pub(crate) fn encode_later(&self) -> Vec<u8> {
        let Attributes { meta, parent_call, rewinds, deleted, fork, .. } = self;
        // In the order in which they came. What is not set at the end is not there.
        let later = [
            (meta.is_some(), crate::frame::encode_header(meta)),
            (parent_call.is_some(), crate::frame::encode_header(parent_call)),
            (rewinds.is_some(), crate::frame::encode_header(rewinds)),
            (deleted.is_some(), crate::frame::encode_header(deleted)),
            (fork.is_some(), crate::frame::encode_header(fork)),
        ];
        let count = later.iter().rposition(|(is_set, _)| *is_set).map_or(0, |last| last + 1);
        later.into_iter().take(count).flat_map(|(_, bytes)| bytes).collect()
    }

    /// Fields that are not there stay as they are.
    pub(crate) fn decode_later(&mut self, bytes: &[u8]) -> Option<()> {
        fn next<T: bincode::Decode<()>>(field: &mut T, bytes: &mut &[u8]) -> Option<()> {
            if !bytes.is_empty() {
                let len;
                (*field, len) = bincode::decode_from_slice(bytes, LIMITED).ok()?;
                *bytes = bytes.get(len..)?;
            }
            Some(())
        }
        let bytes = &mut &*bytes;
        next(&mut self.meta, bytes)?;
        next(&mut self.parent_call, bytes)?;
        next(&mut self.rewinds, bytes)?;
        next(&mut self.deleted, bytes)?;
        next(&mut self.fork, bytes)
    }
}

/// A fact about a session that became durable in one batch.
#[derive(Debug)]
pub(crate) enum Change {
    Declare { session: u64, id: Arc<str> },
    Entry { head: EntryHead, range: Range<usize> },
    Run { session: u64, name: Arc<str> },
    Describe { session: u64, attributes: Attributes },
}

/// An entry of the memtable.
#[derive(Clone, Debug)]
pub(crate) struct MemEntry {
    buffer: Arc<Vec<u8>>,
    offset: u32,
    len: u32,
    lsn: Lsn,
    unix_micros: u64,
    pub(crate) kind: Kind,
    terminator: Terminator,
    pub(crate) flags: Flags,
    detail: u8,
}

impl MemEntry {
    /// Bytes of the line with its line end.
    pub(crate) fn line_len(&self) -> u64 {
        u64::from(self.len) + self.terminator.as_bytes().len() as u64
    }

    pub(crate) fn stored(&self, seq: u64) -> StoredEntry {
        let start = self.offset as usize;
        StoredEntry {
            seq,
            kind: self.kind,
            terminator: self.terminator,
            flags: self.flags,
            detail: self.detail,
            bytes: SharedBytes::new(self.buffer.clone(), start..start + self.len as usize),
        }
    }
}

/// The suffix of one session.
#[derive(Debug, Default)]
pub(crate) struct MemSession {
    /// Set when the session was declared in this memtable: in which batch.
    declared: Option<(u64, Arc<str>)>,
    /// The seq of the first entry.
    pub(crate) first_seq: u64,
    entries: Vec<MemEntry>,
    /// The sums and times of the first [`TALLY_EVERY`] entries, of twice as many, and so on: a
    /// session with fewer takes no memory for them.
    tallies: Vec<(Tally, Times)>,
    /// The runs that began, each with its batch.
    runs: Vec<(u64, Arc<str>)>,
    /// What was described, each with its batch, and the times up to it.
    descriptions: Vec<(u64, Box<Attributes>, Times)>,
    /// All descriptions, one over the other, where there are several.
    described: Option<Box<Attributes>>,
}

/// Sums are kept for one entry in so many.
const TALLY_EVERY: usize = 64;
/// Bookkeeping of an entry, with its share of the sums.
const ENTRY_BYTES: usize = size_of::<MemEntry>() + size_of::<(Tally, Times)>() / TALLY_EVERY;

/// The earliest and the latest time of changes, in microseconds since the Unix epoch. A clock may
/// go backwards.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times(Option<(u64, u64)>);

impl Times {
    fn add(&mut self, unix_micros: u64) {
        let (first, last) = self.0.unwrap_or((unix_micros, unix_micros));
        self.0 = Some((first.min(unix_micros), last.max(unix_micros)));
    }

    fn or(mut self, other: Times) -> Times {
        if let Some((first, last)) = other.0 {
            self.add(first);
            self.add(last);
        }
        self
    }
}

/// A session as it was at one position.
#[derive(Debug)]
pub(crate) struct SessionView<'m> {
    session: &'m MemSession,
    at: Position,
}

impl<'m> SessionView<'m> {
    /// The id, when the session was declared in this memtable.
    pub(crate) fn declared(&self) -> Option<&'m Arc<str>> {
        let (batch, id) = self.session.declared.as_ref()?;
        (*batch <= self.at.batch).then_some(id)
    }

    /// The entries, with their seqs.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, &'m MemEntry)> + use<'m> {
        let entries = self.session.entries.iter().take(self.count());
        (self.session.first_seq..).zip(entries.inspect(|_| steps::count()))
    }

    /// How many entries there are.
    pub(crate) fn count(&self) -> usize {
        let entries = &self.session.entries;
        match entries.last() {
            Some(last) if last.lsn > self.at.lsn => {
                entries.partition_point(|entry| entry.lsn <= self.at.lsn)
            }
            _ => entries.len(),
        }
    }

    /// The seq behind the last entry.
    pub(crate) fn end_seq(&self) -> Seq {
        self.session.first_seq + self.count() as u64
    }

    /// Returns the sums over the entries from `from` on.
    pub(crate) fn tally_from(&self, from: Seq) -> Tally {
        let end = self.count();
        let (all, _) = self.session.before(end);
        let (start, _) = self.session.before(self.index(from).min(end));
        all.since(&start)
    }

    /// Returns the seq of the `n`-th entry, from 0, that `mark` numbers among those from `from` on.
    pub(crate) fn nth_marked(&self, from: Seq, mark: Mark, n: u64) -> Option<Seq> {
        let session = self.session;
        let n = session.before(self.index(from)).0.marked(mark) + n;
        // The last kept sum that does not reach beyond the entry.
        let kept = session.tallies.partition_point(|(tally, _)| tally.marked(mark) <= n);
        let start = kept * TALLY_EVERY;
        let mut reached = session.before(start).0.marked(mark);
        for (index, entry) in session.entries.iter().enumerate().skip(start).take(TALLY_EVERY) {
            steps::count();
            if mark.is_on(entry.kind, entry.flags) {
                if reached == n {
                    return Some(session.first_seq + index as u64);
                }
                reached += 1;
            }
        }
        None
    }

    fn index(&self, seq: Seq) -> usize {
        seq.saturating_sub(self.session.first_seq).try_into().unwrap_or(usize::MAX)
    }

    /// The name of the last run that began here.
    pub(crate) fn last_run(&self) -> Option<&'m Arc<str>> {
        let runs = &self.session.runs;
        let count = runs.partition_point(|(batch, _)| *batch <= self.at.batch);
        runs.get(count.checked_sub(1)?).map(|(_, name)| name)
    }

    /// Takes the attributes that were set here over into `attributes`.
    pub(crate) fn describe(&self, attributes: &mut Attributes) {
        let all = &self.session.descriptions;
        let count = all.partition_point(|(batch, ..)| *batch <= self.at.batch);
        if count == all.len() {
            let only = all.first().map(|(_, only, _)| only);
            if let Some(all) = self.session.described.as_ref().or(only) {
                attributes.update(all);
            }
            return;
        }
        for (_, description, _) in all.iter().take(count) {
            attributes.update(description);
        }
    }

    /// When the first and the last change were made.
    pub(crate) fn times(&self) -> Option<(u64, u64)> {
        let all = &self.session.descriptions;
        let count = all.partition_point(|(batch, ..)| *batch <= self.at.batch);
        let described = count.checked_sub(1).and_then(|last| all.get(last));
        let described = described.map_or(Times::default(), |(.., times)| *times);
        self.session.before(self.count()).1.or(described).0
    }
}

impl MemSession {
    fn add(&mut self, entry: MemEntry) {
        self.entries.push(entry);
        if self.entries.len().is_multiple_of(TALLY_EVERY) {
            self.tallies.push(self.before(self.entries.len()));
        }
    }

    /// Returns the sums and times of the first `count` entries.
    fn before(&self, count: usize) -> (Tally, Times) {
        let count = count.min(self.entries.len());
        // The last sum is not kept yet while it is made.
        let kept = (count / TALLY_EVERY).min(self.tallies.len());
        let before = kept.checked_sub(1).map(|last| *within(&self.tallies, last));
        let (mut tally, mut times) = before.unwrap_or_default();
        let start = kept * TALLY_EVERY;
        for entry in self.entries.iter().skip(start).take(count - start) {
            steps::count();
            tally.add(entry.kind, entry.flags, entry.line_len());
            times.add(entry.unix_micros);
        }
        (tally, times)
    }

    /// The entry `seq`, if it is here.
    pub(crate) fn entry(&self, seq: u64) -> Option<StoredEntry> {
        let at = seq.checked_sub(self.first_seq)?;
        Some(self.entries.get(usize::try_from(at).ok()?)?.stored(seq))
    }
}

/// Adds to a row that rarely has a second item: thousands of sessions have one each.
fn push_one<T>(row: &mut Vec<T>, item: T) {
    if row.is_empty() {
        row.reserve_exact(1);
    }
    row.push(item);
}

#[derive(Debug, Default)]
pub(crate) struct MemInner {
    pub(crate) sessions: BTreeMap<u64, MemSession>,
    ids: HashMap<Arc<str>, u64>,
    bytes: usize,
    /// The position before the first batch.
    start: Position,
    /// The position behind the last batch.
    pub(crate) end: Position,
}

impl MemInner {
    /// Memory held, bookkeeping included, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of a session declared here.
    pub(crate) fn number(&self, id: &str) -> Option<u64> {
        self.ids.get(id).copied()
    }

    /// A session as it was at `at`.
    pub(crate) fn view(&self, number: u64, at: Position) -> Option<SessionView<'_>> {
        self.sessions.get(&number).map(|session| SessionView { session, at })
    }

    /// All sessions as they were at `at`.
    pub(crate) fn views(&self, at: Position) -> impl Iterator<Item = (u64, SessionView<'_>)> {
        let view = move |session| SessionView { session, at };
        self.sessions.iter().map(move |(number, session)| (*number, view(session)))
    }
}

/// A memtable.
#[derive(Debug)]
pub(crate) struct Memtable {
    inner: RwLock<MemInner>,
}

impl Memtable {
    /// An empty one that goes on where `end` is.
    pub(crate) fn new(end: Position) -> Memtable {
        let inner = MemInner { start: end, end, ..MemInner::default() };
        Memtable { inner: RwLock::new(Rank::Memtable, inner) }
    }

    /// The content, which does not change while the guard lives.
    pub(crate) fn read(&self) -> ReadGuard<'_, MemInner> {
        self.inner.read()
    }

    /// Memory held, bookkeeping included, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.inner.read().bytes()
    }

    /// How many sessions it holds something of.
    pub(crate) fn sessions(&self) -> usize {
        self.inner.read().sessions.len()
    }

    /// The position behind the last batch in it.
    pub(crate) fn end(&self) -> Position {
        self.inner.read().end
    }

    /// Whether there is no batch in it.
    pub(crate) fn is_empty(&self) -> bool {
        let inner = self.inner.read();
        inner.end.batch == inner.start.batch
    }

    /// Adds a batch: all of it, or nothing.
    pub(crate) fn apply(
        &self,
        changes: impl IntoIterator<Item = Change>,
        buffer: Arc<Vec<u8>>,
        end: Position,
        unix_micros: u64,
    ) {
        let mut inner = self.inner.write();
        inner.bytes += buffer.capacity();
        let mut at = BatchAt { buffer, batch: end.batch, lsn: inner.end.lsn, unix_micros };
        for change in changes {
            inner.apply(change, &mut at);
        }
        assert_eq!(at.lsn, end.lsn, "a batch has as many entries as its header says");
        inner.end = end;
    }

    /// Adds a batch that recovery found.
    ///
    /// # Errors
    ///
    /// `Corrupt` where the records cannot be decoded although the CRC is right.
    pub(crate) fn apply_replayed(&self, batch: &ReplayedBatch) -> Result<()> {
        let changes = records(&batch.payload).map(|record| {
            Some(match record.ok()? {
                Record::Declare { session, id } => Change::Declare { session, id: id.into() },
                Record::Entry { head, range } => Change::Entry { head, range },
                Record::Run { session, name } => Change::Run { session, name: name.into() },
                Record::Describe { session, attributes } => {
                    Change::Describe { session, attributes: Attributes::decode(attributes)? }
                }
            })
        });
        let undecodable = || {
            let file = crate::journal::segment::display_name(batch.end.epoch);
            Error::corrupt(file, batch.offset, "a batch holds records that cannot be decoded")
                .with_batch(batch.header.batch)
        };
        let changes = changes.collect::<Option<Vec<Change>>>().ok_or_else(undecodable)?;
        let heads = || {
            changes.iter().filter_map(|change| match change {
                Change::Entry { head, .. } => Some(head),
                _ => None,
            })
        };
        if heads().count() != batch.header.entries as usize || !self.follow_on(heads()) {
            return Err(undecodable());
        }
        self.apply(changes, batch.payload.clone(), batch.end, batch.header.unix_micros);
        Ok(())
    }

    /// Whether the seqs go on where those of each session end.
    fn follow_on<'h>(&self, heads: impl Iterator<Item = &'h EntryHead>) -> bool {
        let inner = self.inner.read();
        let mut next: HashMap<u64, u64> = HashMap::new();
        for head in heads {
            let known = || {
                let session = inner.sessions.get(&head.session)?;
                let count = session.entries.len() as u64;
                (count > 0).then_some(session.first_seq + count)
            };
            let expected = next.get(&head.session).copied().or_else(known).unwrap_or(head.seq);
            if head.seq != expected {
                return false;
            }
            next.insert(head.session, expected + 1);
        }
        true
    }
}

/// The batch that is being applied.
struct BatchAt {
    buffer: Arc<Vec<u8>>,
    batch: u64,
    lsn: Lsn,
    unix_micros: u64,
}

impl MemInner {
    fn session(&mut self, number: u64) -> &mut MemSession {
        const SESSION_BYTES: usize = 384;
        let bytes = &mut self.bytes;
        self.sessions.entry(number).or_insert_with(|| {
            *bytes += SESSION_BYTES;
            MemSession::default()
        })
    }

    fn apply(&mut self, change: Change, at: &mut BatchAt) {
        match change {
            Change::Declare { session, id } => {
                self.ids.insert(id.clone(), session);
                self.session(session).declared = Some((at.batch, id));
            }
            Change::Run { session, name } => {
                push_one(&mut self.session(session).runs, (at.batch, name));
            }
            Change::Describe { session, attributes } => {
                let session = self.session(session);
                let mut times = session.descriptions.last().map_or(Times::default(), |(.., t)| *t);
                times.add(at.unix_micros);
                if let Some((_, before, _)) = session.descriptions.last() {
                    let all = session.described.get_or_insert_with(|| before.clone());
                    all.update(&attributes);
                }
                push_one(&mut session.descriptions, (at.batch, Box::new(attributes), times));
            }
            Change::Entry { head, range } => {
                at.lsn = Lsn(at.lsn.0 + 1);
                self.bytes += ENTRY_BYTES;
                let session = self.session(head.session);
                if session.entries.is_empty() {
                    session.first_seq = head.seq;
                }
                let expected = session.first_seq + session.entries.len() as u64;
                assert_eq!(head.seq, expected, "the seqs of a session have no gap");
                session.add(MemEntry {
                    buffer: at.buffer.clone(),
                    offset: range.start as u32,
                    len: range.len() as u32,
                    lsn: at.lsn,
                    unix_micros: at.unix_micros,
                    kind: head.kind,
                    terminator: head.terminator,
                    flags: head.flags,
                    detail: head.detail,
                });
            }
        }
    }
}
