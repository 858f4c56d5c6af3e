//! Files that the original program wrote come in and go out byte for byte: at once, after a reopen,
//! and after the importing process was killed the moment the import returned.
//!
//! The data is our fixtures and `tests/data`, and what `EVENTLOG_GOLDEN` and `EVENTLOG_CASES` name.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test"
)]

#[path = "support/data.rs"]
mod data;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use eventlog::io::{Dir, File, OpenMode, StdDir};
use eventlog::jsonl::{self, ImportOptions, Outcome};
use eventlog::{EventLog, Kind};

fn jsonl_files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "jsonl")).collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no files", dir.display());
    files
}

fn own_files() -> Vec<PathBuf> {
    jsonl_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data"))
}

fn open(path: &Path) -> Arc<dyn File> {
    let dir = StdDir::open(path.parent().unwrap()).unwrap();
    dir.open(path.file_name().unwrap().to_str().unwrap(), OpenMode::Read).unwrap()
}

fn import(log: &EventLog, path: &Path) -> jsonl::FileReport {
    jsonl::import(log, open(path), &ImportOptions::default(), &mut |_| {}).unwrap()
}

fn export(log: &EventLog, id: &str) -> Vec<u8> {
    let mut out = Vec::new();
    jsonl::export(&log.snapshot().unwrap(), id, .., &mut out, &mut |_| {}).unwrap();
    out
}

/// Imports and exports, with every way of leaving the log in between.
fn round_trip(path: &Path, expect_damage: bool) {
    let name = path.display();
    let bytes = std::fs::read(path).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("log");
    let log = EventLog::open(&dir).unwrap();
    let report = import(&log, path);
    assert_eq!(report.outcome, Outcome::Imported, "{name}");
    assert_eq!(report.bytes, bytes.len() as u64, "{name}");
    assert_eq!(
        report.record_bytes + report.separator_bytes + report.quarantined_bytes,
        report.bytes,
        "{name}: every byte is accounted for"
    );
    if !expect_damage {
        assert_eq!(report.quarantined_bytes, 0, "{name}: {:?}", report.quarantined);
    }
    let id = report.session.unwrap();
    assert!(export(&log, &id) == bytes, "{name}: at once");
    log.checkpoint().unwrap();
    assert!(export(&log, &id) == bytes, "{name}: from the store");
    assert!(log.verify().unwrap().problems.is_empty(), "{name}");
    log.close().unwrap();
    let log = EventLog::open(&dir).unwrap();
    assert!(export(&log, &id) == bytes, "{name}: after a reopen");
    let again = import(&log, path);
    assert_eq!((again.outcome, again.new_records), (Outcome::Unchanged, 0), "{name}");
    assert_eq!(again.records, report.records, "{name}");
    assert!(export(&log, &id) == bytes, "{name}: after a second import");
    log.close().unwrap();
}

#[test]
fn every_golden_transcript_goes_out_as_it_came_in() {
    for path in own_files() {
        round_trip(&path, false);
    }
    for golden in data::golden("mycodeagent") {
        let files = jsonl_files(&golden.dir);
        assert!(files.len() >= golden.at_least(8, 47), "{} files", files.len());
        for path in &files {
            round_trip(path, false);
        }
        println!("{} files", files.len());
    }
}

#[test]
fn every_damaged_transcript_of_a_known_format_goes_out_as_it_came_in() {
    for golden in data::golden("mycodeagent") {
        let mut kept = 0;
        for path in jsonl_files(&golden.dir.join("damage")) {
            let scratch = tempfile::tempdir().unwrap();
            let log = EventLog::open(scratch.path().join("log")).unwrap();
            let report = import(&log, &path);
            drop(log);
            if report.outcome == Outcome::Imported {
                round_trip(&path, true);
                kept += 1;
            } else {
                // Empty, or nothing but blank lines.
                assert_eq!((report.outcome, report.records), (Outcome::Unchanged, 0));
                assert!(report.message.is_some(), "{}", path.display());
            }
        }
        println!("{kept} damaged files kept whole");
        assert!(kept >= golden.at_least(6, 20), "{kept}");
    }
}

