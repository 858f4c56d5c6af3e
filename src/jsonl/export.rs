//! A session as the bytes it came from: each line and its line end, in order. Or without what is
//! damaged, or in another format.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use crate::bytes::within;
use crate::entry::{Kind, StoredEntry, Terminator};
use crate::error::{Error, ErrorKind, Result};
use crate::format::recursive::{Derived, Meta, place};
use crate::format::{Format, Recursive};
use crate::io::{Dir, OpenMode, Reader, Replacement};
use crate::log::{EventRange, SessionInfo, Snapshot};
use crate::planted::planted;

use super::convert::Converter;
use super::file_events::FileEvents;
use super::layout::Place;
use super::lines::Line;
use super::scan::{Subject, scan_line};

/// How to export.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ExportOptions {
    /// Only whole records, each on a line of its own that ends in `\n`.
    pub clean: bool,
    /// In this format instead of the session's own. Implies `clean`.
    pub format: Option<&'static dyn Format>,
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exported {
    /// Events.
    pub events: u64,
    /// Bytes.
    pub bytes: u64,
    /// Whether these are the bytes that came in.
    pub exact: bool,
    /// What was left out, each with its number.
    pub not_carried: Vec<String>,
}

/// Writes events of the session `id` to `out`, calling `progress` with the bytes written so far.
/// Damaged spans and blank lines are written like all others.
///
/// # Errors
///
/// `NotFound`, `Corrupt`, and what `out` reports.
///
/// # Example
///
/// ```
/// use eventlog::{Entry, EventLog, Kind, jsonl};
///
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-export-{}", std::process::id()));
/// # let log = EventLog::open(&dir)?;
/// log.session("s")?.append(Entry::new(Kind::Message, br#"{"a": 1}"#))?;
/// let mut out = Vec::new();
/// jsonl::export(&log.snapshot()?, "s", .., &mut out, &mut |_| {})?;
/// assert_eq!(out, b"{\"a\": 1}\n");
/// # log.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
pub fn export(
    snapshot: &Snapshot,
    id: &str,
    range: impl Into<EventRange>,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> Result<Exported> {
    let mut exported = Exported { exact: true, ..Exported::default() };
    for event in FileEvents::new(snapshot.read(id, range)?) {
        let event = event?;
        if planted("one_event_is_not_exported") && event.seq() == 1 {
            continue;
        }
        put(out, event.bytes(), event.terminator().as_bytes(), &mut exported, progress)?;
    }
    progress(exported.bytes);
    Ok(exported)
}

/// Writes the session `id` to `out` as `options` say.
///
/// # Errors
///
/// Those of [`export`]; `Refused` for a format that the session cannot be written in.
pub fn export_as(
    snapshot: &Snapshot,
    id: &str,
    options: ExportOptions,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> Result<Exported> {
    let own = own_format(snapshot, id)?;
    let to = options.format.filter(|to| own.is_none_or(|own| own.name() != to.name()));
    let mut converter = match (own, to) {
        (_, None) if !options.clean => return export(snapshot, id, .., out, progress),
        (_, None) => None,
        (Some(from), Some(to)) => Some(Converter::new(from, to, id)),
        (None, Some(to)) => {
            let message =
                format!("session {id:?} is of no known format, it cannot become {}", to.name());
            return Err(Error::new(ErrorKind::Refused, message)
                .with_hint("leave out --format to get its lines as they are"));
        }
    };
    let mut exported = Exported::default();
    let mut damaged = 0;
    for event in FileEvents::new(snapshot.read(id, ..)?) {
        let event = event?;
        match &mut converter {
            Some(converter) => {
                if let Some(line) = converter.line(&event) {
                    put(out, line.as_bytes(), b"\n", &mut exported, progress)?;
                }
            }
            None if is_record(&event) => {
                put(out, event.bytes().trim_ascii(), b"\n", &mut exported, progress)?;
            }
            None => damaged += u64::from(event.kind() == Kind::Damaged),
        }
    }
    if damaged > 0 {
        exported.not_carried.push(format!("damaged spans ({damaged})"));
    }
    if let Some(converter) = converter {
        exported.not_carried = converter.not_carried();
    }
    progress(exported.bytes);
    Ok(exported)
}

fn is_record(event: &StoredEntry) -> bool {
    !matches!(event.kind(), Kind::Damaged | Kind::Blank)
}

/// The format of the session's lines.
pub(super) fn own_format(snapshot: &Snapshot, id: &str) -> Result<Option<&'static dyn Format>> {
    let session = snapshot.session(id)?;
    let name = session.and_then(|session| session.attributes.format);
    Ok(name.as_deref().and_then(crate::format::by_name))
}

fn put(
    out: &mut dyn Write,
    line: &[u8],
    end: &[u8],
    exported: &mut Exported,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    out.write_all(line)
        .and_then(|()| out.write_all(end))
        .map_err(|e| Error::io("cannot write the export", e))?;
    exported.events += 1;
    exported.bytes += (line.len() + end.len()) as u64;
    if exported.events.is_multiple_of(1024) {
        progress(exported.bytes);
    }
    Ok(())
}

/// Writes the file `name` in `dir` whole or not at all, through `write`. A file that is there is
/// replaced if nothing of it is lost, that is, if the new one begins with all of it, or by `force`.
///
/// # Errors
///
/// `Conflict` for a file that would lose something; `Io`; those of `write`.
pub fn write_file<T>(
    dir: Arc<dyn Dir>,
    name: &str,
    force: bool,
    write: impl FnOnce(&mut dyn Write) -> Result<T>,
) -> Result<T> {
    let path = dir.path().join(name);
    let failed = |error| Error::from_io("cannot write", &path, error);
    let mut file = Replacement::create(dir.clone(), name).map_err(failed)?;
    let written = write(&mut file)?;
    if !force {
        match dir.open(name, OpenMode::Read) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
            Ok(old) if file.extends(&old).map_err(failed)? => {}
            Ok(_) => {
                let message =
                    format!("{} exists, and is no earlier export of this", path.display());
                return Err(Error::new(ErrorKind::Conflict, message)
                    .with_hint("choose another name, or give --force to replace it"));
            }
        }
    }
    file.commit().map_err(failed)?;
    Ok(written)
}

