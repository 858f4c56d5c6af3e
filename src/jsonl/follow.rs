//! Files that another program writes, brought into the log as they grow.
//!
//! A look at a file that has grown reads what is new, not what was there. What may be the middle of
//! a change is left alone until nothing has come for a while: a last line that is cut off, a file
//! without a record yet, a file that is shorter than it was. Then it is taken as what it is; if a
//! cut-off line is written to its end after all, that stands in its place.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::io::StdDir;
use crate::log::EventLog;

use super::beside::Beside;
use super::discover::Found;
use super::import::{ImportOptions, Standing, import_standing};
use super::report::{FileReport, Outcome};
use super::stamp::Stamp;

/// How long the end of a change is waited for.
const SETTLED: Duration = Duration::from_secs(2);

/// A look that takes longer is not taken again at once.
const CHEAP: Duration = Duration::from_millis(50);

/// Keeps sessions in step with files.
#[derive(Debug)]
pub struct Follower<'l> {
    log: &'l EventLog,
    options: ImportOptions,
    files: HashMap<PathBuf, Followed>,
}

#[derive(Debug)]
struct Followed {
    stamp: Stamp,
    /// Of the description beside it.
    meta: Option<Stamp>,
    standing: Option<Standing>,
    /// Since when the file has been as it is, with something that was left alone.
    held_since: Option<Instant>,
    /// When it may be looked at again, where a look costs the whole file.
    not_before: Option<Instant>,
    /// It has changed, and the look was put off.
    put_off: bool,
}

impl<'l> Follower<'l> {
    /// Follows files into `log`.
    pub fn new(log: &'l EventLog, options: ImportOptions) -> Follower<'l> {
        Follower { log, options, files: HashMap::new() }
    }

    /// Looks at a file; `None` when there is nothing new to tell.
    ///
    /// # Errors
    ///
    /// Those of [`import`](super::import); `Io` where it cannot be read. The next look starts anew.
    pub fn look(&mut self, path: &Path) -> Result<Option<FileReport>> {
        let failed = |error| Error::from_io("cannot open", path, error);
        let known = self.files.remove(path);
        let missing = || failed(std::io::ErrorKind::NotFound.into());
        // First the stamp: what comes after it is seen by the next look.
        let stamp = Stamp::of(path).ok_or_else(missing)?;
        let file = StdDir::open_file(path).map_err(failed)?;
        let meta = Stamp::of(&Beside::meta_path(path));
        let same = known.as_ref().is_some_and(|known| known.stamp == stamp && known.meta == meta);
        let held = known.as_ref().and_then(|known| known.held_since).filter(|_| same);
        let settled = held.is_some_and(|since| since.elapsed() >= SETTLED);
        // A file that cannot be gone on with is read from its start, so not at every change.
        let is_early = known.as_ref().and_then(|known| known.not_before).is_some_and(|time| {
            Instant::now() < time && known.as_ref().is_some_and(|k| k.stamp.inode == stamp.inode)
        });
        if (same && !settled) || is_early {
            let put_off = |known| Followed { put_off: is_early && !same, ..known };
            self.files.extend(known.map(|known| (path.to_owned(), put_off(known))));
            return Ok(None);
        }
        let is_first = known.is_none();
        let began = Instant::now();
        // Another file, or one that was changed without growing, is compared from its start.
        let standing = known.and_then(|known| {
            let grown = known.stamp.inode == stamp.inode && known.stamp.len <= stamp.len;
            let only_meta = known.stamp == stamp;
            known.standing.filter(|_| grown && (known.stamp.len < stamp.len || only_meta))
        });
        let is_document = path.extension().is_some_and(|extension| extension == "json");
        let mut options = self.options.clone();
        options.hold_tail = !settled;
        let (report, standing) = if is_document {
            // Documents are written whole.
            let found = Found { path: path.to_owned() };
            (found.import(Some(self.log), &options, &mut |_| {})?, None)
        } else {
            options.beside = Beside::of(path);
            import_standing(self.log, file, &options, standing, &mut |_| {})?
        };
        let unfinished = match report.outcome {
            Outcome::Refused | Outcome::Conflict => true,
            _ => report.bytes < stamp.len && !is_document,
        };
        let held_since = (unfinished && !settled).then(|| held.unwrap_or_else(Instant::now));
        let news = match report.outcome {
            Outcome::Refused | Outcome::Conflict => held_since.is_none(),
            outcome => is_first || outcome != Outcome::Unchanged,
        };
        let not_before = match standing {
            None if began.elapsed() > CHEAP => Some(Instant::now() + began.elapsed() * 20),
            _ => None,
        };
        let followed = Followed { stamp, meta, standing, held_since, not_before, put_off: false };
        self.files.insert(path.to_owned(), followed);
        Ok(news.then_some(report))
    }

    /// Forgets a file that is gone.
    pub fn forget(&mut self, path: &Path) {
        self.files.remove(path);
    }

    /// The followed files in a directory, for a change of something else in it.
    pub fn files_in(&self, dir: &Path) -> Vec<PathBuf> {
        self.files.keys().filter(|path| path.parent() == Some(dir)).cloned().collect()
    }

    /// The files with something that is left alone for now: to be looked at again soon.
    pub fn unsettled(&self) -> Vec<PathBuf> {
        let is_due = |followed: &Followed| followed.held_since.is_some() || followed.put_off;
        let held = self.files.iter().filter(|(_, followed)| is_due(followed));
        held.map(|(path, _)| path.clone()).collect()
    }
}
