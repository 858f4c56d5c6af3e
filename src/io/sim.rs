//! A simulated disk: what a file system may legally do to a program that is cut off.
//!
//! Per file it keeps the durable bytes and an ordered list of unsynced operations; per disk the
//! same for names. [`SimDisk::crash`] asks for the fate of each unsynced item and gives the disk
//! that a machine would find after the power came back. [`SimDisk::fail`] makes a chosen operation
//! fail. Everything is deterministic and single-threaded in effect: one mutex, one counter of
//! operations.
//!
//! The model: `sync_data` drains the list of that file, not its name; `Dir::sync` drains names.
//! A directory is a name like any other: what is in one whose own name is lost is lost with it.

use ::std::collections::{BTreeMap, BTreeSet};
use ::std::io;
use ::std::path::PathBuf;
use ::std::sync::Arc;
use ::std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::{Dir, DirEntry, EntryKind, File, LockGuard, LockOutcome, OpenMode};

/// The kind of an operation, for [`SimDisk::fail`] and [`SimDisk::trace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `File::read_at`.
    Read,
    /// `File::write_at`.
    Write,
    /// `File::set_len`.
    SetLen,
    /// `File::sync_data`.
    Sync,
    /// `Dir::open` that creates a file, `Dir::subdir` that creates a directory.
    Create,
    /// `Dir::rename`.
    Rename,
    /// `Dir::remove`.
    Remove,
    /// `Dir::sync`.
    DirSync,
}

/// What a failing operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `EIO`; nothing of the operation happens. A failed sync marks the pages clean all the same:
    /// the data is gone from the unsynced list without having reached the disk, but reads still
    /// show it, and the next sync succeeds.
    Io,
    /// `ENOSPC`; nothing of the operation happens.
    NoSpace,
    /// A write takes only half of its bytes and says so.
    ShortWrite,
    /// The power goes: the operation does not happen, and unlike with [`Fault::Io`] an unsynced
    /// write stays unsynced, so that [`SimDisk::crash`] decides its fate.
    Cut,
}

/// The fate of one unsynced item in a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It reached the disk.
    Kept,
    /// It did not.
    Dropped,
    /// The first bytes of a write reached the disk, this many. Other items count as dropped.
    Torn(usize),
}

/// An unsynced item whose fate a crash decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A write to a file: path, offset, length in bytes.
    Write(String, u64, usize),
    /// A change of a file's length.
    SetLen(String, u64),
    /// A change of names, described.
    Name(String),
}

#[derive(Clone, Debug)]
enum FileOp {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

/// The bytes are shared with the disks that crashes made, until somebody writes.
#[derive(Clone, Debug, Default)]
struct Inode {
    cached: Arc<Vec<u8>>,
    durable: Arc<Vec<u8>>,
    pending: Vec<FileOp>,
}

impl Inode {
    fn of(bytes: Arc<Vec<u8>>) -> Inode {
        Inode { cached: bytes.clone(), durable: bytes, pending: Vec::new() }
    }
}

#[derive(Clone, Debug)]
enum NameOp {
    Link(String, usize),
    Unlink(String),
    Rename(String, String),
    Mkdir(String),
}

#[derive(Default)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    pending_names: Vec<NameOp>,
    dirs: BTreeSet<String>,
    durable_dirs: BTreeSet<String>,
    locks: BTreeMap<String, Vec<u8>>,
    operations: u64,
    trace: Vec<(Op, String)>,
    faults: Vec<Armed>,
}

struct Armed {
    matches: Box<dyn Matches>,
    fault: Fault,
    left: usize,
}

trait Matches: Send {
    fn matches(&self, op: Op, path: &str) -> bool;
}

impl<F: Fn(Op, &str) -> bool + Send> Matches for F {
    fn matches(&self, op: Op, path: &str) -> bool {
        self(op, path)
    }
}

/// A simulated disk. Clones are the same disk.
///
/// ```
/// use eventlog::io::{Dir, File, OpenMode, sim::{Fate, SimDisk}};
///
/// let disk = SimDisk::new();
/// let file = disk.root().open("a", OpenMode::CreateNew)?;
/// file.write_at(b"never synced", 0)?;
/// let after = disk.crash(&mut |_item| Fate::Dropped);
/// assert!(after.root().open("a", OpenMode::Read).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl ::std::fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
        f.debug_struct("SimDisk").field("files", &self.paths()).finish_non_exhaustive()
    }
}

