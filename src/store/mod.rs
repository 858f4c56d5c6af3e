//! The home of the events: redb, and the only module that names it.
//!
//! * [`tables`]: table definitions and how values are framed.
//! * [`block`]: runs of events, the values of the `events` table.
//! * [`checkpoint`]: one transaction that takes a memtable in.
//! * [`rows`]: what a checkpoint writes, worked out without the tables.
//! * [`projection`]: what is derived from a session's events, and the removal of a session.
//! * [`reader`]: a view of the store at one moment.
//! * [`backend`]: redb's file access on our own files.
//!
//! Invariants: the file gets its name only when it is a whole, empty store (a cut in its creation
//! leaves a temporary file and nothing else); everything changes in one durable transaction per
//! checkpoint, with the applied position in it (I6); no value is returned whose CRC is wrong (I8).
//! After an I/O error redb refuses to go on, and so does the log, until it is opened again. One error
//! is different: a write that found no space has left the store as the last transaction made it.
//! The next use opens the file again, and the write can be repeated.

mod backend;
pub(crate) mod block;
mod checkpoint;
mod projection;
mod reader;
mod rows;
mod tables;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redb::{
    ConcurrencyMode, Database, Durability, ReadOnlyDatabase, ReadableDatabase, WriteTransaction,
};

use crate::error::{Error, ErrorKind, Result};
use crate::io::{Dir, OpenMode, remove_left_over};
use crate::journal::{Applied, Epoch, Position};
use crate::locks::{Mutex, MutexGuard, Rank, RwLock, thread};
use crate::planted::planted;

use backend::Backend;
use tables::{EVENTS, FORMAT_VERSION, MARKS, META, SESSION_IDS, SESSIONS};

pub(crate) use projection::Header as ProjectionHeader;
pub(crate) use reader::{BlockRow, StoreReader};
pub(crate) use tables::{FORMAT_VERSION as STORE_FORMAT_VERSION, MarkKey, SessionRecord};

/// The store's file name.
pub(crate) const FILE: &str = "events.redb";
const TEMPORARY_FILE: &str = "events.redb.tmp";

/// The store, open for reading and writing or for reading alone.
pub(crate) struct Store {
    dir: Arc<dyn Dir>,
    /// Replaced when a failure made redb refuse to read.
    database: RwLock<Arc<Handle>>,
    writable: bool,
    closed: AtomicBool,
    /// One transaction at a time that writes or that replaces `database`.
    one_write: Mutex<()>,
    /// A write found no space: the database has to be opened again before the next one.
    is_stale: AtomicBool,
    /// A flush of the file failed.
    flush_failed: Arc<AtomicBool>,
    cache_bytes: usize,
    id: u128,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("id", &self.id).finish_non_exhaustive()
    }
}

enum Handle {
    Write(Database),
    Read(ReadOnlyDatabase),
    Closed,
}

/// What stands in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The store's file.
    Present,
    /// Nothing, or a temporary file of a creation that was cut off.
    Absent,
}

/// Looks for the store's file.
pub(crate) fn presence(dir: &dyn Dir) -> Result<Presence> {
    let entries = dir.list().map_err(|e| Error::io("cannot list the log's directory", e))?;
    let there = entries.iter().any(|entry| entry.name == FILE);
    Ok(if there { Presence::Present } else { Presence::Absent })
}

/// The error for a journal without a store.
pub(crate) fn lost(segments: usize) -> Error {
    let message =
        format_args!("the file is missing, and the journal is there (segments: {segments})");
    Error::corrupt(FILE, None, message)
        .with_hint("restore events.redb from the same copy as the journal directory")
}

/// A transaction that is durable when its commit returns, and after which a killed process's store
/// reopens without reading all of it.
fn begin_durable(database: &Database) -> Result<WriteTransaction, redb::Error> {
    let mut transaction = database.begin_write()?;
    if !planted("store_is_not_flushed") {
        transaction.set_durability(Durability::Immediate)?;
    } else {
        transaction.set_durability(Durability::None)?;
    }
    transaction.set_quick_repair(true);
    Ok(transaction)
}

/// Makes an empty store. Its name is durable when this returns.
pub(crate) fn create(dir: &dyn Dir, id: u128) -> Result<()> {
    let io = |e| Error::io(format_args!("cannot create {FILE}"), e);
    remove_left_over(dir, TEMPORARY_FILE).map_err(io)?;
    let file = dir.open(TEMPORARY_FILE, OpenMode::CreateNew).map_err(io)?;
    let backend = Backend::new(file.clone(), Arc::default()).map_err(io)?;
    guarded("create", || {
        let database = Database::builder().create_with_backend(backend)?;
        let transaction = begin_durable(&database)?;
        transaction.open_table(EVENTS)?;
        transaction.open_table(SESSIONS)?;
        transaction.open_table(SESSION_IDS)?;
        transaction.open_table(MARKS)?;
        {
            let mut meta = transaction.open_table(META)?;
            meta.insert(tables::META_FORMAT, &*tables::encode_meta(&FORMAT_VERSION))?;
            meta.insert(tables::META_STORE_ID, &*tables::encode_meta(&id))?;
            let applied = tables::encode_meta(&Position::default());
            meta.insert(tables::META_APPLIED, &*applied)?;
            meta.insert(tables::META_OPENED, &*tables::encode_meta(&Epoch::default()))?;
        }
        transaction.commit()?;
        database.close()?;
        Ok(())
    })?;
    // DURABILITY: content before name, name before anything refers to it.
    file.sync_data().map_err(io)?;
    dir.rename(TEMPORARY_FILE, FILE).map_err(io)?;
    dir.sync().map_err(io)
}

