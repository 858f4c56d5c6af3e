//! The records inside a batch: building them, and reading them back.
//!
//! A batch's payload is a row of records and one end mark. Integers are little-endian.
//!
//! ```text
//!  declare   1 | session u64 | len u16 | id (UTF-8)
//!  entry     2 | session u64 | seq u64 | kind u8 | terminator u8 | flags u8 | detail u8 | len u32 | bytes
//!  run       3 | session u64 | len u16 | name (UTF-8)
//!  describe  4 | session u64 | len u32 | attributes (bincode)
//!  end       0xA5
//! ```
//!
//! `declare` gives a session its number, before its first entry. `run` names the run that the next
//! entry of that session begins (its flag says so too). The end mark is never zero, so a write that
//! stopped short of it shows.

use std::ops::Range;

use crate::bytes::within;
use crate::entry::{Flags, Kind, Terminator};
use crate::frame::{self, Codec, FrameKind, PREFIX_BYTES};
use crate::io::File;

use super::{Epoch, Lsn, Position};

const DECLARE: u8 = 1;
const ENTRY: u8 = 2;
const RUN: u8 = 3;
const DESCRIBE: u8 = 4;
/// The last byte of every batch.
pub(crate) const END: u8 = 0xA5;

/// Bytes that an entry record takes beside the entry's own.
pub(crate) const ENTRY_OVERHEAD_BYTES: usize = 1 + 8 + 8 + 4 + 4;
/// Room for the frame's prefix and header in front of the records.
const ROOM_BYTES: usize = PREFIX_BYTES + 48;
/// How much unused memory a sealed batch may hold.
const SPARE_BYTES_MAX: usize = 64 << 10;
/// What may stand between two tears of a write.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// The header of a batch's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(crate) struct BatchHeader {
    pub(crate) epoch: Epoch,
    pub(crate) batch: u64,
    pub(crate) first_lsn: Lsn,
    pub(crate) entries: u32,
    pub(crate) previous_crc: u32,
    /// Wall clock when the batch was written.
    pub(crate) unix_micros: u64,
    /// Some whole 512-byte sector of this frame is zeros by right, so zeros prove no tear.
    pub(crate) zero_sectors: bool,
}

/// What is kept of an entry beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryHead {
    pub(crate) session: u64,
    pub(crate) seq: u64,
    pub(crate) kind: Kind,
    pub(crate) terminator: Terminator,
    pub(crate) flags: Flags,
    pub(crate) detail: u8,
}

/// A batch under construction.
#[derive(Debug, Default)]
pub(crate) struct BatchBuffer {
    bytes: Vec<u8>,
    entries: u32,
}

impl BatchBuffer {
    /// Bytes of the frame so far, roughly.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Makes room for `needed` more bytes of records: all of a small batch, and its end, in one
    /// piece.
    pub(crate) fn reserve(&mut self, needed: usize) {
        if self.bytes.is_empty() {
            self.bytes.reserve_exact(ROOM_BYTES + needed + 1);
        } else {
            self.bytes.reserve(needed + 1);
        }
    }

    fn push(&mut self, parts: &[&[u8]]) {
        if self.bytes.is_empty() {
            self.bytes.resize(ROOM_BYTES, 0);
        }
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
    }

    pub(crate) fn declare(&mut self, session: u64, id: &str) {
        let len = id.len() as u16;
        self.push(&[&[DECLARE], &session.to_le_bytes(), &len.to_le_bytes(), id.as_bytes()]);
    }

    pub(crate) fn run(&mut self, session: u64, name: &str) {
        let len = name.len() as u16;
        self.push(&[&[RUN], &session.to_le_bytes(), &len.to_le_bytes(), name.as_bytes()]);
    }

    pub(crate) fn describe(&mut self, session: u64, attributes: &[u8]) {
        let len = attributes.len() as u32;
        self.push(&[&[DESCRIBE], &session.to_le_bytes(), &len.to_le_bytes(), attributes]);
    }

    /// Adds an entry and returns where its bytes stand in the sealed batch.
    pub(crate) fn entry(&mut self, head: EntryHead, bytes: &[u8]) -> Range<usize> {
        let tags = [head.kind as u8, head.terminator as u8, head.flags.0, head.detail];
        let len = bytes.len() as u32;
        self.push(&[
            &[ENTRY],
            &head.session.to_le_bytes(),
            &head.seq.to_le_bytes(),
            &tags,
            &len.to_le_bytes(),
            bytes,
        ]);
        self.entries += 1;
        self.bytes.len() - bytes.len()..self.bytes.len()
    }