impl SimDisk {
    /// An empty disk.
    pub fn new() -> SimDisk {
        SimDisk::default()
    }

    /// Its root directory.
    pub fn root(&self) -> Arc<dyn Dir> {
        Arc::new(SimDir { disk: self.clone(), path: String::new() })
    }

    /// Makes the next `times` operations fail that `matches` (given the kind and the path).
    pub fn fail(
        &self,
        times: usize,
        fault: Fault,
        matches: impl Fn(Op, &str) -> bool + Send + 'static,
    ) {
        let matches = Box::new(matches);
        self.state.lock().faults.push(Armed { matches, fault, left: times });
    }

    /// Cuts the power after `operations` more operations that change something: all later ones
    /// fail.
    pub fn cut_after(&self, operations: u64) {
        let left = AtomicU64::new(operations);
        self.fail(usize::MAX, Fault::Cut, move |op, _| {
            let count = |n: u64| n.checked_sub(1);
            op != Op::Read && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count).is_err()
        });
    }

    /// Disarms every fault.
    pub fn heal(&self) {
        self.state.lock().faults.clear();
    }

    /// How many operations have run, failed ones included.
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// The operations so far, reads left out, in order: kind and path.
    pub fn trace(&self) -> Vec<(Op, String)> {
        self.state.lock().trace.clone()
    }

    /// The disk as a machine finds it after a crash now; `fate` decides each unsynced item, in
    /// order. No lock survives. This disk stays as it is.
    pub fn crash(&self, fate: &mut dyn FnMut(&Item) -> Fate) -> SimDisk {
        let state = self.state.lock();
        let path_of = |inode| state.path_of(inode);
        let mut inodes = Vec::with_capacity(state.inodes.len());
        for (number, inode) in state.inodes.iter().enumerate() {
            let mut bytes = inode.durable.clone();
            for op in &inode.pending {
                match op {
                    FileOp::Write(offset, data) => {
                        let item = Item::Write(path_of(number), *offset, data.len());
                        let kept = match fate(&item) {
                            Fate::Kept => data.len(),
                            Fate::Torn(n) => n.min(data.len()),
                            Fate::Dropped => 0,
                        };
                        if let Some(kept) = data.get(..kept).filter(|kept| !kept.is_empty()) {
                            put(Arc::make_mut(&mut bytes), *offset, kept);
                        }
                    }
                    FileOp::SetLen(len) => {
                        if fate(&Item::SetLen(path_of(number), *len)) == Fate::Kept {
                            Arc::make_mut(&mut bytes).resize(*len as usize, 0);
                        }
                    }
                }
            }
            inodes.push(Inode::of(bytes));
        }
        let mut names = state.durable_names.clone();
        let mut dirs = state.durable_dirs.clone();
        for op in &state.pending_names {
            if fate(&Item::Name(format!("{op:?}"))) == Fate::Kept {
                apply_name(&mut names, &mut dirs, op);
            }
        }
        names.retain(|path, _| path.rsplit_once('/').is_none_or(|(dir, _)| dirs.contains(dir)));
        let state = State {
            inodes,
            durable_names: names.clone(),
            names,
            durable_dirs: dirs.clone(),
            dirs,
            ..State::default()
        };
        SimDisk { state: Arc::new(Mutex::new(state)) }
    }

    /// The disk after a process kill: the operating system lives, so nothing is lost but the locks.
    pub fn kill(&self) -> SimDisk {
        self.crash(&mut |_| Fate::Kept)
    }

    /// The current bytes of a file (`"dir/name"`), as a read would show them.
    pub fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        let state = self.state.lock();
        let inode = *state.names.get(path)?;
        Some(state.inodes.get(inode)?.cached.to_vec())
    }

    /// Replaces the bytes of a file, durably: for planting damage.
    pub fn overwrite(&self, path: &str, bytes: Vec<u8>) {
        let mut state = self.state.lock();
        let fresh = Inode::of(Arc::new(bytes));
        match state.names.get(path).copied() {
            Some(inode) => {
                if let Some(slot) = state.inodes.get_mut(inode) {
                    *slot = fresh;
                }
            }
            None => {
                let number = state.inodes.len();
                state.inodes.push(fresh);
                state.names.insert(path.to_owned(), number);
                state.durable_names.insert(path.to_owned(), number);
            }
        }
    }

    /// The paths of all files.
    pub fn paths(&self) -> Vec<String> {
        self.state.lock().names.keys().cloned().collect()
    }

    fn begin(&self, op: Op, path: &str) -> io::Result<Option<Fault>> {
        let mut state = self.state.lock();
        state.operations += 1;
        if op != Op::Read {
            state.trace.push((op, path.to_owned()));
        }
        let armed = state.faults.iter_mut().find(|a| a.left > 0 && a.matches.matches(op, path));
        let Some(armed) = armed else { return Ok(None) };
        armed.left -= 1;
        match armed.fault {
            Fault::NoSpace => Err(io::ErrorKind::StorageFull.into()),
            Fault::Io if op == Op::Sync => Ok(Some(Fault::Io)),
            Fault::Io | Fault::Cut => Err(io::Error::other("simulated input/output error")),
            Fault::ShortWrite => Ok(Some(Fault::ShortWrite)),
        }
    }
}

