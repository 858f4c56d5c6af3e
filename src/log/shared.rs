//! What all handles of a log that is open for writing share, and its threads.
//!
//! Threads: `eventlog-flush` commits what nobody waits for, `eventlog-checkpoint` writes the
//! memtable to the store (a large one with `eventlog-rows` beside it, see the store),
//! `eventlog-segments` makes journal segments ahead of need. The order of their locks is
//! [`Rank`].

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::error::{Error, ErrorKind, Result};
use crate::io::LockGuard;
use crate::journal::Position;
use crate::journal::group::Group;
use crate::journal::writer::Journal;
use crate::locks::thread::{self, JoinHandle};
use crate::locks::{Condvar, Mutex, Rank, RwLock};
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
    pub(super) registry: Mutex<Registry>,
    /// The number of the next new session.
    pub(super) next_number: AtomicU64,
    /// Bytes of the memtables, and of batches on their way into them.
    pub(super) memory_bytes: AtomicUsize,
    pub(super) open_bytes: AtomicUsize,
    /// Appends wait while there is more than this in memory.
    pub(super) pressure_bytes: AtomicUsize,
    pub(super) room: Mutex<Room>,
    pub(super) room_made: Condvar,
    pub(super) recovery: Recovery,
    one_flush: Mutex<()>,
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

/// The sessions that have a handle or something under way.
#[derive(Debug, Default)]
pub(super) struct Registry {
    sessions: HashMap<Arc<str>, Arc<SessionState>>,
    /// How many times sessions have been removed from it.
    removals: u64,
}

impl Registry {
    pub(super) fn remove(&mut self, id: &str) {
        self.removals += 1;
        self.sessions.remove(id);
    }

    /// Removes sessions without a handle and without anything under way: they can be read from the
    /// store again.
    fn remove_idle(&mut self) {
        self.removals += 1;
        self.sessions.retain(|_, state| Arc::strong_count(state) > 1);
    }
}

/// Room in memory, and why none is made.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// The error of the last flush, when the store had no space. The frozen memtable is kept, and
    /// the flush is tried again.
    pub(super) full: Option<Error>,
    /// When the first of those flushes failed.
    pub(super) full_since_unix_micros: u64,
}

