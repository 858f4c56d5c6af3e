//! What all handles of a log that is open for writing share, and its threads.
//!
//! Threads: `eventlog-flush` commits what nobody waits for, `eventlog-checkpoint` writes the
//! memtable to the store (a large one with `eventlog-rows` beside it, see the store),
//! `eventlog-segments` makes journal segments ahead of need. Lock order:
//! open batch, registry, a session's progress; the view's lock is taken alone or before a
//! memtable's.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex, RwLock};

use crate::error::{Error, ErrorKind, Result};
use crate::io::LockGuard;
use crate::journal::Position;
use crate::journal::group::Group;
use crate::journal::writer::Journal;
use crate::memtable::Memtable;
use crate::planted::planted;
use crate::store::Store;

use super::commit::OpenBatch;
use super::open::Recovery;
use super::options::Options;
use super::session::{Progress, SessionState, Standing};
use super::snapshot::Snapshot;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) options: Options,
    pub(super) store: Store,
    pub(super) journal: Journal,
    pub(super) group: Group<OpenBatch>,
    pub(super) view: RwLock<View>,
    pub(super) registry: Mutex<HashMap<Arc<str>, Arc<SessionState>>>,
    /// The number of the next new session.
    pub(super) next_number: AtomicU64,
    /// Bytes of the memtables, and of batches on their way into them.
    pub(super) memory_bytes: AtomicUsize,
    pub(super) open_bytes: AtomicUsize,
    /// Appends wait while there is more than this in memory.
    pub(super) pressure_bytes: AtomicUsize,
    pub(super) room: Mutex<()>,
    pub(super) room_made: Condvar,
    pub(super) recovery: Recovery,
    one_checkpoint: Mutex<()>,
    wishes: Mutex<Wishes>,
    wished: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
    lock: Mutex<Option<Box<dyn LockGuard>>>,
}

/// What is in memory.
#[derive(Debug)]
pub(super) struct View {
    pub(super) live: Arc<Memtable>,
    pub(super) frozen: Option<Arc<Memtable>>,
}

#[derive(Debug, Default)]
struct Wishes {
    checkpoint: bool,
    segment: bool,
    /// Up to here the journal is no longer needed.
    release: Option<Position>,
    stop: bool,
}

/// What [`Shared::start`] is given.
pub(super) struct Parts {
    pub(super) options: Options,
    pub(super) store: Store,
    pub(super) journal: Journal,
    pub(super) recovery: Recovery,
    pub(super) lock: Box<dyn LockGuard>,
    pub(super) last_number: u64,
}

impl Shared {
    pub(super) fn start(parts: Parts) -> Result<Arc<Shared>> {
        let Parts { options, store, journal, recovery, lock, last_number } = parts;
        let background = options.background;
        let live = Arc::new(Memtable::new(journal.end()));
        let shared = Arc::new(Shared {
            pressure_bytes: AtomicUsize::new(options.pressure_bytes),
            options,
            store,
            journal,
            group: Group::new(background),
            view: RwLock::new(View { live, frozen: None }),
            registry: Mutex::default(),
            next_number: AtomicU64::new(last_number + 1),
            memory_bytes: AtomicUsize::new(0),
            open_bytes: AtomicUsize::new(0),
            room: Mutex::default(),
            room_made: Condvar::new(),
            recovery,
            one_checkpoint: Mutex::default(),
            wishes: Mutex::default(),
            wished: Condvar::new(),
            threads: Mutex::default(),
            lock: Mutex::new(Some(lock)),
        });
        if background && let Err(error) = shared.start_threads() {
            // Those that did start end, and the lock is given back.
            _ = shared.close();
            return Err(error);
        }
        Ok(shared)
    }

    fn start_threads(self: &Arc<Shared>) -> Result<()> {
        self.spawn("eventlog-flush", |shared| shared.group.flush_until_stopped(shared))?;
        self.spawn("eventlog-checkpoint", Shared::write_checkpoints)?;
        self.spawn("eventlog-segments", Shared::make_segments)
    }

