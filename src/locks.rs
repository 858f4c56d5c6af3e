//! Locks that are taken in one order.
//!
//! Every lock of a log has a [`Rank`]. A thread takes locks in rising rank alone, so threads that
//! wait for each other never form a ring. Builds with debug assertions check each acquisition and
//! panic, naming both locks; release builds contain nothing of the check.
//!
//! Builds with `--cfg eventlog_shuttle` use the locks of a scheduler that runs one thread at a time
//! and tries many orders; see `tests/interleavings.rs`. That scheduler has no clock: a wait with a
//! time limit is a wait without one.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

#[cfg(not(eventlog_shuttle))]
use parking_lot as imp;
#[cfg(not(eventlog_shuttle))]
pub(crate) use std::thread;

#[cfg(eventlog_shuttle)]
pub(crate) use shuttle::thread;
#[cfg(eventlog_shuttle)]
use shuttle_locks as imp;

/// The order in which a thread takes locks, the first one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// The process's lock of the log; held by a close to its end.
    Close,
    /// One flush to the store at a time.
    Flush,
    /// What a reader has read of the journal.
    JournalRead,
    /// The open batch and who leads.
    OpenBatch,
    /// The outcome of a batch.
    Completion,
    /// The sessions that have a handle.
    Registry,
    /// The next seq of a session.
    Progress,
    /// Which memtables there are.
    View,
    /// The content of a memtable.
    Memtable,
    /// One transaction that writes to the store, or one that opens it again.
    StoreWrite,
    /// The database handle of the store.
    Database,
    /// The segment that batches are written to.
    ActiveSegment,
    /// Spare and full segments.
    SegmentPool,
    /// What the background threads are asked for.
    Wishes,
    /// The handles of the background threads.
    Threads,
    /// Waiting for memory.
    Room,
}

/// A mutex with a rank.
#[derive(Debug)]
pub(crate) struct Mutex<T> {
    rank: Rank,
    inner: imp::Mutex<T>,
}

/// A reader-writer lock with a rank.
#[derive(Debug)]
pub(crate) struct RwLock<T> {
    rank: Rank,
    inner: imp::RwLock<T>,
}

/// A condition variable for a [`Mutex`].
#[derive(Debug, Default)]
pub(crate) struct Condvar(imp::Condvar);

/// Access to what a lock protects; the lock is released on drop.
pub(crate) struct Guard<G> {
    // Dropped first.
    inner: G,
    _held: Held,
}

pub(crate) type MutexGuard<'a, T> = Guard<imp::MutexGuard<'a, T>>;
pub(crate) type ReadGuard<'a, T> = Guard<imp::RwLockReadGuard<'a, T>>;
pub(crate) type WriteGuard<'a, T> = Guard<imp::RwLockWriteGuard<'a, T>>;

impl<T> Mutex<T> {
    pub(crate) const fn new(rank: Rank, value: T) -> Mutex<T> {
        Mutex { rank, inner: imp::Mutex::new(value) }
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let held = Held::take(self.rank);
        Guard { inner: self.inner.lock(), _held: held }
    }
}

impl<T> RwLock<T> {
    pub(crate) const fn new(rank: Rank, value: T) -> RwLock<T> {
        RwLock { rank, inner: imp::RwLock::new(value) }
    }

    #[track_caller]
    pub(crate) fn read(&self) -> ReadGuard<'_, T> {
        let held = Held::take(self.rank);
        Guard { inner: self.inner.read(), _held: held }
    }

    #[track_caller]
    pub(crate) fn write(&self) -> WriteGuard<'_, T> {
        let held = Held::take(self.rank);
        Guard { inner: self.inner.write(), _held: held }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl Condvar {
    pub(crate) fn notify_one(&self) {
        _ = self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        _ = self.0.notify_all();
    }

    /// Releases the mutex, waits for a notification and takes the mutex again.
    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(&mut guard.inner);
    }

    /// [`Condvar::wait`] for at most `limit`. Returns whether the time ran out.
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, limit: Duration) -> bool {
        self.0.wait_for(&mut guard.inner, limit).timed_out()
    }
}

impl<G: Deref> Deref for Guard<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.inner
    }
}

impl<G: DerefMut> DerefMut for Guard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.inner
    }
}