impl State {
    /// The name that a file has now.
    fn path_of(&self, inode: usize) -> String {
        let found = self.names.iter().find(|(_, number)| **number == inode);
        found.map_or_else(|| format!("unlinked inode {inode}"), |(name, _)| name.clone())
    }
}

fn put(bytes: &mut Vec<u8>, offset: u64, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let (start, end) = (offset as usize, offset as usize + data.len());
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    if let Some(slot) = bytes.get_mut(start..end) {
        slot.copy_from_slice(data);
    }
}

fn apply_name(names: &mut BTreeMap<String, usize>, dirs: &mut BTreeSet<String>, op: &NameOp) {
    match op {
        NameOp::Mkdir(path) => _ = dirs.insert(path.clone()),
        NameOp::Link(name, inode) => _ = names.insert(name.clone(), *inode),
        NameOp::Unlink(name) => _ = names.remove(name),
        NameOp::Rename(from, to) => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
    }
}

#[derive(Clone, Debug)]
struct SimDir {
    disk: SimDisk,
    path: String,
}

impl SimDir {
    fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}/{name}", self.path) }
    }

    fn name_op(&self, kind: Op, path: &str, op: NameOp) -> io::Result<()> {
        self.disk.begin(kind, path)?;
        let mut state = self.disk.state.lock();
        let state = &mut *state;
        let source = match &op {
            NameOp::Unlink(name) | NameOp::Rename(name, _) => Some(name),
            NameOp::Link(..) | NameOp::Mkdir(_) => None,
        };
        if source.is_some_and(|name| !state.names.contains_key(name)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        apply_name(&mut state.names, &mut state.dirs, &op);
        state.pending_names.push(op);
        Ok(())
    }
}

impl super::sealed::Sealed for SimDir {}

