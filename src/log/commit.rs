//! From an append to durable, visible events: numbering, the open batch, back-pressure, the commit.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::entry::{Entry, Flags, Seq, Terminator};
use crate::error::{Error, ErrorKind, Result};
use crate::journal::batch::{BatchBuffer, ENTRY_OVERHEAD_BYTES, EntryHead};
use crate::journal::group::{Commit, Completion, Failed, Role};
use crate::journal::writer::WriteError;
use crate::locks::thread;
use crate::memtable::{Attributes, Change};
use crate::planted::planted;

use super::options::BATCH_BYTES_MAX;
use super::session::{self, ID_BYTES_MAX, Progress, SessionState};
use super::shared::{Shared, now_unix_micros, poisoned};

/// All four of a session together fit its record with room to spare.
pub(crate) const ATTRIBUTE_BYTES_MAX: usize = 8 << 10;
/// The longest description of a session.
pub(crate) const META_BYTES_MAX: usize = 32 << 10;

/// A batch that is being filled.
#[derive(Debug, Default)]
pub(crate) struct OpenBatch {
    buffer: BatchBuffer,
    changes: Vec<Change>,
    /// Where each session stands behind this batch.
    standing: Vec<(Arc<SessionState>, Progress)>,
    /// What this batch added to [`Shared::open_bytes`].
    bytes: usize,
}

/// What one call adds.
#[derive(Clone, Copy)]
pub(crate) struct Addition<'a, 'e> {
    pub(crate) entries: &'a [Entry<'e>],
    pub(crate) attributes: Option<&'a Attributes>,
    pub(crate) expected: Option<Seq>,
}

impl<'a, 'e> Addition<'a, 'e> {
    pub(crate) fn of(entries: &'a [Entry<'e>]) -> Addition<'a, 'e> {
        Addition { entries, attributes: None, expected: None }
    }

    /// Checks the limits and returns the bytes needed.
    fn check(&self, max_entry_bytes: usize) -> Result<usize> {
        let too_large = |message: String| Err(Error::new(ErrorKind::TooLarge, message));
        if self.entries.is_empty() && self.attributes.is_none() {
            return Err(Error::new(ErrorKind::Usage, "a batch must hold at least one event"));
        }
        let mut total = 2 * ID_BYTES_MAX;
        for entry in self.entries {
            let bytes = entry.bytes.len();
            if bytes > max_entry_bytes {
                return too_large(format!(
                    "an event of {bytes} bytes exceeds max_entry_bytes ({max_entry_bytes})"
                ));
            }
            let run = entry.run.as_ref().map_or(0, |run| run.len());
            if run > ID_BYTES_MAX {
                return too_large(format!(
                    "a run's name has at most {ID_BYTES_MAX} bytes, this one has {run}"
                ));
            }
            total += bytes + ENTRY_OVERHEAD_BYTES + run + 11;
        }
        if let Some(attributes) = self.attributes {
            if let Some(bytes) = attributes.longest().filter(|bytes| *bytes > ATTRIBUTE_BYTES_MAX) {
                return too_large(format!(
                    "an attribute has at most {ATTRIBUTE_BYTES_MAX} bytes, this one has {bytes}"
                ));
            }
            let meta = attributes.meta.as_ref().map_or(0, String::len);
            if meta > META_BYTES_MAX {
                return too_large(format!(
                    "a description has at most {META_BYTES_MAX} bytes, this one has {meta}"
                ));
            }
            total += attributes.encode().len() + 13;
        }
        if total > BATCH_BYTES_MAX {
            return too_large(format!(
                "a batch of {total} bytes exceeds the limit of {BATCH_BYTES_MAX}"
            ));
        }
        Ok(total)
    }
}

impl Shared {
    /// Adds to the open batch and returns the seqs given. With `will_wait` the caller goes on to
    /// [`Group::finish`](crate::journal::group::Group::finish).
    pub(crate) fn add(
        &self,
        state: &Arc<SessionState>,
        addition: Addition<'_, '_>,
        will_wait: bool,
    ) -> Result<(RangeInclusive<Seq>, Arc<Completion>, Role)> {
        let needed = addition.check(self.options.max_entry_bytes)?;
        loop {
            self.wait_for_room()?;
            let mut crowded = false;
            let added = self.group.add(will_wait, |open: &mut OpenBatch| {
                if open.buffer.len() > 0 && open.buffer.len() + needed > BATCH_BYTES_MAX {
                    crowded = true;
                    return Err(Error::new(ErrorKind::TooLarge, "the open batch is full"));
                }
                open.buffer.reserve(needed);
                let seqs = self.add_to(open, state, addition)?;
                open.bytes += needed;
                self.open_bytes.fetch_add(needed, Ordering::Relaxed);
                Ok(seqs)
            });
            match added {
                // Only gigantic entries from several threads at once get here.
                Err(_) if crowded && self.options.background => {
                    thread::sleep(Duration::from_millis(1));
                }
                Err(_) if crowded => self.group.flush(self)?,
                other => return other,
            }
        }
    }