    /// Whether the caller runs on a thread of this log.
    pub(super) fn is_own_thread(&self) -> bool {
        let current = std::thread::current().id();
        self.threads.lock().iter().any(|thread| thread.thread().id() == current)
    }

    fn spawn(self: &Arc<Shared>, name: &str, body: fn(&Shared)) -> Result<()> {
        let shared = self.clone();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || body(&shared))
            .map_err(|e| {
                Error::io("cannot start a thread", e)
                    .with_hint("raise the limit of processes and threads (`ulimit -u`)")
            })?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// A view of everything durable.
    pub(super) fn snapshot(&self) -> Result<Snapshot> {
        // A checkpoint drops the frozen memtable only after its commit. The store is looked at
        // while the view is held, so what is missing in the one is in the other.
        let view = self.view.read();
        let reader = self.store.reader()?;
        let end = view.live.read().end;
        let memtables = view.frozen.iter().chain([&view.live]).cloned().collect();
        Ok(Snapshot::new(reader, memtables, end))
    }

    /// The state of a session, shared by all its handles.
    pub(super) fn session(&self, id: &str) -> Result<Arc<SessionState>> {
        let mut registry = self.registry.lock();
        if let Some(state) = registry.get(id) {
            return Ok(state.clone());
        }
        let record = self.snapshot()?.record(id)?;
        let deleted = record.as_ref().and_then(|record| record.attributes.deleted_at()).is_some();
        let durable = match record {
            Some(record) => Progress {
                number: record.number,
                declared: true,
                next_seq: record.next_seq,
                run: record.last_run.map(Into::into),
                ends_open: None,
            },
            None => Progress::default(),
        };
        let id: Arc<str> = id.into();
        let state = Arc::new(SessionState {
            id: id.clone(),
            progress: Mutex::new(Standing {
                assigned: durable.clone(),
                durable,
                deleted,
                purged: false,
            }),
        });
        registry.insert(id, state.clone());
        Ok(state)
    }

    pub(super) fn ask_for_checkpoint(&self) {
        let mut wishes = self.wishes.lock();
        if !wishes.checkpoint {
            wishes.checkpoint = true;
            self.wished.notify_all();
        }
    }

    pub(super) fn ask_for_segment(&self) {
        let mut wishes = self.wishes.lock();
        if !wishes.segment {
            wishes.segment = true;
            self.wished.notify_all();
        }
    }

