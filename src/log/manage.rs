//! What is done to a session as a whole: what is derived from it is kept, and a deleted one is
//! removed for good.

use std::sync::Arc;

use crate::entry::Seq;
use crate::error::{Error, ErrorKind, Result};
use crate::planted::planted;
use crate::store::ProjectionHeader;

use super::shared::Shared;
use super::{EventLog, Session, Snapshot, session};

/// What is derived from the events of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Projection {
    /// The session memory.
    Memory = 1,
}

impl Session {
    /// Keeps what was derived from the events before `header.watermark`. Returns whether it was
    /// kept: only what is derived from events that the store holds is.
    pub(crate) fn keep_projection(
        &self,
        kind: Projection,
        header: ProjectionHeader,
        content: &[u8],
    ) -> Result<bool> {
        let shared = self.handle.writer()?;
        if self.state.progress.lock().purged {
            return Err(session::removed(self.id()));
        }
        let Some(record) = shared.snapshot()?.record(self.id())? else { return Ok(false) };
        let kept = shared.store.keep_projection(record.number, kind as u8, header, content);
        kept.inspect_err(|error| shared.store_failed(error))
    }

    /// Writes everything durable to the store: see [`EventLog::checkpoint`].
    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.handle.writer()?.checkpoint()
    }
}

impl Snapshot {
    /// What was kept of the session `id`: from before which event, and the content. Nothing where it
    /// is of another version or context, or damaged: it can be derived again.
    pub(crate) fn projection(
        &self,
        id: &str,
        kind: Projection,
        version: u32,
        context: u64,
    ) -> Result<Option<(Seq, Vec<u8>)>> {
        let Some(record) = self.record(id)? else { return Ok(None) };
        let found = match self.inner.reader.projection(record.number, kind as u8) {
            Err(error) if error.kind() == ErrorKind::Corrupt => None,
            other => other?,
        };
        let fits = |header: &ProjectionHeader| {
            (header.version, header.context) == (version, context)
                && header.watermark <= record.next_seq
        };
        let found = found.filter(|(header, _)| fits(header));
        Ok(found.map(|(header, content)| (header.watermark, content)))
    }
}

impl EventLog {
    /// Removes the session `id` from the store, with everything that belongs to it. Durable when this
    /// returns.
    pub(crate) fn purge(&self, id: &str) -> Result<()> {
        self.handle.writer()?.purge(id)
    }
}

impl Shared {
    fn purge(self: &Arc<Shared>, id: &str) -> Result<()> {
        let state = self.session(id)?;
        // Nothing is appended to it from here on,
        state.progress.lock().purged = true;
        let result = self.purge_from_store(id);
        match result {
            Ok(()) => self.registry.lock().remove(id),
            Err(_) => state.progress.lock().purged = false,
        }
        result
    }

    /// Waits until everything that was handed over for the session is durable, also what another
    /// thread is just committing.
    fn wait_until_durable(self: &Arc<Shared>, id: &str) -> Result<()> {
        let state = self.session(id)?;
        loop {
            self.group.flush(&**self)?;
            self.group.check()?;
            let is_durable = {
                let standing = state.progress.lock();
                let (assigned, durable) = (&standing.assigned, &standing.durable);
                (assigned.next_seq, assigned.declared) == (durable.next_seq, durable.declared)
            };
            if is_durable {
                return Ok(());
            }
            crate::locks::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    fn purge_from_store(self: &Arc<Shared>, id: &str) -> Result<()> {
        let record = self.snapshot()?.record(id)?;
        let record = record.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("there is no session {id:?} in this log"))
        })?;
        // and what was appended is in the store: after a cut here the journal brings nothing of it
        // back.
        self.wait_until_durable(id)?;
        if !planted("purge_leaves_the_journal") {
            self.checkpoint()?;
        }
        let purged = self.store.purge(record.number, id);
        purged.or_else(|error| {
            self.store_failed(&error);
            // A commit that returned an error may have happened all the same.
            let may_be_gone = error.kind() == ErrorKind::Full;
            match may_be_gone && self.store.reader()?.number(id)?.is_none() {
                true => self.store.purge(record.number, id),
                false => Err(error),
            }
        })
    }
}
