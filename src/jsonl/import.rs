//! A file into a session.
//!
//! Import is a sync: what the session holds already must be the start of the file, byte for byte;
//! what the file has beyond that is appended. Anything else is a conflict, which changes nothing.
//! So a repeated import adds nothing, an import that was cut off is finished by the next, and no
//! import shortens a session.
//!
//! Every byte of the file is counted as part of a record, a separator or a quarantined span, and
//! the sum is compared with the size of the file. Memory does not grow with the file.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;

use crate::entry::{Entry, Kind, StoredEntry, Terminator};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{self, Damage, Format};
use crate::io::{File, Reader};
use crate::log::commit::Addition;
use crate::log::session::check_id;
use crate::log::{EventLog, Session, Snapshot, Ticket};
use crate::memtable::Attributes;

use super::scan::{self, LineError, Lines};

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

/// Imports a file, calling `progress` with the bytes read so far. Everything that was appended is
/// durable when this returns. Bytes that are appended to the file meanwhile are left for the next
/// import.
///
/// # Errors
///
/// `Io`, `Full`, `TooLarge` for a line over the log's limit, those of [`Session::append`]. What had
/// been appended before the error stays; importing again goes on there.
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
    let session = |id: &str| if options.dry_run { Ok(None) } else { log.session(id).map(Some) };
    run(Some(log), &session, file, options, progress)
}

