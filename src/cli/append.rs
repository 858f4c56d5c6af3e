//! `eventlog append`: lines from stdin into a session, acknowledged as they become durable.

use std::io::BufRead;

use clap::Args;
use eventlog::format::{self, Damage};
use eventlog::{Attributes, Entry, Kind, Session, Terminator};
use serde::Serialize;

use super::output::{Output, plural};
use super::{Exit, Failure, Global, place};

/// Append JSONL lines from stdin to a session
///
/// Reads stdin as it comes, appends what is there as one batch, and prints the seqs of a batch as
/// soon as it is durable. A line that is no record of a known format is appended as damaged.
#[derive(Debug, Args)]
pub(crate) struct Append {
    /// The session's full id; a new one is created
    session: String,
}

#[derive(Serialize)]
struct Acknowledged {
    first_seq: u64,
    last_seq: u64,
    durable: bool,
}

const BUFFER_BYTES: usize = 1 << 20;

impl Append {
    pub(crate) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let id = place::new_id(&self.session)?;
        let log = place::open_to_write(global, true, output)?;
        let session = log.session(id)?;
        let line_bytes_max = log.max_entry_bytes();
        eventlog::record::check_writable(&session)?;
        if session.ends_open()? {
            // An append never goes on with somebody else's line.
            session.append(Entry::new(Kind::Blank, b""))?;
        }
        let names_format = session.attributes()?.is_none_or(|known| known.format.is_none());
        let mut appender =
            Appender { session, names_format, rest: Vec::new(), damaged: 0, line_bytes_max };
        let mut stdin = std::io::BufReader::with_capacity(BUFFER_BYTES, std::io::stdin().lock());
        loop {
            let available = match stdin.fill_buf() {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                other => other.map_err(cannot_read)?,
            };
            if available.is_empty() {
                break;
            }
            let used = available.len();
            appender.take(available, output)?;
            stdin.consume(used);
        }
        appender.finish(output)?;
        let damaged = appender.damaged;
        drop(appender);
        log.close()?;
        if damaged > 0 {
            let lines = plural(damaged, "line");
            output
                .warn(&format!("appended as damaged, being no record of a known format: {lines}"));
            return Ok(Exit::Partial);
        }
        Ok(Exit::Fine)
    }
}

fn cannot_read(error: std::io::Error) -> Failure {
    Failure::Own(Exit::InputOutput, "io", format!("cannot read stdin: {error}"), None)
}

struct Appender {
    session: Session,
    /// The session does not know its format yet.
    names_format: bool,
    /// The beginning of a line whose end has not come yet.
    rest: Vec<u8>,
    damaged: u64,
    line_bytes_max: usize,
}

impl Appender {
    /// Appends the whole lines of `bytes` in one batch.
    fn take(&mut self, bytes: &[u8], output: &mut Output) -> Result<(), Failure> {
        let Some(end) = bytes.iter().rposition(|b| *b == b'\n') else {
            self.rest.extend_from_slice(bytes);
            if self.rest.len() > self.line_bytes_max {
                let message = format!("a line is longer than {} bytes", self.line_bytes_max);
                let hint = "what came before it is appended; check what writes to stdin";
                return Err(Failure::usage(message, hint));
            }
            return Ok(());
        };
        let (whole, rest) = bytes.split_at(end);
        let (_line_end, rest) = rest.split_at(1);
        let mut lines = std::mem::take(&mut self.rest);
        lines.extend_from_slice(whole);
        self.rest.extend_from_slice(rest);
        self.append(&lines, output)
    }

    /// A last line without an end gets one: an append is a whole line.
    fn finish(&mut self, output: &mut Output) -> Result<(), Failure> {
        let rest = std::mem::take(&mut self.rest);
        if rest.is_empty() { Ok(()) } else { self.append(&rest, output) }
    }

    fn append(&mut self, lines: &[u8], output: &mut Output) -> Result<(), Failure> {
        let mut entries = Vec::new();
        for line in lines.split(|b| *b == b'\n') {
            let (line, terminator) = match line {
                [line @ .., b'\r'] => (line, Terminator::CrLf),
                line => (line, Terminator::Lf),
            };
            let (entry, format) = entry(line);
            let entry = entry.terminator(terminator);
            if let (Some(format), true) = (format, self.names_format) {
                let mut attributes = Attributes::default();
                attributes.format = Some(format.to_owned());
                self.session.describe(&attributes)?;
                self.names_format = false;
            }
            self.damaged += u64::from(entry.kind() == Kind::Damaged);
            entries.push(entry);
        }
        let seqs = self.session.append_batch(&entries)?;
        let (first_seq, last_seq) = (*seqs.start(), *seqs.end());
        if output.json {
            output.json(&Acknowledged { first_seq, last_seq, durable: true })?;
        } else {
            output.line(&format!("{first_seq}\t{last_seq}"))?;
        }
        output.flush()
    }
}

/// The entry for a line, and the format of which it is a record.
fn entry(line: &[u8]) -> (Entry<'_>, Option<&'static str>) {
    if line.iter().all(u8::is_ascii_whitespace) {
        return (Entry::new(Kind::Blank, line), None);
    }
    let mut damage = Damage::BadJson;
    for format in format::all() {
        match format.classify(line) {
            Ok(record) => return (record.into_entry(line), Some(format.name())),
            Err(found) => damage = found,
        }
    }
    (Entry::new(Kind::Damaged, line).detail(damage as u8), None)
}