#[test]
fn every_case_of_a_known_format_goes_out_as_it_came_in() {
    for cases in data::cases() {
        let mut kept = 0;
        for (case, expect) in data::cases_in(&cases) {
            // Lines of the other format do not name their session.
            if expect["format"] == "transcript" {
                round_trip(&case.join("input.jsonl"), true);
                kept += 1;
            }
        }
        println!("{kept} cases kept whole");
        assert!(kept >= cases.at_least(7, 10), "{kept}");
    }
}

const CHILD_LOG: &str = "EVENTLOG_TEST_CHILD_LOG";
const CHILD_FILES: &str = "EVENTLOG_TEST_CHILD_FILES";

#[test]
#[ignore = "no test: the process that the next test starts and kills"]
fn child_that_imports_and_waits_to_be_killed() {
    let log = std::env::var_os(CHILD_LOG).expect("it is started by a test");
    let log = EventLog::open(log).unwrap();
    let files = std::env::var(CHILD_FILES).unwrap();
    for (n, path) in std::env::split_paths(&files).enumerate() {
        let mut options = ImportOptions::default();
        options.session = Some(format!("file-{n}"));
        jsonl::import(&log, open(&path), &options, &mut |_| {}).unwrap();
    }
    eprintln!("imported");
    std::thread::sleep(std::time::Duration::from_secs(60));
}

