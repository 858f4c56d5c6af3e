//! The one error type of the crate: opaque, cheap to clone, with a kind to branch on.
//!
//! A message is one lower-case sentence that says what happened, [`Error::hint`] what to do next,
//! and [`Error::place`] where on disk. The cause is kept as [`std::error::Error::source`].

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;

/// What every fallible function of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a host's own code says when it cannot do as it is told.
pub type HostError = Box<dyn std::error::Error + Send + Sync>;

/// What went wrong, for callers that branch. New kinds may be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another process has the log open for writing; [`Error::owner`] names it.
    Locked,
    /// Bytes on disk are not what was written; [`Error::place`] says where. No event was changed.
    Corrupt,
    /// The last batch of the journal is damaged, and the bytes cannot tell whether it had been
    /// acknowledged. No event was changed;
    /// [`Builder::drop_last_batch`](crate::Builder::drop_last_batch) decides.
    Ambiguous,
    /// A session, an event or a log that does not exist.
    NotFound,
    /// The session's head is not the expected one ([`Error::head`] is the true one), or two sources
    /// disagree.
    Conflict,
    /// The request is legal but this log or this build does not do it.
    Refused,
    /// No space is left on the device. Nothing acknowledged is lost.
    Full,
    /// An earlier write failed, so nothing more is accepted until the log is opened again.
    Poisoned,
    /// A limit was exceeded; the message names the limit.
    TooLarge,
    /// The arguments are wrong.
    Usage,
    /// The operating system reported an error.
    Io,
    /// The log was written by a newer version of this crate.
    NewerFormat,
    /// The log was not closed cleanly and has to be opened for writing once before it can be read.
    NeedsRecovery,
    /// The log was closed.
    Closed,
}

impl ErrorKind {
    /// The name in `--json` output; part of the CLI's contract.
    ///
    /// ```
    /// assert_eq!(eventlog::ErrorKind::NotFound.name(), "not_found");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Locked => "locked",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Ambiguous => "ambiguous",
            ErrorKind::NotFound => "not_found",
            ErrorKind::Conflict => "conflict",
            ErrorKind::Refused => "refused",
            ErrorKind::Full => "full",
            ErrorKind::Poisoned => "poisoned",
            ErrorKind::TooLarge => "too_large",
            ErrorKind::Usage => "usage",
            ErrorKind::Io => "io",
            ErrorKind::NewerFormat => "newer_format",
            ErrorKind::NeedsRecovery => "needs_recovery",
            ErrorKind::Closed => "closed",
        }
    }
}

/// Where on disk a damage was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The file, as a path relative to the log's directory.
    pub file: String,
    /// The byte offset in that file, where one is known.
    pub offset: Option<u64>,
    /// The journal's batch number, where the damage is in the journal.
    pub batch: Option<u64>,
}

/// The process that holds the log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owner {
    /// Its process id; `None` when the lock file does not say.
    pub pid: Option<u32>,
    /// When it took the lock, in microseconds since the Unix epoch.
    pub since_unix_micros: Option<u64>,
}

/// An error of this crate.
///
/// ```
/// use eventlog::{ErrorKind, EventLog};
///
/// let missing = std::env::temp_dir().join("eventlog-doc-missing-log");
/// let error = EventLog::open_read_only(missing).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::NotFound);
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    place: Option<Place>,
    owner: Option<Owner>,
    head: Option<u64>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error(Box::new(Inner {
            kind,
            message: message.into(),
            hint: None,
            place: None,
            owner: None,
            head: None,
            source: None,
        }))
    }

    /// An operating-system error while doing `what`. No space left becomes [`ErrorKind::Full`].
    pub(crate) fn io(what: impl fmt::Display, source: io::Error) -> Error {
        let kind = match source.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => ErrorKind::Full,
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            _ => ErrorKind::Io,
        };
        let hint = match source.kind() {
            _ if kind == ErrorKind::Full => "free some space on the device and try again",
            io::ErrorKind::NotFound => "check the path",
            io::ErrorKind::PermissionDenied => "check who may use it, and the directories above it",
            io::ErrorKind::ReadOnlyFilesystem => "name a place that can be written to",
            io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory => "name a regular file",
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => "name a directory",
            _ => "check the file and the device that it is on",
        };
        Error::new(kind, format!("{what}: {source}")).with_source(source).with_hint(hint)
    }

    /// An operating-system error with a file: `what` is "cannot open" or the like.
    ///
    /// ```
    /// let source = std::io::ErrorKind::PermissionDenied.into();
    /// let error = eventlog::Error::from_io("cannot open", "a.jsonl", source);
    /// assert!(error.to_string().starts_with("cannot open a.jsonl: "));
    /// ```
    pub fn from_io(what: &str, path: impl AsRef<std::path::Path>, source: io::Error) -> Error {
        Error::io(format_args!("{what} {}", path.as_ref().display()), source)
    }

    pub(crate) fn corrupt(
        file: impl Into<String>,
        offset: impl Into<Option<u64>>,
        message: impl fmt::Display,
    ) -> Error {
        let (file, offset) = (file.into(), offset.into());
        let at = offset.map(|o| format!(" at byte {o}")).unwrap_or_default();
        let mut error = Error::new(ErrorKind::Corrupt, format!("{file}{at}: {message}"));
        error.0.place = Some(Place { file, offset, batch: None });
        error.with_hint(
            "no event was changed; `eventlog verify` tells what else is damaged, and the named file can \
             be restored from a copy",
        )
    }

    pub(crate) fn newer_format(file: &str, found: u32, ours: u32) -> Error {
        let message = format!("{file} has format version {found}; this build knows up to {ours}");
        Error::new(ErrorKind::NewerFormat, message)
            .with_hint("use a newer version of eventlog for this log")
    }

    /// Adds what holds in spite of the error.
    pub(crate) fn with_context(mut self, context: &str) -> Error {
        self.0.message = format!("{}; {context}", self.0.message);
        self
    }

    pub(crate) fn with_kind(mut self, kind: ErrorKind) -> Error {
        self.0.kind = kind;
        self
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Error {
        self.0.hint = Some(hint.into());
        self
    }

    pub(crate) fn with_batch(mut self, batch: u64) -> Error {
        if let Some(place) = &mut self.0.place {
            place.batch = Some(batch);
        }
        self
    }

    pub(crate) fn with_owner(mut self, owner: Owner) -> Error {
        self.0.owner = Some(owner);
        self
    }

    pub(crate) fn with_head(mut self, head: u64) -> Error {
        self.0.head = Some(head);
        self
    }

    pub(crate) fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Error {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// What went wrong, to branch on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What to do next, where there is something to do.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Where on disk the damage is, for [`ErrorKind::Corrupt`] and [`ErrorKind::Ambiguous`].
    pub fn place(&self) -> Option<&Place> {
        self.0.place.as_ref()
    }

    /// Who holds the log, for [`ErrorKind::Locked`].
    pub fn owner(&self) -> Option<&Owner> {
        self.0.owner.as_ref()
    }

    /// The session's true head (the seq its next event will get), for [`ErrorKind::Conflict`] of
    /// [`Session::append_expecting`](crate::Session::append_expecting).
    pub fn head(&self) -> Option<u64> {
        self.0.head
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("hint", &self.0.hint)
            .field("place", &self.0.place)
            .finish_non_exhaustive()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|s| s.as_ref() as &(dyn StdError + 'static))
    }
}
