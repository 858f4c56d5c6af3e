//! A small log of every format version that was ever written stays readable: `tests/data/log-v1`
//! was made once and is never made anew. A new format version gets a log of its own beside it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::path::{Path, PathBuf};

use eventlog::{Attributes, Entry, EventLog, EventRange, Kind, Position, Terminator};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn line(n: u64) -> Vec<u8> {
    format!("{{\"n\":{n},\"text\":\"{}\"}}", "wörter ".repeat(n as usize % 40)).into_bytes()
}

/// The content of the log: a session in the store and the journal, and one in the journal alone.
fn fill(log: &EventLog) {
    let session = log.session("stored").unwrap();
    let mut attributes = Attributes::default();
    attributes.format = Some("transcript".into());
    session.describe(&attributes).unwrap();
    for n in 0..120 {
        let kind = if n % 50 == 49 { Kind::Checkpoint } else { Kind::Message };
        let entry = Entry::new(kind, line(n)).user_turn(n % 10 == 0).run(format!("run-{}", n / 60));
        session.append(entry).unwrap();
    }
    log.checkpoint().unwrap();
    session.append(Entry::new(Kind::Damaged, b"\xFF\x00".to_vec()).detail(2)).unwrap();
    let entry = Entry::new(Kind::Terminal, b"{}".to_vec()).terminator(Terminator::CrLf);
    log.session("../ödd id").unwrap().append(entry).unwrap();
}

fn check(log: &EventLog) {
    let info = log.snapshot().unwrap().session("stored").unwrap().unwrap();
    assert_eq!((info.events, info.user_turns, info.runs), (121, 12, 2));
    assert_eq!(info.attributes.format.as_deref(), Some("transcript"));
    for (n, event) in log.read("stored", ..120).unwrap().enumerate() {
        assert_eq!(event.unwrap().bytes(), line(n as u64));
    }
    let last = log.read("stored", ..).unwrap().next_back().unwrap().unwrap();
    assert_eq!((last.kind(), last.detail(), last.bytes()), (Kind::Damaged, 2, &b"\xFF\x00"[..]));
    let since = EventRange::between(Position::LastCheckpoint, Position::End);
    assert_eq!(log.read("stored", since).unwrap().count(), 121 - 99);
    let odd = log.read("../ödd id", ..).unwrap().next().unwrap().unwrap();
    assert_eq!((odd.kind(), odd.terminator()), (Kind::Terminal, Terminator::CrLf));
    let report = log.verify().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn a_log_of_version_1_opens() {
    let scratch = tempfile::tempdir().unwrap();
    // One that was closed, and one whose process was killed with events in the journal.
    for name in ["log-v1/closed", "log-v1/killed"] {
        let dir = scratch.path().join(name);
        copy(&data(name), &dir);
        if name.ends_with("closed") {
            check(&EventLog::open_read_only(&dir).unwrap());
        }
        let log = EventLog::open(&dir).unwrap();
        assert_eq!(log.recovery().clean, name.ends_with("closed"), "{name}");
        check(&log);
        log.close().unwrap();
        check(&EventLog::open_read_only(&dir).unwrap());
    }
}

/// Makes the logs in the directory that the variable names.
#[test]
#[ignore = "no test: makes the logs of a new version, in the directory EVENTLOG_TEST_MAKE_LOGS"]
fn make_the_logs_of_this_version() {
    let dir = std::env::var_os("EVENTLOG_TEST_MAKE_LOGS").expect("a directory for the logs");
    let dir = PathBuf::from(dir);
    let open = |name: &str| {
        let builder = EventLog::builder().background(false).segment_bytes(64 << 10);
        builder.open(dir.join(name)).unwrap()
    };
    let log = open("closed");
    fill(&log);
    log.close().unwrap();
    let log = open("to-be-killed");
    fill(&log);
    // What a kill leaves is what stands on the disk now.
    copy(&dir.join("to-be-killed"), &dir.join("killed"));
    drop(log);
    std::fs::remove_dir_all(dir.join("to-be-killed")).unwrap();
}
