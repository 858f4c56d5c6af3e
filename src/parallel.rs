//! Work on many pieces at once, on as many threads as there are processors.
//!
//! Where no thread can be had, the calling thread does the work.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use parking_lot::Mutex;

/// What `work` makes of each piece, in the order of the pieces.
pub(crate) fn map<P: Sync, R: Send>(pieces: &[P], work: impl Fn(&P) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(pieces.len());
    if threads <= 1 {
        return pieces.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(pieces.len()));
    let work_off = || {
        while let Some((index, piece)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            pieces.get(index).map(|piece| (index, piece))
        } {
            let result = work(piece);
            done.lock().push((index, result));
        }
    };
    std::thread::scope(|scope| {
        // The calling thread is one of them.
        for _ in 1..threads {
            if spawn(scope, work_off).is_err() {
                break;
            }
        }
        work_off();
    });
    let mut done = done.into_inner();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Two pieces of work, at once if that pays.
pub(crate) fn both<A, B: Send>(
    pays: bool,
    a: impl FnOnce() -> A,
    b: impl FnOnce() -> B + Send,
) -> (A, B) {
    if !pays {
        return (a(), b());
    }
    // Where the thread cannot be had, the work is still here.
    let b = Mutex::new(Some(b));
    let run_b = || {
        let b = b.lock().take();
        b.map(|b| b())
    };
    std::thread::scope(|scope| {
        let thread = spawn(scope, run_b);
        let a = a();
        let b = match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(_) => run_b(),
        };
        match b {
            Some(b) => (a, b),
            None => unreachable!("one of two has run it"),
        }
    })
}

/// A thread, if one can be had.
fn spawn<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    work: impl FnOnce() -> T + Send + 's,
) -> std::io::Result<ScopedJoinHandle<'s, T>> {
    #[cfg(test)]
    tests::take_one()?;
    Builder::new().spawn_scoped(scope, work)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io;

    use super::*;

    thread_local! {
        /// How many threads the calling thread can still have.
        static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    pub(super) fn take_one() -> io::Result<()> {
        let left = LEFT.get().checked_sub(1).ok_or(io::ErrorKind::WouldBlock)?;
        LEFT.set(left);
        Ok(())
    }

    /// What `work` gives where so many threads can be had.
    fn with_threads<T>(threads: usize, work: impl FnOnce() -> T) -> T {
        LEFT.set(threads);
        let result = work();
        LEFT.set(usize::MAX);
        result
    }

    #[test]
    fn results_stand_in_the_order_of_the_pieces() {
        let pieces: Vec<u64> = (0..1000).collect();
        assert_eq!(map(&pieces, |n| n * 2), pieces.iter().map(|n| n * 2).collect::<Vec<_>>());
        assert!(map(&[] as &[u64], |n| *n).is_empty());
    }

    #[test]
    fn where_no_thread_can_be_had_the_calling_one_does_the_work() {
        let pieces: Vec<u64> = (0..1000).collect();
        let me = std::thread::current().id();
        let by_me = |n: &u64| (*n, std::thread::current().id() == me);
        let done = with_threads(0, || map(&pieces, by_me));
        assert_eq!(done, pieces.iter().map(|n| (*n, true)).collect::<Vec<_>>());
        let done = with_threads(1, || map(&pieces, |n| *n));
        assert_eq!(done, pieces);

        let both_by_me = || both(true, || by_me(&1), || by_me(&2));
        assert_eq!(with_threads(0, both_by_me), ((1, true), (2, true)));
        assert_eq!(with_threads(1, both_by_me), ((1, true), (2, false)));
    }
}
