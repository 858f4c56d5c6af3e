//! Group commit: many threads add to one open batch, one of them commits it for all.
//!
//! There is no writer thread. Whoever adds to the batch while nobody leads becomes the leader: it
//! takes the batch, commits it (one write, one flush), tells the others, and passes the lead on to
//! one that waits for the next batch. A lone appender therefore pays no hand-over. Additions that
//! nobody waits for are committed by a flusher thread, which leads when no appender does.
//!
//! Invariants: at most one leader at a time, so batches are committed one after the other (I2, I3);
//! every addition to an open batch is answered, with success or with the error of its batch or of
//! the one before it (I7).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use crate::error::{Error, ErrorKind, Result};
use crate::locks::{Condvar, Mutex, MutexGuard, Rank, thread};

/// What the batches are made of and how they become durable.
pub(crate) trait Commit {
    /// An open batch.
    type Batch: Default;

    /// Makes a batch durable and visible. Called by one thread at a time, which holds no lock.
    fn commit(&self, batch: &mut Self::Batch) -> Result<(), Failed>;

    /// Takes back what was promised to the entries of two batches that will not be committed: the
    /// failed one and the open one behind it. Called under the lock of the open batch, so that no
    /// promise is made meanwhile.
    fn roll_back(&self, failed: &Self::Batch, open: &Self::Batch);
}

/// Why a batch was not committed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: Error,
    /// The outcome is unknown: refuse everything from now on with this error.
    pub(crate) stop: Option<Error>,
}

/// The group.
#[derive(Debug)]
pub(crate) struct Group<B> {
    state: Mutex<State<B>>,
    flusher: Condvar,
    /// Whether `state` has a reason to be stopped, for those who hold a lock of a higher rank.
    is_stopped: AtomicBool,
}

#[derive(Debug)]
struct State<B> {
    open: B,
    /// Something was added to `open`.
    dirty: bool,
    completion: Arc<Completion>,
    leading: bool,
    /// The lead has been given to the flusher.
    flusher_leads: bool,
    has_flusher: bool,
    /// Why nothing is accepted any more.
    stopped: Option<Error>,
}

/// What became of a batch.
#[derive(Debug)]
pub(crate) struct Completion {
    state: Mutex<CompletionState>,
    condvar: Condvar,
}

impl Default for Completion {
    fn default() -> Completion {
        let state = Mutex::new(Rank::Completion, CompletionState::default());
        Completion { state, condvar: Condvar::default() }
    }
}

#[derive(Debug, Default)]
struct CompletionState {
    result: Option<Result<()>>,
    /// Threads that wait, or will in a moment.
    waiters: usize,
    /// One of the waiters is to lead.
    lead: bool,
    wakers: Vec<Waker>,
}

/// What the caller of [`Group::add`] has to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Call [`Group::lead`].
    Lead,
    /// Call [`Group::wait`], or not.
    Follow,
}

impl<B: Default> Group<B> {
    /// A group; `has_flusher` says that a thread runs [`Group::flush_until_stopped`].
    pub(crate) fn new(has_flusher: bool) -> Group<B> {
        let state = State {
            open: B::default(),
            dirty: false,
            completion: Arc::default(),
            leading: false,
            flusher_leads: false,
            has_flusher,
            stopped: None,
        };
        Group {
            state: Mutex::new(Rank::OpenBatch, state),
            flusher: Condvar::default(),
            is_stopped: AtomicBool::new(false),
        }
    }

    /// Adds to the open batch. `will_wait`: the caller calls [`Group::finish`] at once.
    ///
    /// # Errors
    ///
    /// Those of `add`, which must then have added nothing, and the reason for which the group
    /// stopped.
    pub(crate) fn add<T>(
        &self,
        will_wait: bool,
        add: impl FnOnce(&mut B) -> Result<T>,
    ) -> Result<(T, Arc<Completion>, Role)> {
        let mut state = self.state.lock();
        if let Some(reason) = &state.stopped {
            return Err(reason.clone());
        }
        let added = add(&mut state.open)?;
        state.dirty = true;
        let completion = state.completion.clone();
        let mut role = Role::Follow;
        if state.leading {
            if will_wait {
                completion.state.lock().waiters += 1;
            }
        } else if will_wait {
            state.leading = true;
            role = Role::Lead;
        } else if state.has_flusher {
            state.leading = true;
            state.flusher_leads = true;
            drop(state);
            self.flusher.notify_one();
        }
        Ok((added, completion, role))
    }

