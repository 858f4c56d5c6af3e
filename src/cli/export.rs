//! `eventlog export`: sessions as the bytes they came from, or in another form.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use eventlog::format::{self, Format};
use eventlog::io::{Changed, Dir, StdDir, Target, Watch};
use eventlog::jsonl::{self, ExportOptions, Exported, Mirror};
use eventlog::{Error, ErrorKind, EventLog, Snapshot};
use serde::Serialize;

use super::output::{Output, plural};
use super::progress::Progress;
use super::{Exit, Failure, Global, interrupt, place};

/// Write sessions out as JSONL, byte for byte
///
/// A file is written under a temporary name, flushed and renamed: it is there whole or not at all.
/// One that exists is replaced only if it is an earlier export, that is, if the new one begins
/// with all of it. In a directory, sessions stand in the layout of their format:
/// transcripts/transcript-ID.jsonl, or workspaces/HASH/sessions/SLUG/ID with a description.
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// Session ids, unique prefixes of one, @last or @N
    #[arg(value_name = "SESSION", required_unless_present_any = ["all", "follow"])]
    sessions: Vec<String>,
    /// Every session
    #[arg(long, conflicts_with = "sessions")]
    all: bool,
    /// The file or directory to write to, - for stdout; several sessions need a directory
    #[arg(short, long, value_name = "PATH", default_value = "-")]
    output: PathBuf,
    /// Replace files, whatever is in them
    #[arg(long)]
    force: bool,
    /// Only whole records, one per line, without damage, blank lines and a byte-order mark
    #[arg(long)]
    clean: bool,
    /// Convert to this format, and say what it cannot carry
    #[arg(long, value_name = "FORMAT", value_parser = format_named)]
    format: Option<&'static dyn Format>,
    /// Go on until interrupted: keep the files of all sessions below DIR in step with the log
    #[arg(long, value_name = "DIR", conflicts_with_all = ["sessions", "all", "output", "force", "clean", "format"])]
    follow: Option<PathBuf>,
}

fn format_named(name: &str) -> Result<&'static dyn Format, String> {
    let names = || format::all().iter().map(|format| format.name()).collect::<Vec<_>>().join(", ");
    format::by_name(name).ok_or_else(|| format!("the formats are {}", names()))
}

#[derive(Serialize)]
struct Report<'a> {
    session: &'a str,
    path: String,
    bytes: u64,
    events: u64,
    exact: bool,
    not_carried: &'a [String],
}

/// Where an export goes.
enum Place {
    Stdout,
    File(Target),
    Dir(Arc<dyn Dir>),
}

