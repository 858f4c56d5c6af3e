//! The write side of the journal: the active segment, spare segments made ahead of need, and
//! recycling.
//!
//! One thread at a time writes (the leader of group commit). Making spares and recycling run beside
//! it. Epochs are handed out in rising order and used in rising order; a segment that was made but
//! is overtaken by a larger one is retired unused.
//!
//! What can fail: making a segment (no space: nothing was written, the caller may try again later),
//! and writing or flushing a batch (the state of the file is unknown: the log stops).

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result};
use crate::frame::{self, Codec, FrameKind};
use crate::io::{Dir, remove_if_present, write_all_at};
use crate::locks::{Mutex, Rank};
use crate::planted::planted;

use super::batch::{BatchBuffer, SealedBatch};
use super::recover::CloseHeader;
use super::segment::{self, FIRST_BATCH_OFFSET, NEXT_BYTES_MAX, NextHeader, Segment};
use super::{Epoch, Position};

/// How many spare segments are kept at most.
const SPARES_MAX: usize = 2;
/// After a spare could not be made, how long not to try again: on a full disk each try takes space
/// from others.
const SPARE_PAUSE: Duration = Duration::from_secs(1);
/// The first segment of an opened log is this small, so that opening is cheap; the next are larger.
pub(crate) const FIRST_SEGMENT_BYTES: u64 = 1 << 20;

/// How a batch failed.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// No byte was written; the next batch may succeed.
    NothingWritten(Error),
    /// The outcome is unknown; nothing may be written any more.
    Fatal(Error),
}

/// The write side of the journal.
#[derive(Debug)]
pub(crate) struct Journal {
    dir: Arc<dyn Dir>,
    store_id: u128,
    segment_bytes: u64,
    sync: bool,
    active: Mutex<Active>,
    pool: Mutex<Pool>,
}

#[derive(Debug)]
struct Active {
    segment: Segment,
    end: Position,
    offset: u64,
}

#[derive(Debug)]
struct Pool {
    next_epoch: u32,
    /// Capacity of the next segment to be made.
    next_bytes: u64,
    /// The newest epoch that went into use: spares of earlier ones have been overtaken.
    in_use: Epoch,
    /// Ready to be written, in epoch order.
    spares: VecDeque<Segment>,
    /// Written full: the segment and the bytes used.
    full: VecDeque<(Segment, u64)>,
    /// Overtaken or too small: to be removed.
    retired: Vec<Epoch>,
    spare_failed: Option<Instant>,
}

impl Journal {
    /// Starts a fresh epoch behind every epoch in `existing` and behind `end`, whose segments the
    /// caller sets aside with [`Journal::retire`] once the store holds what is in them.
    pub(crate) fn start(
        dir: Arc<dyn Dir>,
        store_id: u128,
        end: Position,
        existing: &[Epoch],
        segment_bytes: u64,
        sync: bool,
    ) -> Result<Journal> {
        let newest = existing.last().copied().unwrap_or_default().max(end.epoch);
        let first_bytes = FIRST_SEGMENT_BYTES.min(segment_bytes);
        let epoch = Epoch(newest.0 + 1);
        let segment = segment::create(&*dir, epoch, store_id, first_bytes)
            .map_err(|e| Error::io("cannot make a journal segment", e))?;
        Ok(Journal {
            dir,
            store_id,
            segment_bytes,
            sync,
            active: Mutex::new(
                Rank::ActiveSegment,
                Active { segment, end, offset: FIRST_BATCH_OFFSET },
            ),
            pool: Mutex::new(
                Rank::SegmentPool,
                Pool {
                    next_epoch: epoch.0 + 1,
                    in_use: epoch,
                    next_bytes: (first_bytes * 4).min(segment_bytes),
                    spares: VecDeque::new(),
                    full: VecDeque::new(),
                    retired: Vec::new(),
                    spare_failed: None,
                },
            ),
        })
    }

    /// The segment that is being written.
    pub(crate) fn epoch(&self) -> Epoch {
        self.active.lock().segment.epoch
    }

    /// The point behind the last batch.
    pub(crate) fn end(&self) -> Position {
        self.active.lock().end
    }

