//! The live mirror and the followed file: what is on disk and what is in the log stay in step, line
//! by line, through kills and through what others do to the files.
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

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use eventlog::io::{Dir, OpenMode, StdDir};
use eventlog::jsonl::{self, Follower, ImportOptions, Mirror, Outcome, Synced, TailRepair};
use eventlog::{Attributes, Entry, ErrorKind, EventLog, Kind, Terminator};

struct Place {
    _scratch: tempfile::TempDir,
    root: PathBuf,
    log: EventLog,
}

fn place() -> Place {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("files");
    std::fs::create_dir(&root).unwrap();
    let log = EventLog::open(scratch.path().join("log")).unwrap();
    Place { _scratch: scratch, root, log }
}

impl Place {
    fn mirror(&self) -> Mirror {
        Mirror::new(Arc::new(StdDir::open(&self.root).unwrap()))
    }

    fn sync(&self, mirror: &mut Mirror) -> Synced {
        mirror.sync(&self.log.snapshot().unwrap()).unwrap()
    }

    fn file(&self) -> PathBuf {
        self.root.join("transcripts/transcript-s.jsonl")
    }

    fn append(&self, line: &str) {
        self.log.session("s").unwrap().append(Entry::new(Kind::Message, line.as_bytes())).unwrap();
    }

    fn exported(&self) -> Vec<u8> {
        let mut out = Vec::new();
        jsonl::export(&self.log.snapshot().unwrap(), "s", .., &mut out, &mut |_| {}).unwrap();
        out
    }

    fn is_in_step(&self) -> bool {
        std::fs::read(self.file()).unwrap() == self.exported()
    }
}

fn event(n: u64) -> String {
    format!(
        r#"{{"event_id": "e{n}", "timestamp": "t", "session_id": "s", "run_id": "r", "step": 0, "event_type": "message", "payload": {{"role": "user", "content": "ü {n}"}}}}"#
    )
}

#[test]
fn the_mirror_appends_what_is_new_and_nothing_else() {
    let place = place();
    let mut mirror = place.mirror();
    for n in 0..20 {
        place.append(&event(n));
        let before = std::fs::read(place.file()).unwrap_or_default();
        let synced = place.sync(&mut mirror);
        assert_eq!((synced.files, synced.bytes), (1, event(n).len() as u64 + 1));
        assert!(std::fs::read(place.file()).unwrap().starts_with(&before));
        assert!(place.is_in_step());
        assert_eq!(place.sync(&mut mirror).files, 0, "nothing is new");
    }
    mirror.flush().unwrap();
}

/// A kill leaves a beginning of the file; the mirror goes on exactly there.
#[test]
fn the_mirror_goes_on_where_it_was_cut_off_at_every_byte() {
    let place = place();
    for n in 0..3 {
        place.append(&event(n));
    }
    place.sync(&mut place.mirror());
    let whole = place.exported();
    for cut in 0..=whole.len() {
        std::fs::write(place.file(), &whole[..cut]).unwrap();
        let synced = place.sync(&mut place.mirror());
        assert!(synced.failed.is_empty(), "cut at {cut}: {:?}", synced.failed);
        assert_eq!(synced.bytes, (whole.len() - cut) as u64, "cut at {cut}");
        assert!(place.is_in_step(), "cut at {cut}");
    }
}

/// A power failure can leave NUL bytes behind what was written. Anything else is somebody's text.
#[test]
fn the_mirror_cuts_off_nul_bytes_and_nobodys_text() {
    let place = place();
    (0..3).for_each(|n| place.append(&event(n)));
    place.sync(&mut place.mirror());
    let whole = place.exported();
    for cut in [event(0).len() + 1, event(0).len() + 30, whole.len()] {
        std::fs::write(place.file(), [&whole[..cut], &[0; 300]].concat()).unwrap();
        let synced = place.sync(&mut place.mirror());
        assert!(synced.failed.is_empty(), "{:?}", synced.failed);
        assert!(place.is_in_step());
    }
    for note in ["my own note without a line end", "{\"half", "a line\n"] {
        let with_note = [&whole[..], note.as_bytes()].concat();
        std::fs::write(place.file(), &with_note).unwrap();
        assert_eq!(place.sync(&mut place.mirror()).failed.len(), 1, "{note}");
        assert!(std::fs::read(place.file()).unwrap() == with_note);
    }
}

