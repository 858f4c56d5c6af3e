//! The sessions in a directory of files, as the programs that wrote them list them: without a log,
//! in their order, with their choice of what to resume.
//!
//! A damaged file hides no other: it is listed as far as it can be read, or named beside the list.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::entry::Terminator;
use crate::error::{Error, ErrorKind, Result};
use crate::format::recursive::place::{META, TRANSCRIPT};
use crate::format::recursive::{Meta, Status};
use crate::format::{Format, Transcript};
use crate::io::{Reader, StdDir};

use super::lines::{LINE_BYTES_MAX, Lines};
use super::recognise::recognise;
use super::scan::{Subject, What, scan_line};

/// A session in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// The session's id.
    pub session: String,
    /// Its transcript, or its directory.
    pub path: PathBuf,
    /// When it was last written to, as its program has it.
    pub updated_at: String,
    /// The run of its last event, where there are runs.
    pub latest_run: Option<String>,
    /// How far it is, where that is written down.
    pub status: Option<Status>,
}

/// The sessions in a directory, in the order of their program.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Listing {
    /// The sessions, newest first.
    pub sessions: Vec<Listed>,
    /// What looks like a session and cannot be read.
    pub unreadable: Vec<(PathBuf, Error)>,
}

/// MyCodeAgent's transcripts in a directory: files called `transcript-*.jsonl` with an event.
/// Newest first by the time of the last whole line, as text, then by file name.
///
/// # Errors
///
/// `NotFound`, `Io` for the directory itself.
///
/// # Example
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-list-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// let line = r#"{"event_id":"e","timestamp":"2026-03-01T10:00:00Z","session_id":"s","run_id":"run-1","step":0,"event_type":"message"}"#;
/// std::fs::write(dir.join("transcript-s.jsonl"), format!("{line}\n")).unwrap();
/// let listing = eventlog::jsonl::list_transcripts(&dir)?;
/// assert_eq!(listing.sessions[0].session, "s");
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
pub fn list_transcripts(dir: &Path) -> Result<Listing> {
    let mut listing = Listing::default();
    for path in children(dir)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with("transcript-") || !name.ends_with(".jsonl") || !path.is_file() {
            continue;
        }
        match last_event(&path) {
            Ok(Some(listed)) => listing.sessions.push(listed),
            Ok(None) => {}
            Err(error) => listing.unreadable.push((path, error)),
        }
    }
    let key = |listed: &Listed| {
        (listed.updated_at.clone(), listed.path.file_name().map(ToOwned::to_owned))
    };
    listing.sessions.sort_by_key(|listed| Reverse(key(listed)));
    Ok(listing)
}

/// The last event of the session that the first event names.
fn last_event(path: &Path) -> Result<Option<Listed>> {
    let failed = |error| Error::from_io("cannot read", path, error);
    let file = StdDir::open_file(path).map_err(failed)?;
    let size = file.len().map_err(failed)?;
    let from = |offset| -> Box<dyn std::io::Read> { Box::new(Reader::at(file.clone(), offset)) };
    let recognised = recognise(&from, size, LINE_BYTES_MAX)?;
    if recognised.is_some_and(|found| found.format.name() != Transcript.name()) {
        return Ok(None);
    }
    let mut lines = Lines::new(Reader::new(file), LINE_BYTES_MAX);
    let mut session: Option<String> = None;
    let mut found = None;
    let mut damaged = None;
    while let Some(line) = lines.next_line().map_err(failed)? {
        let mut spans = Vec::with_capacity(1);
        let subject =
            Subject { format: &Transcript, session: session.as_deref().unwrap_or_default() };
        scan_line(&line, subject, &mut spans);
        let is_last = line.terminator == Terminator::None;
        let mut events = Vec::new();
        for span in spans {
            match span.what {
                What::Record { record, .. } => {
                    events.push((record.session, record.time, record.run))
                }
                What::Damage(damage) if !is_last => {
                    damaged.get_or_insert((span.line, damage));
                }
                _ => {}
            }
        }
        for (named, time, run) in events {
            let named = named.map(Cow::into_owned).unwrap_or_default();
            if session.get_or_insert_with(|| named.clone()) == &named && !named.is_empty() {
                let text = |text: Option<Cow<'_, str>>| text.map(Cow::into_owned);
                found = Some((text(time).unwrap_or_default(), text(run)));
            }
        }
    }
    match (found, session, damaged) {
        (Some((updated_at, latest_run)), Some(session), _) => {
            let path = path.to_owned();
            Ok(Some(Listed { session, path, updated_at, latest_run, status: None }))
        }
        (_, _, Some((line, damage))) => {
            let message = format!("no event in it; line {line} is damaged ({})", damage.name());
            Err(Error::new(ErrorKind::Refused, message)
                .with_hint("`eventlog repair` tells what is in it"))
        }
        _ => Ok(None),
    }
}