    /// Waits for the batch of an `add` that had `will_wait`.
    pub(crate) fn finish(
        &self,
        commit: &impl Commit<Batch = B>,
        completion: &Completion,
        role: Role,
    ) -> Result<()> {
        match role {
            Role::Lead => self.lead(commit, completion),
            Role::Follow => self.follow(commit, completion),
        }
    }

    /// Waits for the batch of any `add`.
    pub(crate) fn wait(
        &self,
        commit: &impl Commit<Batch = B>,
        completion: &Completion,
    ) -> Result<()> {
        {
            let mut state = self.state.lock();
            let mut waiting = completion.state.lock();
            if let Some(result) = &waiting.result {
                return result.clone();
            }
            // A batch that is not the open one has a leader who has just not answered yet.
            let is_open = std::ptr::eq(&*state.completion, completion);
            if is_open && !state.leading {
                state.leading = true;
                drop((waiting, state));
                return self.lead(commit, completion);
            }
            waiting.waiters += 1;
        }
        self.follow(commit, completion)
    }

    /// Commits the open batch, if there is something in it and nobody leads.
    pub(crate) fn flush(&self, commit: &impl Commit<Batch = B>) -> Result<()> {
        let completion = {
            let state = self.state.lock();
            if !state.dirty {
                return Ok(());
            }
            state.completion.clone()
        };
        self.wait(commit, &completion)
    }

    fn follow(&self, commit: &impl Commit<Batch = B>, completion: &Completion) -> Result<()> {
        let mut waiting = completion.state.lock();
        loop {
            if let Some(result) = &waiting.result {
                return result.clone();
            }
            if std::mem::take(&mut waiting.lead) {
                drop(waiting);
                return self.lead(commit, completion);
            }
            completion.condvar.wait(&mut waiting);
        }
    }

    /// Commits until `own` is done, then passes the lead on.
    fn lead(&self, commit: &impl Commit<Batch = B>, own: &Completion) -> Result<()> {
        let mut wakers = Vec::new();
        let result = loop {
            let more = self.commit_one(commit, &mut wakers);
            let result = own.state.lock().result.clone();
            if let Some(result) = result {
                if more {
                    self.pass_on();
                }
                break result;
            }
            if !more {
                break self.follow(commit, own);
            }
        };
        // Whatever a woken task does, it does not do it to a leader.
        wakers.into_iter().for_each(Waker::wake);
        result
    }

    /// Commits the open batch. Returns whether the caller still leads: there is another one. The
    /// tasks to be woken are the caller's to wake.
    fn commit_one(&self, commit: &impl Commit<Batch = B>, wakers: &mut Vec<Waker>) -> bool {
        let (mut batch, completion) = {
            let mut state = self.state.lock();
            if !state.dirty {
                state.leading = false;
                return false;
            }
            take(&mut state)
        };
        // A leader that is gone would be waited for until the end of time.
        let outcome = catch_unwind(AssertUnwindSafe(|| commit.commit(&mut batch)));
        let outcome = outcome.unwrap_or_else(|_| {
            let error = Error::new(ErrorKind::Poisoned, "a defect in the log stopped it");
            Err(Failed { stop: Some(error.clone()), error })
        });
        let mut state = self.state.lock();
        let mut failed = None;
        let result = match outcome {
            Ok(()) => Ok(()),
            Err(Failed { error, stop }) => {
                // The open batch was numbered as the successor of the failed one: it fails with it.
                let (open, behind) = take(&mut state);
                commit.roll_back(&batch, &open);
                failed = Some(behind);
                if let Some(stop) = stop {
                    self.set_stopped(&mut state, stop);
                }
                Err(error)
            }
        };
        let more = state.dirty;
        if !more {
            state.leading = false;
        }
        drop(state);
        if let Some(failed) = failed {
            failed.complete(result.clone(), wakers);
        }
        completion.complete(result, wakers);
        more
    }