/// Also when the length is the same; and once the file is moved away, or as it was, it goes on.
#[test]
fn the_mirror_notices_what_others_do_to_its_files() {
    let place = place();
    (0..3).for_each(|n| place.append(&event(n)));
    let mut mirror = place.mirror();
    place.sync(&mut mirror);
    let whole = place.exported();
    assert!(!mirror.check(), "all is as it was left");
    let mut other = whole.clone();
    other[20] ^= 1;
    std::thread::sleep(Duration::from_millis(20));
    std::fs::write(place.file(), &other).unwrap();
    place.append(&event(3));
    assert_eq!(place.sync(&mut mirror).failed.len(), 1);
    assert!(std::fs::read(place.file()).unwrap() == other);
    std::fs::rename(place.file(), place.root.join("away")).unwrap();
    assert!(mirror.check());
    assert!(place.sync(&mut mirror).failed.is_empty());
    assert!(place.is_in_step());
    // At rest: a file that is gone, one that is cut, a directory that is gone.
    std::fs::remove_file(place.file()).unwrap();
    assert!(mirror.check());
    place.sync(&mut mirror);
    assert!(place.is_in_step());
    std::fs::write(place.file(), &whole[..40]).unwrap();
    assert!(mirror.check());
    place.sync(&mut mirror);
    assert!(place.is_in_step());
    std::fs::remove_dir_all(place.file().parent().unwrap()).unwrap();
    mirror.flush().unwrap();
    assert!(mirror.check());
    place.sync(&mut mirror);
    assert!(place.is_in_step());
}

#[test]
fn the_mirror_leaves_a_file_that_is_not_the_logs_as_it_is_and_says_so_once() {
    let place = place();
    place.append(&event(0));
    let mut mirror = place.mirror();
    place.sync(&mut mirror);
    let foreign = "somebody else's line\n";
    std::fs::write(place.file(), foreign).unwrap();
    place.append(&event(1));
    let synced = place.sync(&mut mirror);
    assert_eq!(synced.failed.len(), 1);
    assert_eq!(synced.failed[0].1.kind(), ErrorKind::Conflict);
    assert!(synced.failed[0].1.hint().is_some());
    place.append(&event(2));
    assert!(place.sync(&mut mirror).failed.is_empty());
    assert_eq!(std::fs::read_to_string(place.file()).unwrap(), foreign);
    // Also one that is longer than the session.
    let place = self::place();
    place.append(&event(0));
    std::fs::create_dir_all(place.file().parent().unwrap()).unwrap();
    let longer = format!("{}\nmore\nand more", event(0));
    std::fs::write(place.file(), &longer).unwrap();
    assert_eq!(place.sync(&mut place.mirror()).failed.len(), 1);
    assert_eq!(std::fs::read_to_string(place.file()).unwrap(), longer);
}

#[test]
fn the_mirror_makes_a_file_again_that_is_gone() {
    let place = place();
    place.append(&event(0));
    let mut mirror = place.mirror();
    place.sync(&mut mirror);
    std::fs::remove_file(place.file()).unwrap();
    place.append(&event(1));
    assert!(place.sync(&mut mirror).failed.is_empty());
    assert!(place.is_in_step());
}

#[test]
fn a_torn_end_is_mirrored_only_when_it_is_settled() {
    let place = place();
    let session = place.log.session("s").unwrap();
    place.append(&event(0));
    let torn = Entry::new(Kind::Damaged, b"{\"event").terminator(Terminator::None).detail(5);
    session.append(torn).unwrap();
    let mut mirror = place.mirror();
    place.sync(&mut mirror);
    assert_eq!(std::fs::read_to_string(place.file()).unwrap(), format!("{}\n", event(0)));
    session.append(Entry::new(Kind::Message, event(1).as_bytes()).replaces_tail(true)).unwrap();
    place.sync(&mut mirror);
    assert!(place.is_in_step());
    let lines = std::fs::read_to_string(place.file()).unwrap();
    assert_eq!(lines, format!("{}\n{}\n", event(0), event(1)));
}

