//! Parts of a whole whose bounds this crate has worked out itself.
//!
//! Bounds that come from a disk or from a caller are checked where they are read, and are errors
//! there. Wrong bounds of our own are a bug: they must not read as an empty line or write a batch
//! without its head.

use std::ops::Index;

/// The part of `whole` at `at`, which lies in it.
///
/// # Panics
///
/// If it does not: the caller has lost count.
#[track_caller]
pub(crate) fn within<T: ?Sized + Index<R>, R>(whole: &T, at: R) -> &T::Output {
    &whole[at]
}

#[cfg(test)]
mod tests {
    use super::within;

    #[test]
    fn bounds_of_our_own_that_are_wrong_are_a_panic_and_not_an_empty_part() {
        assert_eq!(within("abc", 1..), "bc");
        assert_eq!(within(&b"abc"[..], 3..), b"");
        assert!(std::panic::catch_unwind(|| within(&b"abc"[..], 4..)).is_err());
        assert!(std::panic::catch_unwind(|| within(&b"abc"[..], 1..4)).is_err());
    }
}
