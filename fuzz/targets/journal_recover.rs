//! Arbitrary bytes over the journal of a killed log: opening it never panics, and gives either a typed error or a prefix
//! of what had been appended.
use std::sync::LazyLock;

use eventlog::io::sim::SimDisk;
use eventlog::{Entry, ErrorKind, EventLog, Kind};

/// A killed log: its disk, the path and the bytes of its segment, where the batches begin.
static KILLED: LazyLock<(SimDisk, String, Vec<u8>)> = LazyLock::new(|| {
    let disk = SimDisk::new();
    let builder = EventLog::builder().background(false).segment_bytes(64 << 10);
    let log = builder.open_dir(disk.root()).unwrap();
    let session = log.session("s").unwrap();
    for n in 0..EVENTS {
        session.append(Entry::new(Kind::Message, line(n))).unwrap();
    }
    let image = disk.kill();
    drop(log);
    let path = image.paths().into_iter().find(|path| path.ends_with(".wal")).unwrap();
    let bytes = image.bytes(&path).unwrap();
    (image, path, bytes)
});

const EVENTS: u64 = 6;

fn line(n: u64) -> Vec<u8> {
    format!("{{\"n\":{n},\"pad\":\"{}\"}}", "p".repeat(n as usize * 150)).into_bytes()
}

/// Looks at one input.
pub fn run(data: &[u8]) {
    let (disk, path, whole) = &*KILLED;
    // Two bytes say where, one how many, the rest is written there; again and again.
    let mut bytes = whole.clone();
    let mut rest = data;
    while let [a, b, len, more @ ..] = rest {
        let at = 4096 + usize::from(u16::from_le_bytes([*a, *b])) % 8192;
        let (now, later) = more.split_at(usize::from(*len).min(more.len()));
        bytes[at..at + now.len()].copy_from_slice(now);
        rest = later;
    }
    let disk = disk.kill();
    disk.overwrite(path, bytes);
    let builder = EventLog::builder().background(false).segment_bytes(64 << 10);
    match builder.open_dir(disk.root()) {
        Ok(log) => {
            if log.sessions().unwrap().is_empty() {
                return;
            }
            for (n, event) in log.read("s", ..).unwrap().enumerate() {
                assert_eq!(event.unwrap().bytes(), line(n as u64));
            }
        }
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Ambiguous), "{error}");
        }
    }
}
