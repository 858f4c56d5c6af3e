//! The one framing of everything that the crate stores: journal batches, segment heads, blocks and
//! session records.
//!
//! ```text
//!  0       4      5       6            8             12            16           20       20+h     20+h+p
//!  +-------+------+-------+------------+-------------+-------------+------------+--------+---------+
//!  | magic | kind | codec | header len | payload len | payload crc | header crc | header | payload |
//!  | 4     | u8   | u8    | u16 LE     | u32 LE      | u32 LE      | u32 LE     | h      | p       |
//!  +-------+------+-------+------------+-------------+-------------+------------+--------+---------+
//! ```
//!
//! Both checksums are CRC-32 (IEEE) and start from a seed: the segment's epoch in the journal, a
//! number derived from the store's id elsewhere, so that a frame of another epoch or another store
//! never passes. The header CRC covers bytes 0..16 and the header; through the payload CRC that
//! stands in those bytes it vouches for the payload too, and is therefore the name of the whole
//! frame (the journal chains batches by it). Two CRCs, because a frame whose header is whole has a
//! known extent, and recovery's verdict on a damaged payload depends on that extent.
//!
//! Invariant (I8): nothing is decoded before its CRC has been checked. What fails is a
//! [`FrameError`]; no input panics.

use std::ops::Range;

use bincode::config;

use crate::planted::planted;

/// Bytes before the header.
pub(crate) const PREFIX_BYTES: usize = 20;
/// No header is longer; longer ones are damage. A session record with its names is the largest.
const HEADER_BYTES_MAX: usize = 60 << 10;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FrameKind {
    /// The head of a journal segment.
    Segment = 1,
    /// An atomic batch of journal records.
    Batch = 2,
    /// The last frame of a cleanly closed journal.
    Close = 3,
    /// A run of consecutive events of one session.
    Block = 4,
    /// A session record.
    Session = 5,
    /// A value of the `meta` table.
    Meta = 6,
    /// The last frame of a journal segment that is full: which segment comes next.
    Next = 7,
    /// What was derived from a session's events.
    Projection = 8,
}

/// How the payload is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Codec {
    /// As it is.
    Raw = 0,
    /// One zstd frame.
    Zstd = 1,
}

impl FrameKind {
    fn magic(self) -> &'static [u8; 4] {
        match self {
            FrameKind::Segment => b"EVLS",
            FrameKind::Batch => b"EVLB",
            FrameKind::Close => b"EVLC",
            FrameKind::Block => b"EVBK",
            FrameKind::Session => b"EVSR",
            FrameKind::Meta => b"EVMT",
            FrameKind::Next => b"EVLN",
            FrameKind::Projection => b"EVPJ",
        }
    }
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameError {
    /// Fewer bytes than the frame needs.
    Short,
    /// Another magic or kind.
    Magic,
    /// Prefix or header are damaged: the extent is unknown.
    Header,
    /// The header is whole, the payload is damaged.
    Payload,
    /// A whole frame whose content this version cannot decode.
    Content,
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FrameError::Short => "the frame is cut off",
            FrameError::Magic => "no frame of the expected kind stands here",
            FrameError::Header => "the frame's header does not match its checksum",
            FrameError::Payload => "the frame's payload does not match its checksum",
            FrameError::Content => "the frame's content cannot be decoded",
        })
    }
}

/// The checked prefix and header of a frame, whose payload has not been looked at.
#[derive(Clone, Debug)]
pub(crate) struct Head<'a> {
    pub(crate) codec: u8,
    pub(crate) header: &'a [u8],
    pub(crate) payload_len: usize,
    /// The name of the frame.
    pub(crate) crc: u32,
    payload_crc: u32,
}

impl Head<'_> {
    /// Bytes of the whole frame.
    pub(crate) fn frame_len(&self) -> usize {
        PREFIX_BYTES + self.header.len() + self.payload_len
    }

    /// Where the payload stands in the frame.
    pub(crate) fn payload_range(&self) -> Range<usize> {
        PREFIX_BYTES + self.header.len()..self.frame_len()
    }

    /// Decodes the first field of the header: the version, whatever a newer one put behind it.
    pub(crate) fn decode_version(&self) -> Result<u32, FrameError> {
        let config = config::standard().with_limit::<HEADER_BYTES_MAX>();
        bincode::decode_from_slice(self.header, config)
            .map(|(version, _)| version)
            .map_err(|_| FrameError::Content)
    }

    /// Decodes the header; its bytes must be used up.
    pub(crate) fn decode<T: bincode::Decode<()>>(&self) -> Result<T, FrameError> {
        let config = config::standard().with_limit::<HEADER_BYTES_MAX>();
        match bincode::decode_from_slice(self.header, config) {
            Ok((value, used)) if used == self.header.len() => Ok(value),
            _ => Err(FrameError::Content),
        }
    }
}

/// A checked frame.
#[derive(Clone, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) head: Head<'a>,
    pub(crate) payload: &'a [u8],
}

/// A header's bytes.
///
/// # Panics
///
/// Never for the types of this crate: they hold integers, text and lists of such.
pub(crate) fn encode_header(header: &impl bincode::Encode) -> Vec<u8> {
    match bincode::encode_to_vec(header, config::standard()) {
        Ok(bytes) => bytes,
        Err(error) => unreachable!("own types always encode: {error}"),
    }
}