/// recursive-agent's sessions below a `sessions` directory: directories two levels down with a
/// description. Newest first by its time, as text, then by when the transcript was changed, then
/// by id.
///
/// # Errors
///
/// `NotFound`, `Io` for the directory itself.
///
/// # Example
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-listr-{}", std::process::id()));
/// # std::fs::create_dir_all(dir.join("slug/one")).unwrap();
/// let meta = r#"{"session_id":"one","goal":"","model":"","provider":"","created_at":"t","updated_at":"t","message_count":0}"#;
/// std::fs::write(dir.join("slug/one/.meta.json"), meta).unwrap();
/// let listing = eventlog::jsonl::list_recursive(&dir)?;
/// assert_eq!(listing.sessions[0].session, "one");
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
pub fn list_recursive(sessions: &Path) -> Result<Listing> {
    let mut listing = Listing::default();
    for slug in children(sessions)?.into_iter().filter(|path| path.is_dir()) {
        let dirs = match children(&slug) {
            Ok(dirs) => dirs,
            Err(error) => {
                listing.unreadable.push((slug, error));
                continue;
            }
        };
        for dir in dirs.into_iter().filter(|path| path.join(META).is_file()) {
            let path = dir.join(META);
            let meta = fs::read(&path).map_err(|error| Error::from_io("cannot read", &path, error));
            let meta = meta.and_then(|bytes| {
                Meta::parse(&bytes).map_err(|error| {
                    Error::new(ErrorKind::Refused, format!("{}: {error}", path.display()))
                        .with_hint("the transcript beside it is enough: import the directory")
                })
            });
            match meta {
                Ok(meta) => listing.sessions.push(Listed {
                    session: meta.session_id,
                    path: dir,
                    updated_at: meta.updated_at,
                    latest_run: None,
                    status: Some(meta.status),
                }),
                Err(error) => listing.unreadable.push((dir, error)),
            }
        }
    }
    let changed = |listed: &Listed| {
        let meta = fs::metadata(listed.path.join(TRANSCRIPT));
        meta.and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
    };
    listing.sessions.sort_by_cached_key(|listed| {
        (Reverse(listed.updated_at.clone()), Reverse(changed(listed)), listed.session.clone())
    });
    Ok(listing)
}

fn children(dir: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error| Error::from_io("cannot read", dir, error);
    let entries = fs::read_dir(dir).map_err(failed)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<std::io::Result<Vec<_>>>().map_err(failed)?;
    paths.sort();
    Ok(paths)
}

impl Listing {
    /// The session that MyCodeAgent resumes: the newest, or the newest with this id, white space
    /// around it left out.
    pub fn resolve_transcript(&self, id: Option<&str>) -> Option<&Listed> {
        match id.map(str::trim) {
            None => self.sessions.first(),
            Some(id) => self.sessions.iter().find(|listed| listed.session == id),
        }
    }

    /// The session that recursive-agent resumes without being told which: the newest that is
    /// active or interrupted. Paused ones are listed, and not chosen.
    pub fn resumable(&self) -> Option<&Listed> {
        let is_open =
            |listed: &&Listed| matches!(listed.status, Some(Status::Active | Status::Interrupted));
        self.sessions.iter().find(is_open)
    }
}