/// How long the background thread waits before it tries a flush again that found no space.
const FULL_PAUSE: Duration = Duration::from_secs(1);

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
            view: RwLock::new(Rank::View, View { live, frozen: None }),
            registry: Mutex::new(Rank::Registry, Registry::default()),
            next_number: AtomicU64::new(last_number + 1),
            memory_bytes: AtomicUsize::new(0),
            open_bytes: AtomicUsize::new(0),
            room: Mutex::new(Rank::Room, Room::default()),
            room_made: Condvar::default(),
            recovery,
            one_flush: Mutex::new(Rank::Flush, ()),
            wishes: Mutex::new(Rank::Wishes, Wishes::default()),
            wished: Condvar::default(),
            threads: Mutex::new(Rank::Threads, Vec::new()),
            lock: Mutex::new(Rank::Close, Some(lock)),
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
        let current = thread::current().id();
        self.threads.lock().iter().any(|thread| thread.thread().id() == current)
    }

    fn spawn(self: &Arc<Shared>, name: &str, body: fn(&Shared)) -> Result<()> {
        let thread = start_thread(name, self, body)?;
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

    /// Returns the state of a session, shared by all its handles.
    pub(super) fn session(&self, id: &str) -> Result<Arc<SessionState>> {
        loop {
            let removals = {
                let registry = self.registry.lock();
                if let Some(state) = registry.sessions.get(id) {
                    return Ok(state.clone());
                }
                registry.removals
            };
            // The disk is read without a lock. A session that is not in the registry gets no
            // events, so its record holds as long as nothing has been removed meanwhile.
            let ring = planted("locks_form_a_ring").then(|| self.registry.lock());
            let durable = self.stored_progress(id)?;
            drop(ring);
            let mut registry = self.registry.lock();
            if let Some(state) = registry.sessions.get(id) {
                return Ok(state.clone());
            }
            if registry.removals != removals {
                continue;
            }
            let id: Arc<str> = id.into();
            let standing = Standing { assigned: durable.clone(), durable, purged: false };
            let progress = Mutex::new(Rank::Progress, standing);
            let state = Arc::new(SessionState { id: id.clone(), progress });
            registry.sessions.insert(id, state.clone());
            return Ok(state);
        }
    }

    /// Returns where a session without a handle stands.
    fn stored_progress(&self, id: &str) -> Result<Progress> {
        let record = self.snapshot()?.record(id)?;
        Ok(record.map_or_else(Progress::default, |record| Progress {
            number: record.number,
            declared: true,
            next_seq: record.next_seq,
            deleted: record.attributes.deleted_at().is_some(),
            run: record.last_run.map(Into::into),
            ends_open: None,
        }))
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
        let mut pause = None;
        loop {
            {
                let mut wishes = self.wishes.lock();
                let due = Instant::now() + pause.unwrap_or(self.options.checkpoint_interval);
                // The other thread's wishes wake this one as well. After a flush without space the
                // pause counts, not the wishes.
                while (pause.is_some() || !wishes.checkpoint) && !wishes.stop {
                    let left = due.saturating_duration_since(Instant::now());
                    if left.is_zero() || self.wished.wait_for(&mut wishes, left) {
                        break;
                    }
                }
                if wishes.stop {
                    return;
                }
                wishes.checkpoint = false;
            }
            pause = None;
            if self.group.is_stopped() {
                thread::sleep(Duration::from_millis(10));
                continue;
            }
            match self.write_store() {
                Ok(Some(applied)) => {
                    let mut wishes = self.wishes.lock();
                    wishes.release = Some(applied);
                    self.wished.notify_all();
                }
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::Full => pause = Some(FULL_PAUSE),
                // The failure has stopped the log, and every append says why.
                Err(_) => {}
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
                    self.stop(&error);
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

    /// Accepts nothing more, and tells those who wait for room. The caller holds no lock of a rank
    /// above [`Rank::Flush`].
    pub(super) fn stop(&self, cause: &Error) {
        tracing::error!(error = %cause, "the log accepts nothing more until it is opened again");
        self.group.poison(poisoned(cause));
        self.room_changed();
    }

    /// Wakes those who wait for room in memory: there is some, or a reason not to wait.
    fn room_changed(&self) {
        // Whoever has looked and not yet waited holds the lock.
        drop(self.room.lock());
        self.room_made.notify_all();
    }

    /// Stops the log after a failed write to the store, unless the store only had no space: then it
    /// is as it was, and the write can be tried again.
    pub(super) fn store_failed(&self, error: &Error) {
        if error.kind() != ErrorKind::Full || planted("full_store_stops_the_log") {
            self.stop(error);
        }
    }

    /// Takes note of a flush to the store that failed. Without space the frozen memtable is kept,
    /// and appends are refused once memory is full.
    fn flush_failed(&self, error: &Error) {
        if error.kind() != ErrorKind::Full || planted("full_store_stops_the_log") {
            let _view = planted("locks_form_a_ring").then(|| self.view.write());
            return self.stop(error);
        }
        let is_first = {
            let mut room = self.room.lock();
            let is_first = room.full.is_none();
            if is_first {
                room.full_since_unix_micros = now_unix_micros();
            }
            room.full = Some(error.clone().with_hint(
                "everything acknowledged is in the journal; free some space on the device, then append \
                 again",
            ));
            is_first
        };
        self.room_made.notify_all();
        if is_first {
            tracing::warn!(%error, "the store has no space; events stay in the journal and in memory");
        }
    }

    fn store_has_space(&self) {
        if self.room.lock().full.take().is_some() {
            tracing::info!("the store has space again");
        }
    }

    /// Writes everything durable to the store, and returns up to where the journal is no longer
    /// needed; nothing when there was nothing to write.
    fn write_store(&self) -> Result<Option<Position>> {
        let _one = self.one_flush.lock();
        // After a failed write nobody knows what the store holds. A closed log writes its last.
        if let Some(reason) = self.group.stopped().filter(|e| e.kind() != ErrorKind::Closed) {
            return Err(reason);
        }
        let mut applied = None;
        while let Some((frozen, is_left_over)) = self.freeze() {
            if planted("journal_goes_before_the_store") {
                _ = self.journal.release(frozen.end());
            }
            let written = self.store.checkpoint(&frozen.read(), self.options.background);
            applied = Some(written.inspect_err(|error| self.flush_failed(error))?);
            {
                let mut view = self.view.write();
                view.frozen = None;
                let bytes = view.live.bytes();
                self.memory_bytes.store(bytes, Ordering::Relaxed);
            }
            self.store_has_space();
            self.room_changed();
            if !is_left_over {
                break;
            }
        }
        if applied.is_some() {
            self.registry.lock().remove_idle();
        }
        Ok(applied)
    }

    /// Freezes the live memtable and returns it; one that a flush without space left comes first,
    /// and is marked as such. Returns nothing where there is nothing to write.
    fn freeze(&self) -> Option<(Arc<Memtable>, bool)> {
        let mut view = self.view.write();
        if let Some(frozen) = &view.frozen {
            return Some((frozen.clone(), true));
        }
        if view.live.is_empty() {
            return None;
        }
        let next = Arc::new(Memtable::new(view.live.end()));
        let frozen = std::mem::replace(&mut view.live, next);
        view.frozen = Some(frozen.clone());
        Some((frozen, false))
    }

    /// Since when the store has had no space, in microseconds since the Unix epoch.
    pub(super) fn full_since_unix_micros(&self) -> Option<u64> {
        let room = self.room.lock();
        room.full.is_some().then_some(room.full_since_unix_micros)
    }

    /// Ends the log: answers what was accepted, writes a last checkpoint and the close record,
    /// stops the threads and gives the lock back.
    pub(super) fn close(&self) -> Result<()> {
        // Held to the end: a second close waits for the first.
        let mut held = self.lock.lock();
        let Some(lock) = held.take() else { return Ok(()) };
        self.group.stop(self, Error::new(ErrorKind::Closed, "the log is closed"));
        self.room_changed();
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

/// Runs `body` on a thread of its own.
pub(super) fn start_thread(
    name: &str,
    shared: &Arc<Shared>,
    body: fn(&Shared),
) -> Result<JoinHandle<()>> {
    let shared = shared.clone();
    let thread = thread::Builder::new().name(name.to_owned()).spawn(move || body(&shared));
    thread.map_err(|e| {
        Error::io("cannot start a thread", e)
            .with_hint("raise the limit of processes and threads (`ulimit -u`)")
    })
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
