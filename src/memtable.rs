//! What is durable in the journal and not in the store yet.
//!
//! Per session a contiguous suffix of its entries; their bytes stay in the batches they were written
//! with, shared, not copied. There are at most two memtables: the live one, to which the leader of group
//! commit adds whole batches, and the frozen one that a checkpoint is writing out. A read is the store's
//! blocks, then the frozen memtable, then the live one: a concatenation, never a merge.
//!
//! Invariant I3: per session the seqs of a memtable are without gap. I6: `end` is the position behind the
//! last batch in it, and all of that batch is in it.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard};

use crate::entry::{Flags, Kind, SharedBytes, StoredEntry};
use crate::error::{Error, Result};
use crate::journal::batch::{EntryHead, Record, records};
use crate::journal::recover::ReplayedBatch;
use crate::journal::{Lsn, Position};

/// What a session is beside its events; every field is set by its owner and may be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, bincode::Encode, bincode::Decode)]
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
}

impl Attributes {
    /// Takes over the fields that are set in `newer`.
    pub(crate) fn update(&mut self, newer: &Attributes) {
        for (field, value) in [
            (&mut self.format, &newer.format),
            (&mut self.workspace, &newer.workspace),
            (&mut self.parent, &newer.parent),
            (&mut self.origin, &newer.origin),
        ] {
            if value.is_some() {
                field.clone_from(value);
            }
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        crate::frame::encode_header(self)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Attributes> {
        let config = bincode::config::standard().with_limit::<{ 60 << 10 }>();
        bincode::decode_from_slice(bytes, config).ok().map(|(value, _)| value)
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
    kind: Kind,
    terminator: crate::entry::Terminator,
    pub(crate) flags: Flags,
    detail: u8,
}

impl MemEntry {
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
#[derive(Debug)]
pub(crate) struct MemSession {
    /// Known when the session was declared in this memtable.
    pub(crate) declared: Option<Arc<str>>,
    /// The seq of the first entry.
    pub(crate) first_seq: u64,
    pub(crate) entries: Vec<MemEntry>,
    /// The name of the last run that began here.
    pub(crate) last_run: Option<Arc<str>>,
    pub(crate) attributes: Attributes,
    pub(crate) first_unix_micros: u64,
    pub(crate) last_unix_micros: u64,
}

impl MemSession {
    /// How many of the entries were durable at `lsn`.
    pub(crate) fn visible(&self, lsn: Lsn) -> usize {
        match self.entries.last() {
            Some(last) if last.lsn > lsn => self.entries.partition_point(|e| e.lsn <= lsn),
            _ => self.entries.len(),
        }
    }

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
    entries: u64,
    /// The position behind the last batch.
    pub(crate) end: Position,
}

impl MemInner {
    /// The number of a session declared here.
    pub(crate) fn number(&self, id: &str) -> Option<u64> {
        self.ids.get(id).copied()
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
        Memtable { inner: RwLock::new(MemInner { end, ..MemInner::default() }) }
    }

    /// The content, which does not change while the guard lives.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, MemInner> {
        self.inner.read()
    }

    /// Memory held, bookkeeping included, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.inner.read().bytes
    }

    /// Whether nothing happened since the store was last written.
    pub(crate) fn is_empty(&self) -> bool {
        self.inner.read().sessions.is_empty()
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
        let mut lsn = inner.end.lsn;
        inner.bytes += buffer.capacity();
        for change in changes {
            inner.apply(change, &buffer, &mut lsn, unix_micros);
        }
        assert_eq!(lsn, end.lsn, "a batch has as many entries as its header says");
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
            Error::corrupt(file, batch.end.offset, "a batch holds records that cannot be decoded")
                .with_batch(batch.header.batch)
        };
        let changes = changes.collect::<Option<Vec<Change>>>().ok_or_else(undecodable)?;
        let entries = changes.iter().filter(|c| matches!(c, Change::Entry { .. })).count();
        if entries != batch.header.entries as usize {
            return Err(undecodable());
        }
        self.apply(changes, batch.payload.clone(), batch.end, batch.header.unix_micros);
        Ok(())
    }
}

impl MemInner {
    fn session(&mut self, number: u64, unix_micros: u64) -> &mut MemSession {
        const SESSION_BYTES: usize = 256;
        let bytes = &mut self.bytes;
        let session = self.sessions.entry(number).or_insert_with(|| {
            *bytes += SESSION_BYTES;
            MemSession {
                declared: None,
                first_seq: 0,
                entries: Vec::new(),
                last_run: None,
                attributes: Attributes::default(),
                first_unix_micros: unix_micros,
                last_unix_micros: unix_micros,
            }
        });
        session.last_unix_micros = unix_micros;
        session
    }

    fn apply(&mut self, change: Change, buffer: &Arc<Vec<u8>>, lsn: &mut Lsn, unix_micros: u64) {
        match change {
            Change::Declare { session, id } => {
                self.ids.insert(id.clone(), session);
                self.session(session, unix_micros).declared = Some(id);
            }
            Change::Run { session, name } => {
                self.session(session, unix_micros).last_run = Some(name);
            }
            Change::Describe { session, attributes } => {
                self.session(session, unix_micros).attributes.update(&attributes);
            }
            Change::Entry { head, range } => {
                *lsn = Lsn(lsn.0 + 1);
                self.bytes += size_of::<MemEntry>();
                self.entries += 1;
                let lsn = *lsn;
                let session = self.session(head.session, unix_micros);
                if session.entries.is_empty() {
                    session.first_seq = head.seq;
                }
                let expected = session.first_seq + session.entries.len() as u64;
                assert_eq!(head.seq, expected, "the seqs of a session have no gap");
                session.entries.push(MemEntry {
                    buffer: buffer.clone(),
                    offset: range.start as u32,
                    len: range.len() as u32,
                    lsn,
                    kind: head.kind,
                    terminator: head.terminator,
                    flags: head.flags,
                    detail: head.detail,
                });
            }
        }
    }
}
