//! Planted bugs: what the proofs must catch.
//!
//! A proof that has never failed shows nothing. `tests/planted.sh` builds the crate with `--cfg
//! eventlog_planted`, and runs the proofs once for each bug of its list, named in the environment
//! by `EVENTLOG_PLANTED`; each must make its test fail. In every other build this is `false`, and
//! nothing of it is left.

/// Whether the bug of this name is in.
#[cfg(eventlog_planted)]
pub(crate) fn planted(name: &str) -> bool {
    static NAME: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("EVENTLOG_PLANTED").ok());
    NAME.as_deref() == Some(name)
}

/// Whether the bug of this name is in.
#[cfg(not(eventlog_planted))]
pub(crate) const fn planted(_: &str) -> bool {
    false
}
