//! The events of a session that make up its file as it is now.
//!
//! When a file with a torn last line is imported, the torn bytes become events. When the line is
//! written to its end later, or cut off by its writer and written over, the session goes on with an
//! event that stands in their place ([`StoredEntry::replaces_tail`]). The torn ones stay in the
//! log, and are no longer part of the file.

use crate::entry::{Kind, StoredEntry, Terminator};
use crate::error::Result;
use crate::format::Damage;

/// Passes on the events that are in the file.
pub(super) struct FileEvents<I> {
    events: I,
    /// The torn end that has been read last; what comes next decides.
    held: std::collections::VecDeque<StoredEntry>,
    /// The event behind it.
    next: Option<Result<StoredEntry>>,
    at_end: bool,
}

/// Whether an event can be the torn end of a file, which a later one may stand in the place of:
/// damage that was cut off, without a line end.
///
/// ```
/// # use eventlog::{Entry, EventLog, Kind, Terminator, format::Damage, jsonl};
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-torn-{}", std::process::id()));
/// # let log = EventLog::open(&dir)?;
/// let torn = Entry::new(Kind::Damaged, b"{\"a").terminator(Terminator::None);
/// log.session("s")?.append(torn.detail(Damage::TornTail as u8))?;
/// assert!(jsonl::is_torn_end(&log.read("s", ..)?.next().unwrap()?));
/// # log.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
pub fn is_torn_end(event: &StoredEntry) -> bool {
    use Damage::{NulPadding, TooDeep, TornTail};
    event.kind() == Kind::Damaged
        && event.terminator() == Terminator::None
        && matches!(Damage::from_code(event.detail()), Some(NulPadding | TooDeep | TornTail))
}

impl<I: Iterator<Item = Result<StoredEntry>>> FileEvents<I> {
    pub(super) fn new(events: I) -> FileEvents<I> {
        FileEvents { events, held: [].into(), next: None, at_end: false }
    }

    /// The next event of the file; the torn end of it, if it has one, is left to
    /// [`FileEvents::torn_end`].
    pub(super) fn next_settled(&mut self) -> Option<Result<StoredEntry>> {
        while self.next.is_none() && !self.at_end {
            match self.events.next() {
                None => self.at_end = true,
                Some(Ok(event)) if is_torn_end(&event) => {
                    if event.replaces_tail() {
                        self.held.clear();
                    }
                    self.held.push_back(event);
                }
                Some(next) => {
                    if next.as_ref().is_ok_and(StoredEntry::replaces_tail) {
                        self.held.clear();
                    }
                    self.next = Some(next);
                }
            }
        }
        let is_settled = self.next.is_some();
        let held = if is_settled { self.held.pop_front() } else { None };
        held.map(Ok).or_else(|| self.next.take())
    }

    /// The events of the torn end, once everything before it has been read.
    pub(super) fn torn_end(&mut self) -> impl Iterator<Item = StoredEntry> {
        self.held.drain(..)
    }
}

impl<I: Iterator<Item = Result<StoredEntry>>> Iterator for FileEvents<I> {
    type Item = Result<StoredEntry>;

    fn next(&mut self) -> Option<Result<StoredEntry>> {
        self.next_settled().or_else(|| self.held.pop_front().map(Ok))
    }
}
