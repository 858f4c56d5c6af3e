//! One segment file: its name, its head, and how it comes into being.
//!
//! ```text
//!  0                        4096                                        capacity
//!  +------------------------+---------+---------+-----+----------------+
//!  | head frame, then zeros | batch   | batch   | ... | zeros          |
//!  +------------------------+---------+---------+-----+----------------+
//! ```
//!
//! A segment is made under a temporary name and renamed to `<epoch>.wal` when its zeros and its
//! head are durable. So a file with a segment's name always has a whole head; one that has not is
//! damaged.

use std::io;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::frame::{self, Codec, FrameKind};
use crate::io::{
    Dir, File, OpenMode, remove_if_present, remove_left_over, write_all_at, write_zeros,
};
use crate::planted::planted;

use super::Epoch;

/// Where the first batch stands.
pub(crate) const FIRST_BATCH_OFFSET: u64 = 4096;
/// The version of the journal's format.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// The header of the frame that a full segment ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(crate) struct NextHeader {
    pub(crate) next: Epoch,
}

/// Bytes of that frame, at most: a batch leaves room for it.
pub(crate) const NEXT_BYTES_MAX: u64 = (frame::PREFIX_BYTES + 5) as u64;

/// The header of a segment's head frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(crate) struct SegmentHeader {
    pub(crate) version: u32,
    pub(crate) epoch: Epoch,
    pub(crate) store_id: u128,
    pub(crate) capacity: u64,
}

/// An open segment.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) file: Arc<dyn File>,
    pub(crate) epoch: Epoch,
    pub(crate) capacity: u64,
}

/// A segment's file name.
pub(crate) fn name(epoch: Epoch) -> String {
    format!("{:010}.wal", epoch.0)
}

/// The epoch in a segment's file name.
pub(crate) fn epoch_of(name: &str) -> Option<Epoch> {
    let digits = name.strip_suffix(".wal")?;
    let epoch = Epoch(digits.parse().ok()?);
    (name == self::name(epoch)).then_some(epoch)
}

fn temporary_name(epoch: Epoch) -> String {
    format!("{:010}.tmp", epoch.0)
}

/// Whether a file name is that of a segment in the making.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.ends_with(".tmp")
}

/// The path in messages.
pub(crate) fn display_name(epoch: Epoch) -> String {
    format!("{}/{}", super::DIR, name(epoch))
}

/// Makes a new, zero-filled segment; durable, with its name, when this returns. What a failure
/// leaves is a temporary file that the next open removes.
pub(crate) fn create(
    dir: &dyn Dir,
    epoch: Epoch,
    store_id: u128,
    capacity: u64,
) -> io::Result<Segment> {
    let temporary = temporary_name(epoch);
    remove_left_over(dir, &temporary)?;
    let file = dir.open(&temporary, OpenMode::CreateNew)?;
    publish(dir, &temporary, file, epoch, store_id, capacity, capacity)
        .inspect_err(|_| remove_half_made(dir, epoch))
}

/// Makes a segment of `epoch` out of one that is no longer needed and held batches up to `used`.
pub(crate) fn recycle(
    dir: &dyn Dir,
    old: Segment,
    used: u64,
    epoch: Epoch,
    store_id: u128,
) -> io::Result<Segment> {
    let temporary = temporary_name(epoch);
    // CRASH: a cut before the last rename leaves a temporary file, which the next open removes. A
    // reader that has the old name open sees zeros, and starts again at the store's new applied
    // LSN.
    dir.rename(&name(old.epoch), &temporary)?;
    // DURABILITY: the old name must be gone for good before what it names changes.
    if !planted("recycled_name_is_not_flushed") {
        dir.sync()?;
    }
    let zeros = if planted("recycled_segment_is_not_zeroed") { 0 } else { used };
    publish(dir, &temporary, old.file, epoch, store_id, old.capacity, zeros)
        .inspect_err(|_| remove_half_made(dir, epoch))
}

/// Removes what a failed creation left: on a full disk the half-made file is what fills it.
fn remove_half_made(dir: &dyn Dir, epoch: Epoch) {
    _ = remove_if_present(dir, &temporary_name(epoch));
    _ = remove_if_present(dir, &name(epoch));
}

fn publish(
    dir: &dyn Dir,
    temporary: &str,
    file: Arc<dyn File>,
    epoch: Epoch,
    store_id: u128,
    capacity: u64,
    zeros: u64,
) -> io::Result<Segment> {
    write_zeros(&*file, zeros)?;
    let header = SegmentHeader { version: FORMAT_VERSION, epoch, store_id, capacity };
    let header = frame::encode_header(&header);
    write_all_at(&*file, &frame::encode(FrameKind::Segment, Codec::Raw, 0, &header, b""), 0)?;
    // DURABILITY: zeros and head before the name, the name before the first batch is written.
    if !planted("segment_is_not_flushed") {
        file.sync_data()?;
    }
    dir.rename(temporary, &name(epoch))?;
    if !planted("segment_name_is_not_flushed") {
        dir.sync()?;
    }
    Ok(Segment { file, epoch, capacity })
}

/// Checks the head of segment `epoch`, whose first bytes are `bytes`.
///
/// # Errors
///
/// `Corrupt` with file and offset, `NewerFormat`, or `Corrupt` for a segment of another store.
pub(crate) fn check_head(bytes: &[u8], epoch: Epoch, store_id: u128) -> Result<SegmentHeader> {
    let file = display_name(epoch);
    let damaged = |what: &dyn std::fmt::Display| Error::corrupt(&file, 0, what);
    let head = frame::read(FrameKind::Segment, 0, bytes).map_err(|e| damaged(&e))?;
    let version = head.head.decode_version().map_err(|e| damaged(&e))?;
    if version > FORMAT_VERSION {
        return Err(Error::newer_format(&file, version, FORMAT_VERSION));
    }
    let header: SegmentHeader = head.head.decode().map_err(|e| damaged(&e))?;
    if header.epoch != epoch {
        return Err(damaged(&format_args!(
            "the segment says that it is number {}: a file was renamed or restored",
            header.epoch.0
        )));
    }
    if header.store_id != store_id && !planted("foreign_segment_is_taken") {
        return Err(damaged(&format_args!(
            "the segment belongs to another log ({:032x}, not {store_id:032x})",
            header.store_id
        )));
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_names_are_segments() {
        assert_eq!(epoch_of("0000000007.wal"), Some(Epoch(7)));
        for other in ["7.wal", "00000000007.wal", "0000000007.tmp", "x.wal", "+000000007.wal"] {
            assert_eq!(epoch_of(other), None, "{other}");
        }
    }
}
