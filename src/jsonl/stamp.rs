//! Whether a file is as it was left, without looking into it.

use std::path::Path;
use std::time::SystemTime;

/// What tells one state of a file from another: length, time of change, and which file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) len: u64,
    modified: Option<SystemTime>,
    /// On systems that have them.
    pub(super) inode: u64,
}

impl Stamp {
    /// Of what stands at `path`, links not followed; `None` when there is nothing.
    pub(super) fn of(path: &Path) -> Option<Stamp> {
        let meta = path.symlink_metadata().ok()?;
        #[cfg(unix)]
        let inode = std::os::unix::fs::MetadataExt::ino(&meta);
        #[cfg(not(unix))]
        let inode = 0;
        Some(Stamp { len: meta.len(), modified: meta.modified().ok(), inode })
    }
}
