//! What happens when a log is opened for writing: the start-up table of DESIGN.md.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Owner, Result};
use crate::io::{Dir, LockGuard, LockOutcome};
use crate::journal::recover::{self, Mode, Replayed};
use crate::journal::segment;
use crate::journal::writer::{Journal, broken_name};
use crate::journal::{self, Applied};
use crate::memtable::Memtable;
use crate::planted::planted;
use crate::store::{self, Presence, Store};

use super::options::{Options, Sync};
use super::shared::{Parts, Shared, now_unix_micros};

/// The lock file's name.
pub(super) const LOCK: &str = "LOCK";

/// What opening the log found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// The last process closed the log.
    pub clean: bool,
    /// Batches that were read from the journal.
    pub replayed_batches: u64,
    /// Events in them.
    pub replayed_events: u64,
    /// A last write that had been cut off before it was acknowledged.
    pub dropped: Option<DroppedBatch>,
}

/// A batch that was not taken over; the segment it stands in is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DroppedBatch {
    /// The number it would have had.
    pub batch: u64,
    /// The segment, relative to the log's directory.
    pub segment: String,
    /// Where in it the batch began.
    pub offset: u64,
    /// The name under which the segment is kept.
    pub kept_as: String,
}

/// Opens the log in `dir`: lock, store, journal, replay, a first checkpoint, a fresh segment.
///
/// An error at any step leaves the log as it was, and the next attempt begins at the first step.
pub(super) fn open(dir: &Arc<dyn Dir>, options: Options) -> Result<Arc<Shared>> {
    let lock = lock(&**dir)?;
    let journal_dir = prepare(&**dir, &options)?;
    let store = Store::open(dir.clone(), options.cache_bytes)?;
    let reader = store.reader()?;
    let applied = reader.applied();
    let mut last_number = reader.last_number()?;
    drop(reader);

    let mode = if options.drop_last_batch { Mode::RecoverDropping } else { Mode::Recover };
    let (replayed, memtable) = replay(&*journal_dir, &store, applied, mode, &options)?;
    let end = replayed.end;
    if replayed.batches > 0 {
        // Whatever was in them: the applied position must move before their segments go.
        if !planted("recovery_writes_no_checkpoint") {
            store.checkpoint(&memtable.read(), options.background)?;
        }
        last_number = store.reader()?.last_number()?;
    }
    // The old segments go only when the store holds what is in them and a newer epoch exists;
    // whatever cut comes in between, the next open finds the same end again (I4, I5).
    let journal = Journal::start(
        journal_dir,
        store.id(),
        end,
        &replayed.segments,
        options.segment_bytes,
        options.sync == Sync::Always,
    )?;
    let damaged = replayed.dropped.as_ref().map(|dropped| dropped.epoch);
    // DURABILITY: the new segment is known to the store before anything is written to it, and the
    // old ones go only when they are no longer where a recovery would begin.
    store.set_opened(journal.epoch())?;
    journal.retire(&replayed.segments, damaged)?;
    let recovery = Recovery {
        clean: replayed.closed || (applied.opened.0 == 0 && end.batch == 0),
        replayed_batches: replayed.batches,
        replayed_events: end.lsn.0 - applied.end.lsn.0,
        dropped: replayed.dropped.map(|dropped| DroppedBatch {
            batch: dropped.batch,
            segment: segment::display_name(dropped.epoch),
            offset: dropped.offset,
            kept_as: format!("{}/{}", journal::DIR, broken_name(dropped.epoch)),
        }),
    };
    Shared::start(Parts { options, store, journal, recovery, lock, last_number })
}

fn replay(
    dir: &dyn Dir,
    store: &Store,
    applied: Applied,
    mode: Mode,
    options: &Options,
) -> Result<(Replayed, Memtable)> {
    let mut memtable = Memtable::new(applied.end);
    let replayed = recover::replay(dir, store.id(), applied, mode, &mut |batch| {
        // I10: however long the journal, memory stays bounded.
        if memtable.bytes() >= options.pressure_bytes {
            store.checkpoint(&memtable.read(), options.background)?;
            let end = memtable.read().end;
            memtable = Memtable::new(end);
        }
        memtable.apply_replayed(&batch)
    })?;
    Ok((replayed, memtable))
}

/// Makes sure that store and journal directory exist, or that nothing is lost where one does not.
fn prepare(dir: &dyn Dir, options: &Options) -> Result<Arc<dyn Dir>> {
    let found = match dir.subdir(journal::DIR, false) {
        Ok(journal) => Some(journal),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => return Err(Error::io("cannot open the journal's directory", e)),
    };
    if store::presence(dir)? == Presence::Absent {
        let segments = found.as_deref().map_or(Ok(Vec::new()), recover::list)?;
        if !segments.is_empty() {
            return Err(store::lost(segments.len()));
        }
        if !options.create {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("there is no event log in {}", dir.path().display()),
            ));
        }
        // The journal comes after the store, so a journal without a store is a loss, not a
        // beginning.
        store::create(dir, uuid::Uuid::now_v7().as_u128())?;
    }
    let journal = match found {
        Some(journal) => journal,
        None => dir
            .subdir(journal::DIR, true)
            .map_err(|e| Error::io("cannot make the journal's directory", e))?,
    };
    // DURABILITY: also when it was there: whoever made it may have been cut off before this.
    if !planted("log_directory_is_not_flushed") {
        dir.sync().map_err(|e| Error::io("cannot flush the log's directory", e))?;
    }
    Ok(journal)
}

fn lock(dir: &dyn Dir) -> Result<Box<dyn LockGuard>> {
    let owner = format!("pid {}\nsince {}\n", std::process::id(), now_unix_micros());
    let mut patience = 10;
    loop {
        let outcome = dir
            .try_lock(LOCK, owner.as_bytes())
            .map_err(|e| Error::io(format_args!("cannot lock {}", dir.path().display()), e))?;
        match outcome {
            LockOutcome::Acquired(guard) => return Ok(guard),
            // Its owner may not have written its name yet, or is a reader that only looks whether
            // somebody writes.
            LockOutcome::Busy(_) if patience > 0 => {
                patience -= 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            LockOutcome::Busy(content) => return Err(locked(dir, &content)),
        }
    }
}

fn locked(dir: &dyn Dir, content: &[u8]) -> Error {
    let text = String::from_utf8_lossy(content);
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    let owner = Owner {
        pid: field("pid ").and_then(|pid| u32::try_from(pid).ok()),
        since_unix_micros: field("since "),
    };
    let who = owner.pid.map_or("another process".to_owned(), |pid| format!("process {pid}"));
    let message = format!("the log in {} is being written by {who}", dir.path().display());
    Error::new(ErrorKind::Locked, message).with_owner(owner).with_hint(
        "reading works meanwhile (`show`, `sessions`, `verify`, `export`); to write, end that process \
         or go through it",
    )
}
