//! Blocks: runs of consecutive events of one session, the values of the `events` table.
//!
//! A block is one frame. Its payload, compressed or not, is a row of
//! `kind u8 | terminator u8 | flags u8 | detail u8 | len u32 LE | bytes`. Blocks instead of a row
//! per event, because a row per event costs twice the space and scans several times slower.
//!
//! Invariant I8: the frame's CRC, the session and first seq in its header and the counts are
//! checked on every read; what fails is an error that names the block, never data.

use std::cell::RefCell;
use std::sync::Arc;

use crate::entry::{Flags, Kind, SharedBytes, StoredEntry, Terminator};
use crate::error::{Error, Result};
use crate::frame::{self, Codec, Frame, FrameError, FrameKind};

/// The largest stored block, frame included: with its key it fills four pages of the B-tree.
pub(crate) const BLOCK_BYTES_MAX: usize = 16_360;
/// The largest one where very many sessions are live: half-full blocks then cost less.
pub(crate) const SMALL_BLOCK_BYTES_MAX: usize = 8_168;
/// No block of several events holds more before compression: a reader keeps one block in memory.
const RAW_BYTES_MAX: usize = 1 << 20;
/// How full a block is to become: fuller ones turn out too large more often, and are then
/// compressed again (aimed at 1.0, each 1.36 times and 0.93 full; at 0.95, 1.11 times and 0.92).
const AIM: f64 = 0.95;
/// Bytes beside each event's own.
const TAG_BYTES: usize = 8;
/// Frame and header of a block, at most.
const FRAME_BYTES_MAX: usize = frame::PREFIX_BYTES + 9 + 9 + 5 + 5;

/// The header of a block's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(crate) struct BlockHeader {
    pub(crate) session: u64,
    pub(crate) first_seq: u64,
    pub(crate) entries: u32,
    pub(crate) raw_len: u32,
}

/// A decoded block.
#[derive(Clone)]
pub(crate) struct Block {
    pub(crate) first_seq: u64,
    raw: Arc<Vec<u8>>,
    /// Where each entry's tag stands in `raw`.
    offsets: Arc<Vec<u32>>,
}

impl Block {
    /// The seq behind the last one.
    pub(crate) fn end_seq(&self) -> u64 {
        self.first_seq + self.offsets.len() as u64
    }

    /// The entry `seq`, if it is here.
    pub(crate) fn entry(&self, seq: u64) -> Option<StoredEntry> {
        let index = usize::try_from(seq.checked_sub(self.first_seq)?).ok()?;
        let at = *self.offsets.get(index)? as usize;
        let (tag, _) = self.raw.get(at..)?.split_first_chunk::<TAG_BYTES>()?;
        let [kind, terminator, flags, detail, len @ ..] = *tag;
        let start = at + TAG_BYTES;
        let end = start + u32::from_le_bytes(len) as usize;
        Some(StoredEntry {
            seq,
            kind: Kind::from_byte(kind)?,
            terminator: Terminator::from_byte(terminator)?,
            flags: Flags(flags),
            detail,
            bytes: SharedBytes::new(self.raw.clone(), start..end),
        })
    }

    /// All entries in order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = StoredEntry> + '_ {
        (self.first_seq..self.end_seq()).filter_map(|seq| self.entry(seq))
    }
}

/// The name of a block in errors.
pub(crate) fn place(session: u64, first_seq: u64) -> String {
    format!("events.redb, block (session {session}, first event {first_seq})")
}

fn corrupt(session: u64, first_seq: u64, what: &dyn std::fmt::Display) -> Error {
    Error::corrupt(place(session, first_seq), None, what)
}

/// Whether what is stored under `(session, first_seq)` is that block, whole; its content is not
/// decompressed.
///
/// # Errors
///
/// `Corrupt` that names the block.
pub(crate) fn check(stored: &[u8], seed: u32, session: u64, first_seq: u64) -> Result<()> {
    read_frame(stored, seed, session, first_seq).map(drop)
}

fn read_frame(
    stored: &[u8],
    seed: u32,
    session: u64,
    first_seq: u64,
) -> Result<(Frame<'_>, BlockHeader)> {
    let corrupt = |what: &dyn std::fmt::Display| corrupt(session, first_seq, what);
    let frame = frame::read_exact(FrameKind::Block, seed, stored).map_err(|e| corrupt(&e))?;
    let header: BlockHeader = frame.head.decode().map_err(|e| corrupt(&e))?;
    if (header.session, header.first_seq) != (session, first_seq) {
        return Err(corrupt(&format_args!(
            "the block belongs to session {}, event {}",
            header.session, header.first_seq
        )));
    }
    Ok((frame, header))
}

