//! `eventlog import`: files into sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use eventlog::format::{Format, Plain};
use eventlog::io::{Changed, Watch};
use eventlog::jsonl::{self, FileReport, Follower, Found, ImportOptions, Outcome};
use eventlog::{Code, Error, ErrorKind, EventLog};
use serde::Serialize;

use super::output::{Output, plural};
use super::progress::Progress;
use super::{Exit, Failure, Global, interrupt, place, time};

/// Bring JSONL files into the log; doing it again adds only what is new
///
/// What a file is, is told by what most of its records are: MyCodeAgent's transcripts,
/// recursive-agent's sessions with the files beside them, and the former one-file formats of both.
/// Lines of other programs in them, and JSONL of an unknown format, are kept as they are. A file whose beginning is
/// not what the log holds of its session is a conflict: it is reported, and nothing is changed.
/// Bytes that are no JSON, and records with something missing, are kept and reported.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// Files, and directories in which to look for sessions
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Import the one file into this session instead of the one it names
    #[arg(long = "as", value_name = "ID")]
    session: Option<String>,
    /// Refuse files with any damage
    #[arg(long)]
    strict: bool,
    /// Look at the files and append nothing
    #[arg(long)]
    dry_run: bool,
    /// Go on until interrupted: bring in what other programs write to the files, as they write it
    #[arg(long, conflicts_with_all = ["session", "strict", "dry_run"])]
    follow: bool,
}

#[derive(Serialize)]
pub(crate) struct Quarantined {
    pub(crate) line: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) reason: &'static str,
}

#[derive(Serialize)]
pub(crate) struct Finding {
    pub(crate) code: &'static str,
    pub(crate) line: Option<u64>,
    pub(crate) offset: Option<u64>,
    pub(crate) length: Option<u64>,
    pub(crate) seq: Option<u64>,
    pub(crate) message: String,
}

#[derive(Default, Serialize)]
pub(crate) struct FileLine {
    pub(crate) r#type: &'static str,
    pub(crate) path: String,
    pub(crate) format: Option<&'static str>,
    pub(crate) session: Option<String>,
    pub(crate) outcome: &'static str,
    pub(crate) bytes: u64,
    pub(crate) records: u64,
    pub(crate) new_records: u64,
    pub(crate) record_bytes: u64,
    pub(crate) separator_bytes: u64,
    pub(crate) quarantined_bytes: u64,
    pub(crate) quarantined_spans: u64,
    pub(crate) quarantined: Vec<Quarantined>,
    pub(crate) blank_lines: u64,
    pub(crate) crlf_lines: u64,
    pub(crate) bom: bool,
    pub(crate) unterminated: bool,
    pub(crate) findings: Vec<Finding>,
    pub(crate) finding_counts: BTreeMap<&'static str, u64>,
    pub(crate) message: Option<String>,
    /// Of an import that failed: how many events the session has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) durable_events: Option<u64>,
}

#[derive(Debug, Default, Serialize)]
struct Summary {
    r#type: &'static str,
    files: u64,
    imported: u64,
    unchanged: u64,
    grown: u64,
    conflict: u64,
    refused: u64,
    failed: u64,
    /// Of those that failed: not there.
    #[serde(skip)]
    absent: u64,
    /// Of those that failed: of sessions that are damaged in the log.
    #[serde(skip)]
    damaged: u64,
    records: u64,
    quarantined: u64,
    bytes: u64,
    skipped: u64,
    seconds: f64,
}

impl Summary {
    fn count(&mut self, report: &FileReport) {
        match report.outcome {
            Outcome::Imported => self.imported += 1,
            Outcome::Unchanged => self.unchanged += 1,
            Outcome::Grown => self.grown += 1,
            Outcome::Conflict => self.conflict += 1,
            _ => self.refused += 1,
        }
        self.files += 1;
        self.records += report.records;
        self.bytes += report.bytes;
        self.quarantined += report.quarantined_spans;
    }

    fn count_failure(&mut self, kind: ErrorKind) {
        self.files += 1;
        self.failed += 1;
        match kind {
            ErrorKind::NotFound => self.absent += 1,
            ErrorKind::Corrupt => self.damaged += 1,
            _ => {}
        }
    }
}

