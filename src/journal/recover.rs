//! Reading the journal back: from the applied position to its end, and the verdict at the first
//! bytes that are no batch.
//!
//! The verdict is one total function, [`decide`], over what was observed. Nothing here changes a
//! file: a torn batch is dropped by not being replayed, and the segment it stands in is set aside
//! by the caller. So recovery can be cut off and repeated at will (I4, I5).

use std::sync::Arc;

use crate::bytes::within;
use crate::error::{Error, ErrorKind, Result};
use crate::frame::{self, FrameError, FrameKind};
use crate::io::{Dir, File, OpenMode};
use crate::planted::planted;

use super::batch::{BatchHeader, END, has_zero_sector};
use super::content::Content;
use super::segment::{self, FIRST_BATCH_OFFSET, NextHeader};
use super::{Applied, Epoch, Lsn, Position};

/// What stands where the next batch was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Zeros to the end of the segment.
    Zeros,
    /// A whole frame of an epoch before this segment's.
    OlderEpoch,
    /// Bytes that stop short of the frame's end, or leave one of its sectors zero.
    Incomplete,
    /// Bytes in every sector, but no valid frame.
    Complete,
}

/// What valid batches stand behind it, in this segment or a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Later {
    /// None.
    Nothing,
    /// The very next batch, as the first one of the next segment that holds any.
    Successor,
    /// A batch after the expected one, so the expected one had been acknowledged.
    Beyond,
}

/// What to make of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The segment is full; the journal goes on in a later one.
    NextSegment,
    /// The journal ends here.
    CleanEnd,
    /// A write that was cut off: never acknowledged, dropped whole, reported.
    Torn,
    /// Damage, or a tear that happens to look complete: only the user can decide.
    Ambiguous,
    /// An acknowledged batch is damaged or missing: fail closed.
    Corrupt,
}

/// The recovery decision table.
pub(crate) fn decide(tail: Tail, later: Later) -> Verdict {
    match (tail, later) {
        (Tail::Zeros | Tail::OlderEpoch, Later::Nothing) => Verdict::CleanEnd,
        (Tail::Zeros | Tail::OlderEpoch, Later::Successor) => Verdict::NextSegment,
        (_, Later::Beyond) if planted("middle_is_cut_off") => Verdict::Torn,
        (Tail::Incomplete, Later::Nothing) if planted("torn_batch_is_corrupt") => Verdict::Corrupt,
        (Tail::Incomplete, Later::Nothing) => Verdict::Torn,
        (Tail::Complete, Later::Nothing) => Verdict::Ambiguous,
        (Tail::Incomplete | Tail::Complete, Later::Successor) => Verdict::Corrupt,
        (_, Later::Beyond) => Verdict::Corrupt,
    }
}

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The holder of the lock.
    Recover,
    /// The holder of the lock, told by the user to drop an ambiguous last batch.
    RecoverDropping,
    /// A reader, beside a writer that may be in the middle of a batch: the end is where the whole
    /// batches end, and what stands there is reported as dropped, for the reader to judge.
    Follow,
}

/// A batch that was dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub(crate) epoch: Epoch,
    pub(crate) offset: u64,
    pub(crate) batch: u64,
    pub(crate) verdict: Verdict,
}

/// What reading the journal found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replayed {
    /// The point behind the last whole batch.
    pub(crate) end: Position,
    /// Batches that were not in the store yet.
    pub(crate) batches: u64,
    /// The journal ends with a close record.
    pub(crate) closed: bool,
    /// The last write, if it was cut off.
    pub(crate) dropped: Option<Dropped>,
    /// All segments there are, in order.
    pub(crate) segments: Vec<Epoch>,
}

/// A batch on its way into the memtable.
pub(crate) struct ReplayedBatch {
    pub(crate) header: BatchHeader,
    /// Where the frame begins in its segment.
    pub(crate) offset: u64,
    pub(crate) end: Position,
    /// The frame's payload.
    pub(crate) payload: Arc<Vec<u8>>,
}

/// No close record is longer.
const CLOSE_BYTES_MAX: usize = 80;

/// The header of a close record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(crate) struct CloseHeader {
    pub(crate) at: Position,
}

struct Loaded {
    epoch: Epoch,
    content: Content,
}