#[test]
fn everything_is_there_after_the_importing_process_is_killed() {
    let mut files = own_files();
    for golden in data::golden("mycodeagent") {
        files.extend(jsonl_files(&golden.dir));
    }
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("log");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_imports_and_waits_to_be_killed", "--ignored", "--nocapture"])
        .env(CHILD_LOG, &dir)
        .env(CHILD_FILES, std::env::join_paths(&files).unwrap())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let imported = lines.map_while(Result::ok).any(|line| line.contains("imported"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(imported);
    let log = EventLog::open(&dir).unwrap();
    assert!(!log.recovery().clean);
    for (n, path) in files.iter().enumerate() {
        let bytes = std::fs::read(path).unwrap();
        assert!(export(&log, &format!("file-{n}")) == bytes, "{}", path.display());
    }
    assert!(log.verify().unwrap().problems.is_empty());
}

#[test]
fn a_file_that_grew_adds_what_is_new_and_one_that_shrank_or_changed_is_a_conflict() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("transcript.jsonl");
    let whole = std::fs::read(&own_files()[0]).unwrap();
    let lines: Vec<&[u8]> = whole.split_inclusive(|b| *b == b'\n').collect();
    assert!(lines.len() >= 4);
    let log = EventLog::open(scratch.path().join("log")).unwrap();
    // Cut in the middle of a line, at the end of one without its line end, and whole.
    let third = lines[..2].concat();
    let cuts = [third.len() + 10, third.len() + lines[2].len() - 1, whole.len()];
    let mut outcomes = Vec::new();
    for cut in cuts {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let report = import(&log, &path);
        let id = report.session.clone().unwrap();
        assert!(export(&log, &id) == whole[..cut], "cut at {cut}");
        outcomes.push(report.outcome);
        // What the report says is what the session holds, now and at any later import.
        for report in [&report, &import(&log, &path)] {
            let info = log.snapshot().unwrap().session(&id).unwrap().unwrap();
            // The torn end that the file once had stays in the log.
            let replaced = u64::from(cut != cuts[0]);
            assert_eq!(report.quarantined_spans + replaced, info.count(Kind::Damaged));
            let others = info.count(Kind::Damaged) + info.count(Kind::Blank);
            assert_eq!(report.records, info.events - others, "cut at {cut}");
            for span in &report.quarantined {
                let event = log.read(&id, span.seq..=span.seq).unwrap().next().unwrap().unwrap();
                assert_eq!(
                    (event.kind(), event.bytes().len() as u64),
                    (Kind::Damaged, span.length)
                );
                let start = span.offset as usize;
                assert_eq!(event.bytes(), &whole[start..start + event.bytes().len()]);
            }
        }
    }
    assert_eq!(outcomes, [Outcome::Imported, Outcome::Grown, Outcome::Grown]);
    let id = log.sessions().unwrap()[0].id.clone();
    for damaged in [whole[..whole.len() - 5].to_vec(), {
        let mut other = whole.clone();
        other[20] ^= 1;
        other
    }] {
        std::fs::write(&path, damaged).unwrap();
        let mut options = ImportOptions::default();
        options.session = Some(id.clone());
        let report = jsonl::import(&log, open(&path), &options, &mut |_| {}).unwrap();
        assert_eq!((report.outcome, report.new_records), (Outcome::Conflict, 0));
        assert!(report.message.is_some());
        assert!(export(&log, &id) == whole, "a conflict changes nothing");
        // Both can be kept.
        options.session = Some(format!("{id}-copy-{}", report.bytes));
        let report = jsonl::import(&log, open(&path), &options, &mut |_| {}).unwrap();
        assert_eq!(report.outcome, Outcome::Imported);
        assert!(export(&log, &report.session.unwrap()) == std::fs::read(&path).unwrap());
    }
}

/// However a file was cut off when it was imported: once its writer has written on, or has cut the
/// torn line off and written another, the session's file is the file, with every record in it.
#[test]
fn a_torn_end_that_was_imported_does_not_stand_in_the_way_of_what_comes_later() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("transcript.jsonl");
    let whole = std::fs::read(&own_files()[0]).unwrap();
    let lines: Vec<&[u8]> = whole.split_inclusive(|b| *b == b'\n').collect();
    let log = EventLog::open(scratch.path().join("log")).unwrap();
    let (kept, torn) = (lines[..2].concat(), lines[2]);
    for cut in (1..torn.len()).step_by(7) {
        let cut_off = [&kept, &torn[..cut]].concat();
        let nul_filled = [&cut_off[..], &[0; 40]].concat();
        for (n, (first, then)) in [
            (&cut_off, whole.clone()),
            (&cut_off, [&kept, lines[3]].concat()),
            (&nul_filled, [&kept, lines[3]].concat()),
            (&cut_off, kept.clone()),
            (&cut_off, nul_filled.clone()),
        ]
        .into_iter()
        .enumerate()
        {
            let mut options = ImportOptions::default();
            options.session = Some(format!("s-{cut}-{n}"));
            let import = |bytes: &[u8]| {
                std::fs::write(&path, bytes).unwrap();
                let report = jsonl::import(&log, open(&path), &options, &mut |_| {}).unwrap();
                assert!(export(&log, options.session.as_ref().unwrap()) == bytes, "{cut} {n}");
                report
            };
            assert_eq!(import(first).quarantined_spans, 1 + u64::from(n == 2), "{cut}");
            let second = import(&then);
            assert_ne!(second.outcome, Outcome::Conflict, "{cut} {n}: {:?}", second.message);
            assert_eq!(second.quarantined_spans, 2 * u64::from(n == 4), "{cut} {n}");
            assert_eq!(import(&then).outcome, Outcome::Unchanged, "{cut} {n}");
            // And on from there.
            let third = import(&[&then[..], b"\n", lines[3]].concat());
            assert_eq!(third.outcome, Outcome::Grown, "{cut} {n}: {:?}", third.message);
        }
    }
    assert!(log.verify().unwrap().problems.is_empty());
}

#[test]
fn a_dry_run_and_a_strict_refusal_change_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("t.jsonl");
    let whole = std::fs::read(&own_files()[1]).unwrap();
    std::fs::write(&path, [b"not json\n", &whole[..]].concat()).unwrap();
    let log = EventLog::open(scratch.path().join("log")).unwrap();
    let mut options = ImportOptions::default();
    options.strict = true;
    let report = jsonl::import(&log, open(&path), &options, &mut |_| {}).unwrap();
    assert_eq!(report.outcome, Outcome::Refused);
    assert_eq!(report.message.unwrap(), "line 1 is refused: bad_json, at byte 0");
    options.strict = false;
    options.dry_run = true;
    let report = jsonl::import(&log, open(&path), &options, &mut |_| {}).unwrap();
    assert_eq!((report.outcome, report.quarantined_spans), (Outcome::Imported, 1));
    assert!(log.sessions().unwrap().is_empty());
    options.dry_run = false;
    let report = jsonl::import(&log, open(&path), &options, &mut |_| {}).unwrap();
    let id = report.session.unwrap();
    assert_eq!(log.snapshot().unwrap().session(&id).unwrap().unwrap().count(Kind::Damaged), 1);
}

