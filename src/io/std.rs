//! The real file system.

use ::std::fs::{self, DirBuilder, OpenOptions, TryLockError};
use ::std::io;
use ::std::path::{Path, PathBuf};
use ::std::sync::Arc;

use super::{Dir, DirEntry, EntryKind, File, LockGuard, LockOutcome, OpenMode};

/// A directory of the real file system. New files get mode 0600, new directories 0700.
#[derive(Clone, Debug)]
pub struct StdDir {
    path: PathBuf,
}

impl StdDir {
    /// The directory at `path`, which must exist.
    ///
    /// # Errors
    ///
    /// `NotFound`, or `NotADirectory` where something else stands there.
    pub fn open(path: impl AsRef<Path>) -> io::Result<StdDir> {
        let path = path.as_ref();
        if !fs::metadata(path)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(StdDir { path: path.to_owned() })
    }

    /// The directory at `path`, created with its parents when absent; the new names are durable
    /// when this returns.
    ///
    /// # Errors
    ///
    /// What the operating system reports.
    pub fn create(path: impl AsRef<Path>) -> io::Result<StdDir> {
        let path = path.as_ref();
        // An empty one may have been made a moment before a crash, by us, and not be durable.
        let in_use = StdDir::open(path).and_then(|dir| dir.list());
        if in_use.is_ok_and(|entries| !entries.is_empty()) {
            return StdDir::open(path);
        }
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if !path.is_dir() {
            StdDir::create(parent)?;
            make_private_dir(path)?;
        }
        // DURABILITY: the new directory's name belongs to its parent.
        StdDir::open(parent)?.sync()?;
        StdDir::open(path)
    }

    /// Opens the regular file at `path`, whose name may be any bytes. Symbolic links are followed.
    ///
    /// # Errors
    ///
    /// What the operating system reports; `InvalidInput` for what is no regular file: opening a
    /// pipe could wait for ever.
    pub fn open_file(path: impl AsRef<Path>) -> io::Result<Arc<dyn File>> {
        let path = path.as_ref();
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok(Arc::new(StdFile { file: options(OpenMode::Read).open(path)? }))
    }

    /// What stands at `path`, where something is to be written. Symbolic links are followed.
    ///
    /// # Errors
    ///
    /// What the operating system reports: `NotFound` when the directory is not there,
    /// `IsADirectory`.
    pub fn target(path: impl AsRef<Path>) -> io::Result<Target> {
        let path = path.as_ref();
        let dir_of = |path: &Path| match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => StdDir::open(parent),
            _ => StdDir::open("."),
        };
        let name_of = |path: &Path| {
            let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
            name.ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidInput, "not a file name in UTF-8")
            })
        };
        match fs::metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && path.symlink_metadata().is_err() => {
                Ok(Target::Absent(dir_of(path)?, name_of(path)?))
            }
            Err(e) => Err(e),
            Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            Ok(found) if found.is_file() => {
                let real = fs::canonicalize(path)?;
                Ok(Target::File(dir_of(&real)?, name_of(&real)?))
            }
            Ok(_) => {
                let file = OpenOptions::new().write(true).open(path)?;
                Ok(Target::Stream(Box::new(file)))
            }
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// What stands at the path of a file that is to be written; see [`StdDir::target`].
pub enum Target {
    /// Nothing: the directory and the name.
    Absent(StdDir, String),
    /// A regular file: its directory and its name, links resolved.
    File(StdDir, String),
    /// A device or a pipe: written to as it is, never replaced.
    Stream(Box<dyn io::Write>),
}

impl ::std::fmt::Debug for Target {
    fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
        match self {
            Target::Absent(dir, name) => f.debug_tuple("Absent").field(dir).field(name).finish(),
            Target::File(dir, name) => f.debug_tuple("File").field(dir).field(name).finish(),
            Target::Stream(_) => f.debug_tuple("Stream").finish(),
        }
    }
}

