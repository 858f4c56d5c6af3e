//! `eventlog repair`: a JSONL file by itself, without a log.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use eventlog::Error;
use eventlog::io::{Replacement, StdDir, Target};
use eventlog::jsonl::{self, FileReport, Outcome, Part};
use serde::Serialize;

use super::import::file_line;
use super::output::{Output, plural};
use super::{Exit, Failure, Global, events};

/// Look for damage in a JSONL file, and write it without
///
/// Without -o or --in-place the file is only looked at. The repaired file has each record on a line
/// of its own; what is no record goes to a file beside it that ends in .damaged, with line, offset,
/// reason and bytes. No log is needed.
#[derive(Debug, Args)]
pub(crate) struct Repair {
    /// The file
    file: PathBuf,
    /// Write the repaired file here, and OUT.damaged beside it
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Replace the file, and keep the original beside it as FILE.orig
    #[arg(long, conflicts_with = "output")]
    in_place: bool,
    /// Replace OUT if it exists
    #[arg(long, requires = "output")]
    force: bool,
}

#[derive(Serialize)]
struct Damaged<'a> {
    line: u64,
    offset: u64,
    length: u64,
    reason: &'a str,
    bytes_base64: String,
}

/// The files that are written.
struct Files {
    path: PathBuf,
    repaired: Replacement,
    damaged: Replacement,
}

impl Repair {
    pub(crate) fn run(&self, _: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let failed = |error| Error::from_io("cannot open", &self.file, error);
        let file = StdDir::open_file(&self.file).map_err(failed)?;
        let target = match (&self.output, self.in_place) {
            (Some(out), _) => Some(out.clone()),
            // Through a link its target is repaired; the link stays.
            (None, true) => Some(self.file.canonicalize().map_err(failed)?),
            (None, false) => None,
        };
        let mut files = target.as_deref().map(|path| self.create(path)).transpose()?;
        let report = jsonl::repair(file, &mut |part| {
            files.as_mut().map_or(Ok(()), |files| files.put(&part))
        })?;
        let is_clean = report.outcome == Outcome::Unchanged;
        let written = match (files, &target) {
            (Some(_), Some(_)) if is_clean && self.in_place => false,
            (Some(files), Some(path)) => {
                self.commit(files, path, report.quarantined_spans > 0)?;
                true
            }
            _ => false,
        };
        self.report(report, is_clean, written, output)
    }

    fn create(&self, path: &Path) -> Result<Files, Failure> {
        let failed = |error: std::io::Error| cannot_write(path, &error);
        let target = StdDir::target(path).map_err(failed)?;
        let (dir, name) = match target {
            Target::File(..) if self.output.is_some() && !self.force => {
                let message = format!("{} exists already", path.display());
                let hint = "choose another name, or give --force to replace it".to_owned();
                return Err(Failure::Own(Exit::Conflict, "conflict", message, Some(hint)));
            }
            Target::File(dir, name) | Target::Absent(dir, name) => (Arc::new(dir), name),
            Target::Stream(_) => {
                let message = format!("{} is no regular file", path.display());
                return Err(Failure::usage(message, "name a file that can be replaced"));
            }
        };
        let repaired = Replacement::create(dir.clone(), &name).map_err(failed)?;
        let damaged = self.damaged_name(path, &name);
        let damaged = Replacement::create(dir, &damaged).map_err(failed)?;
        Ok(Files { path: path.to_owned(), repaired, damaged })
    }

    /// What an earlier repair set apart is kept, unless --force says otherwise.
    fn damaged_name(&self, path: &Path, name: &str) -> String {
        let plain = format!("{name}.damaged");
        let numbered = (1..).map(|n| format!("{name}.damaged-{n}"));
        let mut names = std::iter::once(plain.clone()).chain(numbered);
        let is_free = |name: &String| self.force || !path.with_file_name(name).exists();
        names.find(is_free).unwrap_or(plain)
    }

    /// The damaged spans first: at no moment is something gone that stands nowhere else.
    fn commit(&self, files: Files, path: &Path, any_damaged: bool) -> Result<(), Failure> {
        let failed = |error: std::io::Error| cannot_write(path, &error);
        if any_damaged {
            files.damaged.commit().map_err(failed)?;
        }
        if self.in_place {
            keep_original(path).map_err(failed)?;
        }
        files.repaired.commit().map(drop).map_err(failed)
    }

    fn report(
        &self,
        report: FileReport,
        is_clean: bool,
        written: bool,
        output: &mut Output,
    ) -> Result<Exit, Failure> {
        let outcome = match (is_clean, written) {
            (true, _) => "clean",
            (false, true) => "repaired",
            (false, false) => "reported",
        };
        let exit = match outcome {
            "clean" => Exit::Fine,
            "repaired" if report.quarantined_spans == 0 => Exit::Fine,
            "repaired" => Exit::Partial,
            _ if report.quarantined_spans == 0 => Exit::Fine,
            _ => Exit::Damage,
        };
        let spans = report.quarantined_spans;
        let summary = format!(
            "{}: {}, {} set aside ({})",
            outcome,
            plural(report.records, "record"),
            plural(spans, "span"),
            plural(report.quarantined_bytes, "byte"),
        );
        let mut line = file_line(&self.file, report);
        line.outcome = outcome;
        if output.json {
            output.json(&line)?;
            return Ok(exit);
        }
        for finding in &line.findings {
            let place = match (finding.line, finding.offset) {
                (Some(line), Some(offset)) => format!("line {line}, byte {offset}: "),
                _ => String::new(),
            };
            output.line(&format!("{place}{}: {}", finding.code, finding.message))?;
        }
        output.note(&summary);
        if outcome == "reported" {
            output.note("-o OUT writes the file without that, --in-place replaces it");
        }
        Ok(exit)
    }
}

impl Files {
    fn put(&mut self, part: &Part<'_>) -> eventlog::Result<()> {
        let failed = |error| Error::from_io("cannot write", &self.path, error);
        match part {
            Part::Record(record) => {
                self.repaired.write_all(record).map_err(failed)?;
                self.repaired.write_all(b"\n").map_err(failed)
            }
            Part::Damaged { line, offset, reason, bytes } => {
                let damaged = Damaged {
                    line: *line,
                    offset: *offset,
                    length: bytes.len() as u64,
                    reason: reason.name(),
                    bytes_base64: events::base64(bytes),
                };
                let mut text = serde_json::to_vec(&damaged).map_err(|e| failed(e.into()))?;
                text.push(b'\n');
                self.damaged.write_all(&text).map_err(failed)
            }
            _ => Ok(()),
        }
    }
}

/// Gives the original a second name, which nothing else has.
fn keep_original(path: &Path) -> std::io::Result<()> {
    for n in 0.. {
        let mut name = path.as_os_str().to_owned();
        name.push(if n == 0 { ".orig".to_owned() } else { format!(".orig-{n}") });
        match fs::hard_link(path, &name) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Ok(()) => break,
            // Not every file system has second names.
            Err(_) if !Path::new(&name).exists() => {
                fs::copy(path, &name)?;
                fs::File::open(&name)?.sync_all()?;
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    let hint = "check the directory and the space on the device".to_owned();
    let message = format!("cannot write {}: {error}", path.display());
    Failure::Own(Exit::InputOutput, "io", message, Some(hint))
}
