//! A session: the handle that events are appended with.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::entry::{Entry, Seq, Terminator};
use crate::error::{Error, ErrorKind, Result};
use crate::locks::Mutex;
use crate::memtable::Attributes;

use super::commit::Addition;
use super::range::{EventRange, Events};
use super::{Handle, Snapshot, Ticket};

/// The longest session id in bytes.
pub(crate) const ID_BYTES_MAX: usize = 512;

/// Where a session stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// 0 until the session has one.
    pub(crate) number: u64,
    /// The journal or the store knows id and number.
    pub(crate) declared: bool,
    pub(crate) next_seq: Seq,
    pub(crate) run: Option<Arc<str>>,
    /// The last line has no end; `None` where nobody has looked.
    pub(crate) ends_open: Option<bool>,
    /// The session is deleted: nothing is appended to it.
    pub(crate) deleted: bool,
}

/// The error of what is done to a session that is being removed for good.
pub(crate) fn removed(id: &str) -> Error {
    Error::new(ErrorKind::Closed, format!("session {id:?} has been removed for good"))
}

/// The error of what is done to a session that is deleted.
pub(crate) fn deleted(id: &str) -> Error {
    Error::new(ErrorKind::Refused, format!("the session {id:?} is deleted"))
        .with_hint("`eventlog delete --undo` brings it back")
}

/// What all handles of a session share.
#[derive(Debug)]
pub(crate) struct SessionState {
    pub(crate) id: Arc<str>,
    /// Locked inside the lock of the open batch, so that seqs are given in the order of the
    /// journal.
    pub(crate) progress: Mutex<Standing>,
}

#[derive(Debug)]
pub(crate) struct Standing {
    /// With everything that has been submitted.
    pub(crate) assigned: Progress,
    /// With everything that is durable: what a failed batch falls back to.
    pub(crate) durable: Progress,
    /// The session is being removed for good.
    pub(crate) purged: bool,
}

/// Checks a session id.
///
/// # Errors
///
/// `Usage` when it is empty or longer than 512 bytes.
pub(crate) fn check_id(id: &str) -> Result<()> {
    match id.len() {
        0 => Err(Error::new(ErrorKind::Usage, "a session id must not be empty")),
        1..=ID_BYTES_MAX => Ok(()),
        n => Err(Error::new(
            ErrorKind::Usage,
            format!("a session id has at most {ID_BYTES_MAX} bytes, this one has {n}"),
        )),
    }
}

/// A handle of one session: cheap to clone, to be used from any thread.
///
/// A session comes into being with its first event. Events of one session appended from several
/// threads get their seqs in the order in which the calls are taken up.
///
/// ```
/// use eventlog::{Entry, EventLog, Kind};
///
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-session-{}", std::process::id()));
/// let log = EventLog::open(&dir)?;
/// let session = log.session("s-123")?;
/// let seq = session.append(Entry::new(Kind::Message, br#"{"role":"user"}"#))?;
/// assert_eq!(seq, 0); // durable now
///
/// let pair = [Entry::new(Kind::Message, b"{}"), Entry::new(Kind::Terminal, b"{}")];
/// assert_eq!(session.append_batch(&pair)?, 1..=2); // both or none
///
/// let ticket = session.submit(&[Entry::new(Kind::Message, b"{}")])?;
/// assert_eq!(ticket.wait()?, 3..=3); // or `.await` it
/// # log.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
#[derive(Clone)]
pub struct Session {
    pub(super) handle: Arc<Handle>,
    pub(super) state: Arc<SessionState>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.state.id).finish_non_exhaustive()
    }
}

impl Session {
    /// The session's id.
    pub fn id(&self) -> &str {
        &self.state.id
    }

    /// The seq that the next durable event will get: the number of durable events.
    pub fn head(&self) -> Seq {
        self.state.progress.lock().durable.next_seq
    }

    /// Appends an event and returns its seq. Durable when this returns (see [`Sync`](crate::Sync)).
    ///
    /// Blocks for one flush of the device, shared with every other append that is under way, and
    /// longer while the store is catching up.
    ///
    /// # Errors
    ///
    /// `TooLarge`; `Full` (nothing is lost, try again later); `Io` when the write failed: whether
    /// the event is in the log is known only after the log has been opened again, and until
    /// then every append fails with `Poisoned`; `Closed`; `Refused` for a log opened read-only.
    pub fn append(&self, entry: Entry<'_>) -> Result<Seq> {
        self.append_all(Addition::of(std::slice::from_ref(&entry))).map(|seqs| *seqs.start())
    }

