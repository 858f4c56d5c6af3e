//! What the parts of a line are: records, damage, separators.
//!
//! A line that is a record as a whole is one span; so is a line of whole JSON that another program
//! wrote, which is kept as [`Kind::Other`]. From any other line whole records are salvaged:
//! several on one line, one behind a torn prefix, one beside a run of NUL bytes. What is not a
//! record is damage with a reason. Every byte of the line is in exactly one span; white space
//! between two spans belongs to the first.
//!
//! Only what stands at the top of a line is ever taken for a record, never an object inside
//! another one, also not where the other one is cut off or broken: it may be anything that a tool
//! has read.

use std::io;
use std::ops::Range;

use crate::bytes::within;
use crate::entry::{Entry, Kind, Terminator};
use crate::error::{Error, Result};
use crate::format::syntax::{self, Walk, Walker};
use crate::format::{Damage, Format, Notes, Record};

use super::lines::{Line, Lines, is_bom};

/// What the lines of a file are looked at as.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    pub(super) format: &'static dyn Format,
    /// The session that the records belong to. Others are kept, and take no part in it.
    pub(super) session: &'a str,
}

/// A part of a line.
#[derive(Debug)]
#[non_exhaustive]
pub struct Span<'a> {
    /// The line, from 1.
    pub line: u64,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Its bytes as an entry.
    pub entry: Entry<'a>,
    /// What stands behind it: only the last span of a line has a line end.
    pub terminator: Terminator,
    /// What it is.
    pub what: What<'a>,
}

/// What a part of a line is.
#[derive(Debug)]
#[non_exhaustive]
pub enum What<'a> {
    /// A whole record.
    Record {
        /// What the record is.
        record: Record<'a>,
        /// It says that it belongs to another session.
        foreign: bool,
        /// Another record stands before it on its line.
        welded: bool,
    },
    /// No record, for this reason.
    Damage(Damage),
    /// White space, or a byte-order mark.
    Separator,
}

/// Calls `each` for every span that `reader` gives, in order, as records of `format` in the eyes of
/// `session`. Together the spans are all bytes. Memory is bounded by `line_bytes_max`, whatever
/// comes; a longer line is damage.
///
/// # Errors
///
/// What the reader or `each` reports.
///
/// # Example
///
/// ```
/// use eventlog::{format::Recursive, jsonl};
///
/// let torn = br#"{"id":"msg_001","role":"us{"id":"msg_001","role":"user","content":"x","timestamp":"t"}"#;
/// let mut found = Vec::new();
/// jsonl::scan(&torn[..], 1 << 20, &Recursive, "s", &mut |span| {
///     found.push((span.offset, matches!(span.what, jsonl::What::Record { .. })));
///     Ok(())
/// })?;
/// assert_eq!(found, [(0, false), (26, true)]);
/// # Ok::<(), eventlog::Error>(())
/// ```
pub fn scan(
    reader: impl io::Read,
    line_bytes_max: usize,
    format: &'static dyn Format,
    session: &str,
    each: &mut dyn FnMut(Span<'_>) -> Result<()>,
) -> Result<()> {
    let mut lines = Lines::new(reader, line_bytes_max);
    let subject = Subject { format, session };
    while let Some(line) = lines.next_line().map_err(|e| Error::io("cannot read", e))? {
        let mut spans = Vec::with_capacity(1);
        scan_line(&line, subject, &mut spans);
        spans.into_iter().try_for_each(&mut *each)?;
    }
    Ok(())
}

/// Adds the spans of `line` to `spans`.
pub(super) fn scan_line<'a>(line: &Line<'a>, subject: Subject<'_>, spans: &mut Vec<Span<'a>>) {
    let first = spans.len();
    let at_start = line.offset == 0 && line.number == 1;
    if line.oversize {
        spans.push(damaged(line.bytes, Damage::OversizeLine));
    } else if (at_start && is_bom(line.bytes) && line.terminator == Terminator::None)
        || syntax::trim(line.bytes).is_empty()
    {
        spans.push(span(Entry::new(Kind::Blank, line.bytes), What::Separator));
    } else {
        match subject.format.classify(line.bytes) {
            Ok(record) => spans.push(whole(line.bytes, record, subject, false)),
            Err(Damage::SchemaMismatch | Damage::NotAnObject)
                if subject.format.is_foreign(line.bytes) =>
            {
                let record = Record::new(Kind::Other, Notes::default());
                let what = What::Record { record, foreign: false, welded: false };
                spans.push(span(Entry::new(Kind::Other, line.bytes), what));
            }
            Err(damage) => salvage(line, damage, subject, spans),
        }
    }
    let mut offset = line.offset;
    for span in spans.iter_mut().skip(first) {
        (span.line, span.offset) = (line.number, offset);
        offset += span.entry.bytes.len() as u64;
    }
    if let Some(last) = spans.last_mut() {
        last.terminator = line.terminator;
        last.entry.terminator = line.terminator;
    }
}