    fn write_checkpoints(&self) {
        loop {
            {
                let mut wishes = self.wishes.lock();
                let due = Instant::now() + self.options.checkpoint_interval;
                // The other thread's wishes wake this one as well.
                while !wishes.checkpoint && !wishes.stop {
                    if self.wished.wait_until(&mut wishes, due).timed_out() {
                        break;
                    }
                }
                if wishes.stop {
                    return;
                }
                wishes.checkpoint = false;
            }
            if self.group.check().is_ok() {
                // A failure has stopped the log, and every append says why.
                if let Ok(Some(applied)) = self.write_store() {
                    let mut wishes = self.wishes.lock();
                    wishes.release = Some(applied);
                    self.wished.notify_all();
                }
            } else {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// Zeroes released segments and makes new ones, so that neither a checkpoint nor an append
    /// waits for it.
    fn make_segments(&self) {
        loop {
            let (release, segment) = {
                let mut wishes = self.wishes.lock();
                while !wishes.segment && wishes.release.is_none() && !wishes.stop {
                    self.wished.wait(&mut wishes);
                }
                if wishes.stop && wishes.release.is_none() {
                    return;
                }
                (wishes.release.take(), std::mem::take(&mut wishes.segment))
            };
            if let Some(Err(error)) = release.map(|applied| self.journal.release(applied)) {
                self.stop(&error);
            }
            if segment && let Err(error) = self.journal.make_spare() {
                let error = Error::io("cannot make a journal segment", error);
                // Without space the append that needs the segment will say so.
                if error.kind() != ErrorKind::Full {
                    self.group.poison(poisoned(&error));
                }
            }
        }
    }

    /// Writes everything durable to the store, and releases the journal that held it.
    pub(super) fn checkpoint(&self) -> Result<()> {
        let Some(applied) = self.write_store()? else { return Ok(()) };
        // DURABILITY: only now does the store hold what these segments hold.
        self.journal.release(applied).inspect_err(|error| self.stop(error))
    }

    /// Nothing more is accepted, and whoever waits for room is told so.
    fn stop(&self, cause: &Error) {
        self.group.poison(poisoned(cause));
        self.room_made.notify_all();
    }

    /// Writes everything durable to the store, and says up to where the journal is no longer
    /// needed; nothing when there was nothing to write.
    fn write_store(&self) -> Result<Option<Position>> {
        let _one = self.one_checkpoint.lock();
        let frozen = {
            let mut view = self.view.write();
            if view.frozen.is_some() {
                // An earlier checkpoint failed; its memtable is still read from.
                let failed = Error::new(ErrorKind::Poisoned, "an earlier checkpoint failed");
                self.group.poison(poisoned(&failed));
                return Err(self.group.check().err().unwrap_or(failed));
            }
            if view.live.is_empty() {
                return Ok(None);
            }
            let end = view.live.read().end;
            let next = Arc::new(Memtable::new(end));
            let frozen = std::mem::replace(&mut view.live, next);
            view.frozen = Some(frozen.clone());
            frozen
        };
        if planted("journal_goes_before_the_store") {
            _ = self.journal.release(frozen.end());
        }
        let applied = self
            .store
            .checkpoint(&frozen.read(), self.options.background)
            .inspect_err(|error| self.stop(error))?;
        {
            let mut view = self.view.write();
            view.frozen = None;
            let bytes = view.live.bytes();
            self.memory_bytes.store(bytes, Ordering::Relaxed);
        }
        self.room_made.notify_all();
        self.forget_idle_sessions();
        Ok(Some(applied))
    }

    /// Sessions without a handle and without anything under way can be read from the store again.
    fn forget_idle_sessions(&self) {
        self.registry.lock().retain(|_, state| Arc::strong_count(state) > 1);
    }

    /// Ends the log: answers what was accepted, writes a last checkpoint and the close record,
    /// stops the threads and gives the lock back.
    pub(super) fn close(&self) -> Result<()> {
        // Held to the end: a second close waits for the first.
        let mut held = self.lock.lock();
        let Some(lock) = held.take() else { return Ok(()) };
        self.group.stop(self, Error::new(ErrorKind::Closed, "the log is closed"));
        let whole = self.group.stopped().is_none_or(|e| e.kind() == ErrorKind::Closed);
        let mut result = Ok(());
        if whole {
            result = self.checkpoint().and_then(|()| self.journal.close());
        }
        {
            self.wishes.lock().stop = true;
            self.wished.notify_all();
        }
        let threads: Vec<_> = self.threads.lock().drain(..).collect();
        for thread in threads {
            // A thread of ours that panicked has said so on stderr; the log is closed all the same.
            _ = thread.join();
        }
        // The last checkpoint may have ended behind the thread that releases.
        let left = self.wishes.lock().release.take();
        if whole && result.is_ok() {
            result = left.map_or(Ok(()), |applied| self.journal.release(applied));
            result = result.and_then(|()| self.journal.drop_spares());
        }
        let closed = self.store.close();
        drop(lock);
        result.and(closed)
    }
}

/// The error of every append after `cause`.
pub(super) fn poisoned(cause: &Error) -> Error {
    Error::new(ErrorKind::Poisoned, format!("the log accepts nothing more: {cause}"))
        .with_source(cause.clone())
        .with_hint("open the log again; everything acknowledged is safe, and can still be read")
}

pub(crate) fn now_unix_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
