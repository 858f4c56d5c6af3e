//! The insides that fuzzers look at: frames and blocks. Not for hosts, and without any promise.

use crate::entry::{Flags, Kind, SharedBytes, StoredEntry, Terminator};
use crate::frame::{self, Codec, FrameKind};
use crate::store::block;

fn kind(byte: u8) -> FrameKind {
    [FrameKind::Segment, FrameKind::Batch, FrameKind::Close, FrameKind::Block, FrameKind::Session]
        .into_iter()
        .nth(usize::from(byte) % 5)
        .unwrap_or(FrameKind::Batch)
}

/// The lengths of header and payload of the frame at the start of `bytes`, if there is one.
pub fn frame(kind: u8, seed: u32, bytes: &[u8]) -> Option<(usize, usize)> {
    let frame = frame::read(self::kind(kind), seed, bytes).ok()?;
    Some((frame.head.header.len(), frame.payload.len()))
}

/// A frame without a header around `payload`.
pub fn framed(kind: u8, seed: u32, payload: &[u8]) -> Vec<u8> {
    frame::encode(self::kind(kind), Codec::Raw, seed, b"", payload)
}

/// The lines of a stored block, if it is one.
pub fn block(stored: &[u8], session: u64, first_seq: u64) -> Option<Vec<Vec<u8>>> {
    let block = block::decode(stored, 0, session, first_seq).ok()?;
    Some(block.entries().map(|entry| entry.bytes().to_vec()).collect())
}

/// A block of the first of `lines`, and how many it holds.
pub fn block_of(lines: &[&[u8]], session: u64, first_seq: u64) -> (Vec<u8>, usize) {
    let entry = |(seq, line): (u64, &&[u8])| StoredEntry {
        seq,
        kind: Kind::Message,
        terminator: Terminator::Lf,
        flags: Flags::default(),
        detail: 0,
        bytes: SharedBytes::new(line.to_vec().into(), 0..line.len()),
    };
    let entries: Vec<StoredEntry> = (first_seq..).zip(lines).map(entry).collect();
    let builder = block::Builder::new(0, block::BLOCK_BYTES_MAX, 1);
    let built = builder.and_then(|mut builder| builder.build(session, first_seq, &entries));
    built.map(|built| (built.stored, built.entries)).unwrap_or_default()
}