#[test]
fn recursive_sessions_are_mirrored_with_their_description() {
    let place = place();
    let mut attributes = Attributes::default();
    attributes.format = Some("recursive".to_owned());
    attributes.workspace = Some("/srv/nowhere".to_owned());
    let session = place.log.session("2026-01-02T03-04-05Z-x").unwrap();
    session.describe(&attributes).unwrap();
    let mut mirror = place.mirror();
    let hash = eventlog::format::recursive::place::workspace_hash("/srv/nowhere".as_ref());
    let workspace = place.root.join("workspaces").join(hash);
    let dir = workspace.join("sessions/srv-nowhere/2026-01-02T03-04-05Z-x");
    for n in 1..4 {
        let line = format!(
            r#"{{"uuid":"u{n}","id":"msg_{n:03}","role":"user","content":"prompt {n}","usage":{{"input_tokens":{n}}},"timestamp":"2026-01-02T03:04:0{n}Z"}}"#
        );
        session.append(Entry::new(Kind::Message, line.as_bytes())).unwrap();
        // A new mirror knows nothing, and finds out.
        if n == 3 {
            mirror = place.mirror();
        }
        assert!(place.sync(&mut mirror).failed.is_empty());
        let meta: serde_json::Value =
            serde_json::from_slice(&std::fs::read(dir.join(".meta.json")).unwrap()).unwrap();
        assert_eq!(meta["message_count"], n);
        assert_eq!(meta["first_prompt"], "prompt 1");
        assert_eq!(meta["last_prompt"], format!("prompt {n}"));
        assert_eq!(meta["cost"]["total_input_tokens"], n * (n + 1) / 2);
    }
    assert_eq!(std::fs::read_to_string(workspace.join("path.txt")).unwrap(), "/srv/nowhere");
    assert_eq!(std::fs::read_to_string(dir.join("transcript.jsonl")).unwrap().lines().count(), 3);
}

fn grow(path: &Path, bytes: &str) {
    use std::io::Write;
    let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
    file.write_all(bytes.as_bytes()).unwrap();
}

#[test]
fn a_followed_file_is_taken_line_by_line_and_its_unfinished_line_is_left_alone() {
    let place = place();
    let path = place.root.join("t.jsonl");
    let mut follower = Follower::new(&place.log, ImportOptions::default());
    let line = event(0) + "\n";
    let half = line.len() / 2;
    for n in 0..5 {
        let line = event(n) + "\n";
        grow(&path, &line[..half]);
        let report = follower.look(&path).unwrap();
        if n > 0 {
            assert!(report.is_none(), "half a line is nothing yet: {report:?}");
        }
        assert_eq!(follower.unsettled(), std::slice::from_ref(&path));
        grow(&path, &line[half..]);
        let report = follower.look(&path).unwrap().unwrap();
        assert_eq!((report.new_records, report.quarantined_spans), (1, 0), "{report:?}");
        assert_eq!(report.records, n + 1, "the report is of the whole file");
        assert!(follower.unsettled().is_empty());
        assert!(follower.look(&path).unwrap().is_none());
    }
    assert!(place.exported() == std::fs::read(&path).unwrap());
    let info = place.log.snapshot().unwrap().session("s").unwrap().unwrap();
    assert_eq!(info.count(Kind::Damaged), 0);
}

