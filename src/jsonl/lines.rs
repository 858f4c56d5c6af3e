//! A file as a row of lines. Lines end at `\n` alone; `\r` before it belongs to the line end.
//!
//! Memory is bounded by the longest line, and that by a limit: a line over it is given in parts.

use std::io::{self, Read};

use crate::bytes::within;
use crate::entry::Terminator;

/// The longest line where there is no log whose limit holds.
pub(super) const LINE_BYTES_MAX: usize = 256 << 20;

/// A line as it stands in the file, or a part of one that is over the limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// From 1.
    pub(super) number: u64,
    /// Where it begins in the file.
    pub(super) offset: u64,
    /// Without the line end.
    pub(super) bytes: &'a [u8],
    pub(super) terminator: Terminator,
    /// The line is over the limit; this is all of it or a part.
    pub(super) oversize: bool,
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
    /// How much of a line over the limit is given at once.
    part: usize,
    /// Inside a line that is over the limit.
    oversize: bool,
}

const BUFFER_BYTES: usize = 256 << 10;
/// The parts in which a line over the limit is given.
const PART_BYTES: usize = 1 << 20;
const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Whether bytes are a byte-order mark, which they are only at the start of a file.
pub(super) fn is_bom(bytes: &[u8]) -> bool {
    bytes == BOM
}

/// A line without its end, and the end.
fn without_end(raw: &[u8]) -> (&[u8], Terminator) {
    match raw {
        [bytes @ .., b'\r', b'\n'] => (bytes, Terminator::CrLf),
        [bytes @ .., b'\n'] => (bytes, Terminator::Lf),
        bytes => (bytes, Terminator::None),
    }
}

impl<R: Read> Lines<R> {
    /// Lines of at most `limit` bytes.
    pub(super) fn new(reader: R, limit: usize) -> Lines<R> {
        Lines::resume(reader, limit, 0, 0)
    }

    /// Lines from `offset` on, behind `number` line ends.
    pub(super) fn resume(reader: R, limit: usize, offset: u64, number: u64) -> Lines<R> {
        let buffer = vec![0; BUFFER_BYTES];
        Lines {
            reader,
            buffer,
            start: 0,
            end: 0,
            offset,
            number,
            at_end: false,
            limit,
            part: PART_BYTES.min(limit).max(1),
            oversize: false,
        }
    }

    /// Begins inside of a line over the limit, if `yes`.
    pub(super) fn inside_oversize(mut self, yes: bool) -> Lines<R> {
        self.oversize = yes;
        self
    }

    /// The next line, or a byte-order mark, or `None` at the end.
    ///
    /// # Errors
    ///
    /// What the reader reports.
    pub(super) fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut searched = 0;
        let mut len = loop {
            let unread = within(&*self.buffer, self.start..self.end);
            if self.offset == 0 && self.number == 0 && unread.starts_with(BOM) {
                return Ok(Some(self.take(BOM.len())));
            }
            // Inside a line over the limit only the next part matters.
            let unread = match self.oversize {
                true => within(unread, ..unread.len().min(self.part)),
                false => unread,
            };
            let rest = within(unread, searched..);
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
            if searched > self.limit + 2 || (self.oversize && searched >= self.part) {
                break searched;
            }
            self.fill()?;
        };
        let raw = within(&*self.buffer, self.start..self.start + len);
        self.oversize |= without_end(raw).0.len() > self.limit;
        if self.oversize {
            len = len.min(self.part);
        }
        Ok(Some(self.take(len)))
    }

    /// Takes `len` bytes off the buffer.
    fn take(&mut self, len: usize) -> Line<'_> {
        let raw = within(&*self.buffer, self.start..self.start + len);
        let (offset, number) = (self.offset, self.number + 1);
        self.start += len;
        self.offset += len as u64;
        let (bytes, terminator) = without_end(raw);
        let oversize = self.oversize;
        if terminator != Terminator::None {
            self.number += 1;
            self.oversize = false;
        }
        Line { number, offset, bytes, terminator, oversize }
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
        let (_, room) = self.buffer.split_at_mut(self.end);
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

    fn collect(bytes: &[u8], step: usize, limit: usize) -> Vec<(u64, u64, Vec<u8>, Terminator)> {
        let mut lines = Lines::new(Trickle(bytes, step), limit);
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
            limit in prop_oneof![Just(1usize << 20), 1usize..60],
        ) {
            let bytes = if bom { [BOM, &bytes[..]].concat() } else { bytes };
            let lines = collect(&bytes, step, limit);
            let mut joined = Vec::new();
            let mut ends = 0;
            for (number, offset, line, terminator) in &lines {
                prop_assert_eq!(*offset, joined.len() as u64);
                prop_assert_eq!(*number, ends + 1);
                ends += u64::from(*terminator != Terminator::None);
                joined.extend_from_slice(line);
                joined.extend_from_slice(terminator.as_bytes());
            }
            prop_assert_eq!(&joined, &bytes);
            if limit == 1 << 20 {
                prop_assert_eq!(lines, collect(&bytes, 1 << 20, limit));
            }
        }
    }

    #[test]
    fn unicode_line_separators_are_text() {
        let text = "a\u{2028}b\u{2029}c\u{85}d\n";
        assert_eq!(collect(text.as_bytes(), 7, 1 << 20).len(), 1);
    }

    #[test]
    fn a_line_over_the_limit_comes_in_parts_and_takes_no_memory() {
        let endless = io::repeat(b'x').take(64 << 20).chain(&b"\nrest"[..]);
        let mut lines = Lines::new(endless, 1 << 20);
        let mut bytes = 0;
        while let Some(line) = lines.next_line().unwrap() {
            assert_eq!((line.number == 1, line.oversize), (line.oversize, line.number == 1));
            bytes += line.bytes.len();
        }
        assert_eq!(bytes, (64 << 20) + 4);
        assert!(lines.buffer.len() <= 4 << 20);
    }
}