/// Prefix and header of a frame around `payload`, and the frame's CRC.
pub(crate) fn seal(
    kind: FrameKind,
    codec: Codec,
    seed: u32,
    header: &[u8],
    payload: &[u8],
) -> (Vec<u8>, u32) {
    assert!(header.len() <= HEADER_BYTES_MAX, "a header of {} bytes", header.len());
    assert!(u32::try_from(payload.len()).is_ok(), "a payload of {} bytes", payload.len());
    let mut head = Vec::with_capacity(PREFIX_BYTES + header.len());
    head.extend_from_slice(kind.magic());
    head.push(kind as u8);
    head.push(codec as u8);
    head.extend_from_slice(&(header.len() as u16).to_le_bytes());
    head.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    head.extend_from_slice(&crc(seed, &[payload]).to_le_bytes());
    let crc = crc(seed, &[&head, header]);
    head.extend_from_slice(&crc.to_le_bytes());
    head.extend_from_slice(header);
    (head, crc)
}

/// A whole frame.
pub(crate) fn encode(
    kind: FrameKind,
    codec: Codec,
    seed: u32,
    header: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let (mut frame, _) = seal(kind, codec, seed, header, payload);
    frame.extend_from_slice(payload);
    frame
}

fn crc(seed: u32, parts: &[&[u8]]) -> u32 {
    let seed = if planted("crc_has_no_seed") { 0 } else { seed };
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

fn le_u32(bytes: &[u8], at: usize) -> Result<u32, FrameError> {
    match bytes.get(at..at + 4) {
        Some(&[a, b, c, d]) => Ok(u32::from_le_bytes([a, b, c, d])),
        _ => Err(FrameError::Short),
    }
}

/// Checks prefix and header of the frame at the start of `bytes`.
pub(crate) fn read_head(kind: FrameKind, seed: u32, bytes: &[u8]) -> Result<Head<'_>, FrameError> {
    let prefix = bytes.get(..PREFIX_BYTES).ok_or(FrameError::Short)?;
    if !prefix.starts_with(kind.magic()) || prefix.get(4) != Some(&(kind as u8)) {
        return Err(FrameError::Magic);
    }
    let (codec, header_len) = match prefix.get(5..8) {
        Some(&[codec, a, b]) => (codec, usize::from(u16::from_le_bytes([a, b]))),
        _ => return Err(FrameError::Short),
    };
    let payload_len = le_u32(prefix, 8)? as usize;
    let payload_crc = le_u32(prefix, 12)?;
    let stored = le_u32(prefix, 16)?;
    if header_len > HEADER_BYTES_MAX {
        return Err(FrameError::Header);
    }
    let header = bytes.get(PREFIX_BYTES..PREFIX_BYTES + header_len).ok_or(FrameError::Header)?;
    let covered = prefix.get(..16).ok_or(FrameError::Short)?;
    if crc(seed, &[covered, header]) != stored {
        return Err(FrameError::Header);
    }
    Ok(Head { codec, header, payload_len, crc: stored, payload_crc })
}

/// Checks the whole frame at the start of `bytes`; more may follow it.
pub(crate) fn read(kind: FrameKind, seed: u32, bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    let head = read_head(kind, seed, bytes)?;
    let payload = bytes.get(head.payload_range()).ok_or(FrameError::Short)?;
    if crc(seed, &[payload]) != head.payload_crc && !planted("payload_is_not_checked") {
        return Err(FrameError::Payload);
    }
    Ok(Frame { head, payload })
}

/// Checks a frame that must be all of `bytes`.
pub(crate) fn read_exact(
    kind: FrameKind,
    seed: u32,
    bytes: &[u8],
) -> Result<Frame<'_>, FrameError> {
    let frame = read(kind, seed, bytes)?;
    if frame.head.frame_len() == bytes.len() { Ok(frame) } else { Err(FrameError::Header) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let header = encode_header(&(7u64, "name".to_owned()));
        encode(FrameKind::Batch, Codec::Raw, 9, &header, b"payload bytes")
    }

    #[test]
    fn a_frame_reads_back() {
        let bytes = sample();
        let frame = read_exact(FrameKind::Batch, 9, &bytes).unwrap();
        assert_eq!(frame.payload, b"payload bytes");
        assert_eq!(frame.head.decode::<(u64, String)>(), Ok((7, "name".to_owned())));
        assert_eq!(frame.head.decode::<u8>(), Err(FrameError::Content));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let bytes = sample();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read(FrameKind::Batch, 9, &flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn every_cut_is_found() {
        let bytes = sample();
        for len in 0..bytes.len() {
            assert!(read(FrameKind::Batch, 9, &bytes[..len]).is_err(), "cut at {len}");
        }
    }

    #[test]
    fn a_frame_of_another_epoch_or_kind_does_not_pass() {
        let bytes = sample();
        assert_eq!(read(FrameKind::Batch, 8, &bytes).unwrap_err(), FrameError::Header);
        assert_eq!(read(FrameKind::Close, 9, &bytes).unwrap_err(), FrameError::Magic);
    }

    #[test]
    fn a_damaged_payload_leaves_the_extent_known() {
        let mut bytes = sample();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert_eq!(read(FrameKind::Batch, 9, &bytes).unwrap_err(), FrameError::Payload);
        assert_eq!(read_head(FrameKind::Batch, 9, &bytes).unwrap().frame_len(), bytes.len());
    }
}