impl Dir for SimDir {
    fn path(&self) -> PathBuf {
        PathBuf::from("/sim").join(&self.path)
    }

    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let path = self.at(name);
        let found = self.disk.state.lock().names.get(&path).copied();
        let inode = match (found, mode) {
            (Some(_), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(inode), _) => inode,
            (None, OpenMode::Read | OpenMode::Write) => return Err(io::ErrorKind::NotFound.into()),
            (None, OpenMode::Create | OpenMode::CreateNew) => {
                let number = {
                    let mut state = self.disk.state.lock();
                    state.inodes.push(Inode::default());
                    state.inodes.len() - 1
                };
                self.name_op(Op::Create, &path, NameOp::Link(path.clone(), number))?;
                number
            }
        };
        Ok(Arc::new(SimFile { disk: self.disk.clone(), inode }))
    }

    fn subdir(&self, name: &str, create: bool) -> io::Result<Arc<dyn Dir>> {
        let path = self.at(name);
        let exists = self.disk.state.lock().dirs.contains(&path);
        match (exists, create) {
            (true, _) => {}
            (false, true) => self.name_op(Op::Create, &path, NameOp::Mkdir(path.clone()))?,
            (false, false) => return Err(io::ErrorKind::NotFound.into()),
        }
        Ok(Arc::new(SimDir { disk: self.disk.clone(), path }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.at(from), self.at(to));
        self.name_op(Op::Rename, &from, NameOp::Rename(from.clone(), to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.at(name);
        self.name_op(Op::Remove, &path, NameOp::Unlink(path.clone()))
    }

    fn list(&self) -> io::Result<Vec<DirEntry>> {
        let state = self.disk.state.lock();
        let prefix = self.at("");
        let child = |path: &String, kind| {
            let rest = path.strip_prefix(&prefix).filter(|rest| !rest.contains('/'))?;
            Some(DirEntry { name: rest.into(), kind })
        };
        let files = state.names.keys().filter_map(|p| child(p, EntryKind::File));
        Ok(files.chain(state.dirs.iter().filter_map(|p| child(p, EntryKind::Dir))).collect())
    }

    fn sync(&self) -> io::Result<()> {
        if self.disk.begin(Op::DirSync, &self.path)?.is_some() {
            return Err(io::Error::other("simulated input/output error"));
        }
        let mut state = self.disk.state.lock();
        let state = &mut *state;
        let prefix = self.at("");
        let ours = |path: &str| path.strip_prefix(&prefix).is_some_and(|r| !r.contains('/'));
        let pending = ::std::mem::take(&mut state.pending_names);
        let (now, later) = pending.into_iter().partition::<Vec<_>, _>(|op| match op {
            NameOp::Link(name, _)
            | NameOp::Unlink(name)
            | NameOp::Rename(name, _)
            | NameOp::Mkdir(name) => ours(name),
        });
        state.pending_names = later;
        for op in &now {
            apply_name(&mut state.durable_names, &mut state.durable_dirs, op);
        }
        Ok(())
    }

    fn try_lock(&self, name: &str, owner: &[u8]) -> io::Result<LockOutcome> {
        let path = self.at(name);
        let mut state = self.disk.state.lock();
        if let Some(owner) = state.locks.get(&path) {
            return Ok(LockOutcome::Busy(owner.clone()));
        }
        state.locks.insert(path.clone(), owner.to_owned());
        Ok(LockOutcome::Acquired(Box::new(SimLock { disk: self.disk.clone(), path })))
    }

    fn is_locked(&self, name: &str) -> io::Result<bool> {
        Ok(self.disk.state.lock().locks.contains_key(&self.at(name)))
    }
}

#[derive(Debug)]
struct SimLock {
    disk: SimDisk,
    path: String,
}

impl super::sealed::Sealed for SimLock {}

impl LockGuard for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.state.lock().locks.remove(&self.path);
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    inode: usize,
}

impl SimFile {
    fn begin(&self, op: Op) -> io::Result<Option<Fault>> {
        let path = self.disk.state.lock().path_of(self.inode);
        self.disk.begin(op, &path)
    }

    fn with<T>(&self, f: impl FnOnce(&mut Inode) -> T) -> io::Result<T> {
        let mut state = self.disk.state.lock();
        let inode = state.inodes.get_mut(self.inode).ok_or(io::ErrorKind::NotFound)?;
        Ok(f(inode))
    }
}

impl super::sealed::Sealed for SimFile {}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.begin(Op::Read)?;
        self.with(|inode| {
            let Some(rest) = inode.cached.get(offset as usize..) else { return 0 };
            let n = rest.len().min(buf.len());
            for (to, from) in buf.iter_mut().zip(rest) {
                *to = *from;
            }
            n
        })
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        let taken = match self.begin(Op::Write)? {
            Some(Fault::ShortWrite) => (buf.len() / 2).max(1),
            _ => buf.len(),
        };
        let data = buf.get(..taken).unwrap_or(buf).to_vec();
        self.with(|inode| {
            put(Arc::make_mut(&mut inode.cached), offset, &data);
            inode.pending.push(FileOp::Write(offset, data));
        })?;
        Ok(taken)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.begin(Op::SetLen)?;
        self.with(|inode| {
            Arc::make_mut(&mut inode.cached).resize(len as usize, 0);
            inode.pending.push(FileOp::SetLen(len));
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|inode| inode.cached.len() as u64)
    }

    fn sync_data(&self) -> io::Result<()> {
        let failed = self.begin(Op::Sync)?.is_some();
        self.with(|inode| {
            let pending = ::std::mem::take(&mut inode.pending);
            if failed {
                return; // the pages are clean now, and the bytes are nowhere
            }
            for op in pending {
                match op {
                    FileOp::Write(offset, data) => {
                        put(Arc::make_mut(&mut inode.durable), offset, &data);
                    }
                    FileOp::SetLen(len) => {
                        Arc::make_mut(&mut inode.durable).resize(len as usize, 0);
                    }
                }
            }
        })?;
        if failed { Err(io::Error::other("simulated input/output error")) } else { Ok(()) }
    }
}
