//! The journal: what makes an append durable with one write and one flush.
//!
//! Files `journal/<epoch>.wal`, zero-filled segments that are written front to back. A segment
//! starts with a [head](segment), then come [batches](batch), each one CRC frame whose seed is the
//! segment's epoch. Every batch carries its number, its first LSN and the CRC of the batch before
//! it, across segments, so that a batch is accepted only as the successor of the one before.
//!
//! Invariants: batch N+1 is written only after the flush of batch N returned (I1, I2), so whatever
//! stands behind a damaged batch proves that it had been acknowledged. An epoch is never used twice
//! (I9). A segment is recycled only when the store holds everything in it (I6).
//!
//! * [`segment`]: one file: names, head, creation.
//! * [`batch`]: the records inside a batch.
//! * [`writer`]: the active segment, its spares, recycling.
//! * [`group`]: group commit: who leads, who waits.
//! * [`content`]: the bytes of a segment, mapped or copied.
//! * [`recover`]: reading it all back; the decision table.

pub(crate) mod batch;
mod content;
pub(crate) mod group;
pub(crate) mod recover;
pub(crate) mod segment;
pub(crate) mod writer;

/// Name of the journal's directory inside the log's.
pub(crate) const DIR: &str = "journal";

/// The number of an event in the log as a whole; the first one is 1.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, bincode::Encode, bincode::Decode,
)]
pub(crate) struct Lsn(pub(crate) u64);

/// The number of a segment: its file name, and the seed of every CRC in it. The first one is 1.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, bincode::Encode, bincode::Decode,
)]
pub(crate) struct Epoch(pub(crate) u32);

/// Where the store says the journal goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Applied {
    /// Everything before this point is in the store.
    pub(crate) end: Position,
    /// The segment that the last open began with. It was durable, and known here, before the first
    /// batch was written to it, so a journal without it has lost something.
    pub(crate) opened: Epoch,
}

/// A point in the journal between two batches: everything before it, nothing behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(crate) struct Position {
    /// The last event before the point; 0 at the start.
    pub(crate) lsn: Lsn,
    /// The last batch before the point; 0 at the start.
    pub(crate) batch: u64,
    /// That batch's CRC; 0 at the start.
    pub(crate) crc: u32,
    /// The segment in which that batch stands; 0 at the start.
    pub(crate) epoch: Epoch,
    /// The byte behind that batch in that segment.
    pub(crate) offset: u64,
}