/// What an import into a log that does not exist yet would do.
///
/// # Errors
///
/// Those of [`import`], as far as reading goes.
pub fn examine(
    file: Arc<dyn File>,
    options: &ImportOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<FileReport> {
    run(None, &|_| Ok(None), file, options, progress)
}

/// Line limit where there is no log to have one.
const LINE_BYTES_MAX: usize = 256 << 20;

fn run(
    log: Option<&EventLog>,
    open_session: &dyn Fn(&str) -> Result<Option<Session>>,
    file: Arc<dyn File>,
    options: &ImportOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<FileReport> {
    let size = file.len().map_err(|e| Error::io("cannot read the file", e))?;
    let limit = log.map_or(LINE_BYTES_MAX, EventLog::max_entry_bytes);
    let source = Source { file, size, limit };
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
    if let Err(error) = check_id(&id) {
        return Ok(report.refused(&format!("{error}; choose another with --as")));
    }
    let session = open_session(&id)?;
    let subject = Subject { format, lane: &lane };
    let snapshot = log.map(EventLog::snapshot).transpose()?;
    let (mut tally, mut reader) = match source.compare(snapshot.as_ref(), &id, subject, &report)? {
        Compared::Prefix(tally, reader) => (tally, reader),
        Compared::Conflict(message) => {
            report.outcome = Outcome::Conflict;
            report.message = Some(format!("{message}; --as NEW_ID keeps both"));
            let mut tally = Tally::new(report);
            source.scan(subject, &mut source.reader(), &mut tally, None, progress)?;
            return Ok(FileReport { new_records: 0, ..tally.report });
        }
    };
    drop(snapshot);
    if options.strict {
        let mut trial = tally.clone();
        source.scan(subject, &mut source.reader_at(tally.offset), &mut trial, None, &mut |_| {})?;
        if let Some(first) = trial.report.quarantined.first() {
            let (line, reason) = (first.line, first.reason.name());
            let message = format!("line {line} is damaged ({reason})");
            return Ok(FileReport { new_records: 0, ..trial.report.refused(&message) });
        }
    }
    tally.report.outcome = match tally.seq {
        0 => Outcome::Imported,
        _ if tally.offset == size => Outcome::Unchanged,
        _ => Outcome::Grown,
    };
    let mut sink = session.as_ref().map(|session| Sink {
        session,
        head: tally.seq,
        attributes: Some(Attributes {
            format: Some(format.name().to_owned()),
            origin: options.origin.clone(),
            ..Attributes::default()
        }),
        batch: Vec::new(),
        bytes: 0,
        tickets: VecDeque::new(),
    });
    source.scan(subject, &mut reader, &mut tally, sink.as_mut(), progress)?;
    if let Some(sink) = sink {
        sink.finish()?;
    }
    Ok(tally.report)
}

/// What the lines of a file are looked at as.
#[derive(Clone, Copy)]
struct Subject<'a> {
    format: &'static dyn Format,
    /// The session that the lines say they belong to.
    lane: &'a str,
}

enum Compared {
    /// The session holds exactly what has been counted; the reader goes on behind it.
    Prefix(Tally, Box<dyn Read>),
    Conflict(String),
}

struct Source {
    file: Arc<dyn File>,
    size: u64,
    limit: usize,
}

impl Source {
    /// The content up to the size that the file had when the import began.
    fn reader(&self) -> Box<dyn Read> {
        self.reader_at(0)
    }

    fn reader_at(&self, offset: u64) -> Box<dyn Read> {
        Box::new(Reader::at(self.file.clone(), offset).take(self.size.saturating_sub(offset)))
    }

    fn line_error(&self, error: LineError) -> Error {
        match error {
            LineError::Io(e) => Error::io("cannot read the file", e),
            LineError::TooLong(line) => Error::new(
                ErrorKind::TooLarge,
                format!("line {line} is longer than max_entry_bytes ({})", self.limit),
            )
            .with_hint("a larger limit can be set with `Builder::max_entry_bytes`"),
        }
    }

    /// The format of the first line that is a record, and the session of the first record that
    /// names one.
    fn recognise(&self) -> Result<Option<(&'static dyn Format, Option<String>)>> {
        let mut lines = Lines::new(self.reader(), self.limit);
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

    /// Compares the file with what the session holds, and counts that.
    fn compare(
        &self,
        snapshot: Option<&Snapshot>,
        id: &str,
        subject: Subject<'_>,
        report: &FileReport,
    ) -> Result<Compared> {
        let mut tally = Tally::new(report.clone());
        let mut reader = std::io::BufReader::with_capacity(BATCH_BYTES, self.reader());
        let session = snapshot.map_or(Ok(None), |snapshot| snapshot.session(id))?;
        let (Some(snapshot), Some(session)) = (snapshot, session) else {
            return Ok(Compared::Prefix(tally, Box::new(reader)));
        };
        if session.bytes > self.size {
            return Ok(Compared::Conflict(format!(
                "the file has {} bytes, the session holds {}: the file was cut or is another one",
                self.size, session.bytes
            )));
        }
        let mut buffer = Vec::new();
        for event in snapshot.read(id, ..)? {
            let event = event?;
            let mut offset = tally.offset;
            for expected in [event.bytes(), event.terminator().as_bytes()] {
                buffer.resize(expected.len(), 0);
                reader.read_exact(&mut buffer).map_err(|e| Error::io("cannot read the file", e))?;
                if buffer != expected {
                    let equal = buffer.iter().zip(expected).take_while(|(a, b)| a == b).count();
                    return Ok(Compared::Conflict(format!(
                        "the file differs from the session in event {}, at byte {}",
                        event.seq(),
                        offset + equal as u64
                    )));
                }
                offset += expected.len() as u64;
            }
            tally.count_stored(&event, subject);
        }
        tally.report.new_records = 0;
        Ok(Compared::Prefix(tally, Box::new(reader)))
    }

    /// Reads on from where the tally is, counts every byte, and gives what is new to `sink`.
    fn scan(
        &self,
        subject: Subject<'_>,
        reader: &mut dyn Read,
        tally: &mut Tally,
        mut sink: Option<&mut Sink<'_>>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let mut lines = Lines::resume(reader, self.limit, tally.offset, tally.line - 1);
        while let Some(line) = lines.next_line().map_err(|e| self.line_error(e))? {
            let span = match tally.at_line_start {
                true => scan::classify(&line, subject.format, subject.lane),
                // A last line that had no end when it was imported and has grown since: what was
                // kept of it stays as it is.
                false => scan::continuation(&line),
            };
            tally.count(&span);
            if let Some(sink) = &mut sink {
                sink.put(span.entry)?;
            }
            progress(tally.offset);
        }
        if tally.offset != self.size {
            let message = format!(
                "the file had {} bytes when the import began, and {} when it ended: it is being cut",
                self.size, tally.offset
            );
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        let report = &tally.report;
        let sum = report.record_bytes + report.separator_bytes + report.quarantined_bytes;
        assert_eq!(sum, self.size, "every byte is part of something");
        Ok(())
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
}

/// The report as far as the file has been counted.
#[derive(Clone)]
struct Tally {
    report: FileReport,
    offset: u64,
    /// From 1.
    line: u64,
    at_line_start: bool,
    /// The seq of the next event.
    seq: u64,
}

impl Tally {
    fn new(report: FileReport) -> Tally {
        Tally { report, offset: 0, line: 1, at_line_start: true, seq: 0 }
    }

    /// Counts an event that the session holds.
    fn count_stored(&mut self, event: &StoredEntry, subject: Subject<'_>) {
        let entry = Entry::new(event.kind(), event.bytes()).terminator(event.terminator());
        let damage = (event.kind() == Kind::Damaged)
            .then(|| Damage::from_code(event.detail()).unwrap_or(Damage::BadJson));
        let foreign = event.kind() == Kind::Other
            && subject
                .format
                .classify(event.bytes())
                .is_ok_and(|record| record.session.is_some_and(|session| session != subject.lane));
        self.count(&scan::Span { entry, damage, foreign });
    }

    fn count(&mut self, span: &scan::Span<'_>) {
        let report = &mut self.report;
        let (entry, length) = (&span.entry, span.entry.bytes.len() as u64);
        let ends_line = entry.terminator != Terminator::None;
        let is_bom = self.offset == 0 && scan::is_bom(&entry.bytes);
        report.separator_bytes += entry.terminator.as_bytes().len() as u64;
        report.crlf_lines += u64::from(entry.terminator == Terminator::CrLf);
        report.unterminated = !ends_line && !is_bom;
        match (entry.kind, span.damage) {
            (Kind::Blank, _) => {
                report.bom |= is_bom;
                report.blank_lines += u64::from(self.at_line_start && !is_bom);
                report.separator_bytes += length;
            }
            (_, Some(reason)) => {
                report.quarantined_bytes += length;
                report.quarantined_spans += 1;
                if report.quarantined.len() < QUARANTINED_MAX {
                    let (line, offset, seq) = (self.line, self.offset, self.seq);
                    report.quarantined.push(Quarantined { line, offset, length, reason, seq });
                }
            }
            _ => {
                report.records += 1;
                report.new_records += 1;
                report.record_bytes += length;
                report.foreign_records += u64::from(span.foreign);
            }
        }
        self.offset += length + entry.terminator.as_bytes().len() as u64;
        self.line += u64::from(ends_line);
        self.at_line_start = ends_line || is_bom;
        self.seq += 1;
    }
}

/// Where new lines go: batches on their way to the disk, a few at a time. Each is handed over only
/// as the successor of the one before: when one fails, or somebody else appends to the session
/// meanwhile, nothing of the file comes after the hole.
struct Sink<'s> {
    session: &'s Session,
    /// The seq of the first event of the next batch.
    head: u64,
    attributes: Option<Attributes>,
    batch: Vec<Entry<'static>>,
    bytes: usize,
    tickets: VecDeque<Ticket>,
}

impl Sink<'_> {
    fn put(&mut self, entry: Entry<'_>) -> Result<()> {
        self.bytes += entry.bytes.len();
        self.batch.push(owned(entry));
        if self.bytes >= BATCH_BYTES || self.batch.len() >= 4096 { self.submit() } else { Ok(()) }
    }

    fn submit(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        if self.tickets.len() >= TICKETS_MAX
            && let Some(ticket) = self.tickets.pop_front()
        {
            ticket.wait()?;
        }
        let attributes = self.attributes.take();
        let addition = Addition {
            entries: &self.batch,
            attributes: attributes.as_ref(),
            expected: Some(self.head),
        };
        match self.session.submit_all(addition) {
            Ok(ticket) => self.tickets.push_back(ticket),
            Err(error) => {
                // An earlier batch may know better why.
                self.settle()?;
                return Err(error);
            }
        }
        self.head += self.batch.len() as u64;
        self.batch.clear();
        self.bytes = 0;
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        self.tickets.drain(..).try_for_each(|ticket| ticket.wait().map(drop))
    }

    fn finish(mut self) -> Result<()> {
        self.submit()?;
        self.settle()
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
