//! What format a file is of: one decision for everything that looks at files.
//!
//! A file is recognised as a whole, by what most of its records are. It is of a known format when
//! more than half of its records are of it, or half of them and the first one; else its format is
//! unknown, and [`Plain`] stands for it. A record is what is a record of some format, and every other
//! object or array with something in it. Lines that are broken, numbers, texts, `{}` and `[]` say
//! nothing. Where no format is known, and more lines are broken than not, the file is not lines of
//! JSON: it is of no format at all.
//!
//! Of a large file the beginning is looked at and pieces of the rest, each of which counts for its
//! part of the rest: what is read does not grow with the file.

use std::io::Read;

use crate::error::{Error, Result};
use crate::format::{Format, Plain, syntax};

use super::lines::{LINE_BYTES_MAX, Line, Lines};
use super::scan::{Subject, What, scan_line};

/// How much of the beginning is looked at; a smaller file is looked at as a whole.
const HEAD_BYTES: u64 = 1 << 20;
/// How many pieces of the rest are looked at.
const PIECES: u64 = 16;
/// How long each of them is.
const PIECE_BYTES: u64 = 64 << 10;

/// A file with fewer records may yet become something else while it is being written.
const FEW_RECORDS: u64 = 8;

/// What a file is.
#[derive(Debug)]
pub(super) struct Recognised {
    /// A known format, or [`Plain`].
    pub(super) format: &'static dyn Format,
    /// The session that the first record of a format names, for each that names one.
    named: Vec<(&'static str, String)>,
    /// It has so little in it that it may become something else with the next lines.
    pub(super) is_short: bool,
}

impl Recognised {
    pub(super) fn is_known(&self) -> bool {
        is_known(self.format)
    }

    /// The session that the records of `format` name.
    pub(super) fn named(&self, format: &dyn Format) -> Option<&str> {
        let found = self.named.iter().find(|(name, _)| *name == format.name());
        found.map(|(_, session)| session.as_str())
    }

    /// All sessions that are named.
    pub(super) fn all_named(&self) -> impl Iterator<Item = &str> {
        self.named.iter().map(|(_, session)| session.as_str())
    }
}

/// Whether a format is one of those that are known.
pub(super) fn is_known(format: &dyn Format) -> bool {
    format.name() != Plain.name()
}

/// The format that a session has been imported as.
pub(super) fn by_name(name: &str) -> Option<&'static dyn Format> {
    let unknown = (name == Plain.name()).then_some(&Plain as &'static dyn Format);
    crate::format::by_name(name).or(unknown)
}

/// What a file of `size` bytes is; `None` where it is not lines of JSON. `reader` reads it from an
/// offset on.
///
/// # Errors
///
/// `Io`.
pub(super) fn recognise<'f>(
    reader: &dyn Fn(u64) -> Box<dyn Read + 'f>,
    size: u64,
    limit: usize,
) -> Result<Option<Recognised>> {
    let mut votes = Votes::default();
    let mut lines = Lines::new(reader(0), limit);
    let mut looked_at = 0;
    while looked_at < HEAD_BYTES {
        let Some(line) = next(&mut lines)? else { break };
        looked_at = line.offset + line.bytes.len() as u64;
        votes.count(&line, 1);
    }
    // Where a long line has led far into the file, pieces of the rest may not be needed.
    let rest = size.saturating_sub(looked_at);
    let piece = PIECE_BYTES.min(rest / PIECES);
    for n in 0..if looked_at < HEAD_BYTES || piece == 0 { 0 } else { PIECES } {
        let start = looked_at + rest / PIECES * n;
        let mut lines = Lines::new(reader(start).take(piece), limit);
        // It begins and ends somewhere in a line.
        next(&mut lines)?;
        while let Some(line) = next(&mut lines)? {
            if line.terminator != crate::entry::Terminator::None {
                votes.count(&line, rest / PIECES / piece);
            }
        }
    }
    // Broken lines, or very long ones: the first line that says something.
    while votes.json == 0
        && let Some(line) = next(&mut lines)?
    {
        votes.count(&line, 1);
    }
    let Some(format) = votes.decide() else { return Ok(None) };
    while is_known(format)
        && !format.names_no_session()
        && votes.named.iter().all(|(name, _)| *name != format.name())
        && let Some(line) = next(&mut lines)?
    {
        votes.records(&line, format);
    }
    let is_short = looked_at < HEAD_BYTES && votes.all < FEW_RECORDS;
    Ok(Some(Recognised { format, named: votes.named, is_short }))
}

/// The known format of lines in memory, as that of a file with nothing else in it.
///
/// ```
/// use eventlog::jsonl;
///
/// let message = br#"{"id":"msg_001","role":"user","content":"hello","timestamp":"t"}"#;
/// assert_eq!(jsonl::recognise_bytes(message).unwrap().name(), "recursive");
/// assert!(jsonl::recognise_bytes(br#"{"type":"user","timestamp":"t"}"#).is_none());
/// ```
pub fn recognise_bytes(bytes: &[u8]) -> Option<&'static dyn Format> {
    let reader = |offset: u64| -> Box<dyn Read + '_> {
        let start = usize::try_from(offset).map_or(bytes.len(), |start| start.min(bytes.len()));
        Box::new(crate::bytes::within(bytes, start..))
    };
    // Reading memory does not fail.
    let found = recognise(&reader, bytes.len() as u64, LINE_BYTES_MAX).ok().flatten();
    found.map(|found| found.format).filter(|format| is_known(*format))
}

fn next<R: Read>(lines: &mut Lines<R>) -> Result<Option<Line<'_>>> {
    lines.next_line().map_err(|error| Error::io("cannot read", error))
}