    /// Gives the lead to somebody who waits for the open batch, or to the flusher.
    fn pass_on(&self) {
        let mut state = self.state.lock();
        let completion = state.completion.clone();
        {
            let mut waiting = completion.state.lock();
            if waiting.waiters > 0 {
                waiting.lead = true;
                drop((waiting, state));
                completion.condvar.notify_one();
                return;
            }
        }
        if state.has_flusher {
            state.flusher_leads = true;
            drop(state);
            self.flusher.notify_one();
        } else {
            // Whoever waits next will lead.
            state.leading = false;
        }
    }

    /// The flusher's loop: leads whenever it is given the lead, until [`Group::stop`].
    pub(crate) fn flush_until_stopped(&self, commit: &impl Commit<Batch = B>) {
        let mut state = self.state.lock();
        loop {
            if std::mem::take(&mut state.flusher_leads) {
                drop(state);
                let mut more = true;
                while more {
                    let mut wakers = Vec::new();
                    more = self.commit_one(commit, &mut wakers);
                    wakers.into_iter().for_each(Waker::wake);
                }
                state = self.state.lock();
            } else if !state.has_flusher {
                return;
            } else {
                self.flusher.wait(&mut state);
            }
        }
    }

    /// Accepts nothing more, answers what was accepted, and ends the flusher.
    pub(crate) fn stop(&self, commit: &impl Commit<Batch = B>, reason: Error) {
        loop {
            let mut state = self.state.lock();
            self.set_stopped(&mut state, reason.clone());
            if state.has_flusher {
                state.has_flusher = false;
                self.flusher.notify_one();
            }
            if !state.dirty && !state.leading {
                return;
            }
            let completion = state.completion.clone();
            let dirty = state.dirty;
            drop(state);
            if dirty {
                _ = self.wait(commit, &completion);
            } else {
                thread::yield_now();
            }
        }
    }

    /// Refuses everything from now on.
    pub(crate) fn poison(&self, reason: Error) {
        self.set_stopped(&mut self.state.lock(), reason);
    }

    /// Sets the reason to be stopped, unless there is one: the first reason is kept.
    fn set_stopped(&self, state: &mut State<B>, reason: Error) {
        state.stopped.get_or_insert(reason);
        self.is_stopped.store(true, Ordering::Release);
    }

    /// Whether nothing is accepted any more, without taking a lock.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Why nothing is accepted any more.
    pub(crate) fn stopped(&self) -> Option<Error> {
        self.state.lock().stopped.clone()
    }

    /// Whether nothing is accepted any more; `Err` says why.
    pub(crate) fn check(&self) -> Result<()> {
        self.stopped().map_or(Ok(()), Err)
    }
}

fn take<B: Default>(state: &mut MutexGuard<'_, State<B>>) -> (B, Arc<Completion>) {
    state.dirty = false;
    (std::mem::take(&mut state.open), std::mem::take(&mut state.completion))
}

impl Completion {
    /// The result, if there is one.
    pub(crate) fn result(&self) -> Option<Result<()>> {
        self.state.lock().result.clone()
    }

    /// The result, or a promise to wake the task when it is there.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let mut state = self.state.lock();
        if let Some(result) = &state.result {
            return Poll::Ready(result.clone());
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            state.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }

    fn complete(&self, result: Result<()>, wakers: &mut Vec<Waker>) {
        let wake = {
            let mut state = self.state.lock();
            state.result = Some(result);
            wakers.append(&mut state.wakers);
            state.waiters > 0
        };
        if wake {
            self.condvar.notify_all();
        }
    }
}

