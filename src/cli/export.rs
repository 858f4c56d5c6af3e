//! `eventlog export`: a session as the bytes it came from.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use eventlog::io::{Replacement, StdDir, Target};
use eventlog::{Snapshot, jsonl};
use serde::Serialize;

use super::output::{Output, plural};
use super::progress::Progress;
use super::{Exit, Failure, Global, place};

/// Write a session out as JSONL, byte for byte
///
/// A file is written under a temporary name, flushed and renamed: it is there whole or not at all.
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// A session id, a unique prefix of one, @last or @N
    session: String,
    /// The file to write, - for stdout
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    session: &'a str,
    path: String,
    bytes: u64,
    events: u64,
    exact: bool,
    not_carried: [&'a str; 0],
}

impl Export {
    pub(crate) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let to_stdout = self.output == Path::new("-");
        if to_stdout && output.json {
            return Err(Failure::usage(
                "--json and the exported lines cannot both go to stdout",
                "name a file with -o FILE, or leave out --json",
            ));
        }
        if self.output.as_os_str().to_string_lossy().ends_with('/') {
            let message = format!("{} is a directory", self.output.display());
            return Err(Failure::usage(message, "give -o the name of a file"));
        }
        let target = match to_stdout {
            true => None,
            false => Some(StdDir::target(&self.output).map_err(|e| self.cannot_write(&e))?),
        };
        if let (Some(Target::File(..)), false) = (&target, self.force) {
            let message = format!("{} exists already", self.output.display());
            let hint = "choose another name, or give --force to replace it".to_owned();
            return Err(Failure::Own(Exit::Conflict, "conflict", message, Some(hint)));
        }
        let log = place::open_to_read(global, output)?;
        let snapshot = log.snapshot()?;
        let id = place::session_id(&snapshot, &self.session)?;
        let Some(target) = target else { return self.to_stdout(&snapshot, &id, output) };
        let written = self.to_file(&snapshot, &id, target, output)?;
        if output.json {
            let path = place::display(&self.output);
            let (bytes, events) = (written.bytes, written.events);
            output.json(&Report {
                session: &id,
                path,
                bytes,
                events,
                exact: true,
                not_carried: [],
            })?;
        } else {
            output.note(&format!(
                "wrote {}, {} to {}",
                plural(written.events, "event"),
                plural(written.bytes, "byte"),
                self.output.display()
            ));
        }
        Ok(Exit::Fine)
    }

    fn to_stdout(
        &self,
        snapshot: &Snapshot,
        id: &str,
        output: &mut Output,
    ) -> Result<Exit, Failure> {
        let mut out = Watched { out: std::io::BufWriter::new(output.data()?), error: None };
        let result = jsonl::export(snapshot, id, .., &mut out, &mut |_| {});
        let flushed = out.out.flush();
        // The reason is the writer's own; the export only says that it failed.
        match (out.error, result) {
            (Some(error), _) => Err(Failure::Output(error)),
            (None, result) => {
                result?;
                flushed?;
                Ok(Exit::Fine)
            }
        }
    }

    fn to_file(
        &self,
        snapshot: &Snapshot,
        id: &str,
        target: Target,
        output: &mut Output,
    ) -> Result<jsonl::Exported, Failure> {
        let total = snapshot.session(id)?.map_or(0, |session| session.bytes);
        let progress = Progress::bytes(output, "exporting", total);
        let failed = |error| self.cannot_write(&error);
        match target {
            // A device or a pipe is written to, never replaced.
            Target::Stream(mut stream) => {
                let written =
                    jsonl::export(snapshot, id, .., &mut stream, &mut |n| progress.set(n))?;
                stream.flush().map_err(failed)?;
                Ok(written)
            }
            Target::Absent(dir, name) | Target::File(dir, name) => {
                let mut file = Replacement::create(Arc::new(dir), &name).map_err(failed)?;
                let written = jsonl::export(snapshot, id, .., &mut file, &mut |n| progress.set(n))?;
                file.commit().map_err(failed)?;
                Ok(written)
            }
        }
    }

    fn cannot_write(&self, error: &std::io::Error) -> Failure {
        let hint = "check the directory and the space on the device".to_owned();
        let message = format!("cannot write {}: {error}", self.output.display());
        Failure::Own(Exit::InputOutput, "io", message, Some(hint))
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
