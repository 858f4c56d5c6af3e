//! What the tests share: a log on a simulated disk, and a model to compare it with.
#![allow(
    dead_code,
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test code; each test uses a part"
)]

pub mod power;

use std::collections::BTreeMap;

use eventlog::io::sim::SimDisk;
use eventlog::{Attributes, Builder, Entry, EventLog, Kind, Result};

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
    /// The session whose removal for good has begun.
    pub purging: Option<String>,
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

    /// A session comes into being with its first description as well.
    pub fn describe(&mut self, log: &EventLog, id: &str, attributes: &Attributes) -> Result<()> {
        if !self.acknowledged.contains_key(id) {
            self.open = Some((id.to_owned(), Vec::new()));
        }
        log.session(id)?.describe(attributes)?;
        self.open = None;
        self.acknowledged.entry(id.to_owned()).or_default();
        Ok(())
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
        if let Some(id) = &self.purging {
            let mut without = self.acknowledged.clone();
            without.remove(id);
            allowed.push(without);
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

    /// I11: what is exported is the lines, and imported into another log it exports the same.
    pub fn check_export(&self, log: &EventLog, what: &str) {
        let snapshot = log.snapshot().unwrap();
        for (id, lines) in contents(log) {
            let mut file: Vec<u8> = Vec::new();
            eventlog::jsonl::export(&snapshot, &id, .., &mut file, &mut |_| {}).unwrap();
            let expected: Vec<u8> =
                lines.iter().flat_map(|line| [line, &b"\n"[..]].concat()).collect();
            assert_eq!(file, expected, "{what}: {id}");
            let other = open(&SimDisk::new()).unwrap();
            let mut options = eventlog::jsonl::ImportOptions::default();
            options.session = Some(id.clone());
            eventlog::jsonl::import_bytes(&other, &file, &options).unwrap();
            if other.snapshot().unwrap().session(&id).unwrap().is_some() {
                let mut again = Vec::new();
                let snapshot = other.snapshot().unwrap();
                eventlog::jsonl::export(&snapshot, &id, .., &mut again, &mut |_| {}).unwrap();
                assert_eq!(again, file, "{what}: {id}, exported again");
            }
        }
    }
}

/// Every file of the disk with its bytes.
pub fn files(disk: &SimDisk) -> BTreeMap<String, Vec<u8>> {
    let with_bytes = |path: String| {
        let bytes = disk.bytes(&path).unwrap();
        (path, bytes)
    };
    disk.paths().into_iter().map(with_bytes).collect()
}

/// The store's file.
pub const STORE: &str = "events.redb";

/// Every row of every table of a store: the table, the key, the value.
pub fn rows(store: &[u8]) -> Vec<(String, String, Vec<u8>)> {
    use redb::{ReadableDatabase, ReadableTable, StorageBackend, TableDefinition, TableHandle};

    let backend = redb::backends::InMemoryBackend::new();
    backend.set_len(store.len() as u64).unwrap();
    backend.write(0, store).unwrap();
    let store = redb::Builder::new().create_with_backend(backend).unwrap();
    let reading = store.begin_read().unwrap();
    let tables = reading.list_tables().unwrap().map(|table| table.name().to_owned());
    let mut rows = Vec::new();
    for table in tables {
        let mut add = |key: String, value: Vec<u8>| rows.push((table.clone(), key, value));
        macro_rules! all {
            ($key:ty, $value:ty, $bytes:expr) => {{
                let definition: TableDefinition<'_, $key, $value> = TableDefinition::new(&table);
                for row in reading.open_table(definition).unwrap().iter().unwrap() {
                    let (key, value) = row.unwrap();
                    add(format!("{:?}", key.value()), $bytes(value.value()));
                }
            }};
        }
        let number = |(number, crc): (u64, u32)| format!("{number} {crc}").into_bytes();
        match table.as_str() {
            "events" => all!((u64, u64), &[u8], <[u8]>::to_vec),
            "sessions" => all!(u64, &[u8], <[u8]>::to_vec),
            "session_ids" => all!(&str, (u64, u32), number),
            "marks" => all!((u64, u8, u64), (u64, u32), number),
            "projections" => all!((u64, u8), &[u8], <[u8]>::to_vec),
            "meta" => all!(&str, &[u8], <[u8]>::to_vec),
            other => panic!("a table {other:?} that is not looked at"),
        }
    }
    rows
}

fn counts(all: &BTreeMap<String, Vec<Vec<u8>>>) -> Vec<(&str, usize)> {
    all.iter().map(|(id, lines)| (id.as_str(), lines.len())).collect()
}

/// Every line of every session.
pub fn contents(log: &EventLog) -> BTreeMap<String, Vec<Vec<u8>>> {
    let snapshot = log.snapshot().unwrap();
    let mut all = BTreeMap::new();
    let live = snapshot.sessions().map(|session| session.unwrap());
    for id in live.chain(snapshot.deleted_sessions()).map(|session| session.id) {
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