    fn add_to(
        &self,
        open: &mut OpenBatch,
        state: &Arc<SessionState>,
        addition: Addition<'_, '_>,
    ) -> Result<RangeInclusive<Seq>> {
        let mut standing = state.progress.lock();
        if standing.purged {
            return Err(session::removed(&state.id)
                .with_hint("`EventLog::session` gives a handle of a new session of that id"));
        }
        let progress = &mut standing.assigned;
        let marked = addition.attributes.and_then(|attributes| attributes.deleted);
        let deleted = marked.map_or(progress.deleted, |when| when > 0);
        if deleted && !addition.entries.is_empty() {
            return Err(session::deleted(&state.id));
        }
        let first = progress.next_seq;
        if let Some(expected) = addition.expected.filter(|expected| *expected != first) {
            return Err(Error::new(
                ErrorKind::Conflict,
                format!("session {:?} is at event {first}, not at {expected}", state.id),
            )
            .with_head(first)
            .with_hint("read what was appended meanwhile, and decide again"));
        }
        // Changed only when nothing can be refused any more; a failed batch takes it back.
        progress.deleted = deleted;
        if progress.number == 0 {
            progress.number = self.next_number.fetch_add(1, Ordering::Relaxed);
        }
        let session = progress.number;
        if !progress.declared {
            progress.declared = true;
            open.buffer.declare(session, &state.id);
            open.changes.push(Change::Declare { session, id: state.id.clone() });
        }
        if let Some(attributes) = addition.attributes {
            open.buffer.describe(session, &attributes.encode());
            open.changes.push(Change::Describe { session, attributes: attributes.clone() });
        }
        if let Some(last) = addition.entries.last() {
            let open_end = last.terminator == Terminator::None && !last.bytes.is_empty();
            progress.ends_open = Some(open_end);
        }
        for entry in addition.entries {
            let mut flags = entry.flags();
            if let Some(run) = entry.run.as_deref()
                && progress.run.as_deref() != Some(run)
            {
                let name: Arc<str> = run.into();
                open.buffer.run(session, run);
                open.changes.push(Change::Run { session, name: name.clone() });
                progress.run = Some(name);
                flags = flags.with(Flags::RUN_START);
            }
            let head = EntryHead {
                session,
                seq: progress.next_seq,
                kind: entry.kind,
                terminator: entry.terminator,
                flags,
                detail: entry.detail,
            };
            let range = open.buffer.entry(head, &entry.bytes);
            open.changes.push(Change::Entry { head, range });
            progress.next_seq += 1;
        }
        let next = progress.next_seq;
        match open.standing.last_mut() {
            Some((last, behind)) if Arc::ptr_eq(last, state) => behind.clone_from(progress),
            _ => open.standing.push((state.clone(), progress.clone())),
        }
        Ok(first..=next.saturating_sub(1).max(first))
    }

    /// Waits while too much is in memory.
    ///
    /// # Errors
    ///
    /// `Full` where the store has no space to take anything out of memory.
    fn wait_for_room(&self) -> Result<()> {
        let limit = || self.pressure_bytes.load(Ordering::Relaxed);
        let used =
            || self.memory_bytes.load(Ordering::Relaxed) + self.open_bytes.load(Ordering::Relaxed);
        if used() <= limit() {
            return Ok(());
        }
        if !self.options.background {
            // No thread does it: write the open batch, then flush to the store.
            self.group.flush(self)?;
            return if used() > limit() { self.checkpoint() } else { Ok(()) };
        }
        self.ask_for_checkpoint();
        let mut room = self.room.lock();
        loop {
            if used() <= limit() {
                return Ok(());
            }
            if let Some(error) = room.full.clone() {
                return Err(error);
            }
            if self.group.is_stopped() {
                drop(room);
                return self.group.check();
            }
            self.room_made.wait_for(&mut room, Duration::from_millis(50));
        }
    }