impl Store {
    /// Opens the store for reading and writing, repairing it if it was not closed. The caller holds
    /// the log's lock.
    pub(crate) fn open(dir: Arc<dyn Dir>, cache_bytes: usize) -> Result<Store> {
        remove_left_over(&*dir, TEMPORARY_FILE)
            .map_err(|e| Error::io(format_args!("cannot remove {TEMPORARY_FILE}"), e))?;
        Store::with_mode(dir, cache_bytes, true)
    }

    /// Opens the store for reading beside a writer in another process, or without one.
    ///
    /// # Errors
    ///
    /// `NeedsRecovery` where nobody writes and the last writer did not close.
    pub(crate) fn open_read_only(dir: Arc<dyn Dir>, cache_bytes: usize) -> Result<Store> {
        Store::with_mode(dir, cache_bytes, false)
    }

    fn with_mode(dir: Arc<dyn Dir>, cache_bytes: usize, writable: bool) -> Result<Store> {
        let flush_failed = Arc::default();
        let handle = Handle::open(&*dir, cache_bytes, writable, &flush_failed)?;
        let mut store = Store {
            dir,
            database: RwLock::new(Rank::Database, Arc::new(handle)),
            writable,
            closed: AtomicBool::new(false),
            one_write: Mutex::new(Rank::StoreWrite, ()),
            is_stale: AtomicBool::new(false),
            flush_failed,
            cache_bytes,
            id: 0,
        };
        store.id = StoreReader::read_id(&store)?;
        Ok(store)
    }

    /// The id that ties journal and store together.
    pub(crate) fn id(&self) -> u128 {
        self.id
    }

    fn handle(&self) -> Arc<Handle> {
        self.database.read().clone()
    }

    /// Where the journal goes on, as the store is now.
    pub(crate) fn applied(&self) -> Result<Applied> {
        StoreReader::read_applied(self)
    }

    /// A view of the store as it is now.
    pub(crate) fn reader(&self) -> Result<StoreReader> {
        match StoreReader::new(self) {
            // `Closed` while nobody closed it: an earlier attempt failed.
            Err(error)
                if matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::Closed)
                    && self.writable
                    && !self.closed.load(Ordering::Acquire) =>
            {
                let one = self.one_write.lock();
                // Another thread may have opened it meanwhile.
                StoreReader::new(self).or_else(|_| {
                    self.reopen(&one)?;
                    StoreReader::new(self)
                })
            }
            other => other,
        }
    }

    /// Runs `body` in a transaction that is durable when this returns. `body` returns whether to
    /// commit, with what this returns.
    ///
    /// # Errors
    ///
    /// `Full` where there was no space: the store is as it was, or as the transaction made it, and
    /// the same can be tried again. After any other error nothing more may be written.
    fn write<T>(
        &self,
        body: impl FnOnce(&WriteTransaction) -> Result<Result<(bool, T)>, redb::Error>,
    ) -> Result<T> {
        let one = self.one_write.lock();
        if self.is_stale.load(Ordering::Acquire) {
            self.reopen(&one)?;
        }
        let handle = self.handle();
        let database = handle.writer()?;
        let written = guarded("write", || {
            let transaction = begin_durable(database)?;
            let (commit, result) = match body(&transaction)? {
                Ok(done) => done,
                Err(error) => return Ok(Err(error)),
            };
            match commit {
                true => transaction.commit()?,
                false => transaction.abort()?,
            }
            Ok(Ok(result))
        });
        written.and_then(|result| result).map_err(|error| {
            if error.kind() != ErrorKind::Full {
                return error;
            }
            if self.flush_failed.load(Ordering::Acquire) {
                // The kernel may have dropped what it could not write, and show it all the same.
                return error.with_kind(ErrorKind::Io);
            }
            self.is_stale.store(true, Ordering::Release);
            error
        })
    }

    /// Opens the file again: after an I/O error redb neither reads nor writes. The guard is that of
    /// `one_write`: no transaction is under way that needs the old handle.
    fn reopen(&self, _one: &MutexGuard<'_, ()>) -> Result<()> {
        const TRIES: usize = 100;
        self.is_stale.store(true, Ordering::Release);
        let mut database = self.database.write();
        let_go(std::mem::replace(&mut *database, Arc::new(Handle::Closed)));
        let mut tries = 0;
        let handle = loop {
            tries += 1;
            match Handle::open(&*self.dir, self.cache_bytes, self.writable, &self.flush_failed) {
                // A thread that has just begun to read has the old handle a moment longer.
                Err(error) if error.kind() == ErrorKind::Locked && tries < TRIES => {
                    thread::sleep(Duration::from_millis(1));
                }
                other => break other?,
            }
        };
        *database = Arc::new(handle);
        self.is_stale.store(false, Ordering::Release);
        Ok(())
    }

    /// Closes the file; what was committed is durable already.
    pub(crate) fn close(&self) -> Result<()> {
        self.closed.store(true, Ordering::Release);
        let handle = std::mem::replace(&mut *self.database.write(), Arc::new(Handle::Closed));
        guarded("close", || match Arc::into_inner(handle) {
            Some(Handle::Write(database)) => Ok(database.close()?),
            Some(Handle::Read(database)) => Ok(database.close()?),
            Some(Handle::Closed) | None => Ok(()),
        })
    }

    /// Bytes that the file occupies.
    pub(crate) fn allocated(&self) -> Result<u64> {
        self.dir
            .open(FILE, OpenMode::Read)
            .and_then(|file| file.allocated())
            .map_err(|e| Error::io(format_args!("cannot look at {FILE}"), e))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let_go(std::mem::replace(self.database.get_mut(), Arc::new(Handle::Closed)));
    }
}

