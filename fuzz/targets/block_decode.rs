//! Arbitrary bytes as a block, and as lines of one: what was built reads back, anything else is an error.

use eventlog::probe;

/// Looks at one input.
pub fn run(data: &[u8]) {
    _ = probe::block(data, 3, 7);
    let lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let (stored, taken) = probe::block_of(&lines, 3, 7);
    assert!(taken > 0 && taken <= lines.len());
    let read = probe::block(&stored, 3, 7).unwrap();
    assert_eq!(read, lines[..taken]);
    assert!(probe::block(&stored, 3, 8).is_none() && probe::block(&stored, 4, 7).is_none());
    let at = data.first().map_or(0, |n| usize::from(*n) * 13 % stored.len());
    let mut changed = stored.clone();
    changed[at] ^= 0x10;
    assert!(probe::block(&changed, 3, 7).is_none());
    assert!(probe::block(&stored[..at], 3, 7).is_none());
}
