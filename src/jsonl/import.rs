//! A file into a session.
//!
//! Import is a sync: what the session holds already must be the start of the file, byte for byte; what the
//! file has beyond that is appended. Anything else is a conflict, which changes nothing. So a repeated
//! import adds nothing, an import that was cut off is finished by the next, and no import shortens a session.
//!
//! Every byte of the file is counted as part of a record, a separator or a quarantined span, and the sum is
//! compared with the size of the file. Memory does not grow with the file.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;

use crate::entry::{Entry, Kind, Terminator};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{self, Damage, Format};
use crate::io::{File, Reader};
use crate::log::{EventLog, Session, Ticket};
use crate::memtable::Attributes;

use super::scan::{self, Line, LineError, Lines};

/// How to import.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ImportOptions {
    /// The session to import into, instead of the one that the file names.
    pub session: Option<String>,
    /// The file's path, to be kept as the session's origin.
    pub origin: Option<String>,
    /// Refuse a file with any damage.
    pub strict: bool,
    /// Look, and append nothing.
    pub dry_run: bool,
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// A new session.
    Imported,
    /// The session holds all of it already.
    Unchanged,
    /// The session got what the file has more.
    Grown,
    /// The session holds something else, or more; nothing was changed.
    Conflict,
    /// The file is of no known format, or damaged and `strict` was asked for; nothing was changed.
    Refused,
}

impl Outcome {
    /// The name in `--json` output.
    ///
    /// ```
    /// assert_eq!(eventlog::jsonl::Outcome::Grown.name(), "grown");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Imported => "imported",
            Outcome::Unchanged => "unchanged",
            Outcome::Grown => "grown",
            Outcome::Conflict => "conflict",
            Outcome::Refused => "refused",
        }
    }
}

/// A span that is kept, and is no record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quarantined {
    /// The line, from 1.
    pub line: u64,
    /// Where the span begins in the file.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// What is wrong with it.
    pub reason: Damage,
    /// The event that holds it.
    pub seq: u64,
}

/// What an import found in a file and did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileReport {
    /// What became of it.
    pub outcome: Outcome,
    /// The format's name.
    pub format: Option<&'static str>,
    /// The session.
    pub session: Option<String>,
    /// The size of the file.
    pub bytes: u64,
    /// Records in it.
    pub records: u64,
    /// Records that were appended.
    pub new_records: u64,
    /// Bytes of all records.
    pub record_bytes: u64,
    /// Bytes of line ends, blank lines and a byte-order mark.
    pub separator_bytes: u64,
    /// Bytes of quarantined spans.
    pub quarantined_bytes: u64,
    /// How many spans are quarantined.
    pub quarantined_spans: u64,
    /// The quarantined spans; at most the first 10,000.
    pub quarantined: Vec<Quarantined>,
    /// Lines with nothing but white space.
    pub blank_lines: u64,
    /// Lines that end in `\r\n`.
    pub crlf_lines: u64,
    /// Records that name another session: kept, no part of the conversation.
    pub foreign_records: u64,
    /// The file begins with a byte-order mark.
    pub bom: bool,
    /// The last line has no line end.
    pub unterminated: bool,
    /// Why the outcome is a conflict or a refusal.
    pub message: Option<String>,
}

const QUARANTINED_MAX: usize = 10_000;
/// How much is submitted in one go.
const BATCH_BYTES: usize = 1 << 20;
/// How many batches may be on their way to the disk.
const TICKETS_MAX: usize = 4;