#[cfg(all(any(debug_assertions, eventlog_planted), not(eventlog_shuttle)))]
mod held {
    use std::cell::RefCell;

    use super::Rank;

    thread_local! {
        /// The ranks that this thread holds, in the order taken.
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    /// A rank that this thread holds.
    pub(crate) struct Held(Rank);

    impl Held {
        #[track_caller]
        pub(super) fn take(rank: Rank) -> Held {
            // No panic where a thread-local is gone: guards dropped while a thread ends.
            _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                let highest = held.iter().max().copied();
                // A second panic in the drop of what is unwound would end the process.
                assert!(
                    highest.is_none_or(|highest| highest < rank) || std::thread::panicking(),
                    "a lock of rank {rank:?} is taken while one of rank {highest:?} is held"
                );
                held.push(rank);
            });
            Held(rank)
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(at) = held.iter().rposition(|rank| *rank == self.0) {
                    held.remove(at);
                }
            });
        }
    }
}

#[cfg(not(all(any(debug_assertions, eventlog_planted), not(eventlog_shuttle))))]
mod held {
    use super::Rank;

    /// Nothing: ranks are not checked in this build.
    pub(crate) struct Held;

    impl Held {
        pub(super) fn take(_: Rank) -> Held {
            Held
        }
    }
}

use held::Held;

/// The scheduler's locks with the signatures of `parking_lot`.
#[cfg(eventlog_shuttle)]
mod shuttle_locks {
    use std::ops::{Deref, DerefMut};
    use std::sync::PoisonError;
    use std::time::Duration;

    use shuttle::sync;

    pub(super) use sync::{RwLockReadGuard, RwLockWriteGuard};

    #[derive(Debug)]
    pub(super) struct Mutex<T>(sync::Mutex<T>);
    #[derive(Debug)]
    pub(super) struct RwLock<T>(sync::RwLock<T>);
    #[derive(Debug, Default)]
    pub(super) struct Condvar(sync::Condvar);
    /// Empty only inside of a wait.
    pub(crate) struct MutexGuard<'a, T>(Option<sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub(super) const fn new(value: T) -> Mutex<T> {
            Mutex(sync::Mutex::new(value))
        }

        pub(super) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
        }
    }

    impl<T> RwLock<T> {
        pub(super) const fn new(value: T) -> RwLock<T> {
            RwLock(sync::RwLock::new(value))
        }

        pub(super) fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }

        pub(super) fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }

        pub(super) fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// A wait never runs out of time.
    pub(super) struct Waited;

    impl Waited {
        pub(super) fn timed_out(self) -> bool {
            false
        }
    }

    impl Condvar {
        pub(super) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(super) fn notify_all(&self) {
            self.0.notify_all();
        }

        pub(super) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            if let Some(inner) = guard.0.take() {
                guard.0 = Some(self.0.wait(inner).unwrap_or_else(PoisonError::into_inner));
            }
        }

        pub(super) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> Waited {
            self.wait(guard);
            Waited
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            match &self.0 {
                Some(guard) => guard,
                None => unreachable!("a guard is used while it waits"),
            }
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            match &mut self.0 {
                Some(guard) => guard,
                None => unreachable!("a guard is used while it waits"),
            }
        }
    }
}

#[cfg(all(test, debug_assertions, not(eventlog_shuttle)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn locks_taken_against_their_order_panic_in_a_debug_build() {
        let batch = Mutex::new(Rank::OpenBatch, ());
        let view = RwLock::new(Rank::View, ());
        let (first, second) = (batch.lock(), view.read());
        drop((first, second));
        let guard = view.read();
        let panic = catch_unwind(AssertUnwindSafe(|| drop(batch.lock()))).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains("OpenBatch") && text.contains("View"), "{text}");
        drop(guard);
        drop(batch.lock());
    }

    #[test]
    fn guards_may_be_dropped_in_any_order() {
        let batch = Mutex::new(Rank::OpenBatch, ());
        let view = RwLock::new(Rank::View, ());
        let (first, second) = (batch.lock(), view.write());
        drop(first);
        let memtable = RwLock::new(Rank::Memtable, ());
        drop(memtable.read());
        drop(second);
        drop(batch.lock());
    }
}