/// Writes the session `id` below `root` in the layout of its format, or of the one that `options`
/// name, and returns the path of its file. A session in recursive-agent's layout gets the
/// description beside it that its lines give.
///
/// # Errors
///
/// Those of [`export_as`] and [`write_file`].
pub fn export_into(
    snapshot: &Snapshot,
    id: &str,
    options: ExportOptions,
    root: &Arc<dyn Dir>,
    force: bool,
    progress: &mut dyn FnMut(u64),
) -> Result<(PathBuf, Exported)> {
    let session = snapshot.session(id)?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("there is no session {id:?} in this log"))
    })?;
    let format = match options.format {
        Some(format) => Some(format),
        None => own_format(snapshot, id)?,
    };
    let place = Place::of(&session, format);
    let path = root.path().join(place.path());
    let dir = place.create(root).map_err(|e| Error::from_io("cannot create", &path, e))?;
    let is_recursive = format.is_some_and(|format| format.name() == Recursive.name());
    let mut derived = DerivedLines::default();
    let exported = write_file(dir.clone(), &place.file, force, |out| {
        if !is_recursive {
            return export_as(snapshot, id, options, out, progress);
        }
        let mut tee = Tee { out, derived: &mut derived };
        export_as(snapshot, id, options, &mut tee, progress)
    })?;
    if is_recursive {
        let mut session = session;
        // What somebody has written into the description that is there is theirs.
        let there = if force { None } else { read_meta(&dir, &session.id) };
        session.attributes.meta = there.or(session.attributes.meta);
        write_meta(&dir, &session, derived.finish())?;
    }
    Ok((path, exported))
}

/// The description in a directory, if it is one of this session.
fn read_meta(dir: &Arc<dyn Dir>, id: &str) -> Option<String> {
    let file = dir.open(place::META, OpenMode::Read).ok()?;
    let mut text = String::new();
    Reader::new(file).take(1 << 20).read_to_string(&mut text).ok()?;
    Meta::parse(text.as_bytes()).ok().filter(|meta| meta.session_id == id)?;
    Some(text)
}

/// Writes the description that `derived` and what is known of the session give.
pub(super) fn write_meta(
    dir: &Arc<dyn Dir>,
    session: &SessionInfo,
    derived: Derived,
) -> Result<()> {
    let known = session.attributes.meta.as_deref().map(str::as_bytes);
    let known = known.and_then(|known| Meta::parse(known).ok());
    let text = derived.meta(&session.id, known).to_text();
    write_file(dir.clone(), place::META, true, |out| {
        out.write_all(text.as_bytes()).map_err(|e| Error::io("cannot write the description", e))
    })
}

/// What lines say, as they are written.
#[derive(Debug, Default)]
pub(super) struct DerivedLines {
    derived: Derived,
    /// A line whose end has not come yet.
    rest: Vec<u8>,
}

impl DerivedLines {
    pub(super) fn add(&mut self, mut bytes: &[u8]) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, after) = bytes.split_at(end);
            self.rest.extend_from_slice(line);
            self.end_line();
            bytes = within(after, 1..);
        }
        self.rest.extend_from_slice(bytes);
    }

    fn end_line(&mut self) {
        let subject = Subject { format: &Recursive, session: "" };
        let terminator = Terminator::Lf;
        let line = Line { number: 2, offset: 1, bytes: &self.rest, terminator, oversize: false };
        let mut spans = Vec::new();
        scan_line(&line, subject, &mut spans);
        for span in spans {
            self.derived.add(span.entry.kind, &span.entry.bytes);
        }
        self.rest.clear();
    }

    /// Everything so far.
    pub(super) fn so_far(&self) -> Derived {
        self.derived.clone()
    }

    fn finish(mut self) -> Derived {
        if !self.rest.is_empty() {
            self.end_line();
        }
        self.derived
    }
}

struct Tee<'t> {
    out: &'t mut dyn Write,
    derived: &'t mut DerivedLines,
}

impl Write for Tee<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.derived.add(within(bytes, ..n));
        Ok(n)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}