impl Export {
    pub(crate) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        if let Some(dir) = &self.follow {
            return self.follow(global, dir, output);
        }
        let many = self.all || self.sessions.len() > 1;
        let to_stdout = self.output == Path::new("-");
        if to_stdout && (output.json || many) {
            let message = match many {
                true => "several sessions cannot all go to stdout",
                false => "--json and the exported lines cannot both go to stdout",
            };
            return Err(Failure::usage(message, "name a place with -o PATH"));
        }
        let log = place::open_to_read(global, output)?;
        let snapshot = log.snapshot()?;
        let (mut exit, mut done) = (Exit::Fine, (0, 0));
        let mut ids = Vec::new();
        for name in &self.sessions {
            ids.push(place::session_id(&snapshot, name)?);
        }
        for session in self.all.then(|| snapshot.sessions()).into_iter().flatten() {
            match session {
                Ok(session) => ids.push(session.id),
                Err(error) => {
                    output.report(error.kind().name(), &error.to_string(), error.hint());
                    exit = Exit::Damage;
                }
            }
        }
        let place = self.place(many)?;
        for id in &ids {
            // One damaged session hides no other.
            match self.export(&snapshot, id, &place, output) {
                Ok((path, exported)) => {
                    done = (done.0 + exported.events, done.1 + exported.bytes);
                    if let Some(path) = path {
                        self.report(id, &path, &exported, output)?;
                    } else {
                        self.say_not_carried(id, &exported, output);
                    }
                }
                Err(Failure::Log(error)) if many => {
                    let message = format!("session {id:?}: {error}");
                    output.report(error.kind().name(), &message, error.hint());
                    exit = Failure::Log(error).exit();
                }
                Err(failure) => return Err(failure),
            }
        }
        if many && !output.json {
            let (events, bytes) = (plural(done.0, "event"), plural(done.1, "byte"));
            let sessions = plural(ids.len() as u64, "session");
            output.note(&format!("{sessions}, {events}, {bytes} to {}", self.output.display()));
        }
        Ok(if ids.is_empty() { Exit::Nothing } else { exit })
    }

    fn place(&self, many: bool) -> Result<Place, Failure> {
        if self.output == Path::new("-") {
            return Ok(Place::Stdout);
        }
        let is_dir =
            self.output.is_dir() || self.output.as_os_str().as_encoded_bytes().ends_with(b"/");
        let failed = |error| self.cannot_write(&error);
        if many && self.output.symlink_metadata().is_ok() && !self.output.is_dir() {
            let message = format!("{} is no directory", self.output.display());
            return Err(Failure::usage(
                message,
                "several sessions need a directory: name one with -o",
            ));
        }
        if many || is_dir {
            return Ok(Place::Dir(Arc::new(StdDir::create(&self.output).map_err(failed)?)));
        }
        Ok(Place::File(StdDir::target(&self.output).map_err(failed)?))
    }

    fn options(&self) -> ExportOptions {
        let mut options = ExportOptions::default();
        options.clean = self.clean;
        options.format = self.format;
        options
    }

    /// The path of the file that was written, `None` for stdout.
    fn export(
        &self,
        snapshot: &Snapshot,
        id: &str,
        place: &Place,
        output: &mut Output,
    ) -> Result<(Option<PathBuf>, Exported), Failure> {
        let total = snapshot.session(id)?.map_or(0, |session| session.bytes);
        let progress = match place {
            Place::Stdout => None,
            _ => Some(Progress::bytes(output, id, total)),
        };
        let mut set = |n| progress.iter().for_each(|progress| progress.set(n));
        let options = self.options();
        match place {
            Place::Stdout => Ok((None, to_stdout(snapshot, id, options, output)?)),
            Place::Dir(dir) => {
                let force = self.force;
                let (path, exported) =
                    jsonl::export_into(snapshot, id, options, dir, force, &mut set)?;
                Ok((Some(path), exported))
            }
            // A device or a pipe is written to, never replaced.
            Place::File(Target::Stream(_)) => {
                let target = StdDir::target(&self.output).map_err(|e| self.cannot_write(&e))?;
                let Target::Stream(mut stream) = target else {
                    return Err(self.cannot_write(&std::io::ErrorKind::Other.into()));
                };
                let exported = jsonl::export_as(snapshot, id, options, &mut stream, &mut set)?;
                stream.flush().map_err(|e| self.cannot_write(&e))?;
                Ok((Some(self.output.clone()), exported))
            }
            Place::File(Target::Absent(dir, name) | Target::File(dir, name)) => {
                let exported = jsonl::write_file(Arc::new(dir.clone()), name, self.force, |out| {
                    jsonl::export_as(snapshot, id, options, out, &mut set)
                })?;
                Ok((Some(self.output.clone()), exported))
            }
        }
    }

    fn report(
        &self,
        id: &str,
        path: &Path,
        exported: &Exported,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let (bytes, events, exact) = (exported.bytes, exported.events, exported.exact);
        if output.json {
            let (path, not_carried) = (place::display(path), exported.not_carried.as_slice());
            return output.json(&Report { session: id, path, bytes, events, exact, not_carried });
        }
        let (events, bytes) = (plural(events, "event"), plural(bytes, "byte"));
        output.note(&format!("wrote {events}, {bytes} to {}", path.display()));
        self.say_not_carried(id, exported, output);
        Ok(())
    }

    fn say_not_carried(&self, id: &str, exported: &Exported, output: &mut Output) {
        if !exported.not_carried.is_empty() {
            output.warn(&format!("{id}: left out: {}", exported.not_carried.join(", ")));
        }
    }

    /// Keeps the files of all sessions in step until the user has enough.
    fn follow(&self, global: &Global, dir: &Path, output: &mut Output) -> Result<Exit, Failure> {
        const LOOK: Duration = Duration::from_secs(2);
        const FLUSH: Duration = Duration::from_secs(1);
        let create = || {
            let failed = |error| Error::from_io("cannot create", dir, error);
            StdDir::create(dir).map_err(failed)
        };
        let root: Arc<dyn Dir> = Arc::new(create()?);
        let log = place::open_to_read(global, output)?;
        let watch = Watch::new(&[&place::log_dir(global)?, dir]);
        let mut mirror = Mirror::new(root);
        interrupt::attend();
        output.note(&format!("keeping the files below {} in step", dir.display()));
        let mut flushed = Instant::now();
        let mut unflushed = false;
        let mut said = Said::default();
        while !interrupt::interrupted() {
            let synced = match create().and_then(|_| sync(&log, &mut mirror)) {
                Ok(synced) => synced,
                Err(error) => {
                    said.say("", &error, output);
                    interrupt::wait(&watch, FLUSH);
                    continue;
                }
            };
            if synced.files > 0 {
                unflushed = true;
                if output.json {
                    output.json(&Appended { files: synced.files, bytes: synced.bytes })?;
                    output.flush()?;
                }
            }
            said.forget_all_but(&synced.failed);
            for (session, error) in &synced.failed {
                said.say(session, error, output);
            }
            let waits = if unflushed || !synced.failed.is_empty() { FLUSH } else { LOOK };
            let changed = interrupt::wait(&watch, waits);
            // What the mirror has written itself is as it was left, and costs a look.
            if !matches!(&changed, Changed::Paths(paths) if !paths.iter().any(|p| is_below(p, dir)))
            {
                mirror.check();
            }
            if unflushed && flushed.elapsed() >= FLUSH {
                match mirror.flush() {
                    Ok(()) => unflushed = false,
                    Err(error) => said.say("", &error, output),
                }
                flushed = Instant::now();
            }
        }
        mirror.flush()?;
        Err(Failure::Interrupted)
    }

    fn cannot_write(&self, error: &std::io::Error) -> Failure {
        let hint = "check the directory and the space on the device".to_owned();
        let message = format!("cannot write {}: {error}", self.output.display());
        Failure::Own(Exit::InputOutput, "io", message, Some(hint))
    }
}