/// The epochs of the segments in the journal's directory, in order.
pub(crate) fn list(dir: &dyn Dir) -> Result<Vec<Epoch>> {
    let entries = dir.list().map_err(|e| Error::io("cannot list the journal", e))?;
    let mut epochs: Vec<Epoch> =
        entries.iter().filter_map(|entry| segment::epoch_of(entry.name.to_str()?)).collect();
    epochs.sort_unstable();
    Ok(epochs)
}

fn load(dir: &dyn Dir, epoch: Epoch, store_id: u128, mode: Mode) -> Result<Loaded> {
    let name = segment::display_name(epoch);
    let failed = |e| Error::io(format_args!("cannot read {name}"), e);
    let file: Arc<dyn File> = dir.open(&segment::name(epoch), OpenMode::Read).map_err(failed)?;
    let content = match mode {
        Mode::Follow => Content::copy(&*file),
        _ => Content::map(&*file),
    };
    let content = content.map_err(failed)?;
    let header = segment::check_head(&content, epoch, store_id)?;
    let (len, capacity) = (content.len() as u64, header.capacity.max(FIRST_BATCH_OFFSET));
    if len < capacity {
        let message = format_args!("the segment is {len} bytes long instead of {capacity}");
        return Err(Error::corrupt(name, len, message));
    }
    Ok(Loaded { epoch, content })
}

fn last_nonzero(bytes: &[u8]) -> Option<usize> {
    const STEP: usize = 4096;
    let zeros = bytes.rchunks(STEP).take_while(|chunk| chunk.iter().all(|b| *b == 0)).count();
    let end = bytes.len().saturating_sub(zeros * STEP);
    bytes.get(..end)?.iter().rposition(|b| *b != 0)
}

/// Reads every batch behind `applied` in order and hands it to `sink`.
///
/// # Errors
///
/// `Corrupt` where an acknowledged batch is damaged or missing, `Ambiguous` where only the user can
/// tell, `NewerFormat`, I/O errors, and those of `sink`. No file is changed.
pub(crate) fn replay(
    dir: &dyn Dir,
    store_id: u128,
    applied: Applied,
    mode: Mode,
    sink: &mut dyn FnMut(ReplayedBatch) -> Result<()>,
) -> Result<Replayed> {
    let epochs = list(dir)?;
    let Applied { end: applied, opened } = applied;
    // Segments before this one hold nothing that the store has not.
    let first = applied.epoch.max(opened);
    let needed = epochs.iter().filter(|epoch| **epoch >= first);
    let segments =
        needed.map(|e| load(dir, *e, store_id, mode)).collect::<Result<Vec<Loaded>>>()?;
    for epoch in epochs.iter().filter(|epoch| **epoch < first) {
        check_owner(dir, *epoch, store_id)?;
    }
    let mut result = Replayed { end: applied, segments: epochs, ..Replayed::default() };
    // An older copy of the store may still go on in the segments that there are.
    let begins = first.0 == 0 || result.segments.contains(&first);
    if !begins && find_later(&segments, applied) != Later::Successor {
        return Err(missing(first, applied.batch + 1));
    }
    for (index, loaded) in segments.iter().enumerate() {
        let start = if loaded.epoch == applied.epoch { applied.offset } else { FIRST_BATCH_OFFSET };
        if planted("only_first_segment_is_replayed") && index > 0 {
            break;
        }
        if start > loaded.content.len() as u64 {
            let at = segment::display_name(loaded.epoch);
            let len = loaded.content.len();
            let message =
                format_args!("the segment is {len} bytes long, and the store goes on behind that");
            return Err(Error::corrupt(at, start, message)
                .with_hint("restore the journal directory from the same copy as events.redb"));
        }
        let stopped = replay_segment(loaded, start, &mut result, sink)?;
        let later = within(&*segments, index + 1..);
        if let Some(next) = next_at(loaded, stopped) {
            if !result.segments.contains(&next) {
                return Err(missing(next, result.end.batch + 1));
            }
            continue;
        }
        let tail = observe_tail(loaded, stopped);
        match decide(tail, observe_later(loaded, stopped, later, result.end)) {
            Verdict::NextSegment => {}
            Verdict::CleanEnd => break,
            verdict => {
                let dropped = Dropped {
                    epoch: loaded.epoch,
                    offset: stopped as u64,
                    batch: result.end.batch + 1,
                    verdict,
                };
                match (verdict, mode) {
                    (Verdict::Corrupt, _) => return Err(corrupt(&dropped)),
                    (Verdict::Ambiguous, Mode::Recover) => return Err(ambiguous(&dropped)),
                    _ => result.dropped = Some(dropped),
                }
                break;
            }
        }
    }
    Ok(result)
}