    /// The length of the frame that [`BatchBuffer::seal`] will make, at most.
    pub(crate) fn frame_len_max(&self) -> u64 {
        self.bytes.len() as u64 + 1
    }

    /// Finishes the batch as the successor of `after`, to be written at `offset` of segment
    /// `epoch`. Entry ranges handed out before stay valid in [`SealedBatch::bytes`].
    pub(crate) fn seal(
        mut self,
        epoch: Epoch,
        offset: u64,
        after: &Position,
        unix_micros: u64,
    ) -> SealedBatch {
        self.push(&[&[END]]);
        // The memtable keeps this buffer: what was reserved and not used would be kept with it.
        if self.bytes.capacity() - self.bytes.len() > SPARE_BYTES_MAX {
            self.bytes.shrink_to_fit();
        }
        let mut header = BatchHeader {
            epoch,
            batch: after.batch + 1,
            first_lsn: Lsn(after.lsn.0 + 1),
            entries: self.entries,
            previous_crc: after.crc,
            unix_micros,
            zero_sectors: false,
        };
        let payload = within(&*self.bytes, ROOM_BYTES..);
        let encoded = frame::encode_header(&header);
        let payload_at = offset + (PREFIX_BYTES + encoded.len()) as u64;
        header.zero_sectors = has_zero_sector(payload, payload_at);
        let encoded = frame::encode_header(&header);
        let (head, crc) = frame::seal(FrameKind::Batch, Codec::Raw, epoch.0, &encoded, payload);
        let start = ROOM_BYTES - head.len();
        if let Some(room) = self.bytes.get_mut(start..ROOM_BYTES) {
            room.copy_from_slice(&head);
        }
        let end = Position {
            lsn: Lsn(after.lsn.0 + u64::from(self.entries)),
            batch: header.batch,
            crc,
            epoch,
            offset: offset + (self.bytes.len() - start) as u64,
        };
        SealedBatch { bytes: self.bytes, start, end }
    }
}

/// A batch ready to be written.
#[derive(Debug)]
pub(crate) struct SealedBatch {
    /// The frame stands at `start..`.
    pub(crate) bytes: Vec<u8>,
    pub(crate) start: usize,
    /// The point behind this batch.
    pub(crate) end: Position,
}

impl SealedBatch {
    pub(crate) fn frame(&self) -> &[u8] {
        within(&*self.bytes, self.start..)
    }

    /// Writes the frame where it was sealed for.
    pub(crate) fn write_to(&self, file: &dyn File) -> std::io::Result<()> {
        let frame = self.frame();
        crate::io::write_all_at(file, frame, self.end.offset - frame.len() as u64)
    }
}

/// Whether `bytes`, standing at `at` in a file, contain a part of a sector that is all zeros.
pub(crate) fn has_zero_sector(bytes: &[u8], at: u64) -> bool {
    let first = (SECTOR_BYTES - at % SECTOR_BYTES) as usize;
    let (head, rest) = bytes.split_at(first.min(bytes.len()));
    let mut parts = std::iter::once(head).chain(rest.chunks(SECTOR_BYTES as usize));
    parts.any(|part| !part.is_empty() && part.iter().all(|b| *b == 0))
}

/// One record of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    Declare {
        session: u64,
        id: &'a str,
    },
    /// `range` is where the bytes stand in the payload.
    Entry {
        head: EntryHead,
        range: Range<usize>,
    },
    Run {
        session: u64,
        name: &'a str,
    },
    Describe {
        session: u64,
        attributes: &'a [u8],
    },
}

/// The records of a checked payload. An error says that the writer was wrong or newer; the CRC has
/// already vouched for the bytes.
pub(crate) fn records(payload: &[u8]) -> Records<'_> {
    Records { payload, at: 0, ended: false }
}

/// See [`records`].
#[derive(Debug)]
pub(crate) struct Records<'a> {
    payload: &'a [u8],
    at: usize,
    ended: bool,
}