/// Checks and decodes the block stored under `(session, first_seq)`.
///
/// # Errors
///
/// `Corrupt` that names the block.
pub(crate) fn decode(stored: &[u8], seed: u32, session: u64, first_seq: u64) -> Result<Block> {
    let corrupt = |what: &dyn std::fmt::Display| corrupt(session, first_seq, what);
    let (frame, header) = read_frame(stored, seed, session, first_seq)?;
    let raw_len = header.raw_len as usize;
    let raw = match frame.head.codec {
        0 => frame.payload.to_vec(),
        1 => decompress(frame.payload, raw_len)
            .map_err(|e| corrupt(&format_args!("the block does not decompress: {e}")))?,
        other => return Err(corrupt(&format_args!("the block has the unknown codec {other}"))),
    };
    let offsets = (raw.len() == raw_len).then(|| tags(&raw, header.entries)).flatten();
    let offsets = offsets.ok_or_else(|| corrupt(&FrameError::Content))?;
    Ok(Block { first_seq, raw: Arc::new(raw), offsets: Arc::new(offsets) })
}

/// What `payload` decompresses to, at most `raw_len` bytes.
fn decompress(payload: &[u8], raw_len: usize) -> std::io::Result<Vec<u8>> {
    thread_local! {
        // One for each block made a resume 5 % slower.
        static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> =
            const { RefCell::new(None) };
    }
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let mut decompressor = match kept.take() {
            Some(decompressor) => decompressor,
            None => zstd::bulk::Decompressor::new()?,
        };
        let raw = decompressor.decompress(payload, raw_len);
        *kept = Some(decompressor);
        raw
    })
}

/// The offsets of `count` tags that account for every byte of `raw`.
fn tags(raw: &[u8], count: u32) -> Option<Vec<u32>> {
    let mut offsets = Vec::with_capacity((count as usize).min(raw.len() / TAG_BYTES + 1));
    let mut at = 0usize;
    for _ in 0..count {
        let (tag, _) = raw.get(at..)?.split_first_chunk::<TAG_BYTES>()?;
        let [kind, terminator, _, _, len @ ..] = *tag;
        Kind::from_byte(kind)?;
        Terminator::from_byte(terminator)?;
        offsets.push(u32::try_from(at).ok()?);
        at = at.checked_add(TAG_BYTES)?.checked_add(u32::from_le_bytes(len) as usize)?;
    }
    (at == raw.len()).then_some(offsets)
}

/// Makes blocks of at most a given stored size.
pub(crate) struct Builder {
    compressor: zstd::bulk::Compressor<'static>,
    seed: u32,
    limit: usize,
    /// Stored bytes per raw byte, smoothed over the last blocks: where to cut the next one.
    ratio: f64,
    raw: Vec<u8>,
}

/// A block to be stored.
pub(crate) struct Built {
    pub(crate) first_seq: u64,
    pub(crate) entries: usize,
    pub(crate) stored: Vec<u8>,
}

impl Builder {
    pub(crate) fn new(seed: u32, limit: usize, level: i32) -> Result<Builder> {
        let compressor = zstd::bulk::Compressor::new(level)
            .map_err(|e| Error::io("cannot set up the compressor", e))?;
        Ok(Builder { compressor, seed, limit, ratio: 0.25, raw: Vec::new() })
    }

    /// The first block of `entries`, which are consecutive and start with `first_seq`: as many of
    /// them as fit, at least one.
    pub(crate) fn build(
        &mut self,
        session: u64,
        first_seq: u64,
        entries: &[StoredEntry],
    ) -> Result<Built> {
        let room = self.limit - FRAME_BYTES_MAX;
        let mut target = (room as f64 * AIM / self.ratio) as usize;
        let mut best: Option<Built> = None;
        // A few tries find a block that is well filled; the first that fits is already right.
        for _ in 0..4 {
            let count = self.fill(entries, target.clamp(room, RAW_BYTES_MAX));
            if best.as_ref().is_some_and(|best| best.entries == count) {
                break;
            }
            let built = self.seal(session, first_seq, count)?;
            let raw = self.raw.len();
            let ratio = built.stored.len() as f64 / raw as f64;
            let scaled = |fill: f64| (room as f64 * fill / ratio) as usize;
            if built.stored.len() > self.limit && count > 1 {
                if best.is_some() {
                    break;
                }
                self.ratio = ratio;
                target = scaled(0.9).min(raw - 1);
                continue;
            }
            self.ratio = (self.ratio + ratio) / 2.0;
            let full = built.stored.len() * 10 >= self.limit * 8 || raw * 2 > RAW_BYTES_MAX;
            let all = count == entries.len();
            best = Some(built);
            if full || all {
                break;
            }
            target = scaled(AIM);
        }
        match best {
            Some(best) => Ok(best),
            // The entries differ too much from each other: one at a time always works.
            None => {
                let count = self.fill(entries, 0);
                self.seal(session, first_seq, count)
            }
        }
    }