/// A segment that holds nothing of interest must all the same be ours.
fn check_owner(dir: &dyn Dir, epoch: Epoch, store_id: u128) -> Result<()> {
    let mut head = vec![0; FIRST_BATCH_OFFSET as usize];
    let file = match dir.open(&segment::name(epoch), OpenMode::Read) {
        // A reader: the writer has recycled it.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        file => file,
    };
    let failed = |e| Error::io(format_args!("cannot read {}", segment::display_name(epoch)), e);
    let n = file.and_then(|file| crate::io::read_full_at(&*file, &mut head, 0)).map_err(failed)?;
    segment::check_head(within(&*head, ..n), epoch, store_id).map(drop)
}

/// Replays the batches from `at` on, and returns the offset of the first bytes that are none.
fn replay_segment(
    segment: &Loaded,
    at: u64,
    result: &mut Replayed,
    sink: &mut dyn FnMut(ReplayedBatch) -> Result<()>,
) -> Result<usize> {
    let mut at = at as usize;
    while let Some(rest) = segment.content.get(at..) {
        if closes(segment, at, result.end) {
            result.closed = true;
            break;
        }
        let Some(batch) = next_batch(rest, at as u64, segment.epoch, result.end)? else { break };
        at = batch.end.offset as usize;
        result.end = batch.end;
        result.batches += 1;
        sink(batch)?;
    }
    Ok(at)
}

/// The batch that follows `end`, if the bytes `rest`, which stand at `at` of a segment, begin with
/// it.
fn next_batch(rest: &[u8], at: u64, epoch: Epoch, end: Position) -> Result<Option<ReplayedBatch>> {
    let Ok(frame) = frame::read(FrameKind::Batch, epoch.0, rest) else { return Ok(None) };
    let content = |e| Error::corrupt(segment::display_name(epoch), at, e);
    let header: BatchHeader = frame.head.decode().map_err(content)?;
    if header.batch != end.batch + 1
        || (header.previous_crc != end.crc && !planted("chain_is_not_checked"))
        || header.epoch != epoch
        || header.first_lsn != Lsn(end.lsn.0 + 1)
    {
        // A whole batch, but not the next one: `observe_later` will find it.
        return Ok(None);
    }
    let end = Position {
        lsn: Lsn(end.lsn.0 + u64::from(header.entries)),
        batch: header.batch,
        crc: frame.head.crc,
        epoch,
        offset: at + frame.head.frame_len() as u64,
    };
    let payload = Arc::new(frame.payload.to_vec());
    Ok(Some(ReplayedBatch { header, offset: at, end, payload }))
}

/// Reads on in the segment where an earlier [`replay`] has ended, at `end`, beside a writer. Looks
/// at what is new alone, so that a look costs the same wherever the segment is.
///
/// `None` when the zeros of the unused part do not stand behind what is new: then `replay` has to
/// judge. What is damaged farther behind is seen by the next replay, at the latest when the
/// store's applied position has moved.
///
/// # Errors
///
/// I/O errors, and those of `sink`.
pub(crate) fn read_on(
    dir: &dyn Dir,
    end: Position,
    sink: &mut dyn FnMut(ReplayedBatch) -> Result<()>,
) -> Result<Option<Position>> {
    const WINDOW_BYTES: usize = 64 << 10;
    const ZEROS_BYTES: usize = 4 << 10;
    let failed = |e| Error::io(format_args!("cannot read {}", segment::display_name(end.epoch)), e);
    let file = dir.open(&segment::name(end.epoch), OpenMode::Read).map_err(failed)?;
    let mut end = end;
    let mut window = vec![0; WINDOW_BYTES];
    loop {
        let filled = crate::io::read_full_at(&*file, &mut window, end.offset).map_err(failed)?;
        let mut rest = within(&*window, ..filled);
        let begun = end;
        while let Some(batch) = next_batch(rest, end.offset, end.epoch, end)? {
            rest = within(rest, (batch.end.offset - end.offset) as usize..);
            end = batch.end;
            sink(batch)?;
        }
        let ahead = rest.get(..ZEROS_BYTES);
        if ahead.is_some_and(|ahead| ahead.iter().all(|b| *b == 0)) {
            return Ok(Some(end));
        }
        // A batch that reaches beyond the window, or the end of the segment.
        if end == begun {
            let needed = match frame::read_head(FrameKind::Batch, end.epoch.0, rest) {
                Ok(head) => head.frame_len() + ZEROS_BYTES,
                Err(_) => return Ok(None),
            };
            if needed <= window.len() || filled < window.len() {
                return Ok(None);
            }
            window.resize(needed, 0);
        }
    }
}

