//! Whether what the log says of imported lines is what the lines say.
//!
//! Kinds and reasons are derived from the bytes when a file is imported. Here the file is put
//! together again from the events, looked at anew, and compared.

use std::io::Read;

use crate::entry::{Kind, StoredEntry, Terminator};
use crate::error::{Error, Result};
use crate::format::syntax::trim;
use crate::format::{Damage, Format};
use crate::log::{Events, Problem, Snapshot};

use super::file_events::FileEvents;
use super::recognise::by_name;
use super::scan::{What, scan};

/// What is wrong with an imported session, as far as its bytes tell: kind `projection`, or `sum`
/// where the bytes of its events are not what the session's record says. Sessions that were not
/// imported have nothing to compare.
///
/// # Errors
///
/// `NotFound`, `Corrupt`, `Io`.
///
/// # Example
///
/// ```
/// use eventlog::{Entry, EventLog, Kind, jsonl};
///
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-check-{}", std::process::id()));
/// # let log = EventLog::open(&dir)?;
/// log.session("s")?.append(Entry::new(Kind::Message, br#"{"a": 1}"#))?;
/// assert!(jsonl::verify(&log.snapshot()?, "s")?.is_empty());
/// # log.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
pub fn verify(snapshot: &Snapshot, id: &str) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    let session = snapshot.session(id)?;
    let format = session.as_ref().and_then(|session| session.attributes.format.as_deref());
    let (Some(session), Some(format)) = (&session, format.and_then(by_name)) else {
        return Ok(problems);
    };
    if session.attributes.origin.is_none() {
        return Ok(problems);
    }
    let mut problem = |kind, seq, message| {
        let location = format!("session {id:?}");
        problems.push(Problem { location, session: Some(id.to_owned()), seq, kind, message });
    };
    let mut bytes = 0;
    for event in snapshot.read(id, ..)? {
        bytes += event?.line_len();
    }
    if bytes != session.bytes {
        let message = format!("its events have {bytes} bytes, its record says {}", session.bytes);
        problem("sum", None, message);
    }
    if let Some((seq, message)) = difference(snapshot, id, format)? {
        problem("projection", Some(seq), message);
    }
    Ok(problems)
}

/// The first event that is not kept as what its bytes say, read as `format`.
pub(super) fn difference(
    snapshot: &Snapshot,
    id: &str,
    format: &'static dyn Format,
) -> Result<Option<(u64, String)>> {
    // Which session the records name does not matter here, only that it is the same all along.
    let named = named(snapshot, id, format)?;
    let mut found = None;
    let file = SessionReader { events: FileEvents::new(snapshot.read(id, ..)?), line: None, at: 0 };
    let mut stored = FileEvents::new(snapshot.read(id, ..)?);
    let mut failed: Option<Error> = None;
    let mut next = || loop {
        match stored.next()? {
            Ok(event) if event.kind() == Kind::Blank => {}
            Ok(event) => return Some(event),
            Err(error) => {
                failed = Some(error);
                return None;
            }
        }
    };
    // Beyond the first difference everything may be shifted.
    let mut differs = false;
    scan(file, LINE_BYTES_MAX, format, &named, &mut |span| {
        if differs || matches!(span.what, What::Separator) {
            return Ok(());
        }
        let Some(event) = next() else { return Ok(()) };
        // What its host appended later is the host's to say.
        if !event.is_imported() {
            differs = true;
            return Ok(());
        }
        if event.detail() == Damage::OversizeLine as u8 {
            // The parts of a line over the limit are not to be told from here.
            differs = true;
            return Ok(());
        }
        // White space may have come later, as an event of its own.
        let same_bytes = trim(event.bytes()) == trim(span.entry.bytes());
        // Lines of other programs were kept as damaged once.
        let was_damage = (event.kind(), span.entry.kind()) == (Kind::Damaged, Kind::Other)
            && event.detail() == Damage::SchemaMismatch as u8;
        let same_kind = event.kind() == span.entry.kind() || was_damage;
        if !(same_bytes && same_kind) {
            differs = true;
            // A last line without an end that its host has written on: not what was imported.
            let goes_on = event.terminator() == Terminator::None
                && span.entry.bytes().starts_with(event.bytes());
            if goes_on {
                return Ok(());
            }
            let (is, says) = (event.kind(), span.entry.kind());
            let message = format!("it is kept as {is}, its bytes say {says}");
            found = Some((event.seq(), message));
        }
        Ok(())
    })?;
    failed.map_or(Ok(found), Err)
}

/// No line of a log is longer.
const LINE_BYTES_MAX: usize = 1 << 30;

/// The session that the first record names.
fn named(snapshot: &Snapshot, id: &str, format: &dyn Format) -> Result<String> {
    if format.names_no_session() {
        return Ok(String::new());
    }
    for event in snapshot.read(id, ..)? {
        let event = event?;
        let session = format.classify(event.bytes()).ok().and_then(|record| record.session);
        if let Some(session) = session.filter(|session| !session.is_empty()) {
            return Ok(session.into_owned());
        }
    }
    // Then the name of the session was taken for theirs.
    Ok(id.to_owned())
}

/// A session's file, put together from its events.
struct SessionReader {
    events: FileEvents<Events>,
    line: Option<StoredEntry>,
    /// How far in the line and its end.
    at: usize,
}

impl Read for SessionReader {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let line = match self.line.take() {
                Some(line) => line,
                None => match self.events.next() {
                    None => return Ok(0),
                    Some(event) => event.map_err(std::io::Error::other)?,
                },
            };
            let (bytes, end) = (line.bytes(), line.terminator().as_bytes());
            let rest = match self.at {
                at if at < bytes.len() => bytes.get(at..),
                at => end.get(at - bytes.len()..),
            };
            let rest = rest.unwrap_or_default();
            if rest.is_empty() {
                self.at = 0;
                continue;
            }
            let n = rest.len().min(buf.len());
            if let (Some(to), Some(from)) = (buf.get_mut(..n), rest.get(..n)) {
                to.copy_from_slice(from);
            }
            self.at += n;
            self.line = Some(line);
            return Ok(n);
        }
    }
}