    /// Appends several events in a row, all or none, and returns their seqs. Durable when this
    /// returns.
    ///
    /// # Errors
    ///
    /// Those of [`Session::append`]; `Usage` for an empty batch; `TooLarge` over 1 GiB in all.
    pub fn append_batch(&self, entries: &[Entry<'_>]) -> Result<RangeInclusive<Seq>> {
        self.append_all(Addition::of(entries))
    }

    /// Appends events only if the session's head is `head`, the seq that the first of them will
    /// get. Durable when this returns.
    ///
    /// # Errors
    ///
    /// `Conflict` that names the true head ([`Error::head`]); those of [`Session::append_batch`].
    ///
    /// # Example
    ///
    /// ```
    /// # use eventlog::{Entry, EventLog, ErrorKind, Kind};
    /// # let dir = std::env::temp_dir().join(format!("eventlog-doc-expect-{}", std::process::id()));
    /// # let log = EventLog::open(&dir)?;
    /// let session = log.session("s")?;
    /// session.append_expecting(0, &[Entry::new(Kind::Message, b"{}")])?;
    /// let error = session.append_expecting(0, &[Entry::new(Kind::Message, b"{}")]).unwrap_err();
    /// assert_eq!((error.kind(), error.head()), (ErrorKind::Conflict, Some(1)));
    /// # log.close()?;
    /// # std::fs::remove_dir_all(dir).ok();
    /// # Ok::<(), eventlog::Error>(())
    /// ```
    pub fn append_expecting(
        &self,
        head: Seq,
        entries: &[Entry<'_>],
    ) -> Result<RangeInclusive<Seq>> {
        self.append_all(Addition { expected: Some(head), ..Addition::of(entries) })
    }

    /// Hands events over, all or none, and returns at once with a receipt. They are numbered in the
    /// order of the calls; they are durable when the ticket says so.
    ///
    /// When a batch fails with `Full`, the ones handed over behind it fail too, but one handed over
    /// later may succeed once there is space, and then has the failed one's seq. Where that
    /// order matters, use [`Session::submit_expecting`].
    ///
    /// Blocks only while more than [`checkpoint_bytes`](crate::Builder::checkpoint_bytes) allows
    /// waits to be written to the store.
    ///
    /// # Errors
    ///
    /// Those of [`Session::append_batch`], as far as they are known at once.
    pub fn submit(&self, entries: &[Entry<'_>]) -> Result<Ticket> {
        self.submit_all(Addition::of(entries))
    }

    /// [`Session::submit`], only if the session's head, with everything handed over so far, is
    /// `head`.
    ///
    /// # Errors
    ///
    /// `Conflict` that names the true head; those of [`Session::submit`].
    ///
    /// # Example
    ///
    /// ```
    /// # use eventlog::{Entry, EventLog, Kind};
    /// # let dir = std::env::temp_dir().join(format!("eventlog-doc-submit-{}", std::process::id()));
    /// # let log = EventLog::open(&dir)?;
    /// let session = log.session("s")?;
    /// let event = [Entry::new(Kind::Message, b"{}")];
    /// let first = session.submit_expecting(0, &event)?;
    /// let second = session.submit_expecting(1, &event)?; // behind the first, or not at all
    /// assert_eq!((first.wait()?, second.wait()?), (0..=0, 1..=1));
    /// # log.close()?;
    /// # std::fs::remove_dir_all(dir).ok();
    /// # Ok::<(), eventlog::Error>(())
    /// ```
    pub fn submit_expecting(&self, head: Seq, entries: &[Entry<'_>]) -> Result<Ticket> {
        self.submit_all(Addition { expected: Some(head), ..Addition::of(entries) })
    }

    pub(crate) fn submit_all(&self, addition: Addition<'_, '_>) -> Result<Ticket> {
        let shared = self.handle.writer()?;
        let (seqs, completion, _) = shared.add(&self.state, addition, false)?;
        Ok(Ticket { handle: self.handle.clone(), completion, seqs })
    }

    /// Sets attributes of the session; fields that are `None` stay as they are. Durable when this
    /// returns.
    ///
    /// # Errors
    ///
    /// Those of [`Session::append`]; `TooLarge` for a field over 8 KiB.
    pub fn describe(&self, attributes: &Attributes) -> Result<()> {
        self.append_all(Addition { attributes: Some(attributes), ..Addition::of(&[]) }).map(drop)
    }

    fn append_all(&self, addition: Addition<'_, '_>) -> Result<RangeInclusive<Seq>> {
        let shared = self.handle.writer()?;
        let (seqs, completion, role) = shared.add(&self.state, addition, true)?;
        shared.group.finish(&**shared, &completion, role)?;
        Ok(seqs)
    }

    /// The session's attributes; `None` before its first event or description.
    ///
    /// # Errors
    ///
    /// `Corrupt`, `Io`.
    pub fn attributes(&self) -> Result<Option<Attributes>> {
        let info = self.handle.snapshot()?.session(&self.state.id)?;
        Ok(info.map(|info| info.attributes))
    }

    /// Whether the last line has no end, as an import of a file that was cut off leaves it. What is
    /// appended behind that begins in the middle of a line of an exported file, unless an entry of
    /// [`Kind::Blank`](crate::Kind::Blank) ends it.
    ///
    /// # Errors
    ///
    /// `Corrupt`, `Io`.
    pub fn ends_open(&self) -> Result<bool> {
        if let Some(known) = self.state.progress.lock().assigned.ends_open {
            return Ok(known);
        }
        let snapshot = self.handle.snapshot()?;
        if snapshot.session(&self.state.id)?.is_none() {
            return Ok(false);
        }
        let last = snapshot.read(&self.state.id, ..)?.next_back().transpose()?;
        Ok(last.is_some_and(|l| l.terminator() == Terminator::None && !l.bytes().is_empty()))
    }

    /// A view of everything that is durable now.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        self.handle.snapshot()
    }

    /// Reads the session's durable events: [`EventLog::read`](crate::EventLog::read).
    ///
    /// # Errors
    ///
    /// Those of [`EventLog::read`](crate::EventLog::read).
    pub fn read(&self, range: impl Into<EventRange>) -> Result<Events> {
        self.handle.snapshot()?.read(&self.state.id, range)
    }
}