#[test]
fn a_line_that_stays_unfinished_is_kept_as_what_it_is_and_given_up_when_it_goes_on() {
    let place = place();
    let path = place.root.join("t.jsonl");
    let mut follower = Follower::new(&place.log, ImportOptions::default());
    let line = event(1) + "\n";
    grow(&path, &(event(0) + "\n" + &line[..30]));
    follower.look(&path).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    let report = loop {
        if let Some(report) = follower.look(&path).unwrap() {
            break report;
        }
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(report.quarantined_spans, 1);
    assert!(place.exported() == std::fs::read(&path).unwrap());
    grow(&path, &line[30..]);
    let report = follower.look(&path).unwrap().unwrap();
    assert_eq!((report.outcome, report.records, report.quarantined_spans), (Outcome::Grown, 2, 0));
    assert!(place.exported() == std::fs::read(&path).unwrap());
}

#[test]
fn a_followed_file_that_is_replaced_by_another_is_a_conflict_and_changes_nothing() {
    let place = place();
    let path = place.root.join("t.jsonl");
    let mut follower = Follower::new(&place.log, ImportOptions::default());
    grow(&path, &(event(0) + "\n" + &event(1) + "\n"));
    follower.look(&path).unwrap();
    let before = place.exported();
    std::fs::write(&path, event(7) + "\n" + &event(8) + "\n" + &event(9) + "\n").unwrap();
    // It may be the middle of a change: told when it stays.
    let mut told = || {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(report) = follower.look(&path).unwrap() {
                return report.outcome;
            }
            assert!(Instant::now() < end);
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    assert_eq!(told(), Outcome::Conflict);
    std::fs::write(&path, event(0) + "\n").unwrap();
    assert_eq!(told(), Outcome::Conflict);
    assert!(place.exported() == before);
}

/// What the original does before each append, at every cut and for odd tails, as recorded.
#[test]
fn the_tail_is_repaired_as_the_original_repairs_it() {
    for data in data::golden("mycodeagent") {
        let dir = &data.dir;
        let json = |name: &str| data::json(&dir.join(name));
        let scratch = tempfile::tempdir().unwrap();
        let repaired = |bytes: &[u8]| {
            std::fs::write(scratch.path().join("t"), bytes).unwrap();
            let file = StdDir::open(scratch.path()).unwrap().open("t", OpenMode::Write).unwrap();
            let (what, len) = jsonl::repair_tail(&*file).unwrap();
            assert_eq!(std::fs::metadata(scratch.path().join("t")).unwrap().len(), len);
            (what, len)
        };
        let mut rows = 0;
        for name in json("index.json")["torn_tables"].as_array().unwrap() {
            let name = name.as_str().unwrap();
            let table = json(&format!("{name}.json"));
            let whole = std::fs::read(dir.join(format!("{name}.jsonl"))).unwrap();
            for row in table["rows"].as_array().unwrap() {
                let cut = row[0].as_u64().unwrap() as usize;
                assert_eq!(
                    repaired(&whole[..cut]).1,
                    row[2].as_u64().unwrap(),
                    "{name}, cut at {cut}"
                );
                rows += 1;
            }
        }
        let table = json("torn-tails.json");
        let whole = std::fs::read(dir.join("torn-tails.jsonl")).unwrap();
        for row in table["rows"].as_array().unwrap() {
            let hex = row["tail_hex"].as_str().unwrap();
            let tail: Vec<u8> = (0..hex.len() / 2)
                .map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap())
                .collect();
            let (what, len) = repaired(&[&whole[..], &tail].concat());
            let expected = row["repair"].as_str().unwrap().replace(" ", "_");
            assert_eq!(what.name(), expected, "{row}");
            assert_eq!(len, row["repaired_len"].as_u64().unwrap(), "{row}");
            rows += 1;
        }
        for case in json("index.json")["cases"].as_array().unwrap() {
            let name = case["name"].as_str().unwrap();
            let expected = json(&format!("{name}.expected.json"));
            let bytes = std::fs::read(dir.join(format!("{name}.jsonl"))).unwrap();
            let (what, len) = repaired(&bytes);
            assert_eq!(what.name(), expected["tail_repair"]["action"].as_str().unwrap(), "{name}");
            assert_eq!(len, expected["tail_repair"]["length"].as_u64().unwrap(), "{name}");
            rows += 1;
        }
        println!("{rows} tails");
        assert!(rows >= data.at_least(300, 1001), "{rows}");
        assert_eq!(repaired(b"").0, TailRepair::Kept);
    }
}

/// The same size is not the same file.
#[test]
fn a_followed_file_that_is_written_over_with_the_same_length_is_noticed() {
    let place = place();
    let path = place.root.join("t.jsonl");
    let mut follower = Follower::new(&place.log, ImportOptions::default());
    let (kept, next) = (event(0) + "\n", event(1) + "\n");
    grow(&path, &(kept.clone() + &next[..next.len() - 1].replace('1', "\u{1}")));
    follower.look(&path).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while follower.look(&path).unwrap().is_none() {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(50));
    }
    // Its writer cuts the torn line off, and writes another of the same length at once.
    let other = kept + &next[..next.len() - 1];
    std::fs::write(&path, &other).unwrap();
    let report = follower.look(&path).unwrap().unwrap();
    assert_eq!((report.outcome, report.records), (Outcome::Grown, 2), "{report:?}");
    assert!(place.exported() == other.as_bytes());
}