/// A span whose place is not known yet.
fn span<'a>(entry: Entry<'a>, what: What<'a>) -> Span<'a> {
    let terminator = Terminator::None;
    Span { line: 0, offset: 0, entry: entry.terminator(terminator), terminator, what }
}

fn whole<'a>(bytes: &'a [u8], record: Record<'a>, subject: Subject<'_>, welded: bool) -> Span<'a> {
    let foreign = record.session.as_deref().is_some_and(|found| found != subject.session);
    let entry = match foreign {
        true => Entry::new(Kind::Other, bytes),
        false => record.clone().into_entry(bytes),
    };
    span(entry, What::Record { record, foreign, welded })
}

fn damaged(bytes: &[u8], damage: Damage) -> Span<'_> {
    let entry = Entry::new(Kind::Damaged, bytes).detail(damage as u8);
    span(entry, What::Damage(damage))
}

/// The spans of a line that is, as a whole, no record for the reason `damage`.
fn salvage<'a>(line: &Line<'a>, damage: Damage, subject: Subject<'_>, spans: &mut Vec<Span<'a>>) {
    let bytes = line.bytes;
    let slice = |range: Range<usize>| within(bytes, range);
    let mut records = match damage {
        Damage::BadJson | Damage::InvalidUtf8 => {
            records(bytes, subject.format, line.terminator != Terminator::None)
        }
        // The line is one value; what is inside of it is not looked at.
        _ => Vec::new(),
    };
    // White space belongs to the record before it, at the start to the one behind it.
    let blank = |range: Range<usize>| syntax::trim(slice(range)).is_empty();
    for n in 0..records.len() {
        let next = records.get(n + 1).map_or(bytes.len(), |range| range.start);
        if n == 0
            && let Some(range) = records.first_mut().filter(|range| blank(0..range.start))
        {
            range.start = 0;
        }
        if let Some(range) = records.get_mut(n).filter(|range| blank(range.end..next)) {
            range.end = next;
        }
    }
    let mut at = 0;
    let mut after_record: Option<Range<usize>> = None;
    for range in records {
        gap(slice(at..range.start), Some(Damage::TornPrefix), subject, spans);
        let text = slice(range.clone());
        if let Ok(record) = subject.format.classify(text) {
            // A bare carriage return ends a line in the eyes of the original programs.
            let is_welded = |before: Range<usize>| slice(before).last() != Some(&b'\r');
            let welded = after_record.clone().is_some_and(is_welded);
            spans.push(whole(text, record, subject, welded));
        }
        at = range.end;
        after_record = Some(range);
    }
    let torn = (line.terminator == Terminator::None).then_some(Damage::TornTail);
    gap(slice(at..bytes.len()), torn, subject, spans);
}