/// Imports a file, calling `progress` with the bytes read so far. Everything that was appended is durable when this
/// returns. Bytes that are appended to the file meanwhile are left for the next import.
///
/// # Errors
///
/// `Io`, `Full`, `TooLarge` for a line over the log's limit, those of [`Session::append`]. What had been
/// appended before the error stays; importing again goes on there.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use eventlog::{EventLog, io::{Dir, OpenMode, StdDir}, jsonl::{self, ImportOptions, Outcome}};
///
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-import-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// # let line = r#"{"event_id": "e", "timestamp": "t", "session_id": "s", "run_id": "r", "step": 0, "event_type": "message", "payload": {}}"#;
/// # std::fs::write(dir.join("transcript.jsonl"), format!("{line}\n")).unwrap();
/// let log = EventLog::open(dir.join("log"))?;
/// let file = StdDir::open(&dir).and_then(|dir| dir.open("transcript.jsonl", OpenMode::Read)).unwrap();
/// let report = jsonl::import(&log, file.clone(), &ImportOptions::default(), &mut |_| {})?;
/// assert_eq!((report.outcome, report.records), (Outcome::Imported, 1));
/// let again = jsonl::import(&log, file, &ImportOptions::default(), &mut |_| {})?;
/// assert_eq!(again.outcome, Outcome::Unchanged);
/// # log.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
pub fn import(
    log: &EventLog,
    file: Arc<dyn File>,
    options: &ImportOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<FileReport> {
    let size = file.len().map_err(|e| Error::io("cannot read the file", e))?;
    let source = Source { file, size, limit: log.max_entry_bytes() };
    let mut report = FileReport::new(size);
    let Some((format, inferred)) = source.recognise()? else {
        return Ok(report.refused("no line of the file is a record of a known format"));
    };
    report.format = Some(format.name());
    // Under another name the lines still belong to the session that they say.
    let lane = inferred.clone();
    let id = options.session.clone().or(inferred);
    let Some(id) = id.filter(|id| !id.is_empty()) else {
        return Ok(report.refused("no record of the file names a session; say which with --as"));
    };
    report.session = Some(id.clone());
    let lane = lane.unwrap_or_else(|| id.clone());
    let session = match log.session(&id) {
        Err(error) if error.kind() == ErrorKind::Usage => {
            return Ok(report.refused(&format!("{error}; choose another with --as")));
        }
        other => other?,
    };
    let known = match source.compare(log, &id)? {
        Compared::Prefix(bytes) => bytes,
        Compared::Conflict(message) => {
            let mut sink = Sink::dry(u64::MAX);
            report.outcome = Outcome::Conflict;
            report.message = Some(message);
            return source.scan(format, &lane, report, &mut sink, progress);
        }
    };
    let head = session.head();
    if options.strict {
        let mut sink = Sink::dry(known);
        let found = source.scan(format, &lane, report.clone(), &mut sink, &mut |_| {})?;
        if let Some(first) = found.quarantined.first() {
            let (line, reason) = (first.line, first.reason.name());
            let message = format!("line {line} is damaged ({reason})");
            return Ok(found.refused(&message));
        }
    }
    report.outcome = match (known, size) {
        (known, size) if known == size && head > 0 => Outcome::Unchanged,
        (0, _) if head == 0 => Outcome::Imported,
        _ => Outcome::Grown,
    };
    let attributes = Attributes {
        format: Some(format.name().to_owned()),
        origin: options.origin.clone(),
        ..Attributes::default()
    };
    let mut sink = match options.dry_run {
        true => Sink::dry(known),
        false => Sink::into(&session, known, attributes),
    };
    let report = source.scan(format, &lane, report, &mut sink, progress)?;
    sink.finish()?;
    Ok(report)
}

enum Compared {
    /// The session holds exactly the first so many bytes of the file.
    Prefix(u64),
    Conflict(String),
}

struct Source {
    file: Arc<dyn File>,
    size: u64,
    limit: usize,
}

impl Source {
    /// The content up to the size that the file had when the import began.
    fn reader(&self) -> impl Read + use<> {
        Reader::new(self.file.clone()).take(self.size)
    }

    fn lines(&self) -> Lines<impl Read + use<>> {
        Lines::new(self.reader(), self.limit)
    }

    fn line_error(&self, error: LineError) -> Error {
        match error {
            LineError::Io(e) => Error::io("cannot read the file", e),
            LineError::TooLong(line) => Error::new(
                ErrorKind::TooLarge,
                format!("line {line} is longer than max_entry_bytes ({})", self.limit),
            ),
        }
    }

    /// The format of the first line that is a record, and the session of the first record that names one.
    fn recognise(&self) -> Result<Option<(&'static dyn Format, Option<String>)>> {
        let mut lines = self.lines();
        let mut found: Option<&'static dyn Format> = None;
        while let Some(line) = lines.next_line().map_err(|e| self.line_error(e))? {
            let Some(format) = found.or_else(|| format::recognise(line.bytes)) else { continue };
            found = Some(format);
            let session = format.classify(line.bytes).ok().and_then(|record| record.session);
            if let Some(session) = session.filter(|session| !session.is_empty()) {
                return Ok(Some((format, Some(session.into_owned()))));
            }
        }
        Ok(found.map(|format| (format, None)))
    }

    /// Compares the file with what the session holds.
    fn compare(&self, log: &EventLog, id: &str) -> Result<Compared> {
        let snapshot = log.snapshot()?;
        let Some(session) = snapshot.session(id)? else { return Ok(Compared::Prefix(0)) };
        if session.bytes > self.size {
            return Ok(Compared::Conflict(format!(
                "the file has {} bytes, the session holds {}: the file was cut or is another one",
                self.size, session.bytes
            )));
        }
        let mut reader = std::io::BufReader::with_capacity(BATCH_BYTES, self.reader());
        let mut buffer = Vec::new();
        let mut offset = 0u64;
        for event in snapshot.read(id, ..)? {
            let event = event?;
            for expected in [event.bytes(), event.terminator().as_bytes()] {
                buffer.resize(expected.len(), 0);
                reader.read_exact(&mut buffer).map_err(|e| Error::io("cannot read the file", e))?;
                if buffer != expected {
                    let equal = buffer.iter().zip(expected).take_while(|(a, b)| a == b).count();
                    let offset = offset + equal as u64;
                    return Ok(Compared::Conflict(format!(
                        "the file differs from the session in event {}, at byte {offset}",
                        event.seq()
                    )));
                }
                offset += expected.len() as u64;
            }
        }
        Ok(Compared::Prefix(offset))
    }

    /// Reads the whole file, counts every byte, and gives what is new to `sink`.
    fn scan(
        &self,
        format: &dyn Format,
        lane: &str,
        mut report: FileReport,
        sink: &mut Sink<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<FileReport> {
        let mut lines = self.lines();
        let mut seq = 0;
        while let Some(line) = lines.next_line().map_err(|e| self.line_error(e))? {
            let classified = scan::classify(&line, format, lane);
            let end = line.offset + (line.bytes.len() + line.terminator.as_bytes().len()) as u64;
            report.count(&line, &classified, seq);
            let is_record = !matches!(classified.entry.kind, Kind::Blank | Kind::Damaged);
            if sink.put(&line, end, classified.entry)? && is_record {
                report.new_records += 1;
            }
            seq += 1;
            progress(end);
        }
        let sum = report.record_bytes + report.separator_bytes + report.quarantined_bytes;
        if sum != self.size {
            let message = format!(
                "the file had {} bytes when the import began, and {sum} when it ended: it is being cut",
                self.size
            );
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        Ok(report)
    }
}

impl FileReport {
    fn new(bytes: u64) -> FileReport {
        FileReport {
            outcome: Outcome::Refused,
            format: None,
            session: None,
            bytes,
            records: 0,
            new_records: 0,
            record_bytes: 0,
            separator_bytes: 0,
            quarantined_bytes: 0,
            quarantined_spans: 0,
            quarantined: Vec::new(),
            blank_lines: 0,
            crlf_lines: 0,
            foreign_records: 0,
            bom: false,
            unterminated: false,
            message: None,
        }
    }

    fn refused(mut self, why: &str) -> FileReport {
        self.outcome = Outcome::Refused;
        self.message = Some(why.to_owned());
        self
    }

    fn count(&mut self, line: &Line<'_>, classified: &scan::Classified<'_>, seq: u64) {
        let length = line.bytes.len() as u64;
        self.separator_bytes += line.terminator.as_bytes().len() as u64;
        self.crlf_lines += u64::from(line.terminator == Terminator::CrLf);
        self.unterminated = line.terminator == Terminator::None;
        match (classified.entry.kind, classified.damage) {
            (Kind::Blank, _) if scan::is_bom(line) => {
                self.bom = true;
                self.unterminated = false;
                self.separator_bytes += length;
            }
            (Kind::Blank, _) => {
                self.blank_lines += 1;
                self.separator_bytes += length;
            }
            (_, Some(reason)) => {
                self.quarantined_bytes += length;
                self.quarantined_spans += 1;
                if self.quarantined.len() < QUARANTINED_MAX {
                    let (line, offset) = (line.number, line.offset);
                    self.quarantined.push(Quarantined { line, offset, length, reason, seq });
                }
            }
            _ => {
                self.records += 1;
                self.record_bytes += length;
                self.foreign_records += u64::from(classified.session.is_some());
            }
        }
    }
}

/// Where new lines go: batches on their way to the disk, a few at a time.
struct Sink<'s> {
    session: Option<&'s Session>,
    /// The session holds the file up to here.
    known: u64,
    attributes: Option<Attributes>,
    batch: Vec<Entry<'static>>,
    bytes: usize,
    tickets: VecDeque<Ticket>,
}

impl<'s> Sink<'s> {
    fn dry(known: u64) -> Sink<'s> {
        Sink {
            session: None,
            known,
            attributes: None,
            batch: Vec::new(),
            bytes: 0,
            tickets: VecDeque::new(),
        }
    }

    fn into(session: &'s Session, known: u64, attributes: Attributes) -> Sink<'s> {
        Sink { session: Some(session), attributes: Some(attributes), ..Sink::dry(known) }
    }

    /// Takes a line, and says whether it is new.
    fn put(&mut self, line: &Line<'_>, end: u64, entry: Entry<'_>) -> Result<bool> {
        if end <= self.known {
            return Ok(false);
        }
        // A last line that had no end when it was imported and has grown since.
        let done = self.known.saturating_sub(line.offset) as usize;
        let entry = match line.bytes.get(done..) {
            _ if done == 0 => entry,
            Some([]) => Entry::new(Kind::Blank, &b""[..]).terminator(line.terminator),
            Some(rest) => Entry::new(Kind::Damaged, rest)
                .terminator(line.terminator)
                .detail(Damage::BadJson as u8),
            // Its `\r` is known, its `\n` is not.
            None => Entry::new(Kind::Blank, &b""[..]).terminator(Terminator::Lf),
        };
        let new = done == 0;
        if self.session.is_some() {
            self.bytes += entry.bytes.len();
            self.batch.push(owned(entry));
            if self.bytes >= BATCH_BYTES || self.batch.len() >= 4096 {
                self.submit()?;
            }
        }
        Ok(new)
    }

    fn submit(&mut self) -> Result<()> {
        let Some(session) = self.session else { return Ok(()) };
        if self.batch.is_empty() {
            return Ok(());
        }
        if self.tickets.len() >= TICKETS_MAX
            && let Some(ticket) = self.tickets.pop_front()
        {
            ticket.wait()?;
        }
        let attributes = self.attributes.take();
        self.tickets.push_back(session.submit_described(&self.batch, attributes.as_ref())?);
        self.batch.clear();
        self.bytes = 0;
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        self.submit()?;
        self.tickets.into_iter().try_for_each(|ticket| ticket.wait().map(drop))
    }
}

fn owned(entry: Entry<'_>) -> Entry<'static> {
    Entry {
        kind: entry.kind,
        terminator: entry.terminator,
        user_turn: entry.user_turn,
        detail: entry.detail,
        run: entry.run.map(|run| run.into_owned().into()),
        bytes: entry.bytes.into_owned().into(),
    }
}