    /// Bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        let active = self.active.lock().segment.capacity;
        let pool = self.pool.lock();
        let spares = pool.spares.iter().map(|s| s.capacity);
        active + spares.chain(pool.full.iter().map(|(s, _)| s.capacity)).sum::<u64>()
    }

    /// Makes the active segment one that has room for `batch`. Called by the one who then calls
    /// [`Journal::write`].
    pub(crate) fn make_room(&self, batch: &BatchBuffer) -> Result<(), WriteError> {
        let mut active = self.active.lock();
        let needed = batch.frame_len_max() + NEXT_BYTES_MAX;
        if active.offset + needed <= active.segment.capacity {
            return Ok(());
        }
        let next = self.take_segment(FIRST_BATCH_OFFSET + needed).map_err(|e| {
            let error = Error::io("cannot make a journal segment", e);
            match error.kind() {
                ErrorKind::Full => WriteError::NothingWritten(error),
                // A device that fails here is not to be trusted with the next batch.
                _ => WriteError::Fatal(error),
            }
        })?;
        self.seal(&active, next.epoch).map_err(WriteError::Fatal)?;
        let full = std::mem::replace(&mut active.segment, next);
        let used = std::mem::replace(&mut active.offset, FIRST_BATCH_OFFSET);
        let behind = Position { epoch: active.segment.epoch, ..active.end };
        self.pool.lock().full.push_back((full, used + NEXT_BYTES_MAX));
        if planted("full_segment_is_released_at_once") {
            _ = self.release(behind);
        }
        Ok(())
    }

    /// Writes a batch, for which [`Journal::make_room`] has made room, and makes it durable (with
    /// `Sync::Os`: hands it to the operating system). After an error nothing may be written any
    /// more.
    pub(crate) fn write(&self, batch: BatchBuffer, unix_micros: u64) -> Result<SealedBatch> {
        let mut active = self.active.lock();
        let sealed = batch.seal(active.segment.epoch, active.offset, &active.end, unix_micros);
        assert!(sealed.end.offset <= active.segment.capacity, "a batch fits its segment");
        let epoch = active.segment.epoch;
        sealed.write_to(&*active.segment.file).map_err(|e| fatal("write", epoch, e))?;
        if self.sync && !planted("batch_is_not_flushed") {
            // DURABILITY: nobody is told before this returns, and a failure is never retried.
            let flush = || active.segment.file.sync_data();
            let flushed = match planted("failed_flush_is_retried") {
                true => flush().or_else(|_| flush()),
                false => flush(),
            };
            flushed.map_err(|e| fatal("flush", epoch, e))?;
        }
        active.end = sealed.end;
        active.offset = sealed.end.offset;
        Ok(sealed)
    }

    /// Ends a full segment with the name of the next one, so that a journal without that one is
    /// seen to be short.
    fn seal(&self, active: &Active, next: Epoch) -> Result<()> {
        let header = frame::encode_header(&NextHeader { next });
        let epoch = active.segment.epoch;
        let record = frame::encode(FrameKind::Next, Codec::Raw, epoch.0, &header, b"");
        let file = &*active.segment.file;
        // DURABILITY: before the first batch of the next segment.
        write_all_at(file, &record, active.offset)
            .and_then(|()| if self.sync { file.sync_data() } else { Ok(()) })
            .map_err(|e| fatal("seal", epoch, e))
    }

    /// Whether a spare segment should be made, so that no append has to wait for one: the active
    /// one is half full and there is none.
    pub(crate) fn wants_spare(&self) -> bool {
        let half_full = {
            let active = self.active.lock();
            active.offset * 2 > active.segment.capacity
        };
        half_full && {
            let pool = self.pool.lock();
            let paused = pool.spare_failed.is_some_and(|at| at.elapsed() < SPARE_PAUSE);
            pool.spares.is_empty() && !paused
        }
    }

    /// Makes a spare segment if none is there.
    pub(crate) fn make_spare(&self) -> io::Result<()> {
        let (epoch, bytes) = {
            let mut pool = self.pool.lock();
            if !pool.spares.is_empty() {
                return Ok(());
            }
            let bytes = pool.next_bytes;
            pool.next_bytes = (bytes * 4).min(self.segment_bytes);
            (take_epoch(&mut pool), bytes)
        };
        let segment = segment::create(&*self.dir, epoch, self.store_id, bytes);
        let mut pool = self.pool.lock();
        pool.spare_failed = segment.is_err().then(Instant::now);
        pool.add_spare(segment?);
        Ok(())
    }

    /// A segment of at least `needed` bytes with an epoch above the active one's.
    fn take_segment(&self, needed: u64) -> io::Result<Segment> {
        let least = needed.next_multiple_of(4096);
        let (epoch, bytes) = {
            let mut pool = self.pool.lock();
            while let Some(spare) = pool.spares.pop_front() {
                if spare.capacity >= needed {
                    pool.in_use = spare.epoch;
                    return Ok(spare);
                }
                pool.retired.push(spare.epoch);
            }
            let bytes = pool.next_bytes.max(least);
            let epoch = take_epoch(&mut pool);
            pool.in_use = epoch;
            (epoch, bytes)
        };
        match segment::create(&*self.dir, epoch, self.store_id, bytes) {
            // Where there is no room for a large one, one that is just large enough will do.
            Err(e) if e.kind() == io::ErrorKind::StorageFull && least < bytes => {
                segment::create(&*self.dir, epoch, self.store_id, least)
            }
            other => other,
        }
    }

    /// Says that the store holds everything up to `applied`: recycles or removes the segments
    /// before that point's. The point's own segment stays: it says which one comes next.
    pub(crate) fn release(&self, applied: Position) -> Result<()> {
        loop {
            let (segment, used, epoch) = {
                let mut pool = self.pool.lock();
                match pool.full.front() {
                    Some((segment, _)) if segment.epoch < applied.epoch => {}
                    _ => break,
                }
                let Some((segment, used)) = pool.full.pop_front() else { break };
                if segment.capacity != self.segment_bytes || pool.spares.len() >= SPARES_MAX {
                    pool.retired.push(segment.epoch);
                    continue;
                }
                (segment, used, take_epoch(&mut pool))
            };
            let old = segment.epoch;
            match segment::recycle(&*self.dir, segment, used, epoch, self.store_id) {
                Ok(fresh) => self.pool.lock().add_spare(fresh),
                Err(error) => {
                    let name = segment::display_name(old);
                    let error = Error::io(format_args!("cannot recycle {name}"), error);
                    if error.kind() != ErrorKind::Full {
                        return Err(error);
                    }
                    // A file system that copies on write: remove the segment instead.
                    self.pool.lock().retired.push(old);
                }
            }
        }
        let retired = std::mem::take(&mut self.pool.lock().retired);
        self.remove(&retired, None)
    }

    /// Removes the segments of earlier epochs, but keeps `damaged` under another name, and removes
    /// what an interrupted creation left.
    pub(crate) fn retire(&self, old: &[Epoch], damaged: Option<Epoch>) -> Result<()> {
        let entries = self.dir.list().map_err(|e| Error::io("cannot list the journal", e))?;
        for name in entries.iter().filter_map(|entry| entry.name.to_str()) {
            if segment::is_temporary(name) {
                remove_if_present(&*self.dir, name)
                    .map_err(|e| Error::io(format_args!("cannot remove {name}"), e))?;
            }
        }
        self.remove(old, damaged)
    }

    fn remove(&self, epochs: &[Epoch], damaged: Option<Epoch>) -> Result<()> {
        if epochs.is_empty() {
            return Ok(());
        }
        for epoch in epochs {
            let name = segment::name(*epoch);
            let done = if damaged == Some(*epoch) {
                self.dir.rename(&name, &broken_name(*epoch))
            } else {
                remove_if_present(&*self.dir, &name)
            };
            done.map_err(|e| Error::io(format_args!("cannot remove {name}"), e))?;
        }
        self.dir.sync().map_err(|e| Error::io("cannot flush the journal's directory", e))
    }

    /// Removes the spare segments: a closed log keeps no space it does not need.
    pub(crate) fn drop_spares(&self) -> Result<()> {
        let unused: Vec<Epoch> = {
            let mut pool = self.pool.lock();
            let spares = std::mem::take(&mut pool.spares);
            let retired = std::mem::take(&mut pool.retired);
            spares.iter().map(|spare| spare.epoch).chain(retired).collect()
        };
        self.remove(&unused, None)
    }

    /// Writes the close record: whoever opens the log next knows that it is whole. What is left of
    /// the segment takes no space any more.
    pub(crate) fn close(&self) -> Result<()> {
        let active = self.active.lock();
        let header = frame::encode_header(&CloseHeader { at: active.end });
        let epoch = active.segment.epoch;
        let record = frame::encode(FrameKind::Close, Codec::Raw, epoch.0, &header, b"");
        if active.offset + record.len() as u64 > active.segment.capacity {
            return Ok(()); // a full segment ends cleanly without one
        }
        let file = &active.segment.file;
        write_all_at(&**file, &record, active.offset)
            .and_then(|()| file.sync_data())
            .map_err(|e| Error::io("cannot write the journal's close record", e))?;
        file.free_zeros(active.offset + record.len() as u64);
        Ok(())
    }
}