#[cfg(all(test, not(eventlog_shuttle)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Sink {
        committed: parking_lot::Mutex<Vec<u32>>,
        leaders: AtomicUsize,
        fail_on: Option<u32>,
        rolled_back: AtomicUsize,
    }

    impl Commit for Sink {
        type Batch = Vec<u32>;

        fn commit(&self, batch: &mut Vec<u32>) -> Result<(), Failed> {
            let batch = std::mem::take(batch);
            assert!(!batch.is_empty(), "no empty batch is committed");
            assert_eq!(self.leaders.fetch_add(1, Ordering::SeqCst), 0, "one leader at a time");
            std::thread::yield_now();
            let fails = self.fail_on.is_some_and(|n| batch.contains(&n));
            if !fails {
                self.committed.lock().extend(batch);
            }
            self.leaders.fetch_sub(1, Ordering::SeqCst);
            if fails {
                let error = Error::new(ErrorKind::Io, "planted");
                return Err(Failed { stop: Some(error.clone()), error });
            }
            Ok(())
        }

        fn roll_back(&self, _: &Vec<u32>, _: &Vec<u32>) {
            self.rolled_back.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn push(group: &Group<Vec<u32>>, sink: &Sink, n: u32) -> Result<()> {
        let (_, completion, role) = group.add(true, |batch| {
            batch.push(n);
            Ok(())
        })?;
        group.finish(sink, &completion, role)
    }

    #[test]
    fn every_waiting_thread_is_answered_after_its_commit() {
        let (group, sink) = (Group::new(false), Sink::default());
        std::thread::scope(|scope| {
            for thread in 0..8u32 {
                let (group, sink) = (&group, &sink);
                scope.spawn(move || {
                    for n in 0..200 {
                        let n = thread * 1000 + n;
                        push(group, sink, n).unwrap();
                        assert!(sink.committed.lock().contains(&n));
                    }
                });
            }
        });
        assert_eq!(sink.committed.lock().len(), 1600);
    }

    #[test]
    fn what_nobody_waits_for_is_committed_by_the_flusher() {
        let (group, sink) = (Group::new(true), Sink::default());
        std::thread::scope(|scope| {
            scope.spawn(|| group.flush_until_stopped(&sink));
            let mut last = None;
            for n in 0..100 {
                let added = group.add(false, |batch: &mut Vec<u32>| {
                    batch.push(n);
                    Ok(())
                });
                last = Some(added.unwrap().1);
            }
            let last = last.unwrap();
            while last.result().is_none() {
                std::thread::yield_now();
            }
            group.stop(&sink, Error::new(ErrorKind::Closed, "closed"));
        });
        assert_eq!(sink.committed.lock().len(), 100);
        assert_eq!(group.check().unwrap_err().kind(), ErrorKind::Closed);
    }

    #[test]
    fn without_a_flusher_whoever_waits_later_leads() {
        let (group, sink) = (Group::new(false), Sink::default());
        let (_, completion, role) = group
            .add(false, |b: &mut Vec<u32>| {
                b.push(1);
                Ok(())
            })
            .unwrap();
        assert_eq!(role, Role::Follow);
        assert!(completion.result().is_none());
        group.wait(&sink, &completion).unwrap();
        assert_eq!(*sink.committed.lock(), [1]);
    }

    /// Between the end of a batch and its answer nobody leads, and the batch is no longer the open
    /// one.
    #[test]
    fn a_wait_that_comes_between_commit_and_answer_leads_nothing() {
        let (group, sink) = (Group::new(true), Sink::default());
        std::thread::scope(|scope| {
            scope.spawn(|| group.flush_until_stopped(&sink));
            let threads: Vec<_> = (0..3)
                .map(|thread| {
                    let (group, sink) = (&group, &sink);
                    scope.spawn(move || {
                        for n in 0..20_000 {
                            let added = group.add(false, |batch: &mut Vec<u32>| {
                                batch.push(thread * 100_000 + n);
                                Ok(())
                            });
                            let completion = added.unwrap().1;
                            (0..n % 50).for_each(|_| std::hint::spin_loop());
                            group.wait(sink, &completion).unwrap();
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            group.stop(&sink, Error::new(ErrorKind::Closed, "closed"));
        });
        assert_eq!(sink.committed.lock().len(), 60_000);
    }

    #[test]
    fn a_leader_that_panics_stops_the_group_and_leaves_nobody_waiting() {
        struct Panics;
        impl Commit for Panics {
            type Batch = Vec<u32>;
            fn commit(&self, _: &mut Vec<u32>) -> Result<(), Failed> {
                panic!("planted");
            }
            fn roll_back(&self, _: &Vec<u32>, _: &Vec<u32>) {}
        }
        let group = Group::new(false);
        for expected in ["stopped", "stopped"] {
            let add = group.add(true, |batch: &mut Vec<u32>| {
                batch.push(1);
                Ok(())
            });
            let result =
                add.and_then(|(_, completion, role)| group.finish(&Panics, &completion, role));
            let error = result.unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            assert_eq!(error.kind(), ErrorKind::Poisoned);
        }
    }

    #[test]
    fn the_first_reason_to_stop_stands() {
        let (group, sink) = (Group::new(false), Sink { fail_on: Some(7), ..Sink::default() });
        group.poison(Error::new(ErrorKind::Full, "first"));
        assert_eq!(push(&group, &sink, 1).unwrap_err().kind(), ErrorKind::Full);
        let group = Group::new(false);
        let (_, completion, _) = group
            .add(false, |b: &mut Vec<u32>| {
                b.push(7);
                Ok(())
            })
            .unwrap();
        group.poison(Error::new(ErrorKind::Full, "first"));
        assert_eq!(group.wait(&sink, &completion).unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(push(&group, &sink, 8).unwrap_err().kind(), ErrorKind::Full);
    }

    #[test]
    fn a_failed_batch_takes_the_open_one_with_it_and_stops_the_group() {
        let (group, sink) = (Group::new(false), Sink { fail_on: Some(7), ..Sink::default() });
        push(&group, &sink, 1).unwrap();
        assert_eq!(push(&group, &sink, 7).unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(push(&group, &sink, 8).unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(*sink.committed.lock(), [1]);
        assert_eq!(sink.rolled_back.load(Ordering::SeqCst), 1);
    }
}

/// Many orders of a few threads.
#[cfg(all(test, eventlog_shuttle))]
mod interleavings {
    use super::*;

    /// Commits to a list; fails, and stops the group, at `fail_on`.
    struct Sink {
        committed: Mutex<Vec<u32>>,
        fail_on: Option<u32>,
    }

    impl Sink {
        fn new(fail_on: Option<u32>) -> Sink {
            Sink { committed: Mutex::new(Rank::Memtable, Vec::new()), fail_on }
        }
    }

    impl Commit for Sink {
        type Batch = Vec<u32>;

        fn commit(&self, batch: &mut Vec<u32>) -> Result<(), Failed> {
            assert!(!batch.is_empty(), "no empty batch is committed");
            thread::yield_now();
            if self.fail_on.is_some_and(|n| batch.contains(&n)) {
                let error = Error::new(ErrorKind::Io, "planted");
                return Err(Failed { stop: Some(error.clone()), error });
            }
            self.committed.lock().append(batch);
            Ok(())
        }

        fn roll_back(&self, _: &Vec<u32>, _: &Vec<u32>) {}
    }

    fn add(group: &Group<Vec<u32>>, will_wait: bool, n: u32) -> Result<(Arc<Completion>, Role)> {
        let added = group.add(will_wait, |batch| {
            batch.push(n);
            Ok(())
        });
        added.map(|((), completion, role)| (completion, role))
    }

    /// Threads that append one number each; some hand it over and wait later.
    fn appends(has_flusher: bool, fail_on: Option<u32>, threads: u32) {
        let (group, sink) = (Arc::new(Group::new(has_flusher)), Arc::new(Sink::new(fail_on)));
        let flusher = has_flusher.then(|| {
            let (group, sink) = (group.clone(), sink.clone());
            thread::spawn(move || group.flush_until_stopped(&*sink))
        });
        let spawn = |n| {
            let (group, sink) = (group.clone(), sink.clone());
            thread::spawn(move || {
                let will_wait = n % 2 == 0;
                let result = add(&group, will_wait, n).and_then(|(completion, role)| {
                    if will_wait {
                        group.finish(&*sink, &completion, role)
                    } else {
                        group.wait(&*sink, &completion)
                    }
                });
                // Answered after its commit, or with the error of its batch or one before it.
                assert_eq!(result.is_ok(), sink.committed.lock().contains(&n));
                assert!(result.is_ok() || fail_on.is_some());
            })
        };
        let all: Vec<_> = (0..threads).map(spawn).collect();
        all.into_iter().for_each(|thread| thread.join().unwrap());
        group.stop(&*sink, Error::new(ErrorKind::Closed, "closed"));
        flusher.into_iter().for_each(|flusher| flusher.join().unwrap());
    }

    #[test]
    fn threads_are_answered_in_many_orders_with_and_without_a_flusher() {
        for has_flusher in [false, true] {
            for fail_on in [None, Some(0), Some(1)] {
                shuttle::check_random(move || appends(has_flusher, fail_on, 4), 5_000);
                shuttle::check_pct(move || appends(has_flusher, fail_on, 4), 5_000, 3);
            }
        }
    }
}
