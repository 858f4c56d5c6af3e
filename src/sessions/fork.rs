//! A session that goes on from an earlier point of another.
//!
//! Its events are those of the other up to that point, copied: each session exports to a file of its
//! own, whose lines name it, and can be deleted without the other. What of it is there after a cut is
//! known by the mark that it is made with; forking again goes on with it.

use crate::bytes::within;
use crate::entry::{Entry, Kind, Seq, StoredEntry};
use crate::error::{Error, ErrorKind, Result};
use crate::format::Format;
use crate::format::write::quoted;
use crate::log::{EventLog, SessionInfo, Snapshot};
use crate::memtable::{Attributes, Fork, Rewind};

use super::known;

/// How much is appended in one go.
const BATCH_BYTES: usize = 1 << 20;

/// Makes the session `new` of the events of the session `id` up to and with the event `at`. Both then
/// go on by themselves. Durable when this returns; a fork that was cut off is finished by forking
/// again. Returns how many events it has.
///
/// # Errors
///
/// `NotFound` for a session or an event that is not there; `Conflict` where `new` is there and is
/// no fork of this point that was cut off; those of [`Session::append`].
///
/// # Example
///
/// ```
/// use eventlog::{EventLog, sessions};
/// # use eventlog::{format::Role, record::Recorder};
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-fork-{}", std::process::id()));
/// # let log = EventLog::open(&dir)?;
/// # let recorder = Recorder::new(log.session("s")?, "run-1")?;
/// # recorder.message(0, Role::User, "first")?;
/// # recorder.message(0, Role::User, "second")?;
/// assert_eq!(sessions::fork(&log, "s", 0, "another-way")?, 1);
/// let fork = log.snapshot()?.session("another-way")?.unwrap();
/// assert_eq!(fork.fork().unwrap().session, "s");
/// # log.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
///
/// [`Session::append`]: crate::Session::append
pub fn fork(log: &EventLog, id: &str, at: Seq, new: &str) -> Result<u64> {
    let snapshot = log.snapshot()?;
    let session = known(&snapshot, id)?;
    let events = at.saturating_add(1);
    if events > session.events {
        let message = format!("session {id:?} has no event {at}; its last is {}", last(&session));
        return Err(Error::new(ErrorKind::NotFound, message)
            .with_hint("`eventlog show` prints the events with their numbers"));
    }
    let mark = Fork { session: id.to_owned(), events };
    let format = super::format_of(&session);
    let rename = Rename { format, from: named(&snapshot, &session, format)?, to: new };
    let taken = || {
        let message = format!("there is a session {new:?} already");
        Error::new(ErrorKind::Conflict, message).with_hint("choose another id with --as")
    };
    let known_before = snapshot.session(new)?;
    let mut there = None;
    if let Some(known) = &known_before {
        super::refuse_deleted(known)?;
        if known.fork() != Some(&mark) || known.events > events {
            return Err(taken());
        }
        there = Some(snapshot.read(new, ..)?);
    }
    // Everything is read before anything is made: a damaged session gives no half a fork.
    for entry in snapshot.read(id, ..events)? {
        let entry = entry?;
        // What is there already must be what the fork begins with.
        if let Some(there) = there.as_mut().and_then(Iterator::next)
            && there?.bytes() != rename.copy(&entry).bytes()
        {
            return Err(taken());
        }
    }
    let target = log.session(new)?;
    if known_before.is_none() {
        target.describe(&attributes(&session, mark))?;
    }
    let mut batch: Vec<Entry<'_>> = Vec::new();
    let (mut bytes, mut head) = (0, known_before.map_or(0, |known| known.events));
    let mut append = |batch: &mut Vec<Entry<'_>>| -> Result<()> {
        let end = target.append_expecting(head, batch)?;
        head = end.end() + 1;
        batch.clear();
        Ok(())
    };
    for entry in snapshot.read(id, target.head()..events)? {
        let entry = rename.copy(&entry?);
        bytes += entry.bytes().len();
        batch.push(entry);
        if bytes >= BATCH_BYTES {
            append(&mut batch)?;
            bytes = 0;
        }
    }
    if !batch.is_empty() {
        append(&mut batch)?;
    }
    Ok(events)
}

/// The session that the lines name: that of the first record.
fn named(
    snapshot: &Snapshot,
    session: &SessionInfo,
    format: Option<&dyn Format>,
) -> Result<Option<String>> {
    let Some(format) = format.filter(|format| !format.names_no_session()) else { return Ok(None) };
    for entry in snapshot.read(&session.id, ..)? {
        let entry = entry?;
        if matches!(entry.kind(), Kind::Other | Kind::Damaged | Kind::Blank) {
            continue;
        }
        if let Some(named) = format.classify(entry.bytes()).ok().and_then(|record| record.session) {
            return Ok(Some(named.into_owned()));
        }
    }
    Ok(None)
}

fn last(session: &SessionInfo) -> String {
    session.events.checked_sub(1).map_or("none".to_owned(), |last| last.to_string())
}

/// What the copy has of the other beside its events.
fn attributes(session: &SessionInfo, mark: Fork) -> Attributes {
    let before = |rewind: &&Rewind| rewind.to <= mark.events;
    let rewinds: Vec<Rewind> = session.rewinds().iter().filter(before).copied().collect();
    Attributes {
        format: session.attributes.format.clone(),
        workspace: session.attributes.workspace.clone(),
        rewinds: (!rewinds.is_empty()).then_some(rewinds),
        fork: Some(mark),
        ..Attributes::default()
    }
}

/// Copies lines of one session as lines of another.
struct Rename<'a> {
    format: Option<&'static dyn Format>,
    /// What the session's own lines name; others are another session's and stay as they are.
    from: Option<String>,
    to: &'a str,
}

impl Rename<'_> {
    fn copy(&self, entry: &StoredEntry) -> Entry<'static> {
        let bytes = self.renamed(entry.bytes()).unwrap_or_else(|| entry.bytes().to_vec());
        let is_foreign = entry.kind() == Kind::Other;
        let record = self.format.filter(|_| !is_foreign);
        let record = record.and_then(|format| format.classify(&bytes).ok());
        let run = record.and_then(|record| Some(record.run?.into_owned()));
        let copy = Entry {
            is_record: entry.is_record(),
            ..Entry::new(entry.kind(), bytes)
                .terminator(entry.terminator())
                .user_turn(entry.is_user_turn())
                .replaces_tail(entry.replaces_tail())
                .detail(entry.detail())
        };
        match run.filter(|run| run.len() <= crate::log::session::ID_BYTES_MAX) {
            Some(run) => copy.run(run),
            None => copy,
        }
    }

    fn renamed(&self, line: &[u8]) -> Option<Vec<u8>> {
        let (format, from) = (self.format?, self.from.as_deref()?);
        if format.classify(line).ok()?.session.as_deref() != Some(from) {
            return None;
        }
        let text = std::str::from_utf8(line).ok()?;
        let raw = crate::format::json_member(text, "session_id")?;
        let start = crate::format::syntax::offset_in(line, raw.as_bytes());
        let mut renamed = within(line, ..start).to_vec();
        renamed.extend_from_slice(quoted(self.to).as_bytes());
        renamed.extend_from_slice(within(line, start + raw.len()..));
        Some(renamed)
    }
}