    /// Prepares the journal for a batch. Where it has no space for a segment, a flush to the store
    /// gives segments back.
    fn make_journal_room(&self, batch: &BatchBuffer) -> Result<(), WriteError> {
        match self.journal.make_room(batch) {
            Err(WriteError::NothingWritten(error)) => {
                // A store without space is tried again by its own thread, not by each batch.
                let is_hopeless = self.options.background && self.room.lock().full.is_some();
                match is_hopeless || self.checkpoint().is_err() {
                    true => Err(WriteError::NothingWritten(error)),
                    false => self.journal.make_room(batch),
                }
            }
            other => other,
        }
    }
}

impl Commit for Shared {
    type Batch = OpenBatch;

    fn commit(&self, batch: &mut OpenBatch) -> Result<(), Failed> {
        let now = now_unix_micros();
        let buffer = std::mem::take(&mut batch.buffer);
        let written = self
            .make_journal_room(&buffer)
            .and_then(|()| self.journal.write(buffer, now).map_err(WriteError::Fatal));
        let sealed = written.map_err(|error| match error {
            WriteError::NothingWritten(error) => Failed { error, stop: None },
            WriteError::Fatal(error) => {
                let stop = (!planted("failure_does_not_stop")).then(|| poisoned(&error));
                Failed { error, stop }
            }
        })?;
        let end = sealed.end;
        let (live_bytes, sessions) = {
            // INVARIANT I6: a freeze takes the write lock, so it never splits a batch.
            let view = self.view.read();
            let changes = std::mem::take(&mut batch.changes);
            view.live.apply(changes, Arc::new(sealed.bytes), end, now);
            let live = view.live.bytes();
            let frozen = view.frozen.as_ref().map_or(0, |frozen| frozen.bytes());
            self.memory_bytes.store(live + frozen, Ordering::Relaxed);
            self.open_bytes.fetch_sub(std::mem::take(&mut batch.bytes), Ordering::Relaxed);
            let frozen = view.frozen.as_ref().map_or(0, |frozen| frozen.sessions());
            (live, view.live.sessions().max(frozen))
        };
        let due = self.options.due_bytes(sessions);
        let more = self.options.pressure_bytes.saturating_sub(self.options.checkpoint_bytes);
        self.pressure_bytes.store(due.saturating_add(more), Ordering::Relaxed);
        for (session, behind) in std::mem::take(&mut batch.standing) {
            session.progress.lock().durable = behind;
        }
        if live_bytes >= due {
            self.ask_for_checkpoint();
        }
        if self.journal.wants_spare() {
            self.ask_for_segment();
        }
        Ok(())
    }

    fn roll_back(&self, failed: &OpenBatch, open: &OpenBatch) {
        self.open_bytes.fetch_sub(failed.bytes + open.bytes, Ordering::Relaxed);
        drop(planted("locks_form_a_ring").then(|| self.registry.lock()));
        for (state, _) in failed.standing.iter().chain(&open.standing) {
            let mut standing = state.progress.lock();
            let Progress { number, deleted, .. } = standing.assigned;
            if !planted("failed_seqs_stay_given") {
                standing.assigned = standing.durable.clone();
            }
            if planted("failed_delete_stays") {
                standing.assigned.deleted = deleted;
            }
            // A number once given stays given; only its declaration is repeated.
            standing.assigned.number = number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Kind;
    use crate::log::EventLog;

    #[test]
    fn a_delete_or_restore_at_another_head_than_expected_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let log = EventLog::builder().background(false).open(dir.path()).unwrap();
        let session = log.session("s").unwrap();
        session.append(Entry::new(Kind::Message, b"{}")).unwrap();
        let change = |when: u64, expected: Seq| {
            let attributes = Attributes { deleted: Some(when), ..Attributes::default() };
            let attributes = Some(&attributes);
            session.submit_all(Addition { entries: &[], attributes, expected: Some(expected) })
        };
        assert_eq!(change(7, 5).unwrap_err().kind(), ErrorKind::Conflict);
        session.append(Entry::new(Kind::Message, b"{}")).unwrap();
        change(7, 2).unwrap().wait().unwrap();
        assert_eq!(change(0, 5).unwrap_err().kind(), ErrorKind::Conflict);
        let refused = session.append(Entry::new(Kind::Message, b"{}")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Refused);
    }
}
