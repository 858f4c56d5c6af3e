//! redb on our own files: [`Backend`] passes its reads, writes and flushes to an
//! [`io::File`](crate::io::File), so that the simulator sees them, and its byte-range locks to
//! redb's own file backend, so that readers in other processes are protected. A file without an
//! operating-system file behind it has no such locks; redb then works for one process.

use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

use crate::io::{File, read_exact_at, write_all_at};

#[derive(Debug)]
pub(super) struct Backend {
    file: Arc<dyn File>,
    locks: Option<FileBackend>,
    /// Set when a flush fails: from then on nobody knows what is on the disk.
    flush_failed: Arc<AtomicBool>,
}

impl Backend {
    pub(super) fn new(file: Arc<dyn File>, flush_failed: Arc<AtomicBool>) -> io::Result<Backend> {
        // The clone shares the open file description, and with it the locks.
        let locks = match file.as_std() {
            Some(file) => Some(FileBackend::new(file.try_clone()?).map_err(io::Error::other)?),
            None => None,
        };
        Ok(Backend { file, locks, flush_failed })
    }

    /// Whether other processes are kept from reading what is being overwritten.
    pub(super) fn has_locks(&self) -> bool {
        self.locks.is_some()
    }

    fn locks(&self) -> Result<&FileBackend, BackendError> {
        self.locks.as_ref().ok_or(BackendError::Unsupported)
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    /// Behind the end there are zeros, which are no page. An error would be taken for a failing
    /// disk, after which redb reads nothing more: one damaged page would hide all others.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match read_exact_at(&*self.file, out, offset) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let there = self.file.len()?.saturating_sub(offset).min(out.len() as u64);
                let (there, behind) = out.split_at_mut(there as usize);
                behind.fill(0);
                read_exact_at(&*self.file, there, offset)
            }
            result => result,
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data().inspect_err(|_| self.flush_failed.store(true, Ordering::Release))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        write_all_at(&*self.file, data, offset)
    }

    fn close(&self) -> io::Result<()> {
        self.locks.as_ref().map_or(Ok(()), StorageBackend::close)
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.locks()?.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.locks()?.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.locks()?.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.locks()?.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.locks()?.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.locks()?.query_lock_range(start, end)
    }
}