    /// Fills `raw` with as many entries as `target` bytes hold, at least one.
    fn fill(&mut self, entries: &[StoredEntry], target: usize) -> usize {
        self.raw.clear();
        let mut count = 0;
        for entry in entries {
            let bytes = entry.bytes();
            if count > 0 && self.raw.len() + TAG_BYTES + bytes.len() > target {
                break;
            }
            let tag = [entry.kind as u8, entry.terminator as u8, entry.flags.0, entry.detail];
            self.raw.extend_from_slice(&tag);
            self.raw.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            self.raw.extend_from_slice(bytes);
            count += 1;
        }
        count
    }

    fn seal(&mut self, session: u64, first_seq: u64, count: usize) -> Result<Built> {
        let compressed = self
            .compressor
            .compress(&self.raw)
            .map_err(|e| Error::io("cannot compress a block", e))?;
        let (codec, payload) = if compressed.len() < self.raw.len() {
            (Codec::Zstd, &compressed)
        } else {
            (Codec::Raw, &self.raw)
        };
        let header = BlockHeader {
            session,
            first_seq,
            entries: count as u32,
            raw_len: self.raw.len() as u32,
        };
        let header = frame::encode_header(&header);
        let stored = frame::encode(FrameKind::Block, codec, self.seed, &header, payload);
        Ok(Built { first_seq, entries: count, stored })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(lines: &[Vec<u8>]) -> Vec<StoredEntry> {
        let make = |(seq, line): (usize, &Vec<u8>)| StoredEntry {
            seq: seq as u64,
            kind: Kind::Message,
            terminator: Terminator::CrLf,
            flags: Flags::USER_TURN,
            detail: 9,
            bytes: SharedBytes::new(Arc::new(line.clone()), 0..line.len()),
        };
        lines.iter().enumerate().map(make).collect()
    }

    fn noise(len: usize, seed: u64) -> Vec<u8> {
        let mut state = seed | 1;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    fn build_all(lines: &[Vec<u8>], limit: usize) -> Vec<Built> {
        let entries = entries(lines);
        let mut builder = Builder::new(5, limit, 1).unwrap();
        let mut rest = &entries[..];
        let mut blocks = Vec::new();
        while let Some(first) = rest.first() {
            let built = builder.build(1, first.seq, rest).unwrap();
            rest = &rest[built.entries..];
            blocks.push(built);
        }
        blocks
    }

    #[test]
    fn blocks_of_any_mixture_fit_their_limit_and_read_back() {
        let mut lines: Vec<Vec<u8>> = Vec::new();
        for i in 0..600usize {
            lines.push(match i % 7 {
                0 => noise(i * 3, i as u64),
                1 => vec![b'x'; i * 50],
                2 => Vec::new(),
                _ => format!("{{\"n\":{i},\"text\":\"the same words again and again\"}}").into(),
            });
        }
        let blocks = build_all(&lines, BLOCK_BYTES_MAX);
        let mut seen = Vec::new();
        for built in &blocks {
            assert!(built.stored.len() <= BLOCK_BYTES_MAX || built.entries == 1);
            let block = decode(&built.stored, 5, 1, built.first_seq).unwrap();
            assert_eq!(block.end_seq() - block.first_seq, built.entries as u64);
            for entry in block.entries() {
                assert_eq!(entry.terminator(), Terminator::CrLf);
                assert_eq!(entry.detail(), 9);
                seen.push(entry.bytes().to_vec());
            }
        }
        assert_eq!(seen, lines);
    }

    #[test]
    fn noise_fills_its_blocks() {
        let lines: Vec<_> = (0..400).map(|i| noise(1024, i)).collect();
        let blocks = build_all(&lines, BLOCK_BYTES_MAX);
        let stored: usize = blocks.iter().map(|b| b.stored.len()).sum();
        assert!(blocks.len() <= 400 / 14, "{} blocks", blocks.len());
        assert!(stored < 400 * 1024 * 102 / 100, "{stored} bytes");
    }

    #[test]
    fn an_event_larger_than_a_block_gets_its_own() {
        let blocks = build_all(&[vec![b'a'; 10], noise(100_000, 1), vec![b'b'; 10]], 8_168);
        assert!(blocks.iter().any(|b| b.entries == 1 && b.stored.len() > 100_000));
    }

    #[test]
    fn every_flipped_bit_of_a_block_is_an_error_that_names_it() {
        let built = &build_all(&[b"{\"a\":1}".to_vec(), noise(40, 3)], BLOCK_BYTES_MAX)[0];
        for bit in 0..built.stored.len() * 8 {
            let mut stored = built.stored.clone();
            stored[bit / 8] ^= 1 << (bit % 8);
            let Err(error) = decode(&stored, 5, 1, 0) else { panic!("bit {bit} passed") };
            assert!(error.to_string().contains("session 1, first event 0"), "{error}");
        }
    }

    #[test]
    fn a_block_under_another_key_or_of_another_store_is_refused() {
        let built = &build_all(&[b"{}".to_vec()], BLOCK_BYTES_MAX)[0];
        assert!(decode(&built.stored, 5, 2, 0).is_err());
        assert!(decode(&built.stored, 5, 1, 1).is_err());
        assert!(decode(&built.stored, 6, 1, 0).is_err());
    }
}
