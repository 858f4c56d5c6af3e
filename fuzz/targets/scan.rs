//! Arbitrary bytes through the scanner: it never panics, its spans are all bytes in order, reading
//! in two pieces makes no difference, scanning the records that came out gives the same records,
//! and the walk over JSON agrees with another reader on what is JSON.
use std::io::Read;

use eventlog::Kind;
use eventlog::format::{Format, Plain, Recursive, Transcript};
use eventlog::jsonl::{self, What};

const RECORDS: [&[u8]; 2] = [
    br#"{"event_id":"e","timestamp":"t","session_id":"s","run_id":"r","step":0,"event_type":"message","payload":{}}"#,
    br#"{"id":"msg_001","role":"user","content":"x","timestamp":"t"}"#,
];

type Spans = Vec<(u64, u64, Vec<u8>, &'static [u8], Option<&'static str>)>;

/// Line, offset, bytes, line end and damage of each span.
fn spans(reader: impl Read, limit: usize, format: &'static dyn Format) -> Spans {
    let mut spans = Vec::new();
    jsonl::scan(reader, limit, format, "s", &mut |span| {
        let damage = match span.what {
            What::Damage(damage) => Some(damage.name()),
            What::Separator => Some("separator"),
            _ => None,
        };
        let end = span.terminator.as_bytes();
        spans.push((span.line, span.offset, span.entry.bytes().to_vec(), end, damage));
        Ok(())
    })
    .unwrap();
    spans
}

/// Looks at one input.
pub fn run(data: &[u8]) {
    let (head, data) = data.split_at(data.len().min(3));
    let choice = head.first().copied().unwrap_or_default();
    let formats: [&'static dyn Format; 3] = [&Transcript, &Recursive, &Plain];
    let format = formats[usize::from(choice) % 3];
    // A record somewhere in it.
    let at = head.get(1).map_or(0, |n| usize::from(*n) * 7 % (data.len() + 1));
    let record = RECORDS[usize::from(choice) % 2];
    let bytes =
        if choice & 4 == 0 { data.to_vec() } else { [&data[..at], record, &data[at..]].concat() };
    let limit = if choice & 8 == 0 { 1 << 20 } else { 200 };

    let found = spans(&bytes[..], limit, format);
    let mut joined = Vec::new();
    for (_, offset, text, end, _) in &found {
        assert_eq!(*offset, joined.len() as u64);
        joined.extend_from_slice(text);
        joined.extend_from_slice(end);
    }
    assert_eq!(joined, bytes);

    let cut = head.get(2).map_or(0, |n| usize::from(*n) * 3 % (bytes.len() + 1));
    let (first, second) = bytes.split_at(cut);
    if limit > 1000 {
        assert_eq!(spans(first.chain(second), limit, format), found);
    }

    let records: Vec<&[u8]> =
        found.iter().filter(|span| span.4.is_none()).map(|span| span.2.trim_ascii()).collect();
    let clean =
        records.iter().flat_map(|record| [*record, b"\n"]).flatten().copied().collect::<Vec<u8>>();
    let again = spans(&clean[..], 1 << 20, format);
    // White space that is not ASCII stays with its record.
    let again: Vec<&[u8]> = again
        .iter()
        .filter(|span| span.4 != Some("separator"))
        .map(|span| span.2.trim_ascii())
        .collect();
    if !records.iter().any(|record| record.contains(&b'\n')) {
        assert_eq!(again, records);
    }

    // Another reader knows nothing of NaN, of depth and of lone surrogates; the rest is the same.
    for line in bytes.split(|b| *b == b'\n') {
        let Ok(text) = std::str::from_utf8(line) else { continue };
        let ours = Plain.classify(line).is_ok_and(|record| record.kind == Kind::Other);
        let theirs = text.trim_start().starts_with('{')
            && serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok();
        let lenient = text.contains("NaN") || text.contains("Infinity") || text.len() > 1000;
        let space = text.chars().any(|c| c.is_whitespace() && !c.is_ascii())
            || text.bytes().any(|b| matches!(b, 0x0B | 0x0C | 0x1C..=0x1F));
        if !lenient && !space {
            assert_eq!(ours, theirs, "{text:?}");
        }
    }
}
