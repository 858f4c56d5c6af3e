//! What the tests share: a log on a simulated disk, and a model to compare it with.
#![allow(
    dead_code,
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test code; each test uses a part"
)]

use std::collections::BTreeMap;

use eventlog::io::sim::SimDisk;
use eventlog::{Builder, Entry, EventLog, Kind, Result};

/// Options of a log without threads: the test schedules everything.
pub fn options() -> Builder {
    EventLog::builder().background(false).segment_bytes(64 << 10).cache_bytes(1 << 20)
}

pub fn open(disk: &SimDisk) -> Result<EventLog> {
    options().open_dir(disk.root())
}

/// What was acknowledged, per session, and the one batch whose outcome is open.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub acknowledged: BTreeMap<String, Vec<Vec<u8>>>,
    pub open: Option<(String, Vec<Vec<u8>>)>,
}

impl Model {
    /// Appends to the log and remembers what it said.
    pub fn append(&mut self, log: &EventLog, id: &str, lines: Vec<Vec<u8>>) -> Result<()> {
        let entries: Vec<_> =
            lines.iter().map(|line| Entry::new(Kind::Message, line.as_slice())).collect();
        match log.session(id)?.append_batch(&entries) {
            Ok(_) => {
                self.acknowledged.entry(id.to_owned()).or_default().extend(lines);
                Ok(())
            }
            Err(error) => {
                self.open = Some((id.to_owned(), lines));
                Err(error)
            }
        }
    }

    /// I1, I2, I3: everything acknowledged is there once and in order; of the open batch all or
    /// nothing.
    pub fn check(&self, log: &EventLog, what: &str) {
        let found = contents(log);
        let mut allowed = vec![self.acknowledged.clone()];
        if let Some((id, lines)) = &self.open {
            let mut with = self.acknowledged.clone();
            with.entry(id.clone()).or_default().extend(lines.iter().cloned());
            allowed.push(with);
        }
        assert!(
            allowed.contains(&found),
            "{what}: found {:?}, acknowledged {:?}",
            counts(&found),
            counts(&self.acknowledged)
        );
        let report = log.verify().unwrap();
        assert!(report.problems.is_empty(), "{what}: {:?}", report.problems);
    }
}

fn counts(all: &BTreeMap<String, Vec<Vec<u8>>>) -> Vec<(&str, usize)> {
    all.iter().map(|(id, lines)| (id.as_str(), lines.len())).collect()
}

/// Every line of every session.
pub fn contents(log: &EventLog) -> BTreeMap<String, Vec<Vec<u8>>> {
    let snapshot = log.snapshot().unwrap();
    let mut all = BTreeMap::new();
    for session in snapshot.sessions() {
        let id = session.unwrap().id;
        let events = snapshot.read(&id, ..).unwrap().map(|event| event.unwrap());
        let mut lines = Vec::new();
        for (expected, event) in events.enumerate() {
            assert_eq!(event.seq(), expected as u64, "seqs have no gap");
            lines.push(event.bytes().to_vec());
        }
        all.insert(id, lines);
    }
    all
}

pub fn line(n: usize, len: usize) -> Vec<u8> {
    let mut line = format!("{{\"n\":{n},\"pad\":\"").into_bytes();
    line.resize(line.len().max(len), b'a' + (n % 26) as u8);
    line.extend_from_slice(b"\"}");
    line
}
