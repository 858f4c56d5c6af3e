//! Steps of inner loops, counted for tests that compare the work for n with the work for 2n.
//!
//! Times depend on the machine, counts do not. In every other build this is nothing.

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts a step of the calling thread.
#[inline]
pub(crate) fn count() {
    #[cfg(test)]
    STEPS.with(|steps| steps.set(steps.get() + 1));
}

/// Returns what `work` returns, and the steps that the calling thread took for it.
#[cfg(test)]
pub(crate) fn of<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = STEPS.get();
    let result = work();
    (result, STEPS.get() - before)
}
