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

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use bincode::error::{DecodeError, EncodeError};
use parking_lot::{RwLock, RwLockReadGuard};

use crate::entry::{Flags, Kind, Seq, SharedBytes, StoredEntry, Terminator};
use crate::error::{Error, Result};
use crate::journal::batch::{EntryHead, Record, records};
use crate::journal::recover::ReplayedBatch;
use crate::journal::{Lsn, Position};

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
    pub(crate) entries: Vec<MemEntry>,
    /// What else happened to it, with the batch in which it did.
    facts: Vec<(u64, Fact)>,
}

/// A change of a session that is no entry.
#[derive(Debug)]
enum Fact {
    Run(Arc<str>),
    Described { attributes: Box<Attributes>, unix_micros: u64 },
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
        let entries = &self.session.entries;
        let count = match entries.last() {
            Some(last) if last.lsn > self.at.lsn => {
                entries.partition_point(|entry| entry.lsn <= self.at.lsn)
            }
            _ => entries.len(),
        };
        (self.session.first_seq..).zip(entries.iter().take(count))
    }

    fn facts(&self) -> impl Iterator<Item = &'m Fact> + use<'m> {
        let batch = self.at.batch;
        self.session.facts.iter().take_while(move |(n, _)| *n <= batch).map(|(_, fact)| fact)
    }

    /// The name of the last run that began here.
    pub(crate) fn last_run(&self) -> Option<&'m Arc<str>> {
        let runs = self.facts().filter_map(|fact| match fact {
            Fact::Run(name) => Some(name),
            Fact::Described { .. } => None,
        });
        runs.last()
    }

    /// The attributes that were set here.
    pub(crate) fn attributes(&self) -> Attributes {
        let mut all = Attributes::default();
        for fact in self.facts() {
            if let Fact::Described { attributes, .. } = fact {
                all.update(attributes);
            }
        }
        all
    }

    /// When the first and the last change were made.
    pub(crate) fn times(&self) -> Option<(u64, u64)> {
        let facts = self.facts().filter_map(|fact| match fact {
            Fact::Described { unix_micros, .. } => Some(*unix_micros),
            Fact::Run(_) => None,
        });
        let times = facts.chain(self.entries().map(|(_, entry)| entry.unix_micros));
        times.fold(None, |range, time| {
            let (first, last) = range.unwrap_or((time, time));
            Some((time.min(first), time.max(last)))
        })
    }
}

impl MemSession {
    /// The entry `seq`, if it is here.
    pub(crate) fn entry(&self, seq: u64) -> Option<StoredEntry> {
        let at = seq.checked_sub(self.first_seq)?;
        Some(self.entries.get(usize::try_from(at).ok()?)?.stored(seq))
    }
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
        Memtable { inner: RwLock::new(MemInner { start: end, end, ..MemInner::default() }) }
    }

    /// The content, which does not change while the guard lives.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, MemInner> {
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
        const SESSION_BYTES: usize = 256;
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
                self.session(session).facts.push((at.batch, Fact::Run(name)));
            }
            Change::Describe { session, attributes } => {
                let attributes = Box::new(attributes);
                let fact = Fact::Described { attributes, unix_micros: at.unix_micros };
                self.session(session).facts.push((at.batch, fact));
            }
            Change::Entry { head, range } => {
                at.lsn = Lsn(at.lsn.0 + 1);
                self.bytes += size_of::<MemEntry>();
                let session = self.session(head.session);
                if session.entries.is_empty() {
                    session.first_seq = head.seq;
                }
                let expected = session.first_seq + session.entries.len() as u64;
                assert_eq!(head.seq, expected, "the seqs of a session have no gap");
                session.entries.push(MemEntry {
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
