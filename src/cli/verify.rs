//! `eventlog verify`: everything is read and checked.

use clap::Args;
use eventlog::{EventLog, Problem, jsonl, memory};
use serde::Serialize;

use super::output::{Output, plural};
use super::progress::Progress;
use super::{Exit, Failure, Global, place};

/// Read everything and check it
///
/// Checks every checksum, that the events of each session have no gap, and that counts, sums and
/// marks are those of the events; of imported files also that sums, kinds and reasons are what the
/// bytes say. Prints a line per problem and a summary; exits with 4 when there
/// is a problem.
#[derive(Debug, Args)]
pub(crate) struct Verify {}

#[derive(Serialize)]
struct ProblemLine<'a> {
    r#type: &'a str,
    r#where: &'a str,
    session: Option<&'a str>,
    seq: Option<u64>,
    kind: &'a str,
    message: &'a str,
}

#[derive(Serialize)]
struct Summary<'a> {
    r#type: &'a str,
    sessions: u64,
    events: u64,
    blocks: u64,
    journal_batches: u64,
    stranded_events: u64,
    bytes_accounted: bool,
    problems: usize,
    set_aside: &'a [String],
}

impl Verify {
    pub(crate) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let log = place::open_to_read(global, output)?;
        let progress = Progress::blocks(output, "verifying");
        let mut report = log.verify_with(&mut |blocks| progress.set(blocks))?;
        drop(progress);
        self.verify_files(&log, &mut report.problems);
        for problem in &report.problems {
            if output.json {
                output.json(&ProblemLine {
                    r#type: "problem",
                    r#where: &problem.location,
                    session: problem.session.as_deref(),
                    seq: problem.seq,
                    kind: problem.kind,
                    message: &problem.message,
                })?;
            } else {
                let text = format!("{}\t{}\t{}", problem.kind, problem.location, problem.message);
                output.bytes("", text.as_bytes())?;
            }
        }
        for name in &report.set_aside {
            output.note(&format!("{name} is kept from a recovery that left out its last batch"));
        }
        let problems = report.problems.len();
        if output.json {
            output.json(&Summary {
                r#type: "summary",
                sessions: report.sessions,
                events: report.events,
                blocks: report.blocks,
                journal_batches: report.journal_batches,
                stranded_events: report.stranded_events,
                bytes_accounted: report.bytes_accounted,
                problems,
                set_aside: &report.set_aside,
            })?;
        } else {
            output.line(&format!(
                "{}, {}, {}, {} in the journal: {}",
                plural(report.sessions, "session"),
                plural(report.events, "event"),
                plural(report.blocks, "block"),
                plural(report.journal_batches, "batch"),
                match problems {
                    0 => "no problem found".to_owned(),
                    n => format!("{} found", plural(n as u64, "problem")),
                }
            ))?;
        }
        Ok(if problems == 0 { Exit::Fine } else { Exit::Damage })
    }

    /// The lines of imported files against what is said of them. What cannot be read has been
    /// reported already.
    fn verify_files(&self, log: &EventLog, problems: &mut Vec<Problem>) {
        let Ok(snapshot) = log.snapshot() else { return };
        for session in snapshot.sessions().flatten() {
            if let Ok(mut found) = jsonl::verify(&snapshot, &session.id) {
                problems.append(&mut found);
            }
            if let Ok(Some(found)) = memory::verify(&snapshot, &session.id) {
                problems.push(found);
            }
        }
    }
}
