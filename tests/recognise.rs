//! What a file is taken for: by what most of its records are, as a whole. Lines of other programs are
//! kept as they are, and so is a file of an unknown format; neither is ever called damaged.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use eventlog::jsonl::{self, FileReport, Follower, ImportOptions, Outcome, Part};
use eventlog::{EventLog, Kind};

/// Lines as Claude Code writes them: an envelope with a type and a time, and bookkeeping without.
fn claude_code_like() -> Vec<String> {
    let line = |n: usize, kind: &str, message: &str| {
        format!(
            r#"{{"parentUuid":null,"isSidechain":false,"sessionId":"5e55","type":"{kind}","message":{message},"uuid":"u-{n}","timestamp":"2026-05-01T08:00:0{n}.000Z"}}"#
        )
    };
    vec![
        r#"{"type":"permission-mode","permissionMode":"default","sessionId":"5e55"}"#.to_owned(),
        r#"{"type":"file-history-snapshot","messageId":"u-1","snapshot":{"timestamp":"2026-05-01T08:00:00Z"}}"#.to_owned(),
        line(1, "user", r#"{"role":"user","content":"sort the imports"}"#),
        line(2, "assistant", r#"{"id":"m1","role":"assistant","content":[{"type":"text","text":"done"}]}"#),
        r#"{"type":"system","subtype":"compact_boundary","content":"x","uuid":"u-3","timestamp":"2026-05-01T08:00:03.000Z"}"#.to_owned(),
        r#"{"type":"ai-title","aiTitle":"Imports","sessionId":"5e55"}"#.to_owned(),
    ]
}

/// Lines as Codex writes them: a time, a type and a payload.
fn codex_like() -> Vec<String> {
    let line = |kind: &str, payload: &str| {
        format!(r#"{{"timestamp":"2026-05-01T08:00:00.000Z","type":"{kind}","payload":{payload}}}"#)
    };
    vec![
        line("session_meta", r#"{"id":"0190","cwd":"/srv/x","originator":"cli"}"#),
        line(
            "response_item",
            r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}"#,
        ),
        line("event_msg", r#"{"type":"user_message","message":"hi"}"#),
        line(
            "response_item",
            r#"{"type":"function_call","name":"shell","arguments":"{}","call_id":"c"}"#,
        ),
    ]
}

/// Lines as Gemini's tool writes them: a head, messages, and patches of both.
fn gemini_like() -> Vec<String> {
    [
        r#"{"sessionId":"g-1","projectHash":"ab","startTime":"2026-05-01T08:00:00Z","lastUpdated":"2026-05-01T08:00:00Z","kind":"main"}"#,
        r#"{"id":"1","timestamp":"2026-05-01T08:00:01Z","type":"user","content":"hi"}"#,
        r#"{"id":"2","timestamp":"2026-05-01T08:00:02Z","type":"gemini","content":"hello"}"#,
        r#"{"$set":{"summary":"a greeting"}}"#,
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Lines of no program in particular, some of them no objects.
fn any_json() -> Vec<String> {
    [
        r#"{"a":1}"#,
        r#"{"level":"info","msg":"x","ts":1.5}"#,
        "[1, 2]",
        "\"text\"",
        "{}",
        "42",
        "null",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn repeated(lines: &[String], times: usize) -> Vec<String> {
    std::iter::repeat_n(lines, times).flatten().cloned().collect()
}

fn transcript(n: usize) -> String {
    format!(
        r#"{{"event_id": "evt-{n}", "timestamp": "2026-03-01T10:00:{:02}Z", "session_id": "s-1", "run_id": "run-1", "step": {n}, "event_type": "message", "payload": {{"role": "user", "content": "number {n}", "metadata": {{}}}}, "schema_version": 1}}"#,
        n % 60
    )
}

fn recursive(n: usize) -> String {
    format!(
        r#"{{"uuid":"u-{n}","id":"msg_{n:03}","role":"user","content":"number {n}","timestamp":"2026-03-01T10:00:{:02}Z"}}"#,
        n % 60
    )
}

struct Place {
    log: EventLog,
    dir: tempfile::TempDir,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let log = EventLog::open(dir.path().join("log")).unwrap();
    Place { log, dir }
}

impl Place {
    fn write(&self, name: &str, lines: &[String]) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>())
            .unwrap();
        path
    }

    fn import_with(&self, path: &Path, options: &ImportOptions) -> FileReport {
        let found = jsonl::discover(path).files;
        found[0].import(Some(&self.log), options, &mut |_| {}).unwrap()
    }

    fn import(&self, path: &Path) -> FileReport {
        self.import_with(path, &ImportOptions::default())
    }

    fn kinds(&self, id: &str) -> Vec<Kind> {
        self.log.read(id, ..).unwrap().map(|event| event.unwrap().kind()).collect()
    }

    /// The file is in the log, byte for byte, as what the log says; bringing it in again adds nothing.
    fn check(&self, path: &Path, report: &FileReport) {
        let bytes = std::fs::read(path).unwrap();
        let id = report.session.as_deref().unwrap();
        let snapshot = self.log.snapshot().unwrap();
        let mut out = Vec::new();
        jsonl::export(&snapshot, id, .., &mut out, &mut |_| {}).unwrap();
        assert!(out == bytes, "{}", path.display());
        let sum = report.record_bytes + report.separator_bytes + report.quarantined_bytes;
        assert_eq!((report.bytes, sum), (bytes.len() as u64, bytes.len() as u64));
        let info = snapshot.session(id).unwrap().unwrap();
        assert_eq!(info.attributes.format.as_deref(), report.format);
        assert_eq!(jsonl::verify(&snapshot, id).unwrap(), []);
        let again = self.import(path);
        assert_eq!((again.outcome, again.new_records), (Outcome::Unchanged, 0));
        assert_eq!((again.format, &again.finding_counts), (report.format, &report.finding_counts));
    }
}

fn has_damage(report: &FileReport) -> bool {
    report.quarantined_spans > 0 || report.quarantined_bytes > 0
}

#[test]
fn a_file_of_an_unknown_format_is_kept_named_unknown_and_never_called_damaged() {
    for (name, lines) in [
        ("claude", claude_code_like()),
        ("codex", codex_like()),
        ("gemini", gemini_like()),
        ("any", any_json()),
    ] {
        for strict in [false, true] {
            let place = place();
            let path = place.write(&format!("{name}.jsonl"), &lines);
            let mut options = ImportOptions::default();
            options.strict = strict;
            let report = place.import_with(&path, &options);
            assert_eq!(report.outcome, Outcome::Imported, "{name}: {:?}", report.message);
            assert_eq!((report.format, report.session.as_deref()), (Some("unknown"), Some(name)));
            assert!(!has_damage(&report), "{name}: {:?}", report.quarantined);
            assert_eq!(report.records, lines.len() as u64, "{name}");
            assert!(place.kinds(name).iter().all(|kind| *kind == Kind::Other), "{name}");
            place.check(&path, &report);
        }
    }
}

#[test]
fn a_single_line_is_a_file_of_its_format_or_an_unknown_one() {
    let known = [(transcript(0), "transcript"), (recursive(1), "recursive")];
    let all = [claude_code_like(), codex_like(), gemini_like(), any_json()].concat();
    let unknown = all.into_iter().map(|line| (line, "unknown"));
    for (line, format) in known.into_iter().chain(unknown) {
        let place = place();
        let path = place.write("one.jsonl", std::slice::from_ref(&line));
        let report = place.import(&path);
        assert_eq!((report.format, report.records), (Some(format), 1), "{line}");
        assert!(!has_damage(&report), "{line}");
        place.check(&path, &report);
    }
}

#[test]
fn an_empty_file_is_of_no_format_yet() {
    let place = place();
    for text in ["", "\n", "\u{feff}\n \n"] {
        let path = place.dir.path().join("empty.jsonl");
        std::fs::write(&path, text).unwrap();
        let report = place.import(&path);
        assert_eq!((report.outcome, report.format), (Outcome::Unchanged, None), "{text:?}");
    }
    assert_eq!(place.log.sessions().unwrap().len(), 0);
}

#[test]
fn a_text_or_a_document_is_not_lines_of_json_and_is_refused() {
    let document = "{\n  \"a\": [\n    1,\n    {},\n    \"last\"\n  ],\n  \"b\":\n    42\n}\n";
    for text in ["some words\n", "# notes\n42\n\nmore\n", document] {
        let place = place();
        let path = place.dir.path().join("file.jsonl");
        std::fs::write(&path, text).unwrap();
        let report = place.import(&path);
        assert_eq!((report.outcome, report.format), (Outcome::Refused, None), "{text:?}");
        assert_eq!(place.log.sessions().unwrap().len(), 0);
    }
}

#[test]
fn lines_of_other_programs_in_a_known_file_are_other_wherever_they_stand() {
    type Known = fn(usize) -> String;
    let formats: [(&str, Known); 2] = [("transcript", transcript), ("recursive", recursive)];
    for (format, known) in formats {
        for foreign in [claude_code_like(), codex_like(), gemini_like(), vec![r#"{"a":1}"#.into()]]
        {
            for at in [0, 4, 8] {
                let place = place();
                let mut lines: Vec<String> = (1..9).map(known).collect();
                lines.splice(at..at, foreign.clone());
                let path = place.write("mixed.jsonl", &lines);
                let report = place.import(&path);
                assert_eq!((report.outcome, report.format), (Outcome::Imported, Some(format)));
                assert!(!has_damage(&report), "{format}, {at}: {:?}", report.quarantined);
                let kinds = place.kinds(report.session.as_deref().unwrap());
                let messages = kinds.iter().filter(|kind| **kind == Kind::Message).count();
                assert_eq!((messages, kinds.len()), (8, lines.len()));
                assert!(!kinds.contains(&Kind::Damaged));
                place.check(&path, &report);
            }
        }
    }
}

#[test]
fn the_minority_of_another_known_format_is_other() {
    for (most, few, format) in [
        ((0..6).map(transcript).collect::<Vec<_>>(), recursive(1), "transcript"),
        ((1..7).map(recursive).collect(), transcript(0), "recursive"),
        (repeated(&any_json(), 2), transcript(0), "unknown"),
        (claude_code_like(), recursive(1), "unknown"),
    ] {
        for at in [0, 3, most.len()] {
            let place = place();
            let mut lines = most.clone();
            lines.insert(at, few.clone());
            let path = place.write("mixed.jsonl", &lines);
            let report = place.import(&path);
            assert_eq!(report.format, Some(format), "at {at}");
            assert!(!has_damage(&report), "{format}, {at}: {:?}", report.quarantined);
            let kinds = place.kinds(report.session.as_deref().unwrap());
            assert_eq!(kinds[at], Kind::Other);
            place.check(&path, &report);
        }
    }
}

#[test]
fn of_two_halves_the_first_record_decides() {
    let foreign = r#"{"level":"info","msg":"x"}"#.to_owned();
    for (lines, format) in [
        (vec![transcript(0), foreign.clone()], "transcript"),
        (vec![foreign.clone(), transcript(0)], "unknown"),
        (vec![transcript(0), recursive(1)], "transcript"),
        (vec![recursive(1), transcript(0)], "recursive"),
    ] {
        let place = place();
        let path = place.write("halves.jsonl", &lines);
        let report = place.import(&path);
        assert_eq!(report.format, Some(format), "{lines:?}");
        place.check(&path, &report);
    }
}

#[test]
fn a_record_that_has_lost_a_field_is_still_damaged() {
    let lost = [
        transcript(1).replace(r#""run_id": "run-1", "#, ""),
        transcript(1).replace(r#""step": 1"#, r#""step": "one""#),
    ];
    for line in lost {
        let place = place();
        let lines = [transcript(0), line, transcript(2)];
        let report = place.import(&place.write("t.jsonl", &lines));
        assert_eq!(report.quarantined[0].reason.name(), "schema_mismatch");
    }
    let lost = [
        recursive(1).replace(r#""content":"number 1","#, ""),
        r#"{"type":"system","subtype":"compact_boundary","compacted_count":2}"#.to_owned(),
        r#"{"role":"user"}"#.to_owned(),
        "{}".to_owned(),
    ];
    for line in lost {
        let place = place();
        let lines = [recursive(1), line, recursive(2)];
        let report = place.import(&place.write("t.jsonl", &lines));
        assert_eq!(report.quarantined[0].reason.name(), "schema_mismatch");
    }
}

#[test]
fn broken_lines_of_an_unknown_file_are_still_damaged() {
    let place = place();
    let mut lines = claude_code_like();
    lines.insert(1, r#"{"type":"user","message":{"ro"#.to_owned());
    let path = place.write("torn.jsonl", &lines);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend_from_slice(br#"{"type":"assis"#);
    std::fs::write(&path, bytes).unwrap();
    let report = place.import(&path);
    assert_eq!(report.format, Some("unknown"));
    let reasons: Vec<_> = report.quarantined.iter().map(|q| (q.line, q.reason.name())).collect();
    assert_eq!(reasons, [(2, "bad_json"), (8, "torn_tail")]);
    place.check(&path, &report);
    let mut options = ImportOptions::default();
    options.strict = true;
    options.session = Some("strict".to_owned());
    let strict = place.import_with(&path, &options);
    assert_eq!(strict.outcome, Outcome::Refused);
}

#[test]
fn a_repair_takes_a_file_for_what_an_import_takes_it_for() {
    for (lines, format) in [
        (claude_code_like(), "unknown"),
        (any_json(), "unknown"),
        ([claude_code_like(), (0..9).map(transcript).collect()].concat(), "transcript"),
        ([(1..9).map(recursive).collect(), codex_like()].concat(), "recursive"),
    ] {
        let place = place();
        let path = place.write("t.jsonl", &lines);
        let file = eventlog::io::StdDir::open_file(&path).unwrap();
        let mut kept = Vec::new();
        let report = jsonl::repair(file, &mut |part| {
            if let Part::Record(record) = part {
                kept.push(String::from_utf8(record.to_vec()).unwrap());
            }
            Ok(())
        });
        let report = report.unwrap();
        assert_eq!((report.format, report.outcome), (Some(format), Outcome::Unchanged));
        assert_eq!(kept, lines);
        assert_eq!(place.import(&path).format, report.format);
    }
}

#[test]
fn a_file_of_another_program_is_no_transcript_in_a_list_whatever_its_name_is() {
    let place = place();
    let mixed = [claude_code_like(), vec![transcript(0)]].concat();
    for (name, lines) in [
        ("transcript-own.jsonl", vec![transcript(0), transcript(1)]),
        ("transcript-claude.jsonl", claude_code_like()),
        ("transcript-mixed.jsonl", mixed),
        ("transcript-r.jsonl", vec![recursive(1)]),
    ] {
        place.write(name, &lines);
    }
    let listing = jsonl::list_transcripts(place.dir.path()).unwrap();
    let found: Vec<_> = listing.sessions.iter().map(|listed| listed.session.as_str()).collect();
    assert_eq!((found, listing.unreadable.len()), (vec!["s-1"], 0));
}

#[test]
fn a_long_foreign_head_does_not_outvote_a_longer_file() {
    let head = repeated(&codex_like(), 5_000);
    let rest: Vec<String> = (0..60_000).map(transcript).collect();
    let place = place();
    let path = place.write("long.jsonl", &[head.clone(), rest.clone()].concat());
    assert!(head.iter().map(String::len).sum::<usize>() > 2 << 20);
    let mut options = ImportOptions::default();
    options.dry_run = true;
    let report = place.import_with(&path, &options);
    assert_eq!((report.format, report.session.as_deref()), (Some("transcript"), Some("s-1")));
    assert!(!has_damage(&report));
    // And a known head does not outvote a longer rest of something else.
    let lines = [rest[..8_000].to_vec(), repeated(&codex_like(), 40_000)].concat();
    let report = place.import_with(&place.write("other.jsonl", &lines), &options);
    assert_eq!((report.format, has_damage(&report)), (Some("unknown"), false));
}

#[test]
fn a_session_keeps_its_format_whatever_its_file_goes_on_with() {
    let place = place();
    let lines = vec![transcript(0), transcript(1)];
    let path = place.write("t.jsonl", &lines);
    assert_eq!(place.import(&path).format, Some("transcript"));
    let lines = [lines, codex_like(), vec![transcript(2)]].concat();
    place.write("t.jsonl", &lines);
    let report = place.import(&path);
    assert_eq!((report.outcome, report.format), (Outcome::Grown, Some("transcript")));
    assert_eq!(report.session.as_deref(), Some("s-1"));
    assert!(!has_damage(&report));
    assert_eq!(place.kinds("s-1").last(), Some(&Kind::Message));
    place.check(&path, &report);
    assert_eq!(place.log.sessions().unwrap().len(), 1);
}

#[test]
fn an_unknown_session_stays_one_when_records_of_it_would_be_another_kind() {
    let place = place();
    let lines = [codex_like(), vec![transcript(0)]].concat();
    let path = place.write("t.jsonl", &lines);
    assert_eq!(place.import(&path).format, Some("unknown"));
    place.write("t.jsonl", &[lines, (1..20).map(transcript).collect()].concat());
    let report = place.import(&path);
    assert_eq!((report.outcome, report.format), (Outcome::Grown, Some("unknown")));
    assert_eq!(report.session.as_deref(), Some("t"));
    place.check(&path, &report);
    // Brought in anew it is what it is now.
    let mut options = ImportOptions::default();
    options.session = Some("new".to_owned());
    assert_eq!(place.import_with(&path, &options).format, Some("transcript"));
}

#[test]
fn an_unknown_session_becomes_known_when_that_changes_nothing_of_it() {
    let more: Vec<String> = (0..20).map(transcript).collect();
    for (name, more, format) in [
        ("transcript-s-1.jsonl", more.clone(), "transcript"),
        ("t.jsonl", (1..20).map(recursive).collect(), "recursive"),
        // The records name another session than the file does.
        ("other.jsonl", more, "unknown"),
    ] {
        let place = place();
        let path = place.write(name, &codex_like());
        let session = place.import(&path).session;
        place.write(name, &[codex_like(), more].concat());
        let report = place.import(&path);
        assert_eq!((report.outcome, report.format), (Outcome::Grown, Some(format)), "{name}");
        assert_eq!(report.session, session);
        place.check(&path, &report);
        assert_eq!(place.log.sessions().unwrap().len(), 1);
    }
}

#[test]
fn a_followed_file_that_begins_with_foreign_lines_is_waited_for() {
    let place = place();
    let foreign = r#"{"level":"info","msg":"started"}"#.to_owned();
    let path = place.write("t.jsonl", std::slice::from_ref(&foreign));
    let mut follower = Follower::new(&place.log, ImportOptions::default());
    assert_eq!(follower.look(&path).unwrap(), None);
    assert_eq!(follower.unsettled().len(), 1);
    let lines = [vec![foreign.clone()], (0..3).map(transcript).collect()].concat();
    place.write("t.jsonl", &lines);
    let report = follower.look(&path).unwrap().unwrap();
    assert_eq!((report.outcome, report.format), (Outcome::Imported, Some("transcript")));
    place.check(&path, &report);
    // One that says nothing else for a while is what it is.
    let path = place.write("u.jsonl", &[foreign]);
    let end = Instant::now() + Duration::from_secs(20);
    let report = loop {
        if let Some(report) = follower.look(&path).unwrap() {
            break report;
        }
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!((report.outcome, report.format), (Outcome::Imported, Some("unknown")));
    // And goes on as what it has been taken for.
    let lines = [any_json(), codex_like()].concat();
    let text = std::fs::read_to_string(&path).unwrap() + &lines.join("\n") + "\n";
    std::fs::write(&path, text).unwrap();
    let report = follower.look(&path).unwrap().unwrap();
    assert_eq!((report.outcome, has_damage(&report)), (Outcome::Grown, false));
    place.check(&path, &report);
}
