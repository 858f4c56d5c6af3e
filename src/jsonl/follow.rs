//! Files that another program writes, brought into the log as they grow.
//!
//! A look at a file that has grown reads what is new, not what was there. A last line that is cut
//! off is left alone while it is being written; when nothing has come for a while it is taken as
//! what it is, and if the line is written to its end after all, that stands in its place.

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

/// How long a cut-off last line is waited for.
const SETTLED: Duration = Duration::from_secs(2);

/// Keeps sessions in step with files.
#[derive(Debug)]
pub struct Follower<'l> {
    log: &'l EventLog,
    options: ImportOptions,
    files: HashMap<PathBuf, Followed>,
}

#[derive(Debug, Default)]
struct Followed {
    len: u64,
    standing: Option<Standing>,
    /// Since when the file has been as it is, with a cut-off last line that was left alone.
    held_since: Option<Instant>,
}

impl<'l> Follower<'l> {
    /// Follows files into `log`.
    pub fn new(log: &'l EventLog, options: ImportOptions) -> Follower<'l> {
        Follower { log, options, files: HashMap::new() }
    }

    /// Looks at a file; `None` when nothing has changed since the last look.
    ///
    /// # Errors
    ///
    /// Those of [`import`](super::import); `Io` where it cannot be read. The next look starts anew.
    pub fn look(&mut self, path: &Path) -> Result<Option<FileReport>> {
        let failed = |error| Error::from_io("cannot open", path, error);
        let known = self.files.remove(path);
        let is_first = known.is_none();
        let mut followed = known.unwrap_or_default();
        let file = StdDir::open_file(path).map_err(failed)?;
        let len = file.len().map_err(failed)?;
        let settled = followed.held_since.is_some_and(|since| since.elapsed() >= SETTLED);
        if len == followed.len && !is_first && !settled {
            self.files.insert(path.to_owned(), followed);
            return Ok(None);
        }
        if path.extension().is_some_and(|extension| extension == "json") {
            // Documents are written whole.
            self.files.insert(path.to_owned(), Followed { len, ..followed });
            let found = Found { path: path.to_owned() };
            return found.import(Some(self.log), &self.options, &mut |_| {}).map(Some);
        }
        let mut options = self.options.clone();
        options.beside = Beside::of(path);
        options.hold_tail = !(settled && len == followed.len);
        let standing = followed.standing.take();
        let (report, standing) = import_standing(self.log, file, &options, standing, &mut |_| {})?;
        // A file without a record yet may get one.
        let refused = report.outcome == Outcome::Refused;
        let held = options.hold_tail && (refused || report.bytes < len);
        followed.held_since = match (held, followed.held_since) {
            (true, Some(since)) if len == followed.len => Some(since),
            (true, _) => Some(Instant::now()),
            (false, _) => None,
        };
        followed.len = len;
        followed.standing = standing;
        self.files.insert(path.to_owned(), followed);
        let news = match report.outcome {
            Outcome::Refused => !held,
            outcome => is_first || outcome != Outcome::Unchanged,
        };
        Ok(news.then_some(report))
    }

    /// Forgets a file that is gone.
    pub fn forget(&mut self, path: &Path) {
        self.files.remove(path);
    }

    /// The files whose last line is cut off and left alone for now: to be looked at again soon.
    pub fn unsettled(&self) -> Vec<PathBuf> {
        let held = self.files.iter().filter(|(_, followed)| followed.held_since.is_some());
        held.map(|(path, _)| path.clone()).collect()
    }
}