/// Whether a path of the system is below a directory of the user's.
fn is_below(path: &Path, dir: &Path) -> bool {
    dir.canonicalize().is_ok_and(|dir| path.starts_with(dir)) || path.starts_with(dir)
}

/// What has been said of each session: the same trouble is told once.
#[derive(Default)]
struct Said(BTreeMap<String, String>);

impl Said {
    fn say(&mut self, session: &str, error: &Error, output: &mut Output) {
        let message = match session {
            "" => error.to_string(),
            session => format!("session {session:?}: {error}"),
        };
        if self.0.insert(session.to_owned(), message.clone()).as_ref() != Some(&message) {
            output.report(error.kind().name(), &message, error.hint());
        }
    }

    fn forget_all_but(&mut self, failed: &[(String, Error)]) {
        self.0.retain(|session, _| failed.iter().any(|(id, _)| id == session));
    }
}

#[derive(Serialize)]
struct Appended {
    files: u64,
    bytes: u64,
}

/// One round of the mirror. A log that its writer is just recovering is looked at again later.
fn sync(log: &EventLog, mirror: &mut Mirror) -> Result<jsonl::Synced, Error> {
    match log.snapshot().and_then(|snapshot| mirror.sync(&snapshot)) {
        Err(error) if error.kind() == ErrorKind::NeedsRecovery => Ok(jsonl::Synced::default()),
        other => other,
    }
}

fn to_stdout(
    snapshot: &Snapshot,
    id: &str,
    options: ExportOptions,
    output: &mut Output,
) -> Result<Exported, Failure> {
    let mut out = Watched { out: std::io::BufWriter::new(output.data()?), error: None };
    let result = jsonl::export_as(snapshot, id, options, &mut out, &mut |_| {});
    let flushed = out.out.flush();
    // The reason is the writer's own; the export only says that it failed.
    match (out.error, result) {
        (Some(error), _) => Err(Failure::Output(error)),
        (None, result) => {
            let exported = result?;
            flushed?;
            Ok(exported)
        }
    }
}

/// Keeps the error of a writer.
struct Watched<W> {
    out: W,
    error: Option<std::io::Error>,
}

impl<W: Write> Write for Watched<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.out.write(bytes).map_err(|error| {
            let kind = error.kind();
            self.error = Some(error);
            kind.into()
        })
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}
