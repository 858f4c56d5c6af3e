//! The log: what hosts use.
//!
//! * [`EventLog`] opens a log, [`Session`] appends, [`Ticket`] is the receipt of what was handed
//!   over.
//! * [`Snapshot`] is a view of one moment, [`Events`] a range of a session's events.
//!
//! Inside: [`open`] has the start-up table, [`commit`] the way of an append, [`shared`] the state
//! of a log that is open for writing and its threads, [`reader`] a log that is open for reading,
//! [`manage`] what is done to a session as a whole.

pub(crate) mod commit;
mod manage;
mod open;
mod options;
mod range;
mod reader;
pub(crate) mod session;
mod shared;
mod snapshot;
mod ticket;
mod verify;

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::io::{Dir, OpenMode, StdDir};
use crate::journal;

pub(crate) use manage::Projection;
pub use open::{DroppedBatch, Recovery};
pub use options::{Builder, Sync};
pub use range::{EventRange, Events, Position};
pub use session::Session;
pub(crate) use shared::now_unix_micros;
pub use snapshot::{SessionInfo, Snapshot};
pub use ticket::Ticket;
pub use verify::{Problem, Stats, VerifyReport};

use options::Options;
use reader::Reader;
use shared::{Shared, start_thread};

/// A durable log of events, grouped in sessions, in one directory.
///
/// One process at a time has a log open for writing; any number of others can read it meanwhile
/// ([`EventLog::open_read_only`]). A handle is cheap to clone and can be used from any thread. When
/// the last handle, [`Session`] and [`Ticket`] is gone the log is closed; [`EventLog::close`] does
/// that by hand and says whether it worked.
///
/// ```
/// use eventlog::{Entry, EventLog, Kind};
///
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-log-{}", std::process::id()));
/// let log = EventLog::open(&dir)?;
/// let session = log.session("s-123")?;
/// session.append(Entry::new(Kind::Message, br#"{"role":"user","content":"hello"}"#))?;
/// for event in log.read("s-123", ..)? {
///     let event = event?;
///     println!("{} {}: {}", event.seq(), event.kind(), String::from_utf8_lossy(event.bytes()));
/// }
/// log.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
#[derive(Clone)]
pub struct EventLog {
    handle: Arc<Handle>,
}

impl std::fmt::Debug for EventLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventLog").field("dir", &self.handle.dir.path()).finish_non_exhaustive()
    }
}

/// Closes the log when the last one is dropped.
pub(crate) struct Handle {
    dir: Arc<dyn Dir>,
    inner: Inner,
}

enum Inner {
    Writer(Arc<Shared>),
    Reader(Reader),
}

impl Handle {
    /// The writer's state; a ticket has it always.
    fn shared(&self) -> &Arc<Shared> {
        match &self.inner {
            Inner::Writer(shared) => shared,
            Inner::Reader(_) => unreachable!("a reader gives out no tickets"),
        }
    }

    fn writer(&self) -> Result<&Arc<Shared>> {
        match &self.inner {
            Inner::Writer(shared) => Ok(shared),
            Inner::Reader(_) => {
                Err(Error::new(ErrorKind::Refused, "the log is open for reading only")
                    .with_hint("open it with `EventLog::open` to write"))
            }
        }
    }

    fn snapshot(&self) -> Result<Snapshot> {
        match &self.inner {
            Inner::Writer(shared) => shared.snapshot(),
            Inner::Reader(reader) => reader.snapshot(),
        }
    }

    fn close_from_anywhere(&self) -> Result<()> {
        match &self.inner {
            // A task that is woken by a thread of ours may close the log there, and no thread can
            // wait for its own end: it goes on elsewhere.
            Inner::Writer(shared) if shared.is_own_thread() => {
                start_thread("eventlog-close", shared, |shared| _ = shared.close()).map(drop)
            }
            Inner::Writer(shared) => shared.close(),
            Inner::Reader(reader) => reader.store.close(),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Who wants to know whether this worked calls `close`; the next open finds everything
        // acknowledged either way.
        _ = self.close_from_anywhere();
    }
}

impl EventLog {
    /// Opens the log in the directory `path` for reading and writing with the default options.
    ///
    /// # Errors
    ///
    /// Those of [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<EventLog> {
        EventLog::builder().open(path)
    }

