//! A view of the store at one moment. It pins the pages it can see: drop it when done.

use redb::{ReadOnlyTable, ReadTransaction, ReadableTable};

use crate::entry::Seq;
use crate::error::{Error, Result};
use crate::journal::Applied;
use crate::memtable::Mark;

use super::block::{self, Block};
use super::tables::{
    self, EVENTS, MARKS, META, MarkKey, PROJECTIONS, SESSION_IDS, SESSIONS, STRANDED,
    STRANDED_RECORD, SessionRecord,
};
use super::{FILE, FORMAT_VERSION, Store, guarded, projection};

type StrandedTable = ReadOnlyTable<(u64, u64, u64), &'static [u8]>;

/// A view of the store.
pub(crate) struct StoreReader {
    pub(super) seed: u32,
    applied: Applied,
    events: ReadOnlyTable<(u64, u64), &'static [u8]>,
    sessions: ReadOnlyTable<u64, &'static [u8]>,
    session_ids: ReadOnlyTable<&'static str, (u64, u32)>,
    marks: ReadOnlyTable<MarkKey, (u64, u32)>,
    pub(super) projections: Option<projection::Table>,
    stranded: Option<StrandedTable>,
}

/// A stored block as `verify` meets it.
pub(crate) struct BlockRow {
    pub(crate) session: u64,
    pub(crate) first_seq: u64,
    pub(crate) stored_len: u64,
    pub(crate) block: Result<Block>,
}

/// A stored mark as `verify` meets it.
pub(crate) struct MarkRow {
    pub(crate) key: MarkKey,
    pub(crate) seq: Seq,
    /// The checksum is right.
    pub(crate) whole: bool,
}

/// A row beside a damaged session record.
pub(crate) struct Stranded {
    /// The events in it, where it is a block.
    pub(crate) events: u64,
    /// The events that its flush had for the session, where it is a record.
    pub(crate) says: u64,
}

impl StoreReader {
    pub(super) fn new(store: &Store) -> Result<StoreReader> {
        let transaction = store.handle().begin_read()?;
        let applied = applied(&transaction)?;
        guarded("read", || {
            Ok(StoreReader {
                seed: tables::seed(store.id),
                applied,
                events: transaction.open_table(EVENTS)?,
                sessions: transaction.open_table(SESSIONS)?,
                session_ids: transaction.open_table(SESSION_IDS)?,
                marks: transaction.open_table(MARKS)?,
                projections: projection::open_if_there(&transaction, PROJECTIONS)?,
                stranded: projection::open_if_there(&transaction, STRANDED)?,
            })
        })
    }

    pub(super) fn read_applied(store: &Store) -> Result<Applied> {
        applied(&store.handle().begin_read()?)
    }

    /// Checks the format's version and returns the store's id.
    pub(super) fn read_id(store: &Store) -> Result<u128> {
        let transaction = store.handle().begin_read()?;
        let meta = guarded("read", || Ok(transaction.open_table(META)?))?;
        let version: u32 = meta_value(&meta, tables::META_FORMAT)?;
        if version > FORMAT_VERSION {
            return Err(Error::newer_format(FILE, version, FORMAT_VERSION));
        }
        meta_value(&meta, tables::META_STORE_ID)
    }

    /// Where the journal goes on.
    pub(crate) fn applied(&self) -> Applied {
        self.applied
    }

    /// The number of the session called `id`.
    pub(crate) fn number(&self, id: &str) -> Result<Option<u64>> {
        let found = guarded("read", || Ok(self.session_ids.get(id)?.map(|g| g.value())))?;
        let Some((number, check)) = found else { return Ok(None) };
        if tables::id_check(id, number, self.seed) != check {
            let message = "the number of a session does not match its checksum";
            return Err(Error::corrupt(format!("{FILE}, session id {id:?}"), None, message));
        }
        Ok(Some(number))
    }

