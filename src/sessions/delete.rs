//! Deleting a session: a tombstone, and the removal as a second step.

use crate::error::{Error, ErrorKind, Result};
use crate::log::{EventLog, now_unix_micros};
use crate::memtable::Attributes;

use super::known;

/// Deletes the session `id`: it is not listed, searched or resumed any more, and nothing is recorded
/// into it. All of it stays in the log, and [`restore`] brings it back. Durable when this returns.
///
/// # Errors
///
/// `NotFound`; `Refused` where it is deleted already; those of [`Session::append`].
///
/// # Example
///
/// ```
/// use eventlog::{EventLog, sessions};
/// # use eventlog::{format::Role, record::Recorder};
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-delete-{}", std::process::id()));
/// # let log = EventLog::open(&dir)?;
/// # Recorder::new(log.session("s")?, "run-1")?.message(0, Role::User, "hello")?;
/// sessions::delete(&log, "s")?;
/// assert_eq!(log.snapshot()?.sessions().count(), 0);
/// sessions::restore(&log, "s")?;
/// assert_eq!(log.snapshot()?.sessions().count(), 1);
/// # log.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
///
/// [`Session::append`]: crate::Session::append
pub fn delete(log: &EventLog, id: &str) -> Result<()> {
    known(&log.snapshot()?, id)?;
    set_deleted(log, id, now_unix_micros().max(1))
}

/// Brings a deleted session back. Durable when this returns.
///
/// # Errors
///
/// `NotFound`; `Refused` where it is not deleted; those of [`Session::append`].
///
/// [`Session::append`]: crate::Session::append
pub fn restore(log: &EventLog, id: &str) -> Result<()> {
    deleted(log, id)?;
    set_deleted(log, id, 0)
}

/// Removes a deleted session for good, with everything that belongs to it. Durable when this returns.
/// The space is used again for other sessions; the bytes on the disk are not wiped.
///
/// # Errors
///
/// `NotFound`; `Refused` where it is not deleted first; `Full`, `Io`.
///
/// # Example
///
/// ```
/// use eventlog::{ErrorKind, EventLog, sessions};
/// # use eventlog::{format::Role, record::Recorder};
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-purge-{}", std::process::id()));
/// # let log = EventLog::open(&dir)?;
/// # Recorder::new(log.session("s")?, "run-1")?.message(0, Role::User, "hello")?;
/// assert_eq!(sessions::purge(&log, "s").unwrap_err().kind(), ErrorKind::Refused);
/// sessions::delete(&log, "s")?;
/// sessions::purge(&log, "s")?;
/// assert!(log.snapshot()?.session("s")?.is_none());
/// # log.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
pub fn purge(log: &EventLog, id: &str) -> Result<()> {
    deleted(log, id)?;
    log.purge(id)
}

fn deleted(log: &EventLog, id: &str) -> Result<()> {
    let session = log.snapshot()?.session(id)?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("there is no session {id:?} in this log"))
            .with_hint("`eventlog sessions --deleted` lists the deleted ones")
    })?;
    if session.deleted_unix_micros().is_some() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Refused, format!("the session {id:?} is not deleted"))
        .with_hint("`eventlog delete` does that first; it can be undone"))
}

fn set_deleted(log: &EventLog, id: &str, when: u64) -> Result<()> {
    log.session(id)?.describe(&Attributes { deleted: Some(when), ..Attributes::default() })
}
