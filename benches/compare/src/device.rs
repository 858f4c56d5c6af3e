//! What the disk says of itself: how often it was told to flush, and how much it wrote.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The whole device that a directory lies on.
pub struct Device(PathBuf);

#[derive(Clone, Copy)]
pub struct Counters {
    pub flushes: u64,
    pub written_bytes: u64,
}

impl Device {
    /// `None` where the kernel has no such statistics.
    pub fn of(dir: &Path) -> Option<Device> {
        let dev = dir.metadata().ok()?.dev();
        let (major, minor) = ((dev >> 8) & 0xfff, (dev & 0xff) | ((dev >> 12) & 0xfff00));
        let mut path =
            PathBuf::from(format!("/sys/dev/block/{major}:{minor}")).canonicalize().ok()?;
        if path.join("partition").exists() {
            // Flushes are counted for the whole device only.
            path.pop();
        }
        let device = Device(path);
        device.read().map(|_| device)
    }

    pub fn read(&self) -> Option<Counters> {
        let text = std::fs::read_to_string(self.0.join("stat")).ok()?;
        let fields: Vec<u64> =
            text.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        Some(Counters { written_bytes: fields.get(6)? * 512, flushes: *fields.get(15)? })
    }
}
