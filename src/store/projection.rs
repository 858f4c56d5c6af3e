//! What is derived from the events of a session and kept beside them, and the removal of a session.
//!
//! A projection names the seq up to which it was derived (its watermark), never beyond what the store
//! holds: after a power failure it is not ahead of the events. It can always be derived again, so
//! one that is damaged counts as none; `verify` reports it.

use redb::{ReadOnlyTable, ReadTransaction, ReadableTable, TableDefinition, TableError};

use crate::entry::Seq;
use crate::error::{Error, Result};
use crate::frame::{self, Codec, FrameKind};

use super::tables::{self, EVENTS, MARKS, PROJECTIONS, SESSION_IDS, SESSIONS, STRANDED};
use super::{FILE, Store, StoreReader, guarded};

/// What a projection says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(crate) struct Header {
    /// The version of its content.
    pub(crate) version: u32,
    /// It is derived from the events before this one.
    pub(crate) watermark: Seq,
    /// What else it depends on, as a number of the deriver's.
    pub(crate) context: u64,
}

pub(super) type Table = ReadOnlyTable<(u64, u8), &'static [u8]>;

/// Opens a table that a store has only once something was kept in it.
pub(super) fn open_if_there<K: redb::Key, V: redb::Value>(
    transaction: &ReadTransaction,
    definition: TableDefinition<'_, K, V>,
) -> Result<Option<ReadOnlyTable<K, V>>, redb::Error> {
    match transaction.open_table(definition) {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl Store {
    /// Keeps a projection of session `number`. Durable when this returns. Does nothing, and says so
    /// with `false`, where the store does not hold all the events that it was derived from.
    pub(crate) fn keep_projection(
        &self,
        number: u64,
        kind: u8,
        header: Header,
        content: &[u8],
    ) -> Result<bool> {
        let seed = tables::seed(self.id);
        let payload = zstd::bulk::compress(content, 1)
            .map_err(|error| Error::io("cannot compress a projection", error))?;
        let header_bytes = frame::encode_header(&header);
        let framed =
            frame::encode(FrameKind::Projection, Codec::Zstd, seed, &header_bytes, &payload);
        self.write(|transaction| {
            let stored = transaction.open_table(SESSIONS)?.get(number)?.map(|g| g.value().to_vec());
            let record =
                stored.and_then(|stored| tables::decode_record(&stored, seed, number).ok());
            if record.is_none_or(|record| record.next_seq < header.watermark) {
                return Ok(Ok((false, false)));
            }
            transaction.open_table(PROJECTIONS)?.insert((number, kind), &*framed)?;
            Ok(Ok((true, true)))
        })
    }

    /// Removes everything that the store holds of session `number`, in one transaction. Durable when
    /// this returns. The file's pages are used again; they are not wiped.
    pub(crate) fn purge(&self, number: u64, id: &str) -> Result<()> {
        self.write(|transaction| {
            let mut events = transaction.open_table(EVENTS)?;
            events.retain_in((number, 0)..=(number, u64::MAX), |_, _| false)?;
            let mut marks = transaction.open_table(MARKS)?;
            let all = (number, 0, 0)..=(number, u8::MAX, u64::MAX);
            marks.retain_in(all, |_, _| false)?;
            let mut projections = transaction.open_table(PROJECTIONS)?;
            projections.retain_in((number, 0)..=(number, u8::MAX), |_, _| false)?;
            let mut stranded = transaction.open_table(STRANDED)?;
            stranded.retain_in((number, 0, 0)..=(number, u64::MAX, u64::MAX), |_, _| false)?;
            transaction.open_table(SESSION_IDS)?.remove(id)?;
            transaction.open_table(SESSIONS)?.remove(number)?;
            Ok(Ok((true, ())))
        })
    }
}

impl StoreReader {
    /// The projection of session `number`, with its content.
    ///
    /// # Errors
    ///
    /// `Corrupt` where it is damaged; `Io`.
    pub(crate) fn projection(&self, number: u64, kind: u8) -> Result<Option<(Header, Vec<u8>)>> {
        let Some(table) = &self.projections else { return Ok(None) };
        let stored =
            guarded("read", || Ok(table.get((number, kind))?.map(|g| g.value().to_vec())))?;
        let Some(stored) = stored else { return Ok(None) };
        let corrupt = |error: &dyn std::fmt::Display| {
            Error::corrupt(format!("{FILE}, projection {kind} of session {number}"), None, error)
        };
        let frame = frame::read_exact(FrameKind::Projection, self.seed, &stored)
            .map_err(|error| corrupt(&error))?;
        let header = frame.head.decode().map_err(|error| corrupt(&error))?;
        let content = zstd::bulk::decompress(frame.payload, CONTENT_BYTES_MAX)
            .map_err(|error| corrupt(&error))?;
        Ok(Some((header, content)))
    }
}

/// No projection is larger.
const CONTENT_BYTES_MAX: usize = 64 << 20;