/// Whether a close record of exactly this position stands at `at`.
fn closes(segment: &Loaded, at: usize, end: Position) -> bool {
    close_at(segment, at)
        .is_some_and(|close| close.at.batch == end.batch && close.at.crc == end.crc)
}

/// The segment that a full segment says comes next.
fn next_at(segment: &Loaded, at: usize) -> Option<Epoch> {
    let frame = frame::read(FrameKind::Next, segment.epoch.0, segment.content.get(at..)?).ok()?;
    frame.head.decode::<NextHeader>().ok().map(|header| header.next)
}

fn close_at(segment: &Loaded, at: usize) -> Option<CloseHeader> {
    let frame = frame::read(FrameKind::Close, segment.epoch.0, segment.content.get(at..)?).ok()?;
    frame.head.decode().ok()
}

fn observe_tail(segment: &Loaded, at: usize) -> Tail {
    let rest = within(&*segment.content, at..);
    let seed = segment.epoch.0;
    if let Ok(frame) = frame::read(FrameKind::Close, seed, rest) {
        // A close record, ours or one that tells of more than there is; what follows it counts.
        let behind = within(rest, frame.head.frame_len()..);
        return if last_nonzero(behind).is_none() { Tail::Zeros } else { Tail::Complete };
    }
    let Some(last) = last_nonzero(rest) else { return Tail::Zeros };
    // A close record or a seal that was cut off or damaged says nothing.
    if (rest.starts_with(b"EVLC") || rest.starts_with(b"EVLN")) && last < CLOSE_BYTES_MAX {
        return Tail::Zeros;
    }
    // Segments are zeroed before reuse, so this is a second line of defence.
    const OLDER_EPOCHS: u32 = 64;
    let mut older = (seed.saturating_sub(OLDER_EPOCHS)..seed).rev();
    if older.any(|seed| frame::read(FrameKind::Batch, seed, rest).is_ok()) {
        return Tail::OlderEpoch;
    }
    let incomplete = match frame::read_head(FrameKind::Batch, seed, rest) {
        Ok(head) => {
            let zeros_prove_nothing =
                head.decode::<BatchHeader>().is_ok_and(|header| header.zero_sectors);
            match rest.get(..head.frame_len()) {
                // Something stands behind it, and was written only after it had been flushed.
                Some(frame) if last >= frame.len() => false,
                // The last byte of a batch is its end mark.
                Some(frame) => {
                    frame.last() == Some(&0)
                        || (!zeros_prove_nothing && has_zero_sector(frame, at as u64))
                }
                None => true,
            }
        }
        Err(FrameError::Short) => true,
        // Not even the header is whole: the extent is what there is, and a whole batch ends with
        // its mark.
        Err(_) => {
            let extent = within(rest, ..=last);
            extent.last() != Some(&END) || has_zero_sector(extent, at as u64)
        }
    };
    if incomplete { Tail::Incomplete } else { Tail::Complete }
}

/// Searches this segment behind `at` and all later ones for a valid batch or close record.
fn observe_later(segment: &Loaded, at: usize, later: &[Loaded], end: Position) -> Later {
    // At `at` itself may stand a whole batch that does not follow on.
    let mut here = search(segment, at).chain(search_close(segment, at, end));
    if here.any(|batch| batch > end.batch) {
        return Later::Beyond;
    }
    find_later(later, end)
}

