//! Which files are sessions: below a directory, or one that is named.
//!
//! Names only decide which files are looked into; what a file is, is decided by its content.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::io::StdDir;
use crate::log::EventLog;

use super::beside::Beside;
use super::import::{ImportOptions, examine, examine_bytes, import, import_bytes};
use super::legacy;
use super::report::FileReport;

/// A file that may be a session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// The file.
    pub path: PathBuf,
}

/// What was found below a path.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Discovery {
    /// The files, in the order of their paths.
    pub files: Vec<Found>,
    /// Links and special files inside of directories: not followed, not read.
    pub skipped: Vec<PathBuf>,
    /// What could not be read.
    pub unreadable: Vec<(PathBuf, io::Error)>,
}

/// The files at or below `path` that may be sessions: `*.jsonl`, and of the former one-file formats
/// `*.legacy.json` and `sessions/*.json`. A path that is a file is taken as it is. Links inside of
/// directories are not followed.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-discover-{}", std::process::id()));
/// # std::fs::create_dir_all(dir.join("memory/transcripts")).unwrap();
/// # std::fs::write(dir.join("memory/transcripts/transcript-s.jsonl"), "").unwrap();
/// let found = eventlog::jsonl::discover(&dir);
/// assert_eq!(found.files.len(), 1);
/// # std::fs::remove_dir_all(dir).ok();
/// ```
pub fn discover(path: &Path) -> Discovery {
    let mut discovery = Discovery::default();
    if path.is_dir() {
        walk(path.to_owned(), &mut discovery);
    } else {
        discovery.files.push(Found { path: path.to_owned() });
    }
    discovery
}

fn walk(dir: PathBuf, discovery: &mut Discovery) {
    let entries = fs::read_dir(&dir).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    let mut entries = match entries {
        Ok(entries) => entries,
        Err(error) => return discovery.unreadable.push((dir, error)),
    };
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(path, discovery),
            Ok(kind) if kind.is_file() => {
                if is_candidate(&path) {
                    discovery.files.push(Found { path });
                }
            }
            Ok(_) => discovery.skipped.push(path),
            Err(error) => discovery.unreadable.push((path, error)),
        }
    }
}

/// Whether a file inside of a directory is one that [`discover`] gives.
///
/// ```
/// assert!(eventlog::jsonl::is_candidate("transcripts/transcript-s.jsonl".as_ref()));
/// ```
pub fn is_candidate(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let parent = path.parent().and_then(Path::file_name);
    name.ends_with(b".jsonl")
        || name.ends_with(b".legacy.json")
        || (name.ends_with(b".json")
            && !name.starts_with(b".")
            && !name.ends_with(b".meta.json")
            && parent.is_some_and(|parent| parent == "sessions"))
}

impl Found {
    /// Imports the file with what stands beside it, or, without a log, says what that would do.
    ///
    /// # Errors
    ///
    /// Those of [`import`]; `Io` where it cannot be read.
    pub fn import(
        &self,
        log: Option<&EventLog>,
        options: &ImportOptions,
        progress: &mut dyn FnMut(u64),
    ) -> Result<FileReport> {
        let failed = |error| Error::from_io("cannot open", &self.path, error);
        let mut options = options.clone();
        options.beside = Beside::of(&self.path);
        let file = StdDir::open_file(&self.path).map_err(failed)?;
        let is_document = self.path.extension().is_some_and(|extension| extension == "json");
        if is_document && let Some(document) = legacy::read(&self.path, &file)? {
            let id = options.session.clone().unwrap_or_else(|| document.session());
            let converted = document.convert(log.and_then(|log| first_time(log, &id)));
            options.beside.session = Some(document.session());
            options.beside.meta = converted.meta.clone();
            options.beside.attributes.meta = converted.meta.map(|meta| meta.to_text());
            options.beside.findings.extend(converted.findings);
            return match log {
                Some(log) => import_bytes(log, &converted.lines, &options),
                None => examine_bytes(&converted.lines, &options),
            };
        }
        match log {
            Some(log) => import(log, file, &options, progress),
            None => examine(file, &options, progress),
        }
    }
}

/// The time of a session's first record: that of its document when it was converted.
fn first_time(log: &EventLog, id: &str) -> Option<jiff::Timestamp> {
    let format = log.snapshot().ok()?.session(id).ok()??.attributes.format?;
    let format = crate::format::by_name(&format)?;
    let first = log.read(id, ..).ok()?.next()?.ok()?;
    format.classify(first.bytes()).ok()?.time?.parse().ok()
}