#[test]
fn two_imports_of_a_file_at_once_add_it_once() {
    let scratch = tempfile::tempdir().unwrap();
    let log = EventLog::open(scratch.path().join("log")).unwrap();
    let path = &own_files()[0];
    let bytes = std::fs::read(path).unwrap();
    let mut inner = None;
    let outer = jsonl::import(&log, open(path), &ImportOptions::default(), &mut |_| {
        if inner.is_none() {
            inner = Some(import(&log, path).outcome);
        }
    });
    assert_eq!(inner, Some(Outcome::Imported));
    assert_eq!(outer.unwrap_err().kind(), eventlog::ErrorKind::Conflict);
    let id = log.sessions().unwrap()[0].id.clone();
    assert!(export(&log, &id) == bytes);
    assert_eq!(import(&log, path).outcome, Outcome::Unchanged);
}

#[test]
fn a_run_with_a_very_long_name_is_imported() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("t.jsonl");
    let line = std::fs::read_to_string(&own_files()[0]).unwrap();
    std::fs::write(&path, line.replace("\"run-1\"", &format!("\"{}\"", "r".repeat(3000)))).unwrap();
    round_trip(&path, false);
}

/// The folder of the original, listed and resolved as the original does; a file that it cannot
/// read, and which makes it list nothing, hides no other.
#[test]
fn folders_are_listed_and_resolved_like_the_original_does() {
    for golden in data::golden("mycodeagent") {
        let dir = &golden.dir;
        let index = data::json(&dir.join("index.json"));
        let (mut listed_like, mut better) = (0, 0);
        for case in index["directories"].as_array().unwrap() {
            let name = case["name"].as_str().unwrap();
            let expected = data::json(&dir.join(format!("{name}.expected.json")));
            let listing = jsonl::list_transcripts(&dir.join(name));
            let listing = match listing {
                // The folder of a case without files may be missing altogether.
                Err(error) if error.kind() == eventlog::ErrorKind::NotFound => continue,
                other => other.unwrap(),
            };
            let text = |listed: &jsonl::Listed| {
                serde_json::json!({
                    "session_id": listed.session,
                    "file": listed.path.file_name().unwrap().to_str().unwrap(),
                    "latest_run_id": listed.latest_run,
                    "updated_at": listed.updated_at,
                })
            };
            let found: Vec<_> = listing.sessions.iter().map(text).collect();
            if case["policy"] == "improve" {
                assert_eq!(found.len(), 2 - listing.unreadable.len(), "{name}: {listing:?}");
                assert!(
                    found.iter().any(|listed| listed["file"] == "transcript-good.jsonl"),
                    "{name}"
                );
                better += 1;
                continue;
            }
            assert_eq!(serde_json::Value::from(found), expected["list_sessions"], "{name}");
            for query in expected["resolve_session"].as_array().unwrap() {
                let resolved = listing.resolve_transcript(query["query"].as_str());
                match query["result"].get("error") {
                    Some(_) => assert!(resolved.is_none(), "{name}: {query}"),
                    None => assert_eq!(resolved.map(text), Some(query["result"].clone()), "{name}"),
                }
            }
            println!("ok   {name}");
            listed_like += 1;
        }
        println!("{listed_like} folders like the original, {better} better");
        assert!(listed_like >= golden.at_least(1, 5) && better >= 1, "{listed_like}, {better}");
    }
}

#[test]
fn a_line_over_the_limit_is_set_aside_in_parts_and_is_one_span() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("t.jsonl");
    let whole = std::fs::read(&own_files()[1]).unwrap();
    let long = vec![b'x'; 5 << 20];
    let bytes = [&whole[..], &long, b"\r\n", &whole[..whole.len() - 1]].concat();
    std::fs::write(&path, &bytes).unwrap();
    let builder = EventLog::builder().max_entry_bytes(1 << 20);
    let log = builder.open(scratch.path().join("log")).unwrap();
    let report = import(&log, &path);
    let span = &report.quarantined[0];
    assert_eq!((report.quarantined_spans, span.length), (1, 5 << 20));
    assert_eq!(span.reason.name(), "oversize_line");
    assert_eq!(span.offset, whole.len() as u64);
    let id = report.session.unwrap();
    assert!(export(&log, &id) == bytes);
    assert_eq!(import(&log, &path).outcome, Outcome::Unchanged);
    assert!(jsonl::verify(&log.snapshot().unwrap(), &id).unwrap().is_empty());
}