    /// Options, then [`Builder::open`].
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Opens the log for reading, beside a process that writes, or without one. Every
    /// [`EventLog::snapshot`] (and what builds on it) sees at least everything that was
    /// acknowledged before. It may also see a batch whose acknowledgement is still under way.
    ///
    /// # Errors
    ///
    /// `NotFound`; `NeedsRecovery` when the last writer was killed and no other has opened the log
    /// since: [`EventLog::open`] recovers it; `NewerFormat`, `Corrupt`, `Io`.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<EventLog> {
        EventLog::builder().open_read_only(path)
    }

    fn start(dir: Arc<dyn Dir>, options: Options) -> Result<EventLog> {
        let shared = open::open(&dir, options)?;
        Ok(EventLog { handle: Arc::new(Handle { dir, inner: Inner::Writer(shared) }) })
    }

    fn start_reader(dir: Arc<dyn Dir>, options: Options) -> Result<EventLog> {
        let reader = Reader::open(dir.clone(), &options)?;
        Ok(EventLog { handle: Arc::new(Handle { dir, inner: Inner::Reader(reader) }) })
    }

    /// What opening the log found and did; for a log opened read-only nothing.
    pub fn recovery(&self) -> Recovery {
        match &self.handle.inner {
            Inner::Writer(shared) => shared.recovery.clone(),
            Inner::Reader(_) => Recovery::default(),
        }
    }

    /// A handle of the session `id`: any text of 1 to 512 bytes. The session comes into being with
    /// its first event.
    ///
    /// # Errors
    ///
    /// `Usage` for an id that is empty or too long; `Refused` for a log opened read-only;
    /// `Corrupt`, `Io`.
    pub fn session(&self, id: &str) -> Result<Session> {
        session::check_id(id)?;
        let state = self.handle.writer()?.session(id)?;
        Ok(Session { handle: self.handle.clone(), state })
    }

    /// A view of everything that is durable now.
    ///
    /// # Errors
    ///
    /// `Corrupt`, `Io`.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.handle.snapshot()
    }

    /// All sessions, in the order in which they were created: [`Snapshot::sessions`] of a new
    /// snapshot.
    ///
    /// # Errors
    ///
    /// The first damaged record, `Io`.
    pub fn sessions(&self) -> Result<Vec<SessionInfo>> {
        self.snapshot()?.sessions().collect()
    }

    /// Reads events of the session `id`: [`Snapshot::read`] of a new snapshot.
    ///
    /// # Errors
    ///
    /// Those of [`Snapshot::read`].
    ///
    /// # Example
    ///
    /// ```
    /// use eventlog::{Entry, EventLog, EventRange, Kind, Position};
    ///
    /// # let dir = std::env::temp_dir().join(format!("eventlog-doc-read-{}", std::process::id()));
    /// # let log = EventLog::open(&dir)?;
    /// # let session = log.session("s")?;
    /// for kind in [Kind::Message, Kind::Checkpoint, Kind::Message] {
    ///     session.append(Entry::new(kind, b"{}"))?;
    /// }
    /// let resume = EventRange::between(Position::LastCheckpoint, Position::End);
    /// let seqs: Vec<u64> = log.read("s", resume)?.map(|e| Ok(e?.seq())).collect::<eventlog::Result<_>>()?;
    /// assert_eq!(seqs, [1, 2]);
    /// let newest = log.read("s", ..)?.next_back().unwrap()?;
    /// assert_eq!(newest.seq(), 2);
    /// # log.close()?;
    /// # std::fs::remove_dir_all(dir).ok();
    /// # Ok::<(), eventlog::Error>(())
    /// ```
    pub fn read(&self, id: &str, range: impl Into<EventRange>) -> Result<Events> {
        self.snapshot()?.read(id, range)
    }

    /// Writes everything durable to the store and frees the journal. Happens by itself; appends go
    /// on meanwhile.
    ///
    /// # Errors
    ///
    /// `Full` where the store has no space: nothing is lost, the log goes on, and the same is tried
    /// again, every second in the background; see
    /// [`Stats::store_full_since_unix_micros`]. `Io`: the log accepts nothing more until it is
    /// opened again, and nothing is lost. `Refused` for a log opened read-only.
    pub fn checkpoint(&self) -> Result<()> {
        self.handle.writer()?.checkpoint()
    }

    /// Reads everything there is and compares it with what is written about it: checksums, seqs
    /// without gap, counts, sums of bytes, marks.
    ///
    /// # Errors
    ///
    /// Damage is in the report; an error says that reading itself failed.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.verify_with(&mut |_| {})
    }

    /// [`EventLog::verify`], calling `progress` with the number of blocks read so far.
    ///
    /// # Errors
    ///
    /// Those of [`EventLog::verify`].
    pub fn verify_with(&self, progress: &mut dyn FnMut(u64)) -> Result<VerifyReport> {
        let mut report = verify::verify(&self.snapshot()?, progress)?;
        report.set_aside = journal::writer::set_aside(&*self.handle.dir)?;
        Ok(report)
    }

    /// The log in numbers.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn stats(&self) -> Result<Stats> {
        let (store, journal_bytes, full_since) = match &self.handle.inner {
            Inner::Writer(shared) => {
                (&shared.store, shared.journal.bytes(), shared.full_since_unix_micros())
            }
            Inner::Reader(reader) => (&reader.store, journal_bytes(&*self.handle.dir)?, None),
        };
        let mut stats = Stats {
            sessions: 0,
            events: 0,
            bytes: 0,
            stored_bytes: store.allocated()?,
            journal_bytes,
            applied_lsn: 0,
            durable_lsn: 0,
            store_full_since_unix_micros: full_since,
            format_version: crate::store::STORE_FORMAT_VERSION,
            store_id: uuid::Uuid::from_u128(store.id()).to_string(),
        };
        self.snapshot()?.totals(&mut stats)?;
        Ok(stats)
    }

    /// Answers every append that is under way, writes a last checkpoint and gives the log back.
    /// Other handles of it answer with `Closed` from then on. Called by a task's waker, which the
    /// log's own thread may run, it returns at once and goes on in the background.
    ///
    /// # Errors
    ///
    /// What kept the last checkpoint from being written: everything acknowledged is in the journal
    /// then, and the next open takes it over.
    pub fn close(self) -> Result<()> {
        self.handle.close_from_anywhere()
    }

    /// The largest entry that can be appended, in bytes: [`Builder::max_entry_bytes`].
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("eventlog-doc-max-{}", std::process::id()));
    /// let log = eventlog::EventLog::open(&dir)?;
    /// assert_eq!(log.max_entry_bytes(), 256 << 20);
    /// # log.close()?;
    /// # std::fs::remove_dir_all(dir).ok();
    /// # Ok::<(), eventlog::Error>(())
    /// ```
    pub fn max_entry_bytes(&self) -> usize {
        match &self.handle.inner {
            Inner::Writer(shared) => shared.options.max_entry_bytes,
            Inner::Reader(reader) => reader.max_entry_bytes,
        }
    }

    /// Whether a directory holds a log, as far as its names tell.
    ///
    /// ```
    /// assert!(!eventlog::EventLog::exists(std::env::temp_dir()));
    /// ```
    pub fn exists(path: impl AsRef<Path>) -> bool {
        StdDir::open(path).is_ok_and(|dir| {
            crate::store::presence(&dir).is_ok_and(|p| p == crate::store::Presence::Present)
        })
    }
}

fn journal_bytes(dir: &dyn Dir) -> Result<u64> {
    let failed = |e| Error::io("cannot look at the journal", e);
    let journal = dir.subdir(journal::DIR, false).map_err(failed)?;
    let mut bytes = 0;
    for epoch in journal::recover::list(&*journal)? {
        // One that a writer has just recycled counts for nothing.
        if let Ok(file) = journal.open(&journal::segment::name(epoch), OpenMode::Read) {
            bytes += file.allocated().map_err(failed)?;
        }
    }
    Ok(bytes)
}