impl Import {
    pub(crate) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        if self.session.is_some() && (self.paths.len() > 1 || self.paths.iter().any(|p| p.is_dir()))
        {
            return Err(Failure::usage("--as goes with one file", "import the files one by one"));
        }
        if self.paths.iter().any(|path| path == Path::new("-")) {
            let hint = "`eventlog append SESSION` takes lines from stdin";
            return Err(Failure::usage("import reads files, not stdin", hint));
        }
        let session = self.session.as_deref().map(place::new_id).transpose()?;
        if let Some(missing) = self.paths.iter().find(|path| self.follow && !path.exists()) {
            let error = std::io::ErrorKind::NotFound.into();
            return Err(Error::from_io("cannot follow", missing, error).into());
        }
        let start = Instant::now();
        let mut files = Vec::new();
        let mut summary = Summary { r#type: "summary", ..Summary::default() };
        for path in &self.paths {
            let mut found = jsonl::discover(path);
            files.append(&mut found.files);
            for (path, error) in found.unreadable {
                let error = Error::from_io("cannot read", &path, error);
                summary.count_failure(error.kind());
                self.report_failure(&path, &error, output)?;
            }
            for path in found.skipped {
                summary.skipped += 1;
                output.note(&format!("passed over {}: a link or no regular file", path.display()));
            }
        }
        // A dry run creates nothing, not even the log; nor does an import of nothing.
        let nothing = !self.follow && files.iter().all(|file| !file.path.exists());
        let log = match self.dry_run || nothing {
            true if !EventLog::exists(place::log_dir(global)?) => None,
            true => Some(place::open_to_read(global, output)?),
            false => Some(place::open_to_write(global, true, output)?),
        };
        interrupt::attend();
        if let (true, Some(log)) = (self.follow, &log) {
            let result = self.follow(log, &mut summary, output);
            summary.seconds = time::seconds_since(start);
            self.report_summary(&summary, output)?;
            // What was appended is durable already; this spares the next open the recovery.
            log.checkpoint()?;
            return result;
        }
        for file in &files {
            if interrupt::interrupted() {
                log.map_or(Ok(()), EventLog::close)?;
                return Err(Failure::Interrupted);
            }
            match self.import(log.as_ref(), file, session, output) {
                Ok(report) => self.report(&file.path, report, &mut summary, output)?,
                Err(error) => {
                    summary.count_failure(error.kind());
                    let stop = matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::Closed);
                    self.report_failure(&file.path, &error, output)?;
                    if stop {
                        break;
                    }
                }
            }
        }
        log.map_or(Ok(()), EventLog::close)?;
        summary.seconds = time::seconds_since(start);
        self.report_summary(&summary, output)?;
        Ok(match &summary {
            Summary { failed, absent, .. } if *failed > 0 && failed == absent => Exit::NotFound,
            // All that failed did so for damage.
            Summary { failed, damaged, .. } if *failed > 0 && failed == damaged => Exit::Damage,
            Summary { failed: 1.., .. } => Exit::InputOutput,
            Summary { conflict: 1.., .. } => Exit::Conflict,
            // Of a directory with other files too, the sessions were taken.
            Summary { refused, files, .. } if *refused > 0 && refused < files && !self.strict => {
                Exit::Partial
            }
            Summary { refused: 1.., .. } => Exit::Damage,
            Summary { quarantined: 1.., .. } => Exit::Partial,
            Summary { files: 0, .. } => Exit::Nothing,
            _ => Exit::Fine,
        })
    }

    /// Looks at all files, and then at those that change, until the user has enough.
    fn follow(
        &self,
        log: &EventLog,
        summary: &mut Summary,
        output: &mut Output,
    ) -> Result<Exit, Failure> {
        /// How often to look without being told, for files that other machines write.
        const LOOK: Duration = Duration::from_secs(5);
        const LOOK_AT_UNSETTLED: Duration = Duration::from_millis(500);
        let roots = self.paths.iter().map(|path| path.canonicalize().unwrap_or(path.clone()));
        let roots: Vec<PathBuf> = roots.collect();
        let paths: Vec<&Path> = roots.iter().map(PathBuf::as_path).collect();
        // Before the first look, so that nothing falls in between.
        let watch = Watch::new(&paths);
        if !watch.is_told() {
            output.note("the system does not tell of changes here; looking 20 times a second");
        }
        // Of each file: how it began, and how it stands.
        let mut seen: BTreeMap<PathBuf, (Outcome, FileReport)> = BTreeMap::new();
        let mut follower = Follower::new(log, ImportOptions::default());
        let all = || paths.iter().flat_map(|path| jsonl::discover(path).files);
        let mut due: BTreeSet<PathBuf> = all().map(|found| found.path).collect();
        output.note(&format!("following {}", plural(due.len() as u64, "file")));
        let mut looked = Instant::now();
        while !interrupt::interrupted() {
            for path in std::mem::take(&mut due) {
                match follower.look(&path) {
                    Ok(None) => {}
                    Ok(Some(report)) => {
                        if output.json {
                            output.json(&file_line(&path, report.clone()))?;
                        } else {
                            Import::print(&path, &report, output)?;
                        }
                        let seen =
                            seen.entry(path).or_insert_with(|| (report.outcome, report.clone()));
                        seen.1 = report;
                    }
                    Err(_) if !path.exists() => follower.forget(&path),
                    Err(error)
                        if matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::Closed) =>
                    {
                        return Err(error.into());
                    }
                    // It is being written to: the next look sees more.
                    Err(error) if error.kind() == ErrorKind::Conflict => {}
                    Err(error) => self.report_failure(&path, &error, output)?,
                }
            }
            output.flush()?;
            let unsettled = follower.unsettled();
            let wait = if unsettled.is_empty() { LOOK } else { LOOK_AT_UNSETTLED };
            let changed = interrupt::wait(&watch, wait);
            due.extend(unsettled);
            let changed_all = changed == Changed::Anything;
            if let Changed::Paths(paths) = changed {
                for path in paths {
                    let found = path.symlink_metadata();
                    let is_file = found.as_ref().is_ok_and(|found| found.is_file());
                    if found.is_ok_and(|found| found.is_dir()) {
                        due.extend(jsonl::discover(&path).files.into_iter().map(|f| f.path));
                        continue;
                    }
                    match is_file && jsonl::is_candidate(&path) {
                        true => _ = due.insert(path),
                        // Perhaps the description beside one.
                        false => due.extend(
                            path.parent().map(|dir| follower.files_in(dir)).unwrap_or_default(),
                        ),
                    }
                }
            }
            if changed_all || looked.elapsed() >= LOOK {
                due.extend(all().map(|found| found.path));
                looked = Instant::now();
            }
        }
        for (_, (outcome, mut report)) in seen {
            report.outcome = match (outcome, report.outcome) {
                (first, Outcome::Grown | Outcome::Unchanged) => first,
                (_, last) => last,
            };
            summary.count(&report);
        }
        Err(Failure::Interrupted)
    }

    fn import(
        &self,
        log: Option<&EventLog>,
        file: &Found,
        session: Option<&str>,
        output: &Output,
    ) -> Result<FileReport, Error> {
        let total = file.path.metadata().map_or(0, |meta| meta.len());
        let name = file.path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let progress = Progress::bytes(output, &name, total);
        let mut options = ImportOptions::default();
        options.session = session.map(str::to_owned);
        options.strict = self.strict;
        options.dry_run = self.dry_run;
        file.import(log, &options, &mut |n| progress.set(n))
    }

    fn report(
        &self,
        path: &Path,
        report: FileReport,
        summary: &mut Summary,
        output: &mut Output,
    ) -> Result<(), Failure> {
        summary.count(&report);
        match output.json {
            true => output.json(&file_line(path, report)),
            false => Import::print(path, &report, output),
        }
    }

    fn print(path: &Path, report: &FileReport, output: &mut Output) -> Result<(), Failure> {
        let kept = !matches!(report.outcome, Outcome::Conflict | Outcome::Refused);
        let is_unknown = kept && report.format == Some(Plain.name());
        let mut remarks = Vec::from_iter(report.message.clone());
        if is_unknown {
            remarks.push("of an unknown format".to_owned());
        }
        if report.message.is_none() && report.quarantined_spans > 0 && kept {
            let spans = plural(report.quarantined_spans, "span");
            let bytes = plural(report.quarantined_bytes, "byte");
            remarks.push(format!("{spans} ({bytes}) quarantined"));
        }
        let remark = remarks.join("; ");
        output.row(&[
            &place::display(path),
            report.outcome.name(),
            report.session.as_deref().unwrap_or("-"),
            &plural(report.records, "record"),
            &format!("{} new", report.new_records),
            &remark,
        ])?;
        let unknown = report.finding_counts.get(&Code::UnknownType).copied().unwrap_or_default();
        let path = place::display(path);
        if is_unknown {
            output.warn(&format!(
                "{path}: its format is unknown, so that nothing can be resumed; its lines are kept as they are"
            ));
        } else if kept && unknown > 0 && unknown == report.records {
            output.warn(&format!(
                "{path}: no record is of a type that is known, so that nothing can be resumed; they are kept as they are"
            ));
        }
        Ok(())
    }

    fn report_failure(
        &self,
        path: &Path,
        error: &Error,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let message = error.to_string();
        if output.json {
            output.json(&FileLine {
                r#type: "file",
                path: place::display(path),
                outcome: "failed",
                message: Some(message.clone()),
                durable_events: error.head(),
                ..FileLine::default()
            })?;
        } else {
            output.row(&[&place::display(path), "failed", "-", "-", "-", &message])?;
        }
        let path = place::display(path);
        let named = match message.contains(&path) {
            true => message,
            false => format!("{path}: {message}"),
        };
        output.report(error.kind().name(), &named, error.hint());
        Ok(())
    }

    fn report_summary(&self, summary: &Summary, output: &mut Output) -> Result<(), Failure> {
        if output.json {
            return output.json(summary);
        }
        let parts = [
            (summary.imported, "imported"),
            (summary.grown, "grown"),
            (summary.unchanged, "unchanged"),
            (summary.conflict, "in conflict"),
            (summary.refused, "refused"),
            (summary.failed, "failed"),
        ];
        let parts: Vec<String> =
            parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        let tried = if self.dry_run { " (dry run: nothing was changed)" } else { "" };
        output.note(&format!(
            "{}: {}; {}, {} in {:.2} s{tried}",
            plural(summary.files, "file"),
            if parts.is_empty() { "none".to_owned() } else { parts.join(", ") },
            plural(summary.records, "record"),
            super::output::size(summary.bytes),
            summary.seconds,
        ));
        Ok(())
    }
}

