//! A checkpoint: one durable transaction that takes a frozen memtable in.
//!
//! Everything or nothing: blocks, session records, ids, marks and the applied position. With quick
//! repair, so that a reopen after a kill does not read the whole file. A commit that returned an
//! error may still have happened; replaying the journal over it is harmless because the applied
//! position tells.

use redb::ReadableTable;

use crate::entry::StoredEntry;
use crate::error::{Error, Result};
use crate::journal::{Epoch, Position};
use crate::memtable::{MemInner, SessionView};
use crate::planted::planted;

use super::block::{self, BLOCK_BYTES_MAX, Builder, SMALL_BLOCK_BYTES_MAX};
use super::tables::{
    self, EVENTS, MARKS, META, META_APPLIED, META_OPENED, Mark, SESSION_IDS, SESSIONS,
    SessionRecord,
};
use super::{FILE, Store, begin_durable, guarded};

/// From this many sessions in one checkpoint on, blocks are small.
const MANY_SESSIONS: usize = 10_000;
/// Fast enough to keep up with the journal; higher levels gain little on blocks of this size.
const ZSTD_LEVEL: i32 = 1;

type Events<'t> = redb::Table<'t, (u64, u64), &'static [u8]>;
type Marks<'t> = redb::Table<'t, (u64, u8, u64), (u64, u32)>;

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

    /// Writes a memtable out, and returns the position behind everything that the store holds now.
    /// Durable when this returns.
    pub(crate) fn checkpoint(&self, memtable: &MemInner) -> Result<Position> {
        let handle = self.handle();
        let database = handle.writer()?;
        let seed = tables::seed(self.id);
        let many = memtable.sessions.len() >= MANY_SESSIONS;
        let limit = if many { SMALL_BLOCK_BYTES_MAX } else { BLOCK_BYTES_MAX };
        let mut builder = Builder::new(seed, limit, ZSTD_LEVEL)?;
        let mut failed = None;
        guarded("write", || {
            let transaction = begin_durable(database)?;
            {
                let mut events = transaction.open_table(EVENTS)?;
                let mut sessions = transaction.open_table(SESSIONS)?;
                let mut ids = transaction.open_table(SESSION_IDS)?;
                let mut marks = transaction.open_table(MARKS)?;
                for (number, session) in memtable.views(memtable.end) {
                    let stored = sessions.get(number)?.map(|guard| guard.value().to_vec());
                    let old = stored.map(|stored| tables::decode_record(&stored, seed, number));
                    let mut record = match next_record(number, old, &session) {
                        Ok(record) => record,
                        Err(error) => {
                            failed = Some(error);
                            return Ok(());
                        }
                    };
                    let mut writer = SessionWriter {
                        seed,
                        limit,
                        builder: &mut builder,
                        events: &mut events,
                        marks: &mut marks,
                        record: &mut record,
                    };
                    if let Err(error) = writer.write(&session)? {
                        failed = Some(error);
                        return Ok(());
                    }
                    if let Some(id) = session.declared() {
                        ids.insert(&**id, (number, tables::id_check(id, number, seed)))?;
                    }
                    sessions.insert(number, &*tables::encode_record(&record, seed))?;
                }
                let mut meta = transaction.open_table(META)?;
                if !planted("applied_position_stays") {
                    meta.insert(META_APPLIED, &*tables::encode_meta(&memtable.end))?;
                }
            }
            Ok(transaction.commit()?)
        })?;
        failed.map_or(Ok(memtable.end), Err)
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

struct SessionWriter<'a, 't> {
    seed: u32,
    limit: usize,
    builder: &'a mut Builder,
    events: &'a mut Events<'t>,
    marks: &'a mut Marks<'t>,
    record: &'a mut SessionRecord,
}

impl SessionWriter<'_, '_> {
    /// Writes the session's new events. The outer error is redb's, the inner one damage.
    fn write(&mut self, session: &SessionView<'_>) -> Result<Result<()>, redb::Error> {
        let Some((first_new, _)) = session.entries().next() else { return Ok(Ok(())) };
        let mut entries = self.take_short_tail()?;
        entries.extend(session.entries().map(|(seq, entry)| entry.stored(seq)));
        if planted("checkpoint_leaves_one_out") && entries.len() > 4 {
            entries.pop();
        }
        let mut rest = entries.as_slice();
        while let Some(first) = rest.first() {
            let built = match self.builder.build(self.record.number, first.seq, rest) {
                Ok(built) => built,
                Err(error) => return Ok(Err(error)),
            };
            let (now, later) = rest.split_at(built.entries.min(rest.len()));
            let new = now.iter().filter(|entry| entry.seq >= first_new);
            self.count_and_mark(new)?;
            self.record.blocks += 1;
            self.record.stored_bytes += built.stored.len() as u64;
            self.events.insert((self.record.number, built.first_seq), &*built.stored)?;
            rest = later;
        }
        Ok(Ok(()))
    }

    /// The entries of the session's last block if it is under half full: it will be written again,
    /// with the new ones behind them, under the same key. One that is damaged stays as it is:
    /// reads report it, and the new events do not need it.
    fn take_short_tail(&mut self) -> Result<Vec<StoredEntry>, redb::Error> {
        let number = self.record.number;
        let tail = self.events.range((number, 0)..=(number, u64::MAX))?.next_back().transpose()?;
        let Some((key, value)) = tail else { return Ok(Vec::new()) };
        let (first_seq, stored) = (key.value().1, value.value());
        if stored.len() >= self.limit / 2 {
            return Ok(Vec::new());
        }
        let Ok(block) = block::decode(stored, self.seed, number, first_seq) else {
            return Ok(Vec::new());
        };
        if block.end_seq() != self.record.next_seq {
            return Ok(Vec::new());
        }
        self.record.blocks = self.record.blocks.saturating_sub(1);
        self.record.stored_bytes = self.record.stored_bytes.saturating_sub(stored.len() as u64);
        Ok(block.entries().collect())
    }

    /// Counts new entries into the record, and marks the first of each kind in their block.
    fn count_and_mark<'e>(
        &mut self,
        entries: impl Iterator<Item = &'e StoredEntry>,
    ) -> Result<(), redb::Error> {
        let mut marked = [false; Mark::ALL.len()];
        for entry in entries {
            for (mark, marked) in Mark::ALL.into_iter().zip(&mut marked) {
                if !*marked && mark.is_on(entry.kind, entry.flags) {
                    *marked = true;
                    let key = (self.record.number, mark as u8, self.record.marked(mark));
                    let check = tables::mark_check(key, entry.seq, self.seed);
                    self.marks.insert(key, (entry.seq, check))?;
                }
            }
            self.record.count(entry.kind, entry.flags, entry.line_len());
        }
        Ok(())
    }
}
