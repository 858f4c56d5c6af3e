//! recursive-agent's sessions from inside a project to the user's home, where they are now kept.
//!
//! `WORKSPACE/.recursive/{sessions,shadow-git,scratchpad.json}` go to `HOME/workspaces/HASH/`. What
//! is there already is kept: an item is merged when no file of it is there with another content,
//! and otherwise stays where it is, whole. At every moment each file is in one of the two places; a
//! migration that was cut off is finished by the next.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::format::recursive::place::{self, Lock};

/// What is moved, in this order.
const ITEMS: [&str; 3] = ["sessions", "shadow-git", "scratchpad.json"];

/// What a migration did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migration {
    /// From where to where.
    pub moved: Vec<(PathBuf, PathBuf)>,
    /// What stays where it is, and why.
    pub skipped: Vec<(PathBuf, String)>,
    /// The project's `.recursive` was empty then, and is gone.
    pub removed_empty: bool,
}

impl Migration {
    /// Whether there was nothing to do.
    pub fn is_clean(&self) -> bool {
        self.moved.is_empty() && self.skipped.is_empty()
    }
}

/// Moves what a project has of recursive-agent's former layout to `home`, recursive-agent's own
/// directory. With `dry_run` nothing is changed.
///
/// # Errors
///
/// `Io`; what was moved before stays moved.
///
/// # Example
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-migrate-{}", std::process::id()));
/// # std::fs::create_dir_all(dir.join("app/.recursive/sessions/slug/one")).unwrap();
/// # std::fs::write(dir.join("app/.recursive/sessions/slug/one/transcript.jsonl"), "").unwrap();
/// let done = eventlog::jsonl::migrate(&dir.join("app"), &dir.join("home"), false)?;
/// assert_eq!(done.moved.len(), 1);
/// assert!(done.removed_empty && !dir.join("app/.recursive").exists());
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
pub fn migrate(workspace: &Path, home: &Path, dry_run: bool) -> Result<Migration> {
    let former = workspace.join(".recursive");
    let target = home.join("workspaces").join(place::workspace_hash(workspace));
    let mut done = Migration::default();
    for item in ITEMS {
        let (from, to) = (former.join(item), target.join(item));
        if fs::symlink_metadata(&from).is_err() {
            continue;
        }
        let failed = |error| Error::from_io("cannot migrate", &from, error);
        if let Some(why) = obstacle(&from, &to).map_err(failed)? {
            done.skipped.push((from, why));
            continue;
        }
        if !dry_run {
            let cannot_create = |error| Error::from_io("cannot create", &target, error);
            create_private(&target).map_err(cannot_create)?;
            write_path_txt(workspace, &target).map_err(cannot_create)?;
            merge(&from, &to).map_err(failed)?;
            sync_dir(&target).and_then(|()| sync_dir(&former)).map_err(failed)?;
        }
        done.moved.push((from, to));
    }
    // Removing a directory that is not empty fails, which is what is wanted.
    done.removed_empty = !dry_run && !done.moved.is_empty() && fs::remove_dir(&former).is_ok();
    Ok(done)
}

/// Why `from` cannot be merged into `to`.
fn obstacle(from: &Path, to: &Path) -> io::Result<Option<String>> {
    let kind = fs::symlink_metadata(from)?.file_type();
    if kind.is_dir() {
        if let Some(lock) = held_lock(from) {
            let Lock { pid, host, .. } = lock;
            let lock = from.join(place::LOCK);
            let message = format!(
                "process {pid} of host {host} may be writing it ({}); do it again when it has ended",
                lock.display()
            );
            return Ok(Some(message));
        }
        if fs::symlink_metadata(to).is_ok_and(|found| !found.is_dir()) {
            return Ok(Some(format!("{} is there and no directory", to.display())));
        }
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            if let Some(why) = obstacle(&from.join(&name), &to.join(&name))? {
                return Ok(Some(why));
            }
        }
        return Ok(None);
    }
    if !kind.is_file() && !kind.is_symlink() {
        return Ok(Some(format!("{} is no file that can be moved", from.display())));
    }
    let Ok(there) = fs::symlink_metadata(to) else { return Ok(None) };
    let is_same = kind.is_file() && there.is_file() && same_content(from, to)?;
    Ok((!is_same).then(|| format!("{} is there with another content", to.display())))
}

/// The lock of a session that is being written.
fn held_lock(dir: &Path) -> Option<Lock> {
    let text = fs::read_to_string(dir.join(place::LOCK)).ok()?;
    Lock::parse(&text).filter(|lock| !lock.is_proved_stale(&place::host_name()))
}

fn same_content(a: &Path, b: &Path) -> io::Result<bool> {
    if fs::metadata(a)?.len() != fs::metadata(b)?.len() {
        return Ok(false);
    }
    let digest = |path: &Path| {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(fs::File::open(path)?)?;
        io::Result::Ok(hasher.finalize())
    };
    Ok(digest(a)? == digest(b)?)
}

/// Moves `from` to `to`, into what is there.
fn merge(from: &Path, to: &Path) -> io::Result<()> {
    let kind = fs::symlink_metadata(from)?.file_type();
    if fs::symlink_metadata(to).is_err() {
        return move_new(from, to);
    }
    if !kind.is_dir() {
        // The same content is there already.
        return fs::remove_file(from);
    }
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        merge(&from.join(&name), &to.join(&name))?;
    }
    sync_dir(to)?;
    fs::remove_dir(from)
}

/// Moves `from` to `to`, where nothing is.
fn move_new(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {}
        other => return other,
    }
    // To another file system: a whole copy first, under a name that nobody takes for it.
    let parent = to.parent().unwrap_or(Path::new("."));
    let mut name = std::ffi::OsString::from(".migrating-");
    name.push(to.file_name().unwrap_or_default());
    let copy = parent.join(name);
    remove_all(&copy)?;
    copy_all(from, &copy)?;
    fs::rename(&copy, to)?;
    // DURABILITY: the copy has its name before the original loses its own.
    sync_dir(parent)?;
    remove_all(from)
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(from)?;
    if meta.is_dir() {
        create_private(to)?;
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            copy_all(&from.join(&name), &to.join(&name))?;
        }
        return sync_dir(to);
    }
    if meta.is_symlink() {
        #[cfg(unix)]
        return std::os::unix::fs::symlink(fs::read_link(from)?, to);
    }
    fs::copy(from, to)?;
    let file = fs::File::options().write(true).open(to)?;
    // Listings are ordered by it.
    file.set_modified(meta.modified()?)?;
    file.sync_all()
}

fn remove_all(path: &Path) -> io::Result<()> {
    let result = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn write_path_txt(workspace: &Path, target: &Path) -> io::Result<()> {
    let path = target.join(place::PATH_TXT);
    if path.exists() {
        return Ok(());
    }
    let workspace = workspace.canonicalize()?;
    let dir = std::sync::Arc::new(crate::io::StdDir::open(target)?);
    let mut file = crate::io::Replacement::create(dir, place::PATH_TXT)?;
    io::Write::write_all(&mut file, workspace.as_os_str().as_encoded_bytes())?;
    file.commit().map(drop)
}

fn create_private(path: &Path) -> io::Result<()> {
    crate::io::StdDir::create(path).map(drop)
}

fn sync_dir(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    fs::File::open(path)?.sync_all()?;
    Ok(())
}
