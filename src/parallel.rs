//! Work on many pieces at once, on as many threads as there are processors.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// What `work` makes of each piece, in the order of the pieces.
pub(crate) fn map<P: Sync, R: Send>(pieces: &[P], work: impl Fn(&P) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(pieces.len());
    if threads <= 1 {
        return pieces.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(pieces.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((index, piece)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    pieces.get(index).map(|piece| (index, piece))
                } {
                    let result = work(piece);
                    done.lock().push((index, result));
                }
            });
        }
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
    std::thread::scope(|scope| {
        let b = scope.spawn(b);
        (a(), b.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_stand_in_the_order_of_the_pieces() {
        let pieces: Vec<u64> = (0..1000).collect();
        assert_eq!(
            super::map(&pieces, |n| n * 2),
            pieces.iter().map(|n| n * 2).collect::<Vec<_>>()
        );
        assert!(super::map(&[] as &[u64], |n| *n).is_empty());
    }
}