/// Searches whole segments for what comes behind `end`.
fn find_later(segments: &[Loaded], end: Position) -> Later {
    for segment in segments {
        if let Some(Ok(frame)) = segment
            .content
            .get(FIRST_BATCH_OFFSET as usize..)
            .map(|rest| frame::read(FrameKind::Batch, segment.epoch.0, rest))
        {
            let follows = frame.head.decode::<BatchHeader>().is_ok_and(|header| {
                header.batch == end.batch + 1 && header.previous_crc == end.crc
            });
            if follows {
                return Later::Successor;
            }
        }
        let start = FIRST_BATCH_OFFSET as usize;
        let mut found = search(segment, start).chain(search_close(segment, start, end));
        if found.any(|batch| batch > end.batch) {
            return Later::Beyond;
        }
    }
    Later::Nothing
}

/// The numbers of all valid batches that start at `from` or anywhere behind it.
fn search(segment: &Loaded, from: usize) -> impl Iterator<Item = u64> + '_ {
    magic_offsets(segment, from, b"EVLB").filter_map(|at| {
        let rest = segment.content.get(at..)?;
        let frame = frame::read(FrameKind::Batch, segment.epoch.0, rest).ok()?;
        Some(frame.head.decode::<BatchHeader>().ok()?.batch)
    })
}

/// The numbers of batches that close records behind `from` say were written, other than `end`'s.
fn search_close(segment: &Loaded, from: usize, end: Position) -> impl Iterator<Item = u64> + '_ {
    magic_offsets(segment, from, b"EVLC")
        .filter_map(|at| close_at(segment, at))
        .map(|close| close.at.batch)
        .filter(move |batch| *batch != end.batch)
}

fn magic_offsets<'a>(
    segment: &'a Loaded,
    from: usize,
    magic: &'static [u8; 4],
) -> impl Iterator<Item = usize> + 'a {
    let bytes = within(&*segment.content, from..);
    memchr::memmem::find_iter(bytes, magic).map(move |at| from + at)
}

fn missing(epoch: Epoch, batch: u64) -> Error {
    Error::corrupt(segment::display_name(epoch), None, "the segment is missing, and was in use")
        .with_batch(batch)
        .with_hint("restore the journal directory from the same copy as events.redb")
}

fn corrupt(dropped: &Dropped) -> Error {
    let message = format_args!(
        "batch {} is damaged or missing, and later batches prove that it had been acknowledged",
        dropped.batch
    );
    Error::corrupt(segment::display_name(dropped.epoch), dropped.offset, message)
        .with_batch(dropped.batch)
}

/// The error for an [`Verdict::Ambiguous`] last batch.
pub(crate) fn ambiguous(dropped: &Dropped) -> Error {
    let message = format_args!(
        "the last batch ({}) is damaged, and its bytes cannot tell whether it had been acknowledged",
        dropped.batch
    );
    Error::corrupt(segment::display_name(dropped.epoch), dropped.offset, message)
        .with_batch(dropped.batch)
        .with_kind(ErrorKind::Ambiguous)
        .with_hint(
            "no event was changed; `eventlog recover --drop-last-batch` opens the log without that \
             batch and keeps the segment beside it",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_decision_table_is_total_and_as_written() {
        use {Later::*, Tail::*, Verdict::*};
        let table = [
            (Zeros, Nothing, CleanEnd),
            (Zeros, Successor, NextSegment),
            (Zeros, Beyond, Corrupt),
            (OlderEpoch, Nothing, CleanEnd),
            (OlderEpoch, Successor, NextSegment),
            (OlderEpoch, Beyond, Corrupt),
            (Incomplete, Nothing, Torn),
            (Incomplete, Successor, Corrupt),
            (Incomplete, Beyond, Corrupt),
            (Complete, Nothing, Ambiguous),
            (Complete, Successor, Corrupt),
            (Complete, Beyond, Corrupt),
        ];
        for (tail, later, verdict) in table {
            assert_eq!(decide(tail, later), verdict, "{tail:?}, {later:?}");
        }
        let mut pairs: Vec<_> = table.iter().map(|(t, l, _)| format!("{t:?}{l:?}")).collect();
        pairs.sort();
        pairs.dedup();
        assert_eq!(pairs.len(), 4 * 3, "every pair once");
    }
}
