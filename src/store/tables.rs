//! The tables: their definitions, and how their values are framed.
//!
//! redb does not check what it reads, so every value carries a CRC of its own: blocks, session
//! records and `meta` values are [frames](crate::frame); the two small values, a session's number
//! and a mark's seq, have a CRC-32 over key and value beside them.

use redb::TableDefinition;

use crate::entry::{Flags, Kind, Seq};
use crate::error::{Error, Result};
use crate::frame::{self, Codec, FrameKind};
use crate::memtable::{Attributes, Mark, SessionView, Tally};

pub(super) const EVENTS: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("events");
pub(super) const SESSIONS: TableDefinition<u64, &[u8]> = TableDefinition::new("sessions");
pub(super) const SESSION_IDS: TableDefinition<&str, (u64, u32)> =
    TableDefinition::new("session_ids");
/// Session, kind of mark, ordinal.
pub(crate) type MarkKey = (u64, u8, u64);
pub(super) const MARKS: TableDefinition<MarkKey, (u64, u32)> = TableDefinition::new("marks");
pub(super) const PROJECTIONS: TableDefinition<(u64, u8), &[u8]> =
    TableDefinition::new("projections");
/// What could not be added to a session because its record is damaged: session, batch behind the
/// flush, and the first seq of a block or [`STRANDED_RECORD`]. See [`rows`](super::rows).
pub(super) const STRANDED: TableDefinition<(u64, u64, u64), &[u8]> =
    TableDefinition::new("stranded");
/// The row that holds what the flush adds to the record.
pub(super) const STRANDED_RECORD: u64 = u64::MAX;
pub(super) const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");

/// Keys of `meta`.
pub(super) const META_FORMAT: &str = "format";
pub(super) const META_STORE_ID: &str = "store_id";
pub(super) const META_APPLIED: &str = "applied";
pub(super) const META_OPENED: &str = "opened";

/// The version of the store's format.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// What is kept of a session beside its events.
#[derive(Clone, Debug, Default, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(crate) struct SessionRecord {
    pub(crate) number: u64,
    pub(crate) id: String,
    pub(crate) attributes: Attributes,
    pub(crate) created_unix_micros: u64,
    pub(crate) updated_unix_micros: u64,
    pub(crate) next_seq: Seq,
    /// By [`Kind`].
    pub(crate) counts: [u64; 8],
    pub(crate) user_turns: u64,
    pub(crate) runs: u64,
    pub(crate) last_run: Option<String>,
    /// Bytes of all lines with their line ends.
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
    pub(crate) stored_bytes: u64,
}

impl SessionRecord {
    /// The record of a session that begins in `view`.
    pub(crate) fn begin(number: u64, id: &str, view: &SessionView<'_>) -> SessionRecord {
        SessionRecord {
            number,
            id: id.to_owned(),
            created_unix_micros: view.times().map_or(0, |(first, _)| first),
            ..SessionRecord::default()
        }
    }

    /// Takes over what happened to the session in `view` beside its entries.
    pub(crate) fn take_over(&mut self, view: &SessionView<'_>) {
        view.describe(&mut self.attributes);
        if let Some((_, last)) = view.times() {
            // A clock that went backwards takes no time back.
            self.updated_unix_micros = self.updated_unix_micros.max(last);
        }
        if let Some(run) = view.last_run() {
            self.last_run = Some(run.to_string());
        }
    }

    /// Counts an entry that is appended.
    pub(crate) fn count(&mut self, kind: Kind, flags: Flags, bytes: u64) {
        let mut one = Tally::default();
        one.add(kind, flags, bytes);
        self.add(&one);
    }

    /// Counts entries that are appended.
    pub(crate) fn add(&mut self, tally: &Tally) {
        let Tally { events, counts, user_turns, runs, bytes } = tally;
        self.next_seq += events;
        self.counts.iter_mut().zip(counts).for_each(|(count, more)| *count += more);
        self.user_turns += user_turns;
        self.runs += runs;
        self.bytes += bytes;
    }

    /// How many entries there are that `mark` numbers.
    pub(crate) fn marked(&self, mark: Mark) -> u64 {
        let SessionRecord { counts, user_turns, runs, .. } = *self;
        Tally { counts, user_turns, runs, ..Tally::default() }.marked(mark)
    }
}

/// The seed of every CRC in the store of this id.
pub(crate) fn seed(store_id: u128) -> u32 {
    crc32fast::hash(&store_id.to_le_bytes())
}

