//! Waiting for files to change, without looking at them all the time.
//!
//! The kernel tells (inotify, FSEvents, and the like). Where it does not, and for file systems that
//! other machines write to, there is a look every so often.

use ::std::collections::BTreeSet;
use ::std::path::{Path, PathBuf};
use ::std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use ::std::time::{Duration, Instant};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};

/// Watches files and directories.
#[derive(Debug)]
pub struct Watch {
    /// `None` where the kernel does not tell.
    watcher: Option<RecommendedWatcher>,
    events: Receiver<notify::Result<notify::Event>>,
}

/// What a [`Watch::wait`] ended with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Changed {
    /// The time is over.
    Nothing,
    /// These were written to, created, renamed or removed.
    Paths(BTreeSet<PathBuf>),
    /// Something may have changed anywhere: look at everything.
    Anything,
}

/// How often to look where the kernel does not tell.
const LOOK: Duration = Duration::from_millis(50);

impl Watch {
    /// Watches everything at and below `paths`.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use eventlog::io::{Changed, Watch};
    ///
    /// let watch = Watch::new(&["memory/transcripts".as_ref()]);
    /// if let Changed::Paths(paths) = watch.wait(Duration::from_secs(5)) {
    ///     println!("{paths:?}");
    /// }
    /// ```
    pub fn new(paths: &[&Path]) -> Watch {
        let (sender, events) = mpsc::channel();
        let watcher = notify::recommended_watcher(move |event| {
            // Nobody listens any more: so be it.
            _ = sender.send(event);
        });
        let watch_all = |mut watcher: RecommendedWatcher| {
            for path in paths {
                watcher.watch(path, RecursiveMode::Recursive)?;
            }
            Ok(watcher)
        };
        Watch { watcher: watcher.and_then(watch_all).ok(), events }
    }

    /// Whether the kernel tells of changes.
    pub fn is_told(&self) -> bool {
        self.watcher.is_some()
    }

    /// Waits for a change, at most for `timeout`. What changed since the last wait counts too.
    pub fn wait(&self, timeout: Duration) -> Changed {
        if self.watcher.is_none() {
            ::std::thread::sleep(LOOK.min(timeout));
            return Changed::Anything;
        }
        let end = Instant::now() + timeout;
        let mut paths = BTreeSet::new();
        loop {
            // What else is there already is taken along.
            let left = match paths.is_empty() {
                true => end.saturating_duration_since(Instant::now()),
                false => Duration::ZERO,
            };
            match self.events.recv_timeout(left) {
                Ok(Ok(event)) if event.need_rescan() => return Changed::Anything,
                Ok(Ok(event)) if matches!(event.kind, EventKind::Access(_)) => {}
                Ok(Ok(event)) => paths.extend(event.paths),
                Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => return Changed::Anything,
                Err(RecvTimeoutError::Timeout) if paths.is_empty() => return Changed::Nothing,
                Err(RecvTimeoutError::Timeout) => return Changed::Paths(paths),
            }
        }
    }
}
