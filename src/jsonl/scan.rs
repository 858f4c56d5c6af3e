//! A file as a row of spans. Lines end at `\n` alone; `\r` before it belongs to the line end.
//!
//! Every byte of the file is in exactly one span: a record, a damaged span, or a separator (line
//! ends, blank lines, a byte-order mark at the very start). Memory is bounded by the longest line.

use std::io::{self, Read};

use crate::entry::{Entry, Kind, Terminator};
use crate::format::{Damage, Format};

/// A line as it stands in the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// From 1.
    pub(super) number: u64,
    /// Where the line begins in the file.
    pub(super) offset: u64,
    /// Without the line end.
    pub(super) bytes: &'a [u8],
    pub(super) terminator: Terminator,
}

/// A part of the file, and what it is.
pub(super) struct Span<'a> {
    pub(super) entry: Entry<'a>,
    pub(super) damage: Option<Damage>,
    /// A record that says that it belongs to another session.
    pub(super) foreign: bool,
}

/// Splits what `reader` gives into lines.
#[derive(Debug)]
pub(super) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    /// The unread part of the buffer.
    start: usize,
    end: usize,
    offset: u64,
    number: u64,
    at_end: bool,
    limit: usize,
}

const BUFFER_BYTES: usize = 256 << 10;

/// Why no more lines come.
#[derive(Debug)]
pub(super) enum LineError {
    Io(io::Error),
    /// A line exceeds the limit: its number.
    TooLong(u64),
}

impl<R: Read> Lines<R> {
    /// Lines of at most `limit` bytes.
    pub(super) fn new(reader: R, limit: usize) -> Lines<R> {
        Lines::resume(reader, limit, 0, 0)
    }

    /// Lines from `offset` on, behind `number` line ends.
    pub(super) fn resume(reader: R, limit: usize, offset: u64, number: u64) -> Lines<R> {
        let buffer = vec![0; BUFFER_BYTES];
        Lines { reader, buffer, start: 0, end: 0, offset, number, at_end: false, limit }
    }

    /// The next line, or a byte-order mark, or `None` at the end.
    pub(super) fn next_line(&mut self) -> Result<Option<Line<'_>>, LineError> {
        let mut searched = 0;
        let len = loop {
            let unread = self.buffer.get(self.start..self.end).unwrap_or_default();
            if self.offset == 0 && self.number == 0 && unread.starts_with(BOM) {
                self.start += BOM.len();
                self.offset += BOM.len() as u64;
                let bytes = self.buffer.get(..BOM.len()).unwrap_or_default();
                return Ok(Some(Line {
                    number: 1,
                    offset: 0,
                    bytes,
                    terminator: Terminator::None,
                }));
            }
            let rest = unread.get(searched..).unwrap_or_default();
            if let Some(at) = memchr::memchr(b'\n', rest) {
                break searched + at + 1;
            }
            if self.at_end {
                if unread.is_empty() {
                    return Ok(None);
                }
                break unread.len();
            }
            searched = unread.len();
            if searched > self.limit + 2 {
                return Err(LineError::TooLong(self.number + 1));
            }
            self.fill().map_err(LineError::Io)?;
        };
        let raw = self.buffer.get(self.start..self.start + len).unwrap_or_default();
        let offset = self.offset;
        self.start += len;
        self.offset += len as u64;
        self.number += 1;
        let (bytes, terminator) = match raw {
            [bytes @ .., b'\r', b'\n'] => (bytes, Terminator::CrLf),
            [bytes @ .., b'\n'] => (bytes, Terminator::Lf),
            bytes => (bytes, Terminator::None),
        };
        if bytes.len() > self.limit {
            return Err(LineError::TooLong(self.number));
        }
        Ok(Some(Line { number: self.number, offset, bytes, terminator }))
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let room = self.buffer.get_mut(self.end..).unwrap_or_default();
        let n = loop {
            match self.reader.read(room) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        self.end += n;
        self.at_end = n == 0;
        Ok(())
    }
}

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Whether bytes are a byte-order mark, which they are only at the start of a file.
pub(super) fn is_bom(bytes: &[u8]) -> bool {
    bytes == BOM
}