    /// What is kept of session `number`.
    pub(crate) fn record(&self, number: u64) -> Result<Option<SessionRecord>> {
        let found =
            guarded("read", || Ok(self.sessions.get(number)?.map(|guard| guard.value().to_vec())))?;
        found.map(|stored| tables::decode_record(&stored, self.seed, number)).transpose()
    }

    /// Returns the id of session `number`, for one whose record does not tell. Looks through all ids.
    pub(crate) fn id_of(&self, number: u64) -> Option<String> {
        let found = guarded("read", || {
            for row in self.session_ids.iter()? {
                let (id, value) = row?;
                let (of, check) = value.value();
                if of == number && tables::id_check(id.value(), of, self.seed) == check {
                    return Ok(Some(id.value().to_owned()));
                }
            }
            Ok(None)
        });
        found.ok().flatten()
    }

    /// Returns what is stranded beside damaged session records, in key order; a damaged row is an
    /// item.
    pub(crate) fn stranded(&self) -> Result<Vec<(u64, Result<Stranded>)>> {
        let Some(table) = &self.stranded else { return Ok(Vec::new()) };
        guarded("read", || {
            let mut rows = Vec::new();
            for row in table.iter()? {
                let (key, value) = row?;
                let (session, batch, at) = key.value();
                rows.push((session, self.decode_stranded(session, batch, at, value.value())));
            }
            Ok(rows)
        })
    }

    fn decode_stranded(&self, session: u64, batch: u64, at: u64, row: &[u8]) -> Result<Stranded> {
        let decoded = match at {
            STRANDED_RECORD => tables::decode_record(row, self.seed, session)
                .map(|record| Stranded { events: 0, says: record.next_seq }),
            first_seq => block::decode(row, self.seed, session, first_seq)
                .map(|block| Stranded { events: block.end_seq() - block.first_seq, says: 0 }),
        };
        decoded.map_err(|error| {
            let place = format!("{FILE}, stranded row {at} of session {session}, batch {batch}");
            Error::corrupt(place, None, error)
        })
    }

    /// The numbers of all sessions whose number is at least `from`, in order.
    pub(crate) fn numbers_from(&self, from: u64) -> impl Iterator<Item = Result<u64>> {
        let mut range = None;
        let mut failed = false;
        std::iter::from_fn(move || {
            if failed {
                return None;
            }
            let next = guarded("read", || {
                if range.is_none() {
                    range = Some(self.sessions.range(from..)?);
                }
                let Some(range) = &mut range else { return Ok(None) };
                Ok(range.next().transpose()?.map(|(key, _)| key.value()))
            });
            failed = next.is_err();
            next.transpose()
        })
    }

    /// The largest session number, 0 if there is none.
    pub(crate) fn last_number(&self) -> Result<u64> {
        guarded("read", || Ok(self.sessions.last()?.map_or(0, |(key, _)| key.value())))
    }

    /// What `look` makes of the first seq and the bytes of the last block at or before event `seq`.
    /// Whatever a damaged tree has there is looked at as the session's own, which its header denies.
    fn at_or_before<T>(
        &self,
        session: u64,
        seq: Seq,
        look: impl FnOnce(Seq, &[u8]) -> T,
    ) -> Result<Option<T>> {
        guarded("read", || {
            let row = self.events.range((session, 0)..=(session, seq))?.next_back().transpose()?;
            Ok(row.map(|(key, value)| look(key.value().1, value.value())))
        })
    }

    /// The block that holds event `seq`, which must be below the session's `next_seq`.
    pub(crate) fn block_at(&self, session: u64, seq: Seq) -> Result<Block> {
        let found = self.at_or_before(session, seq, |first_seq, stored| {
            block::decode(stored, self.seed, session, first_seq)
        })?;
        let missing = || {
            let place = format!("{FILE}, session {session}");
            Error::corrupt(place, None, format_args!("no block holds event {seq}"))
        };
        let block = found.ok_or_else(missing)??;
        if seq < block.end_seq() { Ok(block) } else { Err(missing()) }
    }