#[test]
fn what_stands_beside_a_followed_file_comes_in_when_it_changes() {
    let place = place();
    let dir = place.root.join("slug/one");
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("transcript.jsonl");
    grow(&path, "{\"id\":\"msg_001\",\"role\":\"user\",\"content\":\"x\",\"timestamp\":\"t\"}\n");
    let meta = |status: &str| {
        let text = format!(
            r#"{{"session_id":"one","goal":"","model":"","provider":"","created_at":"t","updated_at":"t","message_count":1,"status":"{status}"}}"#
        );
        std::fs::write(dir.join(".meta.json"), text).unwrap();
    };
    let status = || {
        let info = place.log.snapshot().unwrap().session("one").unwrap().unwrap();
        let meta = info.attributes.meta.unwrap();
        eventlog::format::recursive::Meta::parse(meta.as_bytes()).unwrap().status.name()
    };
    meta("active");
    let mut follower = Follower::new(&place.log, ImportOptions::default());
    follower.look(&path).unwrap();
    assert_eq!(status(), "active");
    meta("completed");
    follower.look(&path).unwrap();
    assert_eq!(status(), "completed");
    // And by an import that finds nothing new in the lines.
    meta("paused");
    let found = &jsonl::discover(&path).files[0];
    let report = found.import(Some(&place.log), &ImportOptions::default(), &mut |_| {}).unwrap();
    assert_eq!((report.outcome, status()), (Outcome::Unchanged, "paused"));
}

/// After a flush a power cut takes nothing of the files, new ones and their names included.
#[cfg(feature = "sim")]
#[test]
fn what_the_mirror_has_flushed_survives_a_power_cut() {
    use eventlog::io::sim::SimDisk;
    let disk = SimDisk::new();
    let root = disk.root().subdir("files", true).unwrap();
    disk.root().sync().unwrap();
    let place = place();
    let mut mirror = Mirror::new(root);
    place.append(&event(0));
    place.sync(&mut mirror);
    let torn = Entry::new(Kind::Damaged, b"{\"event").terminator(Terminator::None).detail(5);
    place.log.session("s").unwrap().append(torn).unwrap();
    // This one has nothing to write, and forgets nothing.
    place.sync(&mut mirror);
    mirror.flush().unwrap();
    let disk = disk.crash(&mut |_| eventlog::io::sim::Fate::Dropped);
    let file = disk.bytes("files/transcripts/transcript-s.jsonl").unwrap();
    assert_eq!(String::from_utf8(file).unwrap(), event(0) + "\n");
}

#[test]
fn the_mirrored_description_is_in_step_too() {
    let place = place();
    let mut attributes = Attributes::default();
    attributes.format = Some("recursive".to_owned());
    let session = place.log.session("one").unwrap();
    session.describe(&attributes).unwrap();
    let line = r#"{"id":"msg_001","role":"user","content":"x","timestamp":"t"}"#;
    session.append(Entry::new(Kind::Message, line.as_bytes())).unwrap();
    let mut mirror = place.mirror();
    place.sync(&mut mirror);
    let path = place.root.join("workspaces/unknown/sessions/unknown/one/.meta.json");
    let status = || {
        let meta = eventlog::format::recursive::Meta::parse(&std::fs::read(&path).unwrap());
        meta.unwrap().status.name()
    };
    assert_eq!(status(), "active");
    attributes.meta = Some(std::fs::read_to_string(&path).unwrap().replace("active", "paused"));
    session.describe(&attributes).unwrap();
    place.sync(&mut mirror);
    assert_eq!(status(), "paused");
    std::fs::remove_file(&path).unwrap();
    assert!(mirror.check());
    place.sync(&mut mirror);
    assert_eq!(status(), "paused");
    std::fs::remove_file(&path).unwrap();
    place.sync(&mut place.mirror());
    assert_eq!(status(), "paused");
}
