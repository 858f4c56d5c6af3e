//! Arbitrary bytes as a frame, and a whole frame with bytes changed: a frame that passes is the one that was made.

use eventlog::probe;

/// Looks at one input.
pub fn run(data: &[u8]) {
    let (head, data) = data.split_at(data.len().min(6));
    let seed = u32::from_le_bytes([0, 1, 2, 3].map(|n| head.get(n).copied().unwrap_or_default()));
    let kind = head.get(4).copied().unwrap_or_default();
    // As it is: whatever it says of its own length, nothing beyond the bytes is looked at.
    if let Some((header, payload)) = probe::frame(kind, seed, data) {
        assert!(header + payload + 20 <= data.len());
    }
    // Around it, and then with bytes changed.
    let whole = probe::framed(kind, seed, data);
    assert_eq!(probe::frame(kind, seed, &whole), Some((0, data.len())));
    let at = head.get(5).map_or(0, |n| usize::from(*n) * 31 % whole.len());
    for bit in 0..8 {
        let mut changed = whole.clone();
        changed[at] ^= 1 << bit;
        assert_eq!(probe::frame(kind, seed, &changed), None);
    }
    assert_eq!(probe::frame(kind, seed.wrapping_add(1), &whole), None);
    assert_eq!(probe::frame(kind, seed, &whole[..at]), None);
}
