//! The only door to the operating system: every byte that the crate reads or writes goes through
//! [`Dir`] and [`File`].
//!
//! Two implementations: [`StdDir`] on the real file system, and (feature `sim`) a simulated disk
//! that forgets unsynced writes, tears them, and fails on request. The traits are small on purpose:
//! what they do not offer cannot be forgotten in the simulation.
//!
//! Durability follows POSIX: [`File::sync_data`] makes the *content* and length of a file durable,
//! [`Dir::sync`] its *name*. Neither implies the other.

mod replace;
#[cfg(feature = "sim")]
pub mod sim;
mod std;
#[cfg(feature = "watch")]
mod watch;

use ::std::ffi::OsString;
use ::std::fmt::Debug;
use ::std::io;
use ::std::path::PathBuf;
use ::std::sync::Arc;

use crate::bytes::within;

pub use self::replace::Replacement;
pub use self::std::{StdDir, Target};
#[cfg(feature = "watch")]
pub use self::watch::{Changed, Watch};

/// The implementations are those of this module: the proofs hold for these, and methods may be
/// added.
mod sealed {
    pub trait Sealed {}
}

/// How [`Dir::open`] opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// For reading; the file must exist.
    Read,
    /// For reading and writing; the file must exist.
    Write,
    /// For reading and writing; the file is created when absent, never truncated.
    Create,
    /// For reading and writing; the file must not exist.
    CreateNew,
}

/// What a directory entry is. Symbolic links are named as such, not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A socket, a pipe or a device.
    Other,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The last part of the path.
    pub name: OsString,
    /// What stands there.
    pub kind: EntryKind,
}

/// The outcome of [`Dir::try_lock`].
#[derive(Debug)]
pub enum LockOutcome {
    /// The lock is held until the guard is dropped or the process ends, however it ends.
    Acquired(Box<dyn LockGuard>),
    /// Somebody else holds it; these bytes stand in the file.
    Busy(Vec<u8>),
}

/// A held lock; dropping it releases the lock.
pub trait LockGuard: sealed::Sealed + Debug + Send + Sync {}

/// A directory.
pub trait Dir: sealed::Sealed + Debug + Send + Sync {
    /// The path, for messages.
    fn path(&self) -> PathBuf;
    /// Opens a file of this directory.
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>>;
    /// Opens a directory of this directory, creating it (mode 0700) when `create`.
    fn subdir(&self, name: &str, create: bool) -> io::Result<Arc<dyn Dir>>;
    /// Gives a file another name, replacing what has that name. Durable after [`Dir::sync`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. Durable after [`Dir::sync`].
    fn remove(&self, name: &str) -> io::Result<()>;
    /// The names in this directory, in no particular order.
    fn list(&self) -> io::Result<Vec<DirEntry>>;
    /// Makes the names of this directory durable.
    fn sync(&self) -> io::Result<()>;
    /// Tries to take the kernel lock of a file of this directory, writing `owner` into it.
    fn try_lock(&self, name: &str, owner: &[u8]) -> io::Result<LockOutcome>;
    /// Whether somebody holds that lock. May make a [`Dir::try_lock`] at the same moment see it
    /// held.
    fn is_locked(&self, name: &str) -> io::Result<bool>;
}

/// An open file. All methods take `&self`; calls from several threads do not disturb each other.
#[allow(clippy::len_without_is_empty, reason = "a file's length is no collection's")]
pub trait File: sealed::Sealed + Debug + Send + Sync {
    /// Reads at most `buf.len()` bytes at `offset`; 0 at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes at most `buf.len()` bytes at `offset`, and returns how many.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize>;
    /// Cuts or extends (with zeros) the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Makes content and length durable. After an error the state of the file is unknown, and a
    /// repeated call proves nothing.
    fn sync_data(&self) -> io::Result<()>;
    /// The bytes that the file occupies on the device.
    fn allocated(&self) -> io::Result<u64> {
        self.len()
    }
    /// Gives the space behind `offset`, where zeros stand already, back to the file system; they
    /// are still read as zeros, and the length stays. Nothing happens where that cannot be done.
    fn free_zeros(&self, _offset: u64) {}
    /// The file of the operating system behind this one, for its byte-range locks.
    fn as_std(&self) -> Option<&::std::fs::File> {
        None
    }
}

/// Fills `buf` from `offset` on, or fails with `UnexpectedEof`.
pub(crate) fn read_exact_at(file: &dyn File, buf: &mut [u8], offset: u64) -> io::Result<()> {
    match read_full_at(file, buf, offset)? {
        n if n == buf.len() => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Fills `buf` from `offset` on as far as the file reaches, and returns how far that was.
pub(crate) fn read_full_at(file: &dyn File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// Writes all of `buf` at `offset`. After an error any part of it may have been written.
pub(crate) fn write_all_at(file: &dyn File, buf: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while let Some(rest) = buf.get(done..).filter(|rest| !rest.is_empty()) {
        match file.write_at(rest, offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Writes zeros over the first `len` bytes, flushing as it goes, so that no flush of another file
/// waits for all of them. Space that was *written* costs one flush later; space that was only
/// reserved costs two.
pub(crate) fn write_zeros(file: &dyn File, len: u64) -> io::Result<()> {
    static ZEROS: [u8; 256 << 10] = [0; 256 << 10];
    const FLUSH_BYTES: u64 = 1 << 20;
    let mut at = 0;
    while at < len {
        let n = (len - at).min(ZEROS.len() as u64);
        write_all_at(file, within(ZEROS.as_slice(), ..n as usize), at)?;
        at += n;
        if at % FLUSH_BYTES == 0 && at < len {
            file.sync_data()?;
        }
    }
    Ok(())
}

/// Removes a file; that it was not there is no error.
pub(crate) fn remove_if_present(dir: &dyn Dir, name: &str) -> io::Result<()> {
    match dir.remove(name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Removes a file that an interrupted creation may have left under the name of a temporary file,
/// durably: after a power failure a later rename of that name must not find the old file there.
pub(crate) fn remove_left_over(dir: &dyn Dir, name: &str) -> io::Result<()> {
    match dir.remove(name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(()) if crate::planted::planted("left_over_is_removed_unflushed") => Ok(()),
        // DURABILITY: before another file gets the name.
        Ok(()) => dir.sync(),
        other => other,
    }
}

/// A sequential [`io::Read`] over a [`File`].
#[derive(Debug)]
pub struct Reader {
    file: Arc<dyn File>,
    offset: u64,
}

impl Reader {
    /// Reads from the start of `file`.
    pub fn new(file: Arc<dyn File>) -> Reader {
        Reader::at(file, 0)
    }

    /// Reads from `offset` on.
    pub fn at(file: Arc<dyn File>, offset: u64) -> Reader {
        Reader { file, offset }
    }
}

impl io::Read for Reader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(buf, self.offset)?;
        self.offset += n as u64;
        Ok(n)
    }
}
