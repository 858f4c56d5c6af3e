//! Arbitrary operations with faults and crashes, against a model that is a list of lines per session: what was
//! acknowledged is there, what was not is there whole or not at all.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use eventlog::io::sim::{Fate, Fault, Op, SimDisk};
use eventlog::{Entry, EventLog, Kind, Result};

type Lines = BTreeMap<String, Vec<Vec<u8>>>;

fn open(disk: &SimDisk) -> Result<EventLog> {
    EventLog::builder()
        .background(false)
        .segment_bytes(64 << 10)
        .cache_bytes(1 << 20)
        .open_dir(disk.root())
}

fn contents(log: &EventLog) -> Lines {
    let snapshot = log.snapshot().unwrap();
    let mut all = Lines::new();
    for session in snapshot.sessions() {
        let id = session.unwrap().id;
        let lines = snapshot.read(&id, ..).unwrap().map(|entry| entry.unwrap().bytes().to_vec());
        all.insert(id.clone(), lines.collect());
    }
    all
}

/// Looks at one input.
pub fn run(data: &[u8]) {
    let mut disk = SimDisk::new();
    let mut log = open(&disk).unwrap();
    let mut known = Lines::new();
    let mut unknown: Option<(String, Vec<Vec<u8>>)> = None;
    for (n, op) in data.chunks_exact(3).take(60).enumerate() {
        let [what, a, b] = *op else { continue };
        match what % 8 {
            0..=3 => {
                let id = ["a", "b", "c"][usize::from(a) % 3].to_owned();
                let count = [1, 1, 2, 40][usize::from(b & 3)];
                let line = |k: usize| {
                    format!(
                        "{{\"n\":{n},\"k\":{k},\"pad\":\"{}\"}}",
                        "x".repeat(usize::from(b) * 5)
                    )
                    .into_bytes()
                };
                let lines: Vec<Vec<u8>> = (0..count).map(line).collect();
                let entries: Vec<Entry<'_>> =
                    lines.iter().map(|line| Entry::new(Kind::Message, line.as_slice())).collect();
                match log.session(&id).and_then(|session| session.append_batch(&entries)) {
                    Ok(_) => known.entry(id).or_default().extend(lines),
                    Err(_) => unknown = unknown.or(Some((id, lines))),
                }
            }
            4 => _ = log.checkpoint(),
            5 => {
                let op = [
                    Op::Write,
                    Op::Sync,
                    Op::Create,
                    Op::Rename,
                    Op::DirSync,
                    Op::SetLen,
                    Op::Remove,
                ][usize::from(a) % 7];
                let fault =
                    [Fault::Io, Fault::NoSpace, Fault::ShortWrite, Fault::Cut][usize::from(b) % 4];
                let left = AtomicU8::new(b / 4 % 8);
                // The n-th of its kind from now on.
                disk.fail(1, fault, move |found, _| {
                    let count = |n: u8| n.checked_sub(1);
                    found == op && left.fetch_update(Relaxed, Relaxed, count).is_err()
                });
            }
            // A crash, or a kill.
            6 => {
                let mut state = u32::from(a) << 8 | u32::from(b) | 1;
                let after = disk.crash(&mut |_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    match (a & 1 == 0, state >> 30) {
                        (true, _) => Fate::Kept,
                        (_, 0) => Fate::Dropped,
                        (_, 1) => Fate::Torn(512 * (state as usize >> 20 & 7)),
                        _ => Fate::Kept,
                    }
                });
                drop(log);
                disk = after;
                log = open(&disk).unwrap();
                check(&log, &mut known, &mut unknown);
            }
            _ => {
                _ = log.close();
                disk.heal();
                log = open(&disk).unwrap();
                check(&log, &mut known, &mut unknown);
            }
        }
    }
}

/// Whether the batch of unknown outcome is there is known from now on.
fn check(log: &EventLog, known: &mut Lines, unknown: &mut Option<(String, Vec<Vec<u8>>)>) {
    let found = contents(log);
    if found != *known
        && let Some((id, lines)) = unknown.take()
    {
        known.entry(id).or_default().extend(lines);
    }
    assert!(found == *known, "found {:?}, known {:?}", counts(&found), counts(known));
    *unknown = None;
}

fn counts(all: &Lines) -> Vec<(&str, usize)> {
    all.iter().map(|(id, lines)| (id.as_str(), lines.len())).collect()
}