pub(crate) fn file_line(path: &Path, report: FileReport) -> FileLine {
    let findings = report.findings.into_iter().map(|finding| Finding {
        code: finding.code.name(),
        line: finding.line,
        offset: finding.offset,
        length: finding.length,
        seq: finding.seq,
        message: finding.message,
    });
    let quarantined = report.quarantined.iter().map(|q| Quarantined {
        line: q.line,
        offset: q.offset,
        length: q.length,
        reason: q.reason.name(),
    });
    let counts = report.finding_counts.iter();
    FileLine {
        r#type: "file",
        path: place::display(path),
        format: report.format,
        session: report.session,
        outcome: report.outcome.name(),
        bytes: report.bytes,
        records: report.records,
        new_records: report.new_records,
        record_bytes: report.record_bytes,
        separator_bytes: report.separator_bytes,
        quarantined_bytes: report.quarantined_bytes,
        quarantined_spans: report.quarantined_spans,
        quarantined: quarantined.collect(),
        blank_lines: report.blank_lines,
        crlf_lines: report.crlf_lines,
        bom: report.bom,
        unterminated: report.unterminated,
        findings: findings.collect(),
        finding_counts: counts.map(|(code, count)| (code.name(), *count)).collect(),
        message: report.message,
        durable_events: None,
    }
}