#[derive(Default)]
struct Votes {
    /// Records that show what they are, by format.
    of: Vec<(&'static dyn Format, u64)>,
    /// Records of any format or none.
    all: u64,
    /// The formats of the first record.
    first: Option<Vec<&'static str>>,
    named: Vec<(&'static str, String)>,
    /// Lines with JSON in them, and lines without.
    json: u64,
    broken: u64,
}

impl Votes {
    /// Counts what is in a line, each record as `weight` records.
    fn count(&mut self, line: &Line<'_>, weight: u64) {
        if line.oversize || syntax::trim(line.bytes).is_empty() {
            return;
        }
        let mut most = 0;
        let mut formats = Vec::new();
        let mut is_neutral = false;
        for format in crate::format::all() {
            let (telling, others) = self.records(line, *format);
            is_neutral |= others;
            if telling > 0 {
                most = most.max(telling);
                formats.push(format.name());
                match self.of.iter_mut().find(|(known, _)| known.name() == format.name()) {
                    Some((_, votes)) => *votes += telling * weight,
                    None => self.of.push((*format, telling * weight)),
                }
            }
        }
        if most == 0 {
            let value = syntax::trim(line.bytes);
            let is_json = matches!(
                Plain.classify(line.bytes),
                Ok(_) | Err(crate::format::Damage::NotAnObject)
            );
            let lines = if is_json { &mut self.json } else { &mut self.broken };
            *lines += weight;
            if !is_json || is_neutral || says_nothing(value) {
                return;
            }
            most = 1;
        } else {
            self.json += weight;
        }
        self.all += most * weight;
        self.first.get_or_insert(formats);
    }

    /// How many records in a line show that they are of `format`, and whether it has others whose
    /// type the format knows. Notes the session of the first that names one.
    fn records(&mut self, line: &Line<'_>, format: &'static dyn Format) -> (u64, bool) {
        let mut spans = Vec::with_capacity(1);
        if !line.oversize {
            scan_line(line, Subject { format, session: "" }, &mut spans);
        }
        let (mut telling, mut others) = (0, false);
        for span in spans {
            let What::Record { record, .. } = span.what else { continue };
            match format.classify(&span.entry.bytes) {
                Ok(_) if format.is_telling(&record) => telling += 1,
                known => others |= known.is_ok() && record.kind != crate::entry::Kind::Other,
            }
            let session = record.session.filter(|session| !session.is_empty());
            if let Some(session) = session
                && self.named.iter().all(|(name, _)| *name != format.name())
            {
                self.named.push((format.name(), session.into_owned()));
            }
        }
        (telling, others)
    }

    /// The format that the votes are for; `None` where there was no JSON, or little.
    fn decide(&self) -> Option<&'static dyn Format> {
        let is_first = |format: &dyn Format| {
            self.first.as_ref().is_some_and(|first| first.contains(&format.name()))
        };
        let chosen = self.of.iter().find(|(format, votes)| {
            votes * 2 > self.all || (votes * 2 == self.all && is_first(*format))
        });
        match chosen {
            Some((format, _)) => Some(*format),
            None => {
                (self.json > 0 && self.json >= self.broken).then_some(&Plain as &'static dyn Format)
            }
        }
    }
}

/// Whether a value is a number, a text or the like, or has nothing in it.
fn says_nothing(value: &[u8]) -> bool {
    match value {
        [b'{' | b'[', inner @ .., _] => syntax::trim(inner).is_empty(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Counts what is read of a text.
    struct Counted<'t>(&'t [u8], &'t Cell<u64>);

    impl Read for Counted<'_> {
        fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
            let n = self.0.read(buf)?;
            self.1.set(self.1.get() + n as u64);
            Ok(n)
        }
    }

    fn recognised(text: &[u8]) -> (Option<Recognised>, u64) {
        let read = Cell::new(0);
        let from = |at: u64| -> Box<dyn Read + '_> {
            let rest = text.get(usize::try_from(at).unwrap()..).unwrap();
            Box::new(Counted(rest, &read))
        };
        (recognise(&from, text.len() as u64, 1 << 20).unwrap(), read.get())
    }

    #[test]
    fn what_is_read_to_recognise_a_file_does_not_grow_with_it() {
        let line = br#"{"timestamp":"t","type":"event_msg","payload":{"type":"token_count"}}"#;
        for mib in [4, 16, 64] {
            let text = [&line[..], b"\n"].concat().repeat((mib << 20) / (line.len() + 1));
            let (found, read) = recognised(&text);
            assert_eq!(found.unwrap().format.name(), "unknown");
            assert!(read < 3 << 20, "{read} bytes of {mib} MiB");
        }
    }

    #[test]
    fn a_file_without_any_json_is_of_no_format() {
        for text in ["", "\n\n", "some words\n", "{\"a\":\n", "\u{feff}\n"] {
            assert!(recognised(text.as_bytes()).0.is_none(), "{text:?}");
        }
        let words = "some words\n".repeat(1 << 17);
        assert!(recognised(words.as_bytes()).0.is_none());
    }

    #[test]
    fn the_session_is_that_of_the_first_record_that_names_one_however_late_it_comes() {
        let record = |session: &str| {
            format!(
                "{{\"event_id\":\"e\",\"timestamp\":\"t\",\"session_id\":\"{session}\",\"run_id\":\"r\",\"step\":0,\"event_type\":\"message\"}}\n"
            )
        };
        let text = record("").repeat(20_000) + &record("s") + &record("other").repeat(9);
        assert!(text.len() > 1 << 20);
        let found = recognised(text.as_bytes()).0.unwrap();
        assert_eq!((found.format.name(), found.named(found.format)), ("transcript", Some("s")));
    }
}