impl<'a> Records<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let bytes = self.payload.get(self.at..self.at.checked_add(n)?)?;
        self.at += n;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a str> {
        let len = self.array().map(u16::from_le_bytes)?;
        std::str::from_utf8(self.take(usize::from(len))?).ok()
    }

    fn record(&mut self) -> Option<Option<Record<'a>>> {
        let [tag] = self.array()?;
        if tag == END {
            return (self.at == self.payload.len()).then_some(None);
        }
        let session = self.u64()?;
        Some(Some(match tag {
            DECLARE => Record::Declare { session, id: self.text()? },
            RUN => Record::Run { session, name: self.text()? },
            DESCRIBE => {
                let len = self.array().map(u32::from_le_bytes)?;
                Record::Describe { session, attributes: self.take(len as usize)? }
            }
            ENTRY => {
                let seq = self.u64()?;
                let [kind, terminator, flags, detail] = self.array()?;
                let head = EntryHead {
                    session,
                    seq,
                    kind: Kind::from_byte(kind)?,
                    terminator: Terminator::from_byte(terminator)?,
                    flags: Flags(flags),
                    detail,
                };
                let len = self.array().map(u32::from_le_bytes)? as usize;
                self.take(len)?;
                Record::Entry { head, range: self.at - len..self.at }
            }
            _ => return None,
        }))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, frame::FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        match self.record() {
            Some(Some(record)) => Some(Ok(record)),
            Some(None) => {
                self.ended = true;
                None
            }
            None => {
                self.ended = true;
                Some(Err(frame::FrameError::Content))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(seq: u64) -> EntryHead {
        EntryHead {
            session: 3,
            seq,
            kind: Kind::Message,
            terminator: Terminator::Lf,
            flags: Flags::default(),
            detail: 0,
        }
    }

    #[test]
    fn a_sealed_batch_reads_back_and_entry_ranges_stay_valid() {
        let mut buffer = BatchBuffer::default();
        buffer.declare(3, "s-1");
        buffer.run(3, "run-1");
        let first = buffer.entry(head(0), b"{\"a\":1}");
        let second = buffer.entry(head(1), b"");
        buffer.describe(3, b"abc");
        let sealed = buffer.seal(Epoch(4), 100, &Position::default(), 5);
        assert_eq!(sealed.bytes.get(first).unwrap(), b"{\"a\":1}");
        assert!(sealed.bytes.get(second).unwrap().is_empty());
        let frame = frame::read_exact(FrameKind::Batch, 4, sealed.frame()).unwrap();
        let header: BatchHeader = frame.head.decode().unwrap();
        assert_eq!((header.batch, header.entries, header.unix_micros), (1, 2, 5));
        assert_eq!(frame.head.crc, sealed.end.crc);
        let found: Vec<_> = records(frame.payload).collect::<Result<_, _>>().unwrap();
        assert_eq!(found.len(), 5);
        assert_eq!(found[0], Record::Declare { session: 3, id: "s-1" });
        assert_eq!(found[4], Record::Describe { session: 3, attributes: b"abc" });
        assert_eq!((sealed.end.batch, sealed.end.lsn), (1, Lsn(2)));
    }

    #[test]
    fn records_never_panic_on_any_cut_or_byte() {
        let mut buffer = BatchBuffer::default();
        buffer.declare(3, "s-1");
        buffer.entry(head(0), b"bytes");
        let sealed = buffer.seal(Epoch(1), 0, &Position::default(), 0);
        let frame = frame::read_exact(FrameKind::Batch, 1, sealed.frame()).unwrap();
        for cut in 0..frame.payload.len() {
            assert!(records(&frame.payload[..cut]).any(|r| r.is_err()), "cut {cut}");
        }
        for at in 0..frame.payload.len() {
            for byte in [0, 1, 2, 3, 4, 0xA5, 0xFF] {
                let mut payload = frame.payload.to_vec();
                payload[at] = byte;
                _ = records(&payload).count();
            }
        }
    }

    #[test]
    fn zero_sectors_are_seen_where_they_stand() {
        assert!(!has_zero_sector(&[1; 2000], 7));
        let mut bytes = vec![1; 2000];
        bytes[505..1017].fill(0);
        assert!(has_zero_sector(&bytes, 7)); // file bytes 512..1024
        assert!(!has_zero_sector(&bytes, 8));
    }
}
