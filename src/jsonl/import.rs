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

use crate::bytes::within;
use crate::entry::{Entry, Kind, StoredEntry, Terminator};
use crate::error::{Error, ErrorKind, Result};
use crate::finding::{Code, Finding};
use crate::format::{Damage, Format, Notes, Plain, Record};
use crate::io::{File, Reader};
use crate::log::commit::Addition;
use crate::log::session::check_id;
use crate::log::{EventLog, Session, Snapshot, Ticket};
use crate::memtable::Attributes;

use super::beside::Beside;
use super::file_events::FileEvents;
use super::lines::{LINE_BYTES_MAX, Lines};
use super::recognise::{Recognised, by_name, is_known, recognise};
use super::report::{FileReport, Outcome, Tally};
use super::scan::{Span, Subject, What, scan_line};

/// How to import.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ImportOptions {
    /// The session to import into, instead of the one that the file names.
    pub session: Option<String>,
    /// Refuse a file with any damage.
    pub strict: bool,
    /// Look, and append nothing.
    pub dry_run: bool,
    /// Leave a last line that is cut off to a later import: the file is still being written.
    pub hold_tail: bool,
    /// What is known of the file from beside it.
    pub beside: Beside,
}

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
/// `Io`, `Full`, those of [`Session::append`]. What had been appended before the error stays;
/// importing again goes on there.
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
    Import { log: Some(log), source: Source::file(file, log.max_entry_bytes())?, options }
        .run(progress)
}

/// [`import`] of bytes in memory.
///
/// # Errors
///
/// Those of [`import`].
pub fn import_bytes(log: &EventLog, bytes: &[u8], options: &ImportOptions) -> Result<FileReport> {
    let source = Source::bytes(bytes, log.max_entry_bytes());
    Import { log: Some(log), source, options }.run(&mut |_| {})
}

/// [`examine`] of bytes in memory.
///
/// # Errors
///
/// Those of [`examine`].
pub fn examine_bytes(bytes: &[u8], options: &ImportOptions) -> Result<FileReport> {
    let source = Source::bytes(bytes, LINE_BYTES_MAX);
    let options = &ImportOptions { dry_run: true, ..options.clone() };
    Import { log: None, source, options }.run(&mut |_| {})
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
    let source = Source::file(file, LINE_BYTES_MAX)?;
    let options = &ImportOptions { dry_run: true, ..options.clone() };
    Import { log: None, source, options }.run(progress)
}

/// One import of one file.
struct Import<'a> {
    log: Option<&'a EventLog>,
    source: Source,
    options: &'a ImportOptions,
}

/// A file that has been imported so far, to go on with when it has grown.
#[derive(Debug)]
pub(super) struct Standing {
    format: &'static dyn Format,
    /// The session.
    id: String,
    /// The session that the records say they belong to.
    named: String,
    tally: Tally,
    /// Of the file's last bytes before where the tally is.
    checksum: u32,
}

/// How many bytes before its end tell whether a file is still the one that it was.
const CHECKED_BYTES: u64 = 4 << 10;

/// Imports the file, and says where that ends, for a next time.
pub(super) fn import_standing(
    log: &EventLog,
    file: Arc<dyn File>,
    options: &ImportOptions,
    standing: Option<Standing>,
    progress: &mut dyn FnMut(u64),
) -> Result<(FileReport, Option<Standing>)> {
    let source = Source::file(file, log.max_entry_bytes())?;
    let import = Import { log: Some(log), source, options };
    if let Some(mut standing) = standing
        && import.stands(&standing)?
    {
        let before = standing.tally.seq;
        standing.tally.report.new_records = 0;
        let report = import.go_on(&mut standing, &[], progress)?;
        let outcome = match () {
            () if standing.tally.seq == before => Outcome::Unchanged,
            () => Outcome::Grown,
        };
        let settled = standing.tally.at_line_start;
        return Ok((FileReport { outcome, ..report }, settled.then_some(standing)));
    }
    import.begin(progress)
}

