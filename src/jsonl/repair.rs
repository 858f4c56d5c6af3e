//! A JSONL file by itself, without a log: what is damaged in it, and the file without that.
//!
//! Two rules, for two occasions. [`repair`] looks at a whole file, keeps every record and sets
//! apart what is none. [`repair_tail`] is what a program does to its own file before it appends:
//! it looks at the last line alone, and is the rule by which MyCodeAgent writes on.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::format::syntax::{Walk, Walker};
use crate::format::{Damage, Plain};
use crate::io::{File, Reader, read_exact_at, write_all_at};

use super::lines::LINE_BYTES_MAX;
use super::recognise::{is_known, recognise};
use super::report::{FileReport, Outcome, Tally};
use super::scan::{Span, What, scan};

/// What [`repair`] gives: records, and the spans that are none.
#[derive(Debug)]
#[non_exhaustive]
pub enum Part<'a> {
    /// A whole record; to be written on a line of its own.
    Record(&'a [u8]),
    /// Bytes that are no record.
    Damaged {
        /// The line, from 1.
        line: u64,
        /// Where they begin in the file.
        offset: u64,
        /// What is wrong with them.
        reason: Damage,
        /// The bytes.
        bytes: &'a [u8],
    },
}

/// Looks at a JSONL file and hands each record and each damaged span to `each`, in order. In
/// a file of an unknown format every line that is JSON is a record. The outcome in the report is `Unchanged`
/// where the file is nothing but records, each on a line that ends in `\n`.
///
/// # Errors
///
/// `Io`, and those of `each`.
///
/// # Example
///
/// ```
/// use eventlog::{io::StdDir, jsonl::{self, Part}};
///
/// # let path = std::env::temp_dir().join(format!("eventlog-doc-repair-{}", std::process::id()));
/// std::fs::write(&path, "{\"a\":1}\n{\"b\":2}{\"c\":3}\n{\"d\"").unwrap();
/// let mut records = Vec::new();
/// let report = jsonl::repair(StdDir::open_file(&path).unwrap(), &mut |part| {
///     if let Part::Record(record) = part {
///         records.push(String::from_utf8_lossy(record).into_owned());
///     }
///     Ok(())
/// })?;
/// assert_eq!(records, ["{\"a\":1}", "{\"b\":2}", "{\"c\":3}"]);
/// assert_eq!(report.quarantined[0].reason.name(), "torn_tail");
/// # std::fs::remove_file(path).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
pub fn repair(
    file: Arc<dyn File>,
    each: &mut dyn FnMut(Part<'_>) -> Result<()>,
) -> Result<FileReport> {
    let size = file.len().map_err(cannot_read)?;
    let reader = || std::io::Read::take(Reader::new(file.clone()), size);
    let from = |offset: u64| -> Box<dyn std::io::Read> {
        let left = size.saturating_sub(offset);
        Box::new(std::io::Read::take(Reader::at(file.clone(), offset), left))
    };
    let found = recognise(&from, size, LINE_BYTES_MAX)?;
    if is_document(reader())? {
        return Err(Error::new(
            ErrorKind::Refused,
            "the file is one JSON document, not lines of JSON",
        )
        .with_hint("`eventlog import` takes the former one-file sessions"));
    }
    let format = found.as_ref().map_or(&Plain as _, |found| found.format);
    let session = found.as_ref().and_then(|found| found.named(format)).unwrap_or_default();
    let mut report = FileReport::new(size);
    report.format = found.as_ref().map(|found| found.format.name());
    report.session = Some(session.to_owned()).filter(|session| !session.is_empty());
    let mut tally = Tally::new(report, None).plain(!is_known(format));
    let mut odd_lines = false;
    scan(reader(), LINE_BYTES_MAX, format, session, &mut |span: Span<'_>| {
        tally.count(&span);
        let bytes: &[u8] = &span.entry.bytes;
        match &span.what {
            What::Record { .. } => {
                odd_lines |=
                    span.entry.terminator.as_bytes() != b"\n" || bytes != bytes.trim_ascii();
                each(Part::Record(bytes.trim_ascii()))
            }
            What::Damage(reason) => {
                let (line, offset, reason) = (span.line, span.offset, *reason);
                each(Part::Damaged { line, offset, reason, bytes })
            }
            What::Separator => {
                odd_lines = true;
                Ok(())
            }
        }
    })?;
    let mut report = FileReport { new_records: 0, ..tally.report() };
    let clean = report.quarantined_spans == 0 && !odd_lines;
    report.outcome = if clean { Outcome::Unchanged } else { Outcome::Refused };
    Ok(report)
}

