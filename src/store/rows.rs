//! From a memtable to rows: what a checkpoint writes.
//!
//! Looking up what there is, packing and compressing is most of a checkpoint's work. All of it is
//! done on the store as it was before, without the transaction that writes, so that it can run on
//! a thread of its own.

use std::sync::Arc;

use crate::entry::StoredEntry;
use crate::error::{Error, ErrorKind, Result};
use crate::memtable::{Mark, MemInner, SessionView};
use crate::planted::planted;

use super::block::{BLOCK_BYTES_MAX, Builder, SMALL_BLOCK_BYTES_MAX};
use super::reader::StoreReader;
use super::tables::{self, MarkKey, STRANDED_RECORD, SessionRecord};
use super::{FILE, Store};

/// From this many sessions in one checkpoint on, blocks are small.
const MANY_SESSIONS: usize = 10_000;
/// Fast enough to keep up with the journal; higher levels gain little on blocks of this size.
const ZSTD_LEVEL: i32 = 1;
/// Rows are handed over when they take so many bytes.
const ROWS_BYTES: usize = 256 << 10;
/// What a row takes beside its block or record, roughly.
const ROW_BYTES: usize = 64;

/// Rows that are to be written.
#[derive(Default)]
pub(super) struct Rows {
    /// By session and first seq.
    pub(super) blocks: Vec<((u64, u64), Vec<u8>)>,
    pub(super) marks: Vec<(MarkKey, (u64, u32))>,
    pub(super) ids: Vec<(Arc<str>, (u64, u32))>,
    pub(super) records: Vec<(u64, Vec<u8>)>,
    /// By session, batch behind the flush, and first seq or [`STRANDED_RECORD`].
    pub(super) stranded: Vec<((u64, u64, u64), Vec<u8>)>,
    bytes: usize,
}

/// Takes rows.
pub(super) type Sink<'s> = dyn FnMut(Rows) -> Result<()> + 's;

/// Hands what becomes of `memtable` in the store to `sink`, bit by bit, ordered by session.
///
/// A session whose record is damaged or missing, or ends elsewhere than where its new events begin,
/// keeps what it has. What is new is stranded: it is kept in rows of its own, which `verify`
/// reports, and every other session is written as always.
///
/// # Errors
///
/// What reading and what `sink` returns.
pub(super) fn make(store: &Store, memtable: &MemInner, sink: &mut Sink<'_>) -> Result<()> {
    let store = StoreReader::new(store)?;
    let many = memtable.sessions.len() >= MANY_SESSIONS;
    let limit = if many { SMALL_BLOCK_BYTES_MAX } else { BLOCK_BYTES_MAX };
    let builder = Builder::new(store.seed, limit, ZSTD_LEVEL)?;
    let end_batch = memtable.end.batch;
    let mut maker = Maker { store, limit, builder, end_batch, rows: Rows::default(), sink };
    for (number, session) in memtable.views(memtable.end) {
        maker.add(number, &session)?;
    }
    (maker.sink)(maker.rows)
}

struct Maker<'a, 's> {
    store: StoreReader,
    /// The largest block.
    limit: usize,
    builder: Builder,
    /// The last batch of the memtable.
    end_batch: u64,
    rows: Rows,
    sink: &'a mut Sink<'s>,
}

