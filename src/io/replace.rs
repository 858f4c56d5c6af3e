//! Writing a whole file so that its name shows the old content or the new one, never a part.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Dir, File, OpenMode, Reader, remove_if_present, write_all_at};

/// A file that takes its name only when [`Replacement::commit`] returns: temporary file, flush,
/// rename, flush of the directory. Dropped without a commit it leaves nothing behind.
///
/// Writes are buffered; mode 0600.
#[derive(Debug)]
pub struct Replacement {
    dir: Arc<dyn Dir>,
    name: String,
    temporary: String,
    file: Arc<dyn File>,
    buffer: Vec<u8>,
    offset: u64,
    committed: bool,
}

const BUFFER_BYTES: usize = 1 << 20;

impl Replacement {
    /// Starts to write the file that will be called `name` in `dir`.
    ///
    /// # Errors
    ///
    /// What the operating system reports.
    pub fn create(dir: Arc<dyn Dir>, name: &str) -> io::Result<Replacement> {
        remove_left_behind(&*dir);
        // A name of its own length limit: `name` itself may be as long as a name can be.
        let temporary = format!("{PREFIX}{}{SUFFIX}", uuid::Uuid::now_v7().simple());
        let file = dir.open(&temporary, OpenMode::CreateNew)?;
        // Who finds the file locked leaves it alone. Where there are no locks, so be it.
        _ = file.as_std().map(::std::fs::File::try_lock);
        Ok(Replacement {
            dir,
            name: name.to_owned(),
            temporary,
            file,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            offset: 0,
            committed: false,
        })
    }

    /// Gives the file the mode of the one at `path`, and, where that is allowed, its owner.
    ///
    /// # Errors
    ///
    /// What the operating system reports.
    #[cfg(unix)]
    pub fn take_after(&self, path: &::std::path::Path) -> io::Result<()> {
        use ::std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
        let like = ::std::fs::metadata(path)?;
        let temporary = self.dir.path().join(&self.temporary);
        // Only root may give files away; for others the owner is the same anyway.
        _ = chown(&temporary, Some(like.uid()), Some(like.gid()));
        let mode = ::std::fs::Permissions::from_mode(like.permissions().mode() & 0o777);
        ::std::fs::set_permissions(&temporary, mode)
    }

    /// Where there are no owners and modes, there is nothing to take over.
    ///
    /// # Errors
    ///
    /// None.
    #[cfg(not(unix))]
    pub fn take_after(&self, _: &::std::path::Path) -> io::Result<()> {
        Ok(())
    }

    /// Whether what has been written begins with the whole content of `other`: then replacing it
    /// loses nothing.
    ///
    /// # Errors
    ///
    /// What the operating system reports.
    pub fn extends(&mut self, other: &Arc<dyn File>) -> io::Result<bool> {
        self.flush()?;
        let mut old = BufReader::new(Reader::new(other.clone()));
        let mut new = BufReader::new(Reader::new(self.file.clone()));
        loop {
            let (left, right) = (old.fill_buf()?, new.fill_buf()?);
            let len = left.len().min(right.len());
            if left.is_empty() {
                return Ok(true);
            }
            if len == 0 || left.get(..len) != right.get(..len) {
                return Ok(false);
            }
            old.consume(len);
            new.consume(len);
        }
    }

    /// Makes content and name durable, and returns the number of bytes written.
    ///
    /// # Errors
    ///
    /// What the operating system reports; the old file is then still in place.
    pub fn commit(mut self) -> io::Result<u64> {
        self.flush()?;
        // DURABILITY: content before name, and the name before we say that it is done.
        self.file.sync_data()?;
        self.dir.rename(&self.temporary, &self.name)?;
        self.committed = true;
        self.dir.sync()?;
        Ok(self.offset)
    }
}

const PREFIX: &str = ".eventlog-";
const SUFFIX: &str = ".tmp";

/// Removes what processes that were killed left in `dir`: temporary files that nobody holds. Once
/// for each directory.
fn remove_left_behind(dir: &dyn Dir) {
    static SEEN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    if !SEEN.lock().insert(dir.path()) {
        return;
    }
    for entry in dir.list().unwrap_or_default() {
        let Some(name) = entry.name.to_str() else { continue };
        if !name.starts_with(PREFIX) || !name.ends_with(SUFFIX) {
            continue;
        }
        let Ok(file) = dir.open(name, OpenMode::Write) else { continue };
        if file.as_std().is_some_and(|file| file.try_lock().is_ok()) {
            // What cannot be removed is in nobody's way.
            _ = dir.remove(name);
        }
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.flush()?;
        }
        if bytes.len() >= BUFFER_BYTES {
            write_all_at(&*self.file, bytes, self.offset)?;
            self.offset += bytes.len() as u64;
        } else {
            self.buffer.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        write_all_at(&*self.file, &self.buffer, self.offset)?;
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.committed {
            // Nothing more can be done about a temporary file that cannot be removed.
            _ = remove_if_present(&*self.dir, &self.temporary);
        }
    }
}
