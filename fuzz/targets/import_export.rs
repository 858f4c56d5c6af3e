//! Arbitrary bytes as a file: an import never panics, accounts for every byte, and its export is the file.
use eventlog::EventLog;
use eventlog::io::{OpenMode, sim::SimDisk};
use eventlog::jsonl::{self, ImportOptions, Outcome};

const RECORD: &[u8] = br#"{"event_id":"e","timestamp":"t","session_id":"s","run_id":"r","step":0,"event_type":"message","payload":{}}
"#;

/// Looks at one input.
pub fn run(data: &[u8]) {
    let disk = SimDisk::new();
    let log = EventLog::builder().background(false).open_dir(disk.root()).unwrap();
    // One record, somewhere: the file may be of a known format, or of an unknown one.
    let at = data.first().map_or(0, |n| usize::from(*n) % (data.len() + 1));
    let whole = [&data[..at], b"\n", RECORD, &data[at..]].concat();
    disk.overwrite("file.jsonl", whole.clone());
    let file = disk.root().open("file.jsonl", OpenMode::Read).unwrap();
    let mut options = ImportOptions::default();
    options.session = Some("s".to_owned());
    let report = jsonl::import(&log, file.clone(), &options, &mut |_| {}).unwrap();
    if report.outcome == Outcome::Refused {
        return;
    }
    assert_eq!(
        report.record_bytes + report.separator_bytes + report.quarantined_bytes,
        whole.len() as u64
    );
    let id = report.session.unwrap();
    let mut out = Vec::new();
    jsonl::export(&log.snapshot().unwrap(), &id, .., &mut out, &mut |_| {}).unwrap();
    assert_eq!(out, whole);
    assert!(jsonl::verify(&log.snapshot().unwrap(), &id).unwrap().is_empty());
    let again = jsonl::import(&log, file, &options, &mut |_| {}).unwrap();
    assert_eq!((again.outcome, again.new_records), (Outcome::Unchanged, 0));
}