fn cannot_read(error: std::io::Error) -> Error {
    Error::io("cannot read the file", error)
}

/// Whether the file is a single JSON value over several lines.
fn is_document(reader: impl std::io::Read) -> Result<bool> {
    let mut lines = super::lines::Lines::new(reader, LINE_BYTES_MAX);
    let mut text = Vec::new();
    while let Some(line) = lines.next_line().map_err(cannot_read)? {
        // Its first line is the beginning of a value, and not all of it.
        let begins = || {
            let walk = Walker::default().walk(line.bytes, 0, &mut |_, _| {});
            !line.bytes.trim_ascii().is_empty() && matches!(walk, Walk::Open(_))
        };
        if (text.is_empty() && !begins()) || text.len() > LINE_BYTES_MAX {
            return Ok(false);
        }
        text.extend_from_slice(line.bytes);
        text.push(b'\n');
    }
    Ok(is_json(&text))
}

/// What [`repair_tail`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TailRepair {
    /// The file ends in `\n` or is empty: nothing.
    Kept,
    /// What stood behind the last `\n` is JSON: a `\n` was added.
    NewlineAdded,
    /// What stood behind the last `\n` is no JSON: it was cut off.
    Truncated,
}

impl TailRepair {
    /// The name in reports.
    ///
    /// ```
    /// assert_eq!(eventlog::jsonl::TailRepair::NewlineAdded.name(), "newline_added");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            TailRepair::Kept => "kept",
            TailRepair::NewlineAdded => "newline_added",
            TailRepair::Truncated => "truncated",
        }
    }
}

/// What MyCodeAgent does to its file before each append: if the file does not end in `\n`, what
/// stands behind the last `\n` is completed with a `\n` if it is UTF-8 and JSON, and cut off
/// otherwise. Returns what was done and the length of the file then.
///
/// Only for the file's one writer: what is cut off is gone. The cut is not flushed; the append that
/// follows is what makes it durable.
///
/// # Errors
///
/// `Io`; `TooLarge` for a last line over 256 MiB.
///
/// # Example
///
/// ```
/// use eventlog::{io::{Dir, OpenMode, StdDir}, jsonl::{self, TailRepair}};
///
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-tail-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// std::fs::write(dir.join("t.jsonl"), "{\"a\":1}\n{\"b\"").unwrap();
/// let file = StdDir::open(&dir).unwrap().open("t.jsonl", OpenMode::Write).unwrap();
/// assert_eq!(jsonl::repair_tail(&*file)?, (TailRepair::Truncated, 8));
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
pub fn repair_tail(file: &dyn File) -> Result<(TailRepair, u64)> {
    let len = file.len().map_err(cannot_read)?;
    let tail = tail(file, len)?;
    if tail.is_empty() {
        return Ok((TailRepair::Kept, len));
    }
    let failed = |error| Error::io("cannot repair the file's end", error);
    if is_json(&tail) {
        write_all_at(file, b"\n", len).map_err(failed)?;
        return Ok((TailRepair::NewlineAdded, len + 1));
    }
    let start = len - tail.len() as u64;
    file.set_len(start).map_err(failed)?;
    Ok((TailRepair::Truncated, start))
}

/// What stands behind the last `\n`.
pub(super) fn tail(file: &dyn File, len: u64) -> Result<Vec<u8>> {
    const STEP_BYTES: u64 = 64 << 10;
    let mut tail = Vec::new();
    let mut start = len;
    while start > 0 {
        if tail.len() > LINE_BYTES_MAX {
            let message = format!("the last line is longer than {LINE_BYTES_MAX} bytes");
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        // Doubling steps, so that a long line is not moved again and again.
        let step = STEP_BYTES.max(tail.len() as u64).min(start);
        start -= step;
        let mut piece = vec![0; usize::try_from(step).unwrap_or_default()];
        read_exact_at(file, &mut piece, start).map_err(cannot_read)?;
        let newline = memchr::memrchr(b'\n', &piece);
        let from = newline.map_or(0, |at| at + 1);
        let mut longer = piece.split_off(from);
        longer.append(&mut tail);
        tail = longer;
        if newline.is_some() {
            break;
        }
    }
    Ok(tail)
}

fn is_json(bytes: &[u8]) -> bool {
    let walk = Walker::default().walk(bytes, 0, &mut |_, _| {});
    let is_space = |rest: &[u8]| rest.iter().all(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n'));
    std::str::from_utf8(bytes).is_ok()
        && matches!(walk, Walk::Whole(end) if bytes.get(end..).is_some_and(is_space))
}