impl Import<'_> {
    fn run(&self, progress: &mut dyn FnMut(u64)) -> Result<FileReport> {
        self.begin(progress).map(|(report, _)| report)
    }

    /// Whether the file and the session are where `standing` left them, and the file may be longer.
    fn stands(&self, standing: &Standing) -> Result<bool> {
        let head = self.log.map(|log| log.session(&standing.id).map(|session| session.head()));
        Ok(self.source.size >= standing.tally.offset
            && head.transpose()? == Some(standing.tally.seq)
            && self.source.checksum_before(standing.tally.offset)? == standing.checksum)
    }

    fn begin(&self, progress: &mut dyn FnMut(u64)) -> Result<(FileReport, Option<Standing>)> {
        let options = self.options;
        let mut report = FileReport::new(self.source.size);
        options.beside.findings.iter().for_each(|finding| report.note(finding.clone()));
        let refused = |report: FileReport, why: &str| Ok((report.refused(why), None));
        let from = |offset| self.source.reader(offset);
        let Some(found) = recognise(&from, self.source.size, self.source.limit)? else {
            // What is in the file is told all the same.
            let mut tally = Tally::new(report, None);
            let subject = Subject { format: &Plain, session: "" };
            self.scan(subject, &mut tally, &[], None, progress)?;
            let report = FileReport { new_records: 0, ..tally.report() };
            if report.quarantined_bytes == 0 && !options.strict {
                // A session that has just begun.
                let message = Some("there is nothing in the file yet".to_owned());
                return Ok((FileReport { outcome: Outcome::Unchanged, message, ..report }, None));
            }
            return refused(
                report,
                "no line of the file is a record of a known format; `eventlog repair` tells what is in it",
            );
        };
        let snapshot = self.log.map(EventLog::snapshot).transpose()?;
        let kept = snapshot.as_ref().map_or(Ok(None), |log| self.kept_as(log, &found))?;
        report.format = Some(kept.as_ref().map_or(found.format, |(format, _)| *format).name());
        if options.hold_tail && kept.is_none() && !found.is_known() && found.is_short {
            return refused(report, "the file has too little in it to tell its format");
        }
        let (format, id) = kept.map_or((found.format, None), |(format, id)| (format, Some(id)));
        // Under another name the records still belong to the session that they say.
        let inferred = found.named(format).map(str::to_owned);
        let named = inferred.or_else(|| options.beside.session.clone());
        if options.session.as_deref() == Some("") {
            return refused(report, "a session id must not be empty; give another with --as");
        }
        let id = options.session.clone().or(id).or_else(|| named.clone());
        let Some(id) = id.filter(|id| !id.is_empty()) else {
            return refused(report, "no record of the file names a session; say which with --as");
        };
        report.session = Some(id.clone());
        if let Err(error) = check_id(&id) {
            return refused(report, &format!("{error}; choose another with --as"));
        }
        if super::layout::file_name(&id) != id {
            let message = "the session's id cannot be a file name; exports get an encoded one";
            report.note(Finding::new(Code::UnsafeSessionId, message));
        }
        let named = named.unwrap_or_else(|| id.clone());
        let subject = Subject { format, session: &named };
        // A description beside a file is that of recursive-agent.
        let meta = options.beside.meta.as_ref().filter(|_| is_known(format));
        let new_tally = |report| Tally::new(report, meta).plain(!is_known(format));
        let there = snapshot.as_ref().map_or(Ok(None), |log| log.session(&id))?;
        let was_rewound = there.as_ref().is_some_and(|there| !there.rewinds().is_empty());
        if let Some(there) = there
            && let Err(error) = crate::sessions::refuse_deleted(&there)
        {
            let why = format!(
                "{error}; `eventlog delete --undo` brings it back, --as NEW_ID imports beside it"
            );
            return refused(report, &why);
        }
        let mut tally = new_tally(report.clone());
        let torn_end = match self.compare(snapshot.as_ref(), &id, subject, &mut tally)? {
            Compared::Prefix(torn_end) => torn_end,
            Compared::Conflict(message) => {
                report.outcome = Outcome::Conflict;
                report.message = Some(format!("{message}; --as NEW_ID keeps both"));
                let mut tally = new_tally(report);
                self.scan(subject, &mut tally, &[], None, progress)?;
                return Ok((FileReport { new_records: 0, ..tally.report() }, None));
            }
        };
        drop(snapshot);
        if was_rewound {
            let mut trial = tally.clone();
            self.scan(subject, &mut trial, &torn_end, None, &mut |_| {})?;
            if trial.seq > tally.seq {
                // The file goes on from what was taken back.
                let message = "the session was rewound in the log, and the file has gone on; \
                               `eventlog rewind --undo` takes that back, --as NEW_ID imports beside it";
                let outcome = Outcome::Conflict;
                let message = Some(message.to_owned());
                return Ok((
                    FileReport { outcome, message, new_records: 0, ..trial.report() },
                    None,
                ));
            }
        }
        if options.strict {
            let mut trial = tally.clone();
            self.scan(subject, &mut trial, &torn_end, None, &mut |_| {})?;
            if let Some(fault) = trial.fault {
                let (line, offset, code) = (fault.line, fault.offset, fault.code);
                let message = format!("line {line} is refused: {code}, at byte {offset}");
                return refused(FileReport { new_records: 0, ..trial.report() }, &message);
            }
        }
        let is_new = tally.seq == 0 && torn_end.is_empty();
        let before = torn_end.last().map_or(tally.seq, |event| event.seq() + 1);
        let mut standing = Standing { format, id, named, tally, checksum: 0 };
        let report = self.go_on(&mut standing, &torn_end, progress)?;
        let outcome = match () {
            () if is_new => Outcome::Imported,
            () if standing.tally.seq == before => Outcome::Unchanged,
            () => Outcome::Grown,
        };
        let report = FileReport { outcome, ..report };
        // What a torn end becomes is for a new comparison to see.
        let settled = torn_end.is_empty() && standing.tally.at_line_start;
        Ok((report, settled.then_some(standing)))
    }

    /// The session that was imported from the beginning of this file when that was taken for another
    /// format, and the format that it goes on with: what has been appended is not made anew. The
    /// format that the file is taken for now only where the session has the same name then, and
    /// everything in it is kept as it would be.
    fn kept_as(
        &self,
        snapshot: &Snapshot,
        found: &Recognised,
    ) -> Result<Option<(&'static dyn Format, String)>> {
        let named = found.named(found.format).or(self.options.beside.session.as_deref());
        let own = self.options.session.as_deref().or(named);
        let others = found.all_named().chain(self.options.beside.session.as_deref());
        let others = others.filter(|_| self.options.session.is_none());
        for id in own.into_iter().chain(others) {
            let Some(session) = snapshot.session(id)? else { continue };
            let format = session.attributes.format.as_deref().and_then(by_name);
            let Some(format) = format.filter(|_| session.attributes.origin.is_some()) else {
                continue;
            };
            if format.name() == found.format.name() {
                match Some(id) == own {
                    true => return Ok(None),
                    false => continue,
                }
            }
            let Some(first) = snapshot.read(id, ..)?.next().transpose()? else { continue };
            let mut bytes = Vec::new();
            let mut reader = self.source.reader(0).take(first.bytes().len() as u64);
            reader.read_to_end(&mut bytes).map_err(cannot_read)?;
            if bytes != first.bytes() {
                continue;
            }
            let same =
                Some(id) == own && super::verify::difference(snapshot, id, found.format)?.is_none();
            return Ok(Some((if same { found.format } else { format }, id.to_owned())));
        }
        Ok(None)
    }

    /// Appends what the file has beyond what is standing.
    fn go_on(
        &self,
        standing: &mut Standing,
        torn_end: &[StoredEntry],
        progress: &mut dyn FnMut(u64),
    ) -> Result<FileReport> {
        let session = match self.log {
            Some(log) if !self.options.dry_run => Some(log.session(&standing.id)?),
            _ => None,
        };
        let head = torn_end.last().map_or(standing.tally.seq, |event| event.seq() + 1);
        let mut sink = session.as_ref().map(|session| Sink {
            session,
            head,
            attributes: Some(self.attributes(standing.format)),
            batch: Vec::new(),
            bytes: 0,
            tickets: VecDeque::new(),
        });
        let subject = Subject { format: standing.format, session: &standing.named };
        let scanned = self.scan(subject, &mut standing.tally, torn_end, sink.as_mut(), progress);
        let finished = match (scanned, sink) {
            (Ok(()), Some(sink)) => sink.finish(),
            // What is on its way is waited for, so that what is said of the session is true.
            (Err(error), Some(mut sink)) => sink.settle().and(Err(error)),
            (scanned, None) => scanned,
        };
        if let (Err(error), Some(session)) = (finished, &session) {
            let (id, head) = (&standing.id, session.head());
            return Err(error
                .with_context(&format!("session {id:?} has its first {head} events"))
                .with_head(head));
        }
        if let (Some(session), Some(log)) = (&session, self.log)
            && standing.tally.seq > 0
        {
            // What stands beside the file may say something new where the file does not.
            let attributes = self.attributes(standing.format);
            let known = log.snapshot()?.session(&standing.id)?.map(|known| known.attributes);
            let mut updated = known.clone().unwrap_or_default();
            updated.update(&attributes);
            if known.is_some_and(|known| known != updated) {
                session.describe(&attributes)?;
            }
        }
        standing.checksum = self.source.checksum_before(standing.tally.offset)?;
        Ok(standing.tally.report())
    }

    fn attributes(&self, format: &dyn Format) -> Attributes {
        let name = Some(format.name().to_owned());
        Attributes { format: name, ..self.options.beside.attributes.clone() }
    }

    /// Compares the file with what the session holds, and counts that.
    fn compare(
        &self,
        snapshot: Option<&Snapshot>,
        id: &str,
        subject: Subject<'_>,
        tally: &mut Tally,
    ) -> Result<Compared> {
        let session = snapshot.map_or(Ok(None), |snapshot| snapshot.session(id))?;
        let (Some(snapshot), Some(_)) = (snapshot, session) else {
            return Ok(Compared::Prefix(Vec::new()));
        };
        let mut reader = std::io::BufReader::with_capacity(BATCH_BYTES, self.source.reader(0));
        let mut events = FileEvents::new(snapshot.read(id, ..)?);
        let mut buffer = Vec::new();
        while let Some(event) = events.next_settled() {
            let event = event?;
            let mut offset = tally.offset;
            for expected in [event.bytes(), event.terminator().as_bytes()] {
                buffer.clear();
                let wanted = expected.len() as u64;
                reader.by_ref().take(wanted).read_to_end(&mut buffer).map_err(cannot_read)?;
                if buffer != expected {
                    let equal = buffer.iter().zip(expected).take_while(|(a, b)| a == b).count();
                    let at = offset + equal as u64;
                    return Ok(Compared::Conflict(match at == self.source.size {
                        true => {
                            format!("the file ends at byte {at}, the session goes on: it was cut")
                        }
                        false => format!(
                            "the file differs from the session in event {}, at byte {at}",
                            event.seq()
                        ),
                    }));
                }
                offset += wanted;
            }
            // Events that are no longer part of the file have seqs too.
            tally.seq = event.seq();
            if event.line_len() == 0 {
                tally.seq += 1;
                continue;
            }
            tally.count(&stored_span(&event, subject, tally));
        }
        tally.report.new_records = 0;
        Ok(Compared::Prefix(events.torn_end().collect()))
    }

    /// Reads on from where the tally is, counts every byte, and gives what is new to `sink`.
    /// `torn_end` is what the session holds of the file's torn end: when the file still has it, it
    /// is nothing new, otherwise what is there now stands in its place.
    fn scan(
        &self,
        subject: Subject<'_>,
        tally: &mut Tally,
        torn_end: &[StoredEntry],
        mut sink: Option<&mut Sink<'_>>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let reader = self.source.reader(tally.offset);
        let mut lines = Lines::resume(reader, self.source.limit, tally.offset, tally.line - 1)
            .inside_oversize(tally.in_oversize);
        let first_new = torn_end.first().map_or(tally.seq, StoredEntry::seq);
        let behind = first_new + torn_end.len() as u64;
        let mut is_first = true;
        let mut left = 0;
        while let Some(line) = lines.next_line().map_err(cannot_read)? {
            let mut spans = Vec::with_capacity(1);
            scan_line(&line, subject, &mut spans);
            let is_cut = line.terminator == Terminator::None && spans.iter().any(is_damage);
            if self.options.hold_tail && is_cut && !line.oversize {
                left = line.bytes.len() as u64;
                break;
            }
            if std::mem::take(&mut is_first) && !torn_end.is_empty() {
                tally.seq = first_new;
                if same_end(&spans, torn_end)
                    && tally.offset + line.bytes.len() as u64 == self.source.size
                {
                    spans.iter().for_each(|span| tally.count(span));
                    progress(tally.offset);
                    continue;
                }
                tally.seq = behind;
                tally.note_replaced(torn_end);
                if let Some(first) = spans.first_mut() {
                    first.entry.replaces_tail = true;
                }
            }
            for span in spans {
                tally.count(&span);
                if let Some(sink) = &mut sink {
                    sink.put(span.entry)?;
                }
            }
            progress(tally.offset);
        }
        if is_first && !torn_end.is_empty() && left == 0 {
            // The file ends where its torn end began: an event without bytes says so.
            tally.seq = behind + 1;
            tally.note_replaced(torn_end);
            if let Some(sink) = &mut sink {
                sink.put(
                    Entry::new(Kind::Blank, b"").terminator(Terminator::None).replaces_tail(true),
                )?;
            }
        }
        tally.seq = tally.seq.max(behind);
        let counted = tally.offset + left;
        if counted != self.source.size {
            let size = self.source.size;
            let message = format!(
                "the file had {size} bytes when the import began, and {counted} when it ended: it is being cut"
            );
            return Err(Error::new(ErrorKind::Conflict, message).with_hint(
                "import it again when its writer is done; with --as NEW_ID if it is shorter then",
            ));
        }
        tally.report.bytes = tally.offset;
        let report = &tally.report;
        let sum = report.record_bytes + report.separator_bytes + report.quarantined_bytes;
        assert_eq!(sum, tally.offset, "every byte is part of something");
        Ok(())
    }
}