pub(super) fn encode_record(record: &SessionRecord, seed: u32) -> Vec<u8> {
    let header = frame::encode_header(record);
    let later = record.attributes.encode_later();
    frame::encode(FrameKind::Session, Codec::Raw, seed, &header, &later)
}

pub(super) fn decode_record(stored: &[u8], seed: u32, number: u64) -> Result<SessionRecord> {
    let place = || format!("events.redb, record of session {number}");
    let frame = frame::read_exact(FrameKind::Session, seed, stored)
        .map_err(|e| Error::corrupt(place(), None, e))?;
    let mut record: SessionRecord =
        frame.head.decode().map_err(|e| Error::corrupt(place(), None, e))?;
    if record.number != number {
        let message = format_args!("the record belongs to session {}", record.number);
        return Err(Error::corrupt(place(), None, message));
    }
    if record.attributes.decode_later(frame.payload).is_none() {
        return Err(Error::corrupt(place(), None, "the attributes cannot be decoded"));
    }
    Ok(record)
}

pub(super) fn encode_meta(value: &impl bincode::Encode) -> Vec<u8> {
    // Not seeded: the store's id is itself such a value.
    frame::encode(FrameKind::Meta, Codec::Raw, 0, &frame::encode_header(value), b"")
}

pub(super) fn decode_meta<T: bincode::Decode<()>>(key: &str, stored: &[u8]) -> Result<T> {
    frame::read_exact(FrameKind::Meta, 0, stored)
        .and_then(|frame| frame.head.decode())
        .map_err(|e| Error::corrupt(format!("events.redb, meta value `{key}`"), None, e))
}

pub(super) fn id_check(id: &str, number: u64, seed: u32) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    hasher.update(id.as_bytes());
    hasher.update(&number.to_le_bytes());
    hasher.finalize()
}

pub(super) fn mark_check(key: MarkKey, seq: u64, seed: u32) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    hasher.update(&key.0.to_le_bytes());
    hasher.update(&[key.1]);
    hasher.update(&key.2.to_le_bytes());
    hasher.update(&seq.to_le_bytes());
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(wincode::SchemaRead, Debug, PartialEq)]
    struct OtherAttributes {
        format: Option<String>,
        workspace: Option<String>,
        parent: Option<String>,
        origin: Option<String>,
    }

    #[derive(wincode::SchemaRead, Debug, PartialEq)]
    struct OtherRecord {
        number: u64,
        id: String,
        attributes: OtherAttributes,
        created_unix_micros: u64,
        updated_unix_micros: u64,
        next_seq: u64,
        counts: [u64; 8],
        user_turns: u64,
        runs: u64,
        last_run: Option<String>,
        bytes: u64,
        blocks: u64,
        stored_bytes: u64,
    }

    /// The codec is no longer maintained; this is the way out.
    #[test]
    fn another_crate_reads_the_session_record() {
        let record = SessionRecord {
            number: 7,
            id: "s-ä".into(),
            attributes: Attributes {
                format: Some("transcript".into()),
                workspace: None,
                parent: Some("p".into()),
                ..Attributes::default()
            },
            created_unix_micros: 1 << 51,
            updated_unix_micros: 250,
            next_seq: 251,
            counts: [0, 1, 250, 251, 65_535, 65_536, 1 << 32, u64::MAX],
            user_turns: 3,
            runs: 2,
            last_run: Some("run-2".into()),
            bytes: 5,
            blocks: 1,
            stored_bytes: 300,
        };
        let bytes = frame::encode_header(&record);
        let config = wincode::config::Configuration::default().with_varint_encoding();
        let other: OtherRecord = wincode::config::deserialize(&bytes, config).unwrap();
        assert_eq!((other.number, other.id), (7, record.id.clone()));
        assert_eq!(other.attributes.format, record.attributes.format);
        assert_eq!((other.counts, other.last_run), (record.counts, record.last_run.clone()));
        assert_eq!((other.blocks, other.stored_bytes), (1, 300));
    }

    #[test]
    fn every_flipped_bit_of_a_session_record_is_found() {
        let attributes = Attributes { meta: Some("{}".into()), ..Attributes::default() };
        let record =
            SessionRecord { number: 3, id: "s".into(), attributes, ..SessionRecord::default() };
        let stored = encode_record(&record, 1);
        assert_eq!(decode_record(&stored, 1, 3).unwrap(), record);
        for bit in 0..stored.len() * 8 {
            let mut flipped = stored.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_record(&flipped, 1, 3).is_err(), "bit {bit}");
        }
        assert!(decode_record(&stored, 1, 4).is_err());
    }
}
