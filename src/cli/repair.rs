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

use super::import::{FileLine, file_line};
use super::output::{Output, plural};
use super::{Exit, Failure, Global, events, place};

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

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    file: FileLine,
    #[serde(flatten)]
    written: Option<Written>,
}

/// The files that were written.
#[derive(Serialize)]
struct Written {
    repaired: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    original: Option<String>,
}

impl Written {
    fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        let repaired = ("the repaired file is", self.repaired.as_str());
        let damaged = self.damaged.as_deref().map(|path| ("what was set aside is in", path));
        let original = self.original.as_deref().map(|path| ("the original is", path));
        std::iter::once(repaired).chain(damaged).chain(original)
    }
}

/// The files that are written.
struct Files {
    damaged_path: PathBuf,
    path: PathBuf,
    repaired: Replacement,
    damaged: Replacement,
}

impl Repair {
    pub(crate) fn run(&self, _: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let failed = |error| Error::from_io("cannot open", &self.file, error);
        if self.output.as_deref() == Some(Path::new("-")) {
            let hint = "name a file with -o; what is set aside needs a place beside it";
            return Err(Failure::usage("repair writes files, not to stdout", hint));
        }
        let is_same = |out: &PathBuf| {
            let real = |path: &Path| path.canonicalize().ok();
            real(out).is_some_and(|out| real(&self.file) == Some(out))
        };
        if self.output.as_ref().is_some_and(is_same) {
            let hint = "--in-place repairs the file itself, and keeps the original beside it";
            return Err(Failure::usage("-o names the file that is repaired", hint));
        }
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
            (Some(_), Some(_)) if is_clean && self.in_place => None,
            (Some(files), Some(path)) => {
                Some(self.commit(files, path, report.quarantined_spans > 0)?)
            }
            _ => None,
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
        if self.in_place {
            repaired.take_after(path).map_err(failed)?;
        }
        let damaged_path = free_name(&eventlog::io::Dir::path(&*dir).join(&name), ".damaged");
        let damaged_name = damaged_path.file_name().unwrap_or_default().to_string_lossy();
        let damaged = Replacement::create(dir, &damaged_name).map_err(failed)?;
        Ok(Files { path: path.to_owned(), repaired, damaged, damaged_path })
    }

    /// The damaged spans first: at no moment is something gone that stands nowhere else.
    fn commit(&self, files: Files, path: &Path, any_damaged: bool) -> Result<Written, Failure> {
        let failed = |error: std::io::Error| cannot_write(path, &error);
        let mut written = Written { repaired: place::display(path), damaged: None, original: None };
        if any_damaged {
            files.damaged.commit().map_err(failed)?;
            written.damaged = Some(place::display(&files.damaged_path));
        }
        if self.in_place {
            let original = keep_original(path).map_err(failed)?;
            written.original = Some(place::display(&original));
        }
        files.repaired.commit().map_err(failed)?;
        Ok(written)
    }

    fn report(
        &self,
        report: FileReport,
        is_clean: bool,
        written: Option<Written>,
        output: &mut Output,
    ) -> Result<Exit, Failure> {
        let outcome = match (is_clean, written.is_some()) {
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
            output.json(&Report { file: line, written })?;
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
        for (what, path) in written.iter().flat_map(Written::files) {
            output.note(&format!("{what} {path}"));
        }
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

/// `path` with an ending that no file has yet: what an earlier repair kept is not replaced.
fn free_name(path: &Path, ending: &str) -> PathBuf {
    let with = |ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let numbered = (1..).map(|n| with(&format!("{ending}-{n}")));
    let mut names = std::iter::once(with(ending)).chain(numbered);
    names.find(|name| name.symlink_metadata().is_err()).unwrap_or_else(|| with(ending))
}

/// Gives the original a second name, which nothing else has.
fn keep_original(path: &Path) -> std::io::Result<PathBuf> {
    loop {
        let name = free_name(path, ".orig");
        match fs::hard_link(path, &name) {
            Ok(()) => return Ok(name),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            // Not every file system has second names.
            Err(_) => {
                fs::copy(path, &name)?;
                fs::File::open(&name)?.sync_all()?;
                return Ok(name);
            }
        }
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    let hint = "check the directory and the space on the device".to_owned();
    let message = format!("cannot write {}: {error}", path.display());
    Failure::Own(Exit::InputOutput, "io", message, Some(hint))
}