/// Whatever it was, nobody knows what is on the disk now: even without space it is no `Full`.
fn fatal(what: &str, epoch: Epoch, error: io::Error) -> Error {
    let name = segment::display_name(epoch);
    Error::io(format_args!("cannot {what} {name}"), error).with_kind(ErrorKind::Io)
}

impl Pool {
    /// Keeps a segment as a spare unless it was overtaken meanwhile: epochs are used in rising
    /// order.
    fn add_spare(&mut self, segment: Segment) {
        if segment.epoch < self.in_use {
            self.retired.push(segment.epoch);
            return;
        }
        let at = self.spares.partition_point(|spare| spare.epoch < segment.epoch);
        self.spares.insert(at, segment);
    }
}

fn take_epoch(pool: &mut Pool) -> Epoch {
    let epoch = Epoch(pool.next_epoch);
    pool.next_epoch += 1;
    epoch
}

/// The segments that were kept under such a name, relative to the log's directory.
pub(crate) fn set_aside(log_dir: &dyn Dir) -> Result<Vec<String>> {
    let Ok(dir) = log_dir.subdir(super::DIR, false) else { return Ok(Vec::new()) };
    let entries = dir.list().map_err(|e| Error::io("cannot list the journal", e))?;
    let names = entries.iter().filter_map(|entry| entry.name.to_str());
    let broken = names.filter(|name| name.contains(".wal.broken-"));
    let mut names: Vec<String> = broken.map(|name| format!("{}/{name}", super::DIR)).collect();
    names.sort();
    Ok(names)
}

/// The name under which a segment with a dropped batch is kept.
pub(crate) fn broken_name(epoch: Epoch) -> String {
    format!("{}.broken-{}", segment::name(epoch), epoch.0)
}