/// What comes behind a last line that had no end: its end, or bytes that are kept.
pub(super) fn continuation<'a>(line: &Line<'a>) -> Span<'a> {
    let damage = (!line.bytes.is_empty()).then_some(Damage::BadJson);
    let kind = if damage.is_some() { Kind::Damaged } else { Kind::Blank };
    let entry = Entry::new(kind, line.bytes).terminator(line.terminator);
    Span { entry: entry.detail(damage.map_or(0, |damage| damage as u8)), damage, foreign: false }
}

/// What a line is in the eyes of `format`, as a part of the session `session`.
pub(super) fn classify<'a>(line: &Line<'a>, format: &dyn Format, session: &str) -> Span<'a> {
    let bom = line.offset == 0 && is_bom(line.bytes) && line.terminator == Terminator::None;
    let blank = line.bytes.iter().all(|b| matches!(b, b' ' | b'\t' | b'\r' | 0x0B | 0x0C));
    let plain = |entry: Entry<'a>, foreign| Span {
        entry: entry.terminator(line.terminator),
        damage: None,
        foreign,
    };
    if bom || blank {
        return plain(Entry::new(Kind::Blank, line.bytes), false);
    }
    match format.classify(line.bytes) {
        // A record of another session takes no part in this one's conversation.
        Ok(record) if record.session.as_deref().is_some_and(|found| found != session) => {
            plain(Entry::new(Kind::Other, line.bytes), true)
        }
        Ok(record) => plain(record.into_entry(line.bytes), false),
        Err(damage) => {
            let torn = line.terminator == Terminator::None
                && matches!(damage, Damage::BadJson | Damage::InvalidUtf8);
            let damage = if torn { Damage::TornTail } else { damage };
            let entry = Entry::new(Kind::Damaged, line.bytes).detail(damage as u8);
            Span { damage: Some(damage), ..plain(entry, false) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Gives at most `step` bytes at a time.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len()).min(buf.len());
            buf[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    fn collect(bytes: &[u8], step: usize) -> Vec<(u64, u64, Vec<u8>, Terminator)> {
        let mut lines = Lines::new(Trickle(bytes, step), 1 << 20);
        let mut all = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            all.push((line.number, line.offset, line.bytes.to_vec(), line.terminator));
        }
        all
    }

    proptest! {
        #[test]
        fn lines_give_back_every_byte_however_it_is_read(
            bytes in proptest::collection::vec(
                prop_oneof![Just(b'\n'), Just(b'\r'), Just(0xEF), any::<u8>()], 0..400),
            bom in any::<bool>(),
            step in 1usize..50,
        ) {
            let bytes = if bom { [BOM, &bytes[..]].concat() } else { bytes };
            let lines = collect(&bytes, step);
            let mut joined = Vec::new();
            for (_, offset, line, terminator) in &lines {
                prop_assert_eq!(*offset, joined.len() as u64);
                joined.extend_from_slice(line);
                joined.extend_from_slice(terminator.as_bytes());
            }
            prop_assert_eq!(&joined, &bytes);
            prop_assert_eq!(lines, collect(&bytes, 1 << 20));
        }
    }

    #[test]
    fn unicode_line_separators_are_text() {
        let text = "a\u{2028}b\u{2029}c\u{85}d\n";
        assert_eq!(collect(text.as_bytes(), 7).len(), 1);
    }

    #[test]
    fn a_line_over_the_limit_is_an_error_not_memory() {
        let mut lines = Lines::new(io::repeat(b'x'), 1 << 20);
        assert!(matches!(lines.next_line(), Err(LineError::TooLong(1))));
        assert!(lines.buffer.len() <= 4 << 20);
    }
}
