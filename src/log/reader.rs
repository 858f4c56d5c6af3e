//! A log that is open for reading alone, beside a process that writes it, or without one.
//!
//! A reader takes no lock of ours and writes nothing. A view is the store as it is, then the
//! journal's batches above its applied position. Batches that an earlier view has read are not read
//! again while that position stays where it is: a batch that was seen whole never changes. If a
//! checkpoint moves the position, the segments that were read may have been recycled under the
//! reader's hands, and it starts again.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::io::Dir;
use crate::journal::recover::{self, Mode, ReplayedBatch, Verdict};
use crate::journal::{self, Applied};
use crate::locks::{Mutex, Rank};
use crate::memtable::Memtable;
use crate::store::{self, Presence, Store};

use super::open::LOCK;
use super::options::Options;
use super::snapshot::Snapshot;

#[derive(Debug)]
pub(crate) struct Reader {
    dir: Arc<dyn Dir>,
    pub(super) store: Store,
    pub(super) max_entry_bytes: usize,
    /// What has been read of the journal, above this applied position.
    journal_read: Mutex<Option<(Applied, Arc<Memtable>)>>,
}

/// Damage seen beside a writer may be a batch in the making: look again this often, this far apart.
const TRIES: usize = 40;
/// The same where nobody writes.
const TRIES_ALONE: usize = 5;
const PAUSE: Duration = Duration::from_millis(5);

impl Reader {
    pub(super) fn open(dir: Arc<dyn Dir>, options: &Options) -> Result<Reader> {
        if store::presence(&*dir)? == Presence::Absent {
            let segments = match dir.subdir(journal::DIR, false) {
                Ok(journal) => recover::list(&*journal)?.len(),
                Err(_) => 0,
            };
            return Err(match segments {
                0 => Error::new(
                    ErrorKind::NotFound,
                    format!("there is no event log in {}", dir.path().display()),
                )
                .with_hint("`eventlog import` or `append` creates one"),
                n => store::lost(n),
            });
        }
        let store = Store::open_read_only(dir.clone(), options.cache_bytes)?;
        let max_entry_bytes = options.max_entry_bytes;
        Ok(Reader {
            dir,
            store,
            max_entry_bytes,
            journal_read: Mutex::new(Rank::JournalRead, None),
        })
    }

    pub(super) fn snapshot(&self) -> Result<Snapshot> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.try_snapshot() {
                Ok(Some(snapshot)) => return Ok(snapshot),
                // A checkpoint came in between; that cannot happen this often in a row.
                Ok(None) if tries < 100 * TRIES => {}
                Ok(None) => {
                    let message = "the log is checkpointed faster than it can be read";
                    return Err(Error::new(ErrorKind::Io, message)
                        .with_hint("try again when the writer is less busy"));
                }
                Err(error) => {
                    use ErrorKind::{Ambiguous, Corrupt, NotFound};
                    let passing = matches!(error.kind(), Corrupt | Ambiguous | NotFound);
                    // Without a writer now there may have been one a moment ago.
                    let limit = if self.has_writer()? { TRIES } else { TRIES_ALONE };
                    if !passing || tries >= limit {
                        return Err(error);
                    }
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Whether a process has the log open for writing.
    fn has_writer(&self) -> Result<bool> {
        self.dir
            .is_locked(LOCK)
            .map_err(|e| Error::io("cannot see whether the log is being written", e))
    }

    /// `None` when the store changed meanwhile.
    fn try_snapshot(&self) -> Result<Option<Snapshot>> {
        let had_writer = self.has_writer()?;
        let reader = self.store.reader()?;
        let applied = reader.applied();
        let mut journal_read = self.journal_read.lock();
        let memtable = match journal_read.take() {
            Some((then, memtable)) if then == applied => memtable,
            _ => Arc::new(Memtable::new(applied.end)),
        };
        let journal = match self.dir.subdir(journal::DIR, false) {
            // A log whose creation was cut off: nothing was ever written.
            Err(e) if e.kind() == io::ErrorKind::NotFound && applied.opened.0 == 0 => {
                return Ok(Some(Snapshot::new(reader, Vec::new(), applied.end)));
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(Error::corrupt(
                    journal::DIR,
                    None,
                    "the journal's directory is missing",
                )
                .with_hint("restore it from the same copy as events.redb"));
            }
            other => other.map_err(|e| Error::io("cannot open the journal's directory", e))?,
        };
        let mut add = |batch: ReplayedBatch| memtable.apply_replayed(&batch);
        // Where something has been read before, only what is new.
        let read_on = match had_writer && memtable.end() != applied.end {
            true => recover::read_on(&*journal, memtable.end(), &mut add)?,
            false => None,
        };
        if let Some(end) = read_on {
            if self.store.applied()? != applied {
                return Ok(None);
            }
            *journal_read = Some((applied, memtable.clone()));
            return Ok(Some(Snapshot::new(reader, vec![memtable], end)));
        }
        // INVARIANT I6: the memtable ends behind the last batch that is in it, also after an error.
        let from = Applied { end: memtable.end(), ..applied };
        let read = recover::replay(&*journal, self.store.id(), from, Mode::Follow, &mut add);
        if self.store.applied()? != applied {
            return Ok(None);
        }
        *journal_read = Some((applied, memtable.clone()));
        drop(journal_read);
        let read = read?;
        if let Some(dropped) = &read.dropped {
            // Beside a writer that is a batch in the making. Without one it is what a crash left: a
            // torn batch had never been acknowledged, anything else is not a reader's
            // to pass over.
            match (had_writer, self.has_writer()?) {
                (true, false) | (false, true) => return Ok(None),
                _ if dropped.verdict == Verdict::Torn => {}
                // A batch in the making stops short; this one has all its bytes.
                _ => return Err(recover::ambiguous(dropped)),
            }
        }
        Ok(Some(Snapshot::new(reader, vec![memtable], read.end)))
    }
}
