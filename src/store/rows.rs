//! From a session's new events to rows: what a checkpoint writes, worked out without the tables.
//!
//! Packing and compressing is most of a checkpoint's work; it needs nothing of a transaction, so
//! that it can be done on a thread of its own.

use std::sync::Arc;

use crate::entry::StoredEntry;
use crate::error::{Error, Result};
use crate::memtable::SessionView;
use crate::planted::planted;

use super::FILE;
use super::block::{self, Builder};
use super::tables::{self, Mark, MarkKey, SessionRecord};

/// Fast enough to keep up with the journal; higher levels gain little on blocks of this size.
const ZSTD_LEVEL: i32 = 1;
/// Rows are handed over when there are so many bytes of them.
const ROWS_BYTES: usize = 256 << 10;

/// A session with new events, and what the store holds of it.
pub(super) struct Addition<'m> {
    pub(super) number: u64,
    pub(super) session: SessionView<'m>,
    /// Its record.
    pub(super) record: Option<Vec<u8>>,
    /// Its last block, with its first seq, if that is under half full.
    pub(super) short_tail: Option<(u64, Vec<u8>)>,
}

/// Rows that are to be written.
#[derive(Default)]
pub(super) struct Rows {
    /// By session and first seq.
    pub(super) blocks: Vec<((u64, u64), Vec<u8>)>,
    pub(super) marks: Vec<(MarkKey, (u64, u32))>,
    pub(super) ids: Vec<(Arc<str>, (u64, u32))>,
    pub(super) records: Vec<(u64, Vec<u8>)>,
    bytes: usize,
}

/// Takes rows, in the order in which they are to be written.
pub(super) type Sink<'s> = dyn FnMut(Rows) -> Result<()> + 's;

/// Makes rows of additions, one after the other.
pub(super) struct Maker {
    seed: u32,
    builder: Builder,
    rows: Rows,
}

impl Maker {
    /// With blocks of at most `limit` bytes.
    pub(super) fn new(seed: u32, limit: usize) -> Result<Maker> {
        let builder = Builder::new(seed, limit, ZSTD_LEVEL)?;
        Ok(Maker { seed, builder, rows: Rows::default() })
    }

    /// Hands over the rows that are there.
    pub(super) fn flush(&mut self, sink: &mut Sink<'_>) -> Result<()> {
        sink(std::mem::take(&mut self.rows))
    }

    /// Makes the rows of one session, and hands over what is enough.
    ///
    /// # Errors
    ///
    /// `Corrupt` where the session's record is damaged or missing, or ends elsewhere than where the
    /// new events begin; what the sink returns.
    pub(super) fn add(&mut self, addition: &Addition<'_>, sink: &mut Sink<'_>) -> Result<()> {
        let Addition { number, session, record, .. } = addition;
        let old = record.as_deref().map(|old| tables::decode_record(old, self.seed, *number));
        let mut record = next_record(*number, old, session)?;
        if let Some((first_new, _)) = session.entries().next() {
            let mut entries = self.take_short_tail(addition, &mut record);
            entries.extend(session.entries().map(|(seq, entry)| entry.stored(seq)));
            if planted("checkpoint_leaves_one_out") && entries.len() > 4 {
                entries.pop();
            }
            self.pack(&entries, first_new, &mut record, sink)?;
        }
        if let Some(id) = session.declared() {
            self.rows.ids.push((id.clone(), (*number, tables::id_check(id, *number, self.seed))));
        }
        self.rows.records.push((*number, tables::encode_record(&record, self.seed)));
        Ok(())
    }

    /// The entries of the short last block: it will be written again, with the new ones behind
    /// them, under the same key. One that is damaged stays as it is: reads report it, and the new
    /// events do not need it.
    fn take_short_tail(
        &self,
        addition: &Addition<'_>,
        record: &mut SessionRecord,
    ) -> Vec<StoredEntry> {
        let Some((first_seq, stored)) = &addition.short_tail else { return Vec::new() };
        let Ok(block) = block::decode(stored, self.seed, record.number, *first_seq) else {
            return Vec::new();
        };
        if block.end_seq() != record.next_seq {
            return Vec::new();
        }
        record.blocks = record.blocks.saturating_sub(1);
        record.stored_bytes = record.stored_bytes.saturating_sub(stored.len() as u64);
        block.entries().collect()
    }

    /// Packs entries into blocks. Those before `first_new` are counted already.
    fn pack(
        &mut self,
        entries: &[StoredEntry],
        first_new: u64,
        record: &mut SessionRecord,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let mut rest = entries;
        while let Some(first) = rest.first() {
            let built = self.builder.build(record.number, first.seq, rest)?;
            let (now, later) = rest.split_at(built.entries.min(rest.len()));
            let new = now.iter().filter(|entry| entry.seq >= first_new);
            self.count_and_mark(new, record);
            record.blocks += 1;
            record.stored_bytes += built.stored.len() as u64;
            self.rows.bytes += built.stored.len();
            self.rows.blocks.push(((record.number, built.first_seq), built.stored));
            if self.rows.bytes >= ROWS_BYTES {
                self.flush(sink)?;
            }
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
                    let check = tables::mark_check(key, entry.seq, self.seed);
                    self.rows.marks.push((key, (entry.seq, check)));
                }
            }
            record.count(entry.kind, entry.flags, entry.line_len());
        }
    }
}

/// The session's record with everything but the new events counted in.
fn next_record(
    number: u64,
    old: Option<Result<SessionRecord>>,
    session: &SessionView<'_>,
) -> Result<SessionRecord> {
    let mut record = match (old, session.declared()) {
        (Some(old), _) => old?,
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