    /// The session's last block with its stored length, if that is below `below` and the block is
    /// not damaged.
    pub(crate) fn short_tail(&self, session: u64, below: usize) -> Result<Option<(u64, Block)>> {
        let found = self.at_or_before(session, u64::MAX, |first_seq, stored| {
            let is_short = stored.len() < below;
            let block = is_short.then(|| block::decode(stored, self.seed, session, first_seq));
            Some((stored.len() as u64, block?.ok()?))
        })?;
        Ok(found.flatten())
    }

    /// Where the search for event `seq` ends: the first seq of the block found, which is checked
    /// but not decompressed.
    pub(crate) fn locate(&self, session: u64, seq: Seq) -> Result<Option<Seq>> {
        let found = self.at_or_before(session, seq, |first_seq, stored| {
            block::check(stored, self.seed, session, first_seq).map(|()| first_seq)
        })?;
        found.transpose()
    }

    /// The nearest known mark at or before `ordinal`: its own ordinal and the event's seq.
    pub(crate) fn mark_at_or_before(
        &self,
        session: u64,
        mark: Mark,
        ordinal: u64,
    ) -> Result<Option<(u64, Seq)>> {
        let kind = mark as u8;
        let found = guarded("read", || {
            let range = (session, kind, 0)..=(session, kind, ordinal);
            let row = self.marks.range(range)?.next_back().transpose()?;
            Ok(row.map(|(key, value)| (key.value(), value.value())))
        })?;
        let Some((key, (seq, check))) = found else { return Ok(None) };
        if tables::mark_check(key, seq, self.seed) != check {
            let place = format!("{FILE}, mark {key:?}");
            return Err(Error::corrupt(place, None, "a mark does not match its checksum"));
        }
        Ok(Some((key.2, seq)))
    }

    /// All blocks in key order, decoded; a damaged one is an item, not the end.
    pub(crate) fn blocks(&self) -> Result<impl Iterator<Item = Result<BlockRow>> + '_> {
        let mut range = guarded("read", || Ok(self.events.iter()?))?;
        let mut failed = false;
        Ok(std::iter::from_fn(move || {
            if failed {
                return None;
            }
            let next = guarded("read", || {
                let Some((key, value)) = range.next().transpose()? else { return Ok(None) };
                let (session, first_seq) = key.value();
                let stored = value.value();
                Ok(Some(BlockRow {
                    session,
                    first_seq,
                    stored_len: stored.len() as u64,
                    block: block::decode(stored, self.seed, session, first_seq),
                }))
            });
            failed = next.is_err();
            next.transpose()
        }))
    }

    /// All marks in key order.
    pub(crate) fn marks(&self) -> Result<impl Iterator<Item = Result<MarkRow>> + '_> {
        let mut range = guarded("read", || Ok(self.marks.iter()?))?;
        let mut failed = false;
        Ok(std::iter::from_fn(move || {
            if failed {
                return None;
            }
            let next = guarded("read", || {
                let Some((key, value)) = range.next().transpose()? else { return Ok(None) };
                let (key, (seq, check)) = (key.value(), value.value());
                let whole = tables::mark_check(key, seq, self.seed) == check;
                Ok(Some(MarkRow { key, seq, whole }))
            });
            failed = next.is_err();
            next.transpose()
        }))
    }
}

fn applied(transaction: &ReadTransaction) -> Result<Applied> {
    let meta = guarded("read", || Ok(transaction.open_table(META)?))?;
    Ok(Applied {
        end: meta_value(&meta, tables::META_APPLIED)?,
        opened: meta_value(&meta, tables::META_OPENED)?,
    })
}

fn meta_value<T: bincode::Decode<()>>(
    meta: &ReadOnlyTable<&'static str, &'static [u8]>,
    key: &str,
) -> Result<T> {
    let stored = guarded("read", || Ok(meta.get(key)?.map(|guard| guard.value().to_vec())))?;
    let stored = stored.ok_or_else(|| {
        Error::corrupt(format!("{FILE}, meta value `{key}`"), None, "the value is missing")
    })?;
    tables::decode_meta(key, &stored)
}