fn make_private_dir(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    {
        use ::std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    match builder.create(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        other => other,
    }
}

fn options(mode: OpenMode) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true);
    match mode {
        OpenMode::Read => {}
        OpenMode::Write => _ = options.write(true),
        OpenMode::Create => _ = options.write(true).create(true).truncate(false),
        OpenMode::CreateNew => _ = options.write(true).create_new(true),
    }
    #[cfg(unix)]
    {
        use ::std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options
}

impl super::sealed::Sealed for StdDir {}

impl Dir for StdDir {
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(StdFile { file: options(mode).open(self.at(name))? }))
    }

    fn subdir(&self, name: &str, create: bool) -> io::Result<Arc<dyn Dir>> {
        let path = self.at(name);
        if create {
            make_private_dir(&path)?;
        }
        Ok(Arc::new(StdDir::open(path)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.at(from), self.at(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.at(name))
    }

    fn list(&self) -> io::Result<Vec<DirEntry>> {
        fs::read_dir(&self.path)?
            .map(|entry| {
                let entry = entry?;
                let kind = entry.file_type()?;
                let kind = match () {
                    _ if kind.is_symlink() => EntryKind::Symlink,
                    _ if kind.is_dir() => EntryKind::Dir,
                    _ if kind.is_file() => EntryKind::File,
                    _ => EntryKind::Other,
                };
                Ok(DirEntry { name: entry.file_name(), kind })
            })
            .collect()
    }

    fn sync(&self) -> io::Result<()> {
        #[cfg(unix)]
        fs::File::open(&self.path)?.sync_all()?;
        Ok(())
    }

    fn try_lock(&self, name: &str, owner: &[u8]) -> io::Result<LockOutcome> {
        let file = options(OpenMode::Create).open(self.at(name))?;
        let file = StdFile { file };
        match file.file.try_lock() {
            Ok(()) => {
                file.file.set_len(0)?;
                super::write_all_at(&file, owner, 0)?;
                Ok(LockOutcome::Acquired(Box::new(file)))
            }
            Err(TryLockError::WouldBlock) => {
                let mut content = vec![0; 256];
                let n = super::read_full_at(&file, &mut content, 0)?;
                content.truncate(n);
                Ok(LockOutcome::Busy(content))
            }
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    fn is_locked(&self, name: &str) -> io::Result<bool> {
        let file = match fs::File::open(self.at(name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            other => other?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false), // given back with the file
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }
}

#[derive(Debug)]
struct StdFile {
    file: fs::File,
}

// The kernel releases the lock with the file description, also when the process is killed.
impl super::sealed::Sealed for StdFile {}

impl LockGuard for StdFile {}

impl File for StdFile {
    #[cfg(unix)]
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        ::std::os::unix::fs::FileExt::read_at(&self.file, buf, offset)
    }

    #[cfg(unix)]
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        ::std::os::unix::fs::FileExt::write_at(&self.file, buf, offset)
    }

    #[cfg(windows)]
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        ::std::os::windows::fs::FileExt::seek_read(&self.file, buf, offset)
    }

    #[cfg(windows)]
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        ::std::os::windows::fs::FileExt::seek_write(&self.file, buf, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    #[cfg(unix)]
    fn allocated(&self) -> io::Result<u64> {
        use ::std::os::unix::fs::MetadataExt;
        Ok(self.file.metadata()?.blocks() * 512)
    }

    #[cfg(target_os = "linux")]
    fn free_zeros(&self, offset: u64) {
        use rustix::fs::{FallocateFlags, fallocate};
        // Whole pages, so that what stands before is not written again.
        let offset = offset.next_multiple_of(4096);
        let Some(len) = self.len().ok().and_then(|len| len.checked_sub(offset)) else { return };
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Some file systems cannot; then the space stays taken.
        _ = fallocate(&self.file, flags, offset, len);
    }

    fn as_std(&self) -> Option<&fs::File> {
        Some(&self.file)
    }
}
