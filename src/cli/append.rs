//! `eventlog append`: lines from stdin into a session, acknowledged as they become durable.

use std::io::BufRead;

use clap::Args;
use eventlog::format::{self, Damage, Format, Plain};
use eventlog::{Attributes, Entry, Kind, Session, Terminator, jsonl};
use serde::Serialize;

use super::output::{Output, plural};
use super::{Exit, Failure, Global, place};

/// Append JSONL lines from stdin to a session
///
/// Reads stdin as it comes, appends what is there as one batch, and prints the seqs of a batch as
/// soon as it is durable. The session's format is that of most of the lines that come first. What
/// is no JSON or no whole record is appended as damaged, a line of something else as other.
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
        let named = session.attributes()?.and_then(|known| known.format);
        let names_format = named.as_deref().is_none_or(|named| named == Plain.name());
        let format = named.as_deref().and_then(format::by_name).unwrap_or(&Plain);
        let mut appender = Appender {
            session,
            format,
            names_format,
            rest: Vec::new(),
            damaged: 0,
            line_bytes_max,
        };
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
            output.warn(&format!("appended as damaged, being no JSON or no whole record: {lines}"));
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
    format: &'static dyn Format,
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
        if !rest.is_empty() {
            self.append(&rest, output)?;
        }
        if self.names_format && self.session.head() > 0 {
            self.name_format(&Plain)?;
        }
        Ok(())
    }

    /// Writes down the format of the session.
    fn name_format(&self, format: &dyn Format) -> Result<(), Failure> {
        let mut attributes = Attributes::default();
        attributes.format = Some(format.name().to_owned());
        Ok(self.session.describe(&attributes)?)
    }

    fn append(&mut self, lines: &[u8], output: &mut Output) -> Result<(), Failure> {
        if self.names_format
            && let Some(format) = jsonl::recognise_bytes(lines)
        {
            self.name_format(format)?;
            self.format = format;
            self.names_format = false;
        }
        let mut entries = Vec::new();
        for line in lines.split(|b| *b == b'\n') {
            let (line, terminator) = match line {
                [line @ .., b'\r'] => (line, Terminator::CrLf),
                line => (line, Terminator::Lf),
            };
            let entry = entry(line, self.format).terminator(terminator);
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

/// The entry for a line of a session of this format.
fn entry<'l>(line: &'l [u8], format: &dyn Format) -> Entry<'l> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Entry::new(Kind::Blank, line);
    }
    match format.classify(line) {
        Ok(record) => record.into_entry(line),
        Err(Damage::SchemaMismatch | Damage::NotAnObject) if format.is_foreign(line) => {
            Entry::new(Kind::Other, line)
        }
        Err(damage) => Entry::new(Kind::Damaged, line).detail(damage as u8),
    }
}