fn is_damage(span: &Span<'_>) -> bool {
    matches!(span.what, What::Damage(_))
}

/// Whether the spans are the bytes of the events.
fn same_end(spans: &[Span<'_>], events: &[StoredEntry]) -> bool {
    spans.len() == events.len()
        && spans.iter().zip(events).all(|(span, event)| {
            *span.entry.bytes == *event.bytes()
                && span.entry.terminator == event.terminator()
                && span.entry.detail == event.detail()
        })
}

/// What an event of the session was when it was imported.
fn stored_span<'e>(event: &'e StoredEntry, subject: Subject<'_>, tally: &Tally) -> Span<'e> {
    let entry = Entry::new(event.kind(), event.bytes())
        .terminator(event.terminator())
        .detail(event.detail());
    let what = match event.kind() {
        Kind::Blank => What::Separator,
        Kind::Damaged => What::Damage(Damage::from_code(event.detail()).unwrap_or(Damage::BadJson)),
        kind => {
            let record = subject.format.classify(event.bytes());
            let record = record.unwrap_or(Record::new(kind, Notes::default()));
            let foreign = record.session.as_deref().is_some_and(|found| found != subject.session);
            let welded = tally.behind_record;
            What::Record { record, foreign, welded }
        }
    };
    let (line, offset) = (tally.line, tally.offset);
    Span { line, offset, entry, terminator: event.terminator(), what }
}

enum Compared {
    /// The session holds exactly what has been counted, and then this as the file's torn end.
    Prefix(Vec<StoredEntry>),
    Conflict(String),
}

fn cannot_read(error: std::io::Error) -> Error {
    Error::io("cannot read the file", error)
}

#[derive(Debug)]
enum Content {
    File(Arc<dyn File>),
    Bytes(Arc<[u8]>),
}

/// What is imported.
#[derive(Debug)]
struct Source {
    content: Content,
    /// The size that the file had when the import began; what comes later is left for the next.
    size: u64,
    limit: usize,
}

impl Source {
    fn file(file: Arc<dyn File>, limit: usize) -> Result<Source> {
        let size = file.len().map_err(cannot_read)?;
        Ok(Source { content: Content::File(file), size, limit })
    }

    fn bytes(bytes: &[u8], limit: usize) -> Source {
        Source { content: Content::Bytes(bytes.into()), size: bytes.len() as u64, limit }
    }

    fn reader(&self, offset: u64) -> Box<dyn Read + '_> {
        let left = self.size.saturating_sub(offset);
        match &self.content {
            Content::File(file) => Box::new(Reader::at(file.clone(), offset).take(left)),
            Content::Bytes(bytes) => {
                let offset = usize::try_from(offset).map_or(bytes.len(), |at| at.min(bytes.len()));
                Box::new(within(&**bytes, offset..))
            }
        }
    }

    /// A checksum over the last bytes before `offset`.
    fn checksum_before(&self, offset: u64) -> Result<u32> {
        let start = offset.saturating_sub(CHECKED_BYTES);
        let mut bytes = Vec::new();
        let mut reader = self.reader(start).take(offset - start);
        reader.read_to_end(&mut bytes).map_err(cannot_read)?;
        Ok(crc32fast::hash(&bytes))
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
        self.batch.push(Entry { imported: true, ..entry.into_owned() });
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
