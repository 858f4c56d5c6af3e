//! Sessions as people handle them: listing them, taking turns back, trying another way from an
//! earlier point, deleting.
//!
//! * `list`: what is known of each session, newest first; `recent`: the last ones in a few lines,
//!   for a system prompt.
//! * `rewind`: turns are taken back by a mark. The events stay, and a rewind can be undone.
//! * `fork`: a session that goes on from an earlier point of another.
//! * `delete`: a tombstone, which can be taken away again; removing for good is a step of its own.

mod delete;
mod fork;
mod list;
mod recent;
mod rewind;

use crate::error::{Error, ErrorKind, Result};
use crate::format::Format;
use crate::log::{SessionInfo, Snapshot};

pub use delete::{delete, purge, restore};
pub use fork::fork;
pub use list::{Listing, Summary, list, newest_first};
pub use recent::recent;
pub use rewind::{rewind, undo_rewind};

/// The session `id`, which must be there and not deleted.
pub(crate) fn known(snapshot: &Snapshot, id: &str) -> Result<SessionInfo> {
    let session = snapshot.session(id)?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("there is no session {id:?} in this log"))
            .with_hint("`eventlog sessions` lists them")
    })?;
    refuse_deleted(&session)?;
    Ok(session)
}

/// The session `id` and its format.
pub(crate) fn with_format(
    snapshot: &Snapshot,
    id: &str,
) -> Result<(SessionInfo, &'static dyn Format)> {
    let session = known(snapshot, id)?;
    let format = format_of(&session);
    let format = format.ok_or_else(|| {
        Error::new(ErrorKind::Refused, format!("session {id:?} is of no known format"))
            .with_hint("`eventlog show` prints what is in it")
    })?;
    Ok((session, format))
}

/// The format of a session's lines, where it is a known one.
pub(crate) fn format_of(session: &SessionInfo) -> Option<&'static dyn Format> {
    session.attributes.format.as_deref().and_then(crate::format::by_name)
}

/// Refuses a session that is deleted.
pub(crate) fn refuse_deleted(session: &SessionInfo) -> Result<()> {
    if session.deleted_unix_micros().is_none() {
        return Ok(());
    }
    Err(crate::log::session::deleted(&session.id))
}