/// Drops a handle. redb may find only now how damaged the file is, and panic.
fn let_go(handle: Arc<Handle>) {
    _ = guarded("close", || {
        drop(handle);
        Ok(())
    });
}

impl Handle {
    fn writer(&self) -> Result<&Database> {
        match self {
            Handle::Write(database) => Ok(database),
            _ => Err(Error::new(ErrorKind::Closed, "the log is closed")),
        }
    }

    fn open(
        dir: &dyn Dir,
        cache_bytes: usize,
        writable: bool,
        flush_failed: &Arc<AtomicBool>,
    ) -> Result<Handle> {
        let mode = if writable { OpenMode::Write } else { OpenMode::Read };
        let io = |e| Error::io(format_args!("cannot open {FILE}"), e);
        let file = dir.open(FILE, mode).map_err(io)?;
        // redb would make a new database of an empty file, and a lost store would look like a new
        // one.
        if file.len().map_err(io)? == 0 {
            return Err(Error::corrupt(FILE, 0, "the file is empty"));
        }
        let backend = Backend::new(file, flush_failed.clone()).map_err(io)?;
        let mut builder = Database::builder();
        builder.set_cache_size(cache_bytes);
        if backend.has_locks() {
            builder.set_concurrency_mode(ConcurrencyMode::SingleWriter);
        }
        guarded("open", || {
            Ok(if writable {
                Handle::Write(builder.create_with_backend(backend)?)
            } else {
                Handle::Read(builder.open_read_only_with_backend(backend)?)
            })
        })
    }

    fn begin_read(&self) -> Result<redb::ReadTransaction> {
        guarded("read", || match self {
            Handle::Write(database) => Ok(database.begin_read()?),
            Handle::Read(database) => Ok(database.begin_read()?),
            Handle::Closed => Err(redb::Error::DatabaseClosed),
        })
    }
}

/// Runs redb code. A damaged file can make redb panic, which is damage like any other.
fn guarded<T>(what: &str, body: impl FnOnce() -> Result<T, redb::Error>) -> Result<T> {
    let before = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(body));
    GUARDED.set(before);
    match result {
        Ok(result) => result.map_err(|e| translate(what, e)),
        Err(_) => Err(Error::corrupt(
            FILE,
            None,
            format_args!("cannot {what} it: its internal structure is damaged"),
        )),
    }
}

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic on this thread will be caught and reported as damage: a program's panic hook may
/// then be silent.
///
/// ```
/// assert!(!eventlog::panics_are_caught());
/// ```
pub fn panics_are_caught() -> bool {
    GUARDED.get()
}

fn translate(what: &str, error: redb::Error) -> Error {
    match error {
        redb::Error::Io(e) if e.kind() == std::io::ErrorKind::InvalidData => {
            Error::corrupt(FILE, None, format_args!("cannot {what} it: {e}"))
        }
        redb::Error::Io(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            Error::corrupt(FILE, None, format_args!("cannot {what} it: the file was cut"))
        }
        redb::Error::Io(e) => Error::io(format_args!("cannot {what} {FILE}"), e),
        redb::Error::Corrupted(message) => {
            Error::corrupt(FILE, None, format_args!("cannot {what} it: {message}"))
        }
        redb::Error::PreviousIo => Error::new(
            ErrorKind::Poisoned,
            format!("cannot {what} {FILE}: an earlier read or write failed"),
        ),
        redb::Error::DatabaseClosed => Error::new(ErrorKind::Closed, "the log is closed"),
        redb::Error::DatabaseAlreadyOpen => Error::new(
            ErrorKind::Locked,
            format!("cannot {what} {FILE}: another process uses it exclusively"),
        ),
        redb::Error::RepairAborted => Error::new(
            ErrorKind::NeedsRecovery,
            "the log was not closed cleanly and has to be opened for writing once",
        ),
        // A missing table, a table of another type: not a store of ours, or a damaged one.
        other => Error::corrupt(FILE, None, format_args!("cannot {what} it: {other}")),
    }
}