#[test]
fn lines_just_over_the_limit_are_set_aside_whatever_the_limit_is() {
    for limit in [1 << 20, 1000] {
        for over in [0, 1, 2, 3] {
            for end in ["\n", "\r\n", ""] {
                let scratch = tempfile::tempdir().unwrap();
                let path = scratch.path().join("t.jsonl");
                let record = r#"{"id":"m","role":"user","content":"x","timestamp":"t"}"#;
                let long = "y".repeat(limit + over);
                let bytes = format!("{record}\n{long}{end}");
                std::fs::write(&path, &bytes).unwrap();
                let builder = EventLog::builder().max_entry_bytes(limit);
                let log = builder.open(scratch.path().join("log")).unwrap();
                let mut options = ImportOptions::default();
                options.session = Some("s".to_owned());
                let report = jsonl::import(&log, open(&path), &options, &mut |_| {}).unwrap();
                let what = format!("limit {limit}, {over} over, {end:?}");
                assert_eq!(report.quarantined_spans, 1, "{what}");
                let oversize = report.quarantined[0].reason.name() == "oversize_line";
                assert_eq!(oversize, over > 0, "{what}");
                assert!(export(&log, "s") == bytes.as_bytes(), "{what}");
            }
        }
    }
}

/// What is read of a line over two imports is what is read of it at once.
#[test]
fn a_line_that_comes_in_over_two_imports_is_read_as_one() {
    let record = r#"{"id":"msg_001","role":"user","content":"x","timestamp":"t"}"#;
    let deep = format!("{{\"a\":{}", "[".repeat(1100));
    let long = "x".repeat(3 << 20);
    for (first, rest) in [(deep.as_str(), record), (long.as_str(), record)] {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("t.jsonl");
        let builder = EventLog::builder().max_entry_bytes(1 << 20);
        let log = builder.open(scratch.path().join("log")).unwrap();
        let mut options = ImportOptions::default();
        let whole = format!("{record}\n{first}{rest}\n");
        let mut import = |bytes: &str, session: &str| {
            std::fs::write(&path, bytes).unwrap();
            options.session = Some(session.to_owned());
            jsonl::import(&log, open(&path), &options, &mut |_| {}).unwrap()
        };
        import(&format!("{record}\n{first}"), "twice");
        let twice = import(&whole, "twice");
        let once = import(&whole, "once");
        assert_eq!(twice.records, once.records);
        assert_eq!(twice.records, 1, "an object inside another is no record");
        assert!(export(&log, "twice") == whole.as_bytes());
        assert!(jsonl::verify(&log.snapshot().unwrap(), "twice").unwrap().is_empty());
    }
}

/// What its host appends later, and records of a session without a name, are no damage.
#[test]
fn a_healthy_log_has_no_problems() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("transcript-abc.jsonl");
    let record = r#"{"event_id":"e","timestamp":"t","session_id":"","run_id":"r","step":0,"event_type":"message"}"#;
    std::fs::write(&path, format!("{record}\n{{\"torn")).unwrap();
    let log = EventLog::open(scratch.path().join("log")).unwrap();
    let found = &jsonl::discover(&path).files[0];
    let report = found.import(Some(&log), &ImportOptions::default(), &mut |_| {}).unwrap();
    let id = report.session.unwrap();
    let problems = || jsonl::verify(&log.snapshot().unwrap(), &id).unwrap();
    assert!(problems().is_empty(), "{:?}", problems());
    let entry = eventlog::Entry::new(Kind::Message, br#"{"role":"user"}"#);
    log.session(&id).unwrap().append(entry).unwrap();
    assert!(problems().is_empty(), "{:?}", problems());
}