/// The records in a broken line, in order.
fn records(bytes: &[u8], format: &dyn Format, terminated: bool) -> Vec<Range<usize>> {
    let is_record = |range: &Range<usize>| format.classify(within(bytes, range.clone())).is_ok();
    let mut walker = Walker::default();
    let mut found: Vec<Range<usize>> = Vec::new();
    // Where a walk has broken: a `{` there is known not to be part of what stands before it.
    let mut broken = 0..0;
    let mut at = 0;
    while let Some(start) = syntax::next_object(bytes, at) {
        match walker.walk(bytes, start, &mut |_, _| {}) {
            Walk::Whole(end) => {
                let after = found.last().map_or(0, |range| range.end);
                let is_top = broken.contains(&start) || begins_anew(bytes, after, start);
                if is_top && ends_there(bytes, end, start == 0) && is_record(&(start..end)) {
                    found.push(start..end);
                }
                broken = end..end;
                at = end;
            }
            // All that follows is inside of this one.
            Walk::Open(inner) => {
                if let Some(inner) = inner.filter(|_| terminated)
                    && is_later_record(bytes, start, &inner, format)
                    && is_record(&inner.range)
                {
                    found.push(inner.range);
                }
                break;
            }
            // A record that was written on in the middle of a string is inside of what looks like
            // the string's end.
            Walk::Broken { at: break_at, text } => {
                broken = text..break_at + 1;
                at = text.max(start + 1);
            }
            Walk::TooDeep => break,
        }
    }
    found
}

/// Whether what stands before `start` can be the end of something, so that a value at `start` is
/// none of its parts. `after` is where the last record ended.
fn begins_anew(bytes: &[u8], after: usize, start: usize) -> bool {
    let before = within(bytes, after..start);
    let last = before.iter().rev().find(|b| !b.is_ascii_whitespace());
    !matches!(last, Some(b',' | b'[' | b':' | b'{'))
}

/// Whether nothing at `end` shows that the value before it goes on as part of something: the line
/// ends, or another record, or NUL bytes follow. Behind the first value of a line anything else is
/// damage, since nothing stands before it.
fn ends_there(bytes: &[u8], end: usize, is_first: bool) -> bool {
    let rest = within(bytes, end..);
    let next = rest.iter().find(|b| !b.is_ascii_whitespace());
    is_first || matches!(next, None | Some(b'{' | 0))
}

/// Whether the object at the end of a cut-off one is a record that was written behind it, and not a
/// part of it: it stands where the format has text or a number, or it begins as the cut-off one
/// does, which is what a second attempt looks like.
fn is_later_record(bytes: &[u8], start: usize, inner: &syntax::Inner, format: &dyn Format) -> bool {
    let key = inner.key.clone().map(|key| within(bytes, key));
    let in_scalar =
        key.is_some_and(|key| format.scalar_fields().iter().any(|field| field.as_bytes() == key));
    let prefix = within(bytes, start..inner.range.start);
    let retried = within(bytes, inner.range.clone()).starts_with(prefix);
    in_scalar || retried
}