impl Maker<'_, '_> {
    /// Makes the rows of one session.
    fn add(&mut self, number: u64, session: &SessionView<'_>) -> Result<()> {
        let next = self.store.record(number).and_then(|old| next_record(number, old, session));
        let mut record = match next {
            Ok(record) => record,
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                return self.strand(number, session, &error);
            }
            Err(error) => return Err(error),
        };
        if let Some((first_new, _)) = session.entries().next() {
            let mut entries = self.take_short_tail(&mut record)?;
            entries.extend(session.entries().map(|(seq, entry)| entry.stored(seq)));
            if planted("checkpoint_leaves_one_out") && entries.len() > 4 {
                entries.pop();
            }
            self.pack(&entries, first_new, &mut record)?;
        }
        if let Some(id) = session.declared() {
            let check = tables::id_check(id, number, self.store.seed);
            self.rows.ids.push((id.clone(), (number, check)));
            self.rows.bytes += ROW_BYTES + id.len();
        }
        let record = tables::encode_record(&record, self.store.seed);
        self.rows.bytes += ROW_BYTES + record.len();
        self.rows.records.push((number, record));
        self.hand_over_if_enough()
    }

    /// Keeps what is new of a session that cannot be added to: its events in blocks, and what they
    /// add to the record.
    fn strand(&mut self, number: u64, session: &SessionView<'_>, error: &Error) -> Result<()> {
        if planted("damaged_record_stops_the_flush") {
            return Err(error.clone());
        }
        tracing::warn!(session = number, %error, "new events are kept beside a damaged session");
        let id = session.declared().map_or("", |id| id);
        let mut record = SessionRecord::begin(number, id, session);
        record.take_over(session);
        let entries: Vec<_> = session.entries().map(|(seq, entry)| entry.stored(seq)).collect();
        let mut rest = entries.as_slice();
        while let Some(first) = rest.first() {
            let built = self.builder.build(number, first.seq, rest)?;
            let (now, later) = rest.split_at(built.entries.min(rest.len()));
            for entry in now {
                record.count(entry.kind, entry.flags, entry.line_len());
            }
            record.blocks += 1;
            record.stored_bytes += built.stored.len() as u64;
            self.push_stranded(number, built.first_seq, built.stored)?;
            rest = later;
        }
        let record = tables::encode_record(&record, self.store.seed);
        self.push_stranded(number, STRANDED_RECORD, record)
    }

    fn push_stranded(&mut self, number: u64, at: u64, stored: Vec<u8>) -> Result<()> {
        self.rows.bytes += ROW_BYTES + stored.len();
        self.rows.stranded.push(((number, self.end_batch, at), stored));
        self.hand_over_if_enough()
    }

    /// The entries of the session's last block if it is under half full: it will be written again,
    /// with the new ones behind them, under the same key. One that is damaged stays as it is:
    /// reads report it, and the new events do not need it.
    fn take_short_tail(&self, record: &mut SessionRecord) -> Result<Vec<StoredEntry>> {
        let tail = match self.store.short_tail(record.number, self.limit / 2) {
            Err(error) if error.kind() == ErrorKind::Corrupt => None,
            other => other?,
        };
        let tail = tail.filter(|(_, block)| block.end_seq() == record.next_seq);
        let Some((stored_len, block)) = tail else { return Ok(Vec::new()) };
        record.blocks = record.blocks.saturating_sub(1);
        record.stored_bytes = record.stored_bytes.saturating_sub(stored_len);
        Ok(block.entries().collect())
    }

    /// Packs entries into blocks. Those before `first_new` are counted already.
    fn pack(
        &mut self,
        entries: &[StoredEntry],
        first_new: u64,
        record: &mut SessionRecord,
    ) -> Result<()> {
        let mut rest = entries;
        while let Some(first) = rest.first() {
            let built = self.builder.build(record.number, first.seq, rest)?;
            let (now, later) = rest.split_at(built.entries.min(rest.len()));
            let new = now.iter().filter(|entry| entry.seq >= first_new);
            self.count_and_mark(new, record);
            record.blocks += 1;
            record.stored_bytes += built.stored.len() as u64;
            self.rows.bytes += ROW_BYTES + built.stored.len();
            self.rows.blocks.push(((record.number, built.first_seq), built.stored));
            self.hand_over_if_enough()?;
            rest = later;
        }
        Ok(())
    }

    /// Counts new entries into the record, and marks the first of each kind in their block.
    fn count_and_mark<'e>(
        &mut self,
        entries: impl Iterator<Item = &'e StoredEntry>,
        record: &mut SessionRecord,
    ) {
        let mut marked = [false; Mark::ALL.len()];
        for entry in entries {
            for (mark, marked) in Mark::ALL.into_iter().zip(&mut marked) {
                if !*marked && mark.is_on(entry.kind, entry.flags) {
                    *marked = true;
                    let key = (record.number, mark as u8, record.marked(mark));
                    let check = tables::mark_check(key, entry.seq, self.store.seed);
                    self.rows.marks.push((key, (entry.seq, check)));
                    self.rows.bytes += ROW_BYTES;
                }
            }
            record.count(entry.kind, entry.flags, entry.line_len());
        }
    }

    fn hand_over_if_enough(&mut self) -> Result<()> {
        match self.rows.bytes >= ROWS_BYTES {
            true => (self.sink)(std::mem::take(&mut self.rows)),
            false => Ok(()),
        }
    }
}

/// The session's record with everything but the new events counted in.
fn next_record(
    number: u64,
    old: Option<SessionRecord>,
    session: &SessionView<'_>,
) -> Result<SessionRecord> {
    let mut record = match (old, session.declared()) {
        (Some(old), _) => old,
        (None, Some(id)) => SessionRecord::begin(number, id, session),
        (None, None) => {
            let place = format!("{FILE}, record of session {number}");
            return Err(Error::corrupt(place, None, "the record of a session is missing"));
        }
    };
    let first = session.entries().next();
    if let Some((seq, _)) = first.filter(|(seq, _)| *seq != record.next_seq) {
        let message = format_args!(
            "the store holds {} events of the session, the journal goes on with {seq}",
            record.next_seq
        );
        return Err(Error::corrupt(format!("{FILE}, session {number}"), None, message));
    }
    record.take_over(session);
    Ok(record)
}