/// Bytes between records, or all of a line without any: runs of NUL at their ends, and the rest
/// with the reason `cut` if it is no value of its own.
fn gap<'a>(bytes: &'a [u8], cut: Option<Damage>, subject: Subject<'_>, spans: &mut Vec<Span<'a>>) {
    if bytes.is_empty() {
        return;
    }
    let is_padding = |b: &u8| *b == 0 || b.is_ascii_whitespace();
    let nul_run = |run: &[u8]| run.contains(&0);
    let head = bytes.iter().take_while(|b| is_padding(b)).count();
    let tail = bytes.iter().rev().take_while(|b| is_padding(b)).count();
    let (before, rest) = bytes.split_at(head);
    let (middle, after) = rest.split_at(rest.len().saturating_sub(tail));
    if middle.is_empty() {
        // `tail` counts the same bytes again when there is nothing else.
        let damage = if nul_run(bytes) { Damage::NulPadding } else { Damage::BadJson };
        return spans.push(damaged(bytes, damage));
    }
    // White space alone stays with what it stands beside.
    let split_head = nul_run(before);
    let split_tail = nul_run(after);
    let from = if split_head { head } else { 0 };
    let to = if split_tail { head + middle.len() } else { bytes.len() };
    let part = |range: Range<usize>| within(bytes, range);
    if split_head {
        spans.push(damaged(part(0..from), Damage::NulPadding));
    }
    let own = subject.format.classify(middle).err().unwrap_or(Damage::BadJson);
    let walk = Walker::default().walk(middle, 0, &mut |_, _| {});
    let is_whole = matches!(walk, Walk::Whole(end) if end == middle.len());
    let is_cut = matches!(own, Damage::BadJson | Damage::InvalidUtf8) && !is_whole;
    spans.push(damaged(part(from..to), cut.filter(|_| is_cut).unwrap_or(own)));
    if split_tail {
        spans.push(damaged(part(to..bytes.len()), Damage::NulPadding));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Transcript;

    fn record(id: &str, payload: &str) -> String {
        format!(
            "{{\"event_id\": \"{id}\", \"timestamp\": \"t\", \"session_id\": \"s\", \
             \"run_id\": \"r\", \"step\": 0, \"event_type\": \"message\", \"payload\": {payload}}}"
        )
    }

    /// Reason, or `record`, and text of each span of a line.
    fn spans(bytes: &[u8], terminator: Terminator) -> Vec<(&'static str, String)> {
        let line = Line { number: 2, offset: 9, bytes, terminator, oversize: false };
        let subject = Subject { format: &Transcript, session: "s" };
        let mut spans = Vec::new();
        scan_line(&line, subject, &mut spans);
        let joined: Vec<u8> = spans.iter().flat_map(|span| span.entry.bytes.to_vec()).collect();
        assert_eq!(joined, bytes);
        let name = |span: &Span<'_>| match &span.what {
            What::Record { .. } if span.entry.kind == Kind::Other => "other",
            What::Record { welded: true, .. } => "welded",
            What::Record { .. } => "record",
            What::Damage(damage) => damage.name(),
            What::Separator => "separator",
        };
        let text = |span: &Span<'_>| String::from_utf8_lossy(&span.entry.bytes).into_owned();
        spans.iter().map(|span| (name(span), text(span))).collect()
    }

    fn names(text: &str, terminator: Terminator) -> Vec<&'static str> {
        spans(text.as_bytes(), terminator).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn whole_records_on_one_line_are_all_kept() {
        let (a, b) = (record("a", "{}"), record("b", "{}"));
        assert_eq!(names(&format!("{a}{b}"), Terminator::Lf), ["record", "welded"]);
        assert_eq!(names(&format!(" {a} \t{b} "), Terminator::Lf), ["record", "welded"]);
        assert_eq!(names(&format!("{a}\r{b}\r"), Terminator::None), ["record", "record"]);
    }

    /// Wherever a record is cut off, the one that was written on behind it is kept, unless it
    /// stands where the first one has an object: there it may be a part of it.
    #[test]
    fn a_record_behind_a_torn_one_is_kept_wherever_the_tear_is() {
        let (torn, whole) =
            (record("a", "{\"role\": \"user\", \"content\": \"x\"}"), record("b", "{}"));
        let mut in_doubt = Vec::new();
        for cut in 1..torn.len() {
            let line = format!("{}{whole}", &torn[..cut]);
            let found = spans(line.as_bytes(), Terminator::Lf);
            let expected = [("torn_prefix", torn[..cut].to_owned()), ("record", whole.clone())];
            if found != expected {
                assert_eq!(found, [("bad_json", line.clone())], "cut at {cut}");
                in_doubt.push(cut);
            }
        }
        let doubt: Vec<&str> =
            in_doubt.iter().map(|cut| torn[..*cut].rsplit('"').next().unwrap()).collect();
        assert!(doubt.iter().all(|end| end.starts_with(':')), "{doubt:?}");
        assert_eq!(in_doubt.len(), 6);
    }

    #[test]
    fn a_retry_behind_its_torn_first_attempt_is_kept_at_every_tear() {
        let whole = record("a", "{\"role\": \"user\", \"metadata\": {\"x\": 1}}");
        for cut in 1..whole.len() {
            let line = format!("{}{whole}", &whole[..cut]);
            assert_eq!(names(&line, Terminator::Lf), ["torn_prefix", "record"], "cut at {cut}");
        }
    }

    #[test]
    fn an_object_inside_another_is_never_a_record() {
        let inner = record("inner", "{}");
        let outer = record(
            "outer",
            &format!("{{\"content\": \"x\", \"result\": {{\"line\": {inner}, \"n\": 1}}}}"),
        );
        assert_eq!(names(&outer, Terminator::Lf), ["record"]);
        for cut in 1..outer.len() {
            for terminator in [Terminator::Lf, Terminator::None] {
                let reason = if terminator == Terminator::Lf { "bad_json" } else { "torn_tail" };
                assert_eq!(names(&outer[..cut], terminator), [reason], "cut at {cut}");
            }
        }
        // One byte lost or changed anywhere in front of it.
        for at in 0..outer.find(&inner).unwrap() {
            let mut broken = outer.clone().into_bytes();
            broken[at] = b'\x01';
            assert!(names(&String::from_utf8(broken).unwrap(), Terminator::Lf).len() == 1, "{at}");
        }
        for line in
            [format!("[{inner}]"), format!("{{\"a\": {inner}}}"), format!("{{\"a\": {inner}")]
        {
            assert!(!names(&line, Terminator::Lf).contains(&"record"), "{line}");
        }
    }

    #[test]
    fn an_object_in_broken_surroundings_is_never_a_record() {
        let inner = record("inner", "{}");
        for line in [
            // Quotes that somebody forgot to escape.
            format!("{{\"event_id\": \"m\", \"content\": \"he said {inner} ok\", \"t\": 1}}"),
            format!("{{\"content\": \"he said \"{inner}\" ok\"}}"),
            format!("{{\"content\": \"he said {inner}\", \"t\": 1}}"),
            // Torn at both ends.
            format!("\"a\": [{inner}, {inner}"),
            format!("[{inner}, {inner}"),
            format!("[{inner} {inner}]"),
            format!("\"a\": {inner}, \"b\": 1}}"),
            format!("\"a\": {inner}"),
            format!("{{\"a\": x, \"b\": {inner}, \"c\": 2}}"),
        ] {
            let found = names(&line, Terminator::Lf);
            assert!(!found.contains(&"record") && !found.contains(&"welded"), "{line}: {found:?}");
        }
        // And what is none of these is found.
        for line in [
            format!("garbage {inner}"),
            format!("{inner}{{\"event"),
            format!("{inner}}}"),
            format!("x{inner}{{\"a\": 1}}"),
        ] {
            assert!(names(&line, Terminator::Lf).contains(&"record"), "{line}");
        }
    }

    #[test]
    fn nul_runs_are_set_apart() {
        let a = record("a", "{}");
        let with = |text: &str| text.replace('0', "\0");
        let found = |text: &str, terminator| names(&with(text).replace('A', &a), terminator);
        assert_eq!(found("0000", Terminator::Lf), ["nul_padding"]);
        assert_eq!(found("0000A", Terminator::Lf), ["nul_padding", "record"]);
        assert_eq!(found("A0000", Terminator::None), ["record", "nul_padding"]);
        assert_eq!(found("{\"eve0000", Terminator::None), ["torn_tail", "nul_padding"]);
        assert_eq!(found("{\"eve0000A", Terminator::Lf), ["torn_prefix", "nul_padding", "record"]);
        assert_eq!(found("{\"eve0000", Terminator::Lf), ["bad_json", "nul_padding"]);
    }

    #[test]
    fn every_other_line_has_its_reason() {
        let found = |bytes: &[u8], terminator| spans(bytes, terminator)[0].0;
        for (line, reason) in [
            (&b"garbage"[..], "bad_json"),
            (b"42", "not_an_object"),
            (b"[]", "not_an_object"),
            (b"null", "not_an_object"),
            (b"{}", "schema_mismatch"),
            (b"{\"a\": \"\xFF\"}", "invalid_utf8"),
        ] {
            assert_eq!(found(line, Terminator::Lf), reason);
        }
        assert_eq!(found(b"{\"a\": \"\xE4\xB8", Terminator::None), "torn_tail");
        assert_eq!(found(b"42", Terminator::None), "not_an_object");
        let deep = format!("{{\"a\": {}", "[".repeat(100_000));
        assert_eq!(found(deep.as_bytes(), Terminator::Lf), "too_deep");
        assert_eq!(found("\u{a0}\u{2028}".as_bytes(), Terminator::Lf), "separator");
    }

    /// Time is linear: none of these takes longer than reading it a few times.
    #[test]
    fn hostile_lines_are_scanned_in_linear_time() {
        let start = std::time::Instant::now();
        for piece in ["{", "{\"a\":", "[", "{\"", "\\{", "{\"a\":{}", "\"{", "{ ", "{\"a\":1}"] {
            let line = piece.repeat((4 << 20) / piece.len());
            spans(line.as_bytes(), Terminator::Lf);
        }
        assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    }
}
