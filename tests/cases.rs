//! Damaged and difficult transcripts: what is kept of each, what is set aside, what is reported.
//!
//! One line per case. The cases are our fixtures, and those in the folder that `EVENTLOG_CASES`
//! names; of a format that is not understood a case is kept as it is. The rules themselves have tests beside the
//! code (`jsonl/scan.rs`, `jsonl/lineage.rs`).
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

use std::collections::BTreeSet;
use std::path::Path;

use data::{cases_in, is_understood, json};
use eventlog::jsonl::{self, FileReport, ImportOptions, Outcome};
use eventlog::{EventLog, Kind};
use serde_json::Value;

/// Findings about the conversation, which a resume makes, not an import.
const OF_THE_CONVERSATION: [&str; 11] = [
    "orphan_call",
    "orphan_result",
    "duplicate_result",
    "reused_call_id",
    "empty_call_id",
    "result_before_call",
    "results_out_of_call_order",
    "wrong_source_link",
    "result_recovered_from_lifecycle",
    "pending_call",
    "compaction_missing_summary",
];
/// Findings about the machine: errors of other tests (`faults`, `cli`).
const OF_THE_MACHINE: [&str; 2] = ["disk_full", "read_only"];

fn import(log: &EventLog, path: &Path, strict: bool) -> FileReport {
    let mut options = ImportOptions::default();
    options.strict = strict;
    let found = jsonl::discover(path);
    found.files[0].import(Some(log), &options, &mut |_| {}).unwrap()
}

/// `[line, offset, length, reason]` of each span.
fn spans(report: &FileReport) -> Vec<(u64, u64, u64, &'static str)> {
    report.quarantined.iter().map(|q| (q.line, q.offset, q.length, q.reason.name())).collect()
}

/// Everything that differs from what the case expects.
fn differences(case: &Path, expect: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut check = |what: &str, found: String, expected: String| {
        if found != expected {
            wrong.push(format!("{what}: {found}, expected {expected}"));
        }
    };
    let input = case.join("input.jsonl");
    let bytes = std::fs::read(&input).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let log = EventLog::open(scratch.path().join("log")).unwrap();
    let report = import(&log, &input, false);
    let file = &expect["files"]["input.jsonl"];
    check("outcome", report.outcome.name().into(), "imported".into());
    let format = if is_understood(expect) { expect["format"].as_str() } else { Some("unknown") };
    check("format", format!("{:?}", report.format), format!("{format:?}"));
    check("bytes", report.bytes.to_string(), file["bytes"].to_string());
    check("records", report.records.to_string(), file["records"].to_string());
    let lines: Vec<Value> = spans(&report)
        .iter()
        .map(|(line, _, _, reason)| serde_json::json!([line, reason]))
        .collect();
    check("quarantine", Value::from(lines).to_string(), file["quarantine"].to_string());
    if let Some(expected) = file.get("quarantine_spans") {
        let found = spans(&report);
        let found: Vec<Value> =
            found.iter().map(|(l, o, n, reason)| serde_json::json!([l, o, n, reason])).collect();
        check("spans", Value::from(found).to_string(), expected.to_string());
    }
    let or = |key: &str, default: Value| file.get(key).cloned().unwrap_or(default).to_string();
    check("blank_lines", report.blank_lines.to_string(), or("blank_lines", 0.into()));
    check("crlf_lines", report.crlf_lines.to_string(), or("crlf_lines", 0.into()));
    check("bom", report.bom.to_string(), or("bom", false.into()));
    check("unterminated", report.unterminated.to_string(), or("unterminated", false.into()));
    let sum = report.record_bytes + report.separator_bytes + report.quarantined_bytes;
    check("sum", sum.to_string(), bytes.len().to_string());
    let found: BTreeSet<&str> = report.finding_counts.keys().map(|code| code.name()).collect();
    for expected in expect["findings"].as_array().unwrap() {
        let code = expected.as_str().unwrap();
        let elsewhere = OF_THE_CONVERSATION.contains(&code) || OF_THE_MACHINE.contains(&code);
        if !elsewhere && !found.contains(code) {
            check("finding", format!("{found:?}"), code.to_owned());
        }
    }
    let id = report.session.clone().unwrap();
    let mut out = Vec::new();
    jsonl::export(&log.snapshot().unwrap(), &id, .., &mut out, &mut |_| {}).unwrap();
    check("export", (out == bytes).to_string(), "true".into());
    let again = import(&log, &input, false);
    check("again", again.outcome.name().into(), "unchanged".into());
    check("found again", format!("{:?}", spans(&again)), format!("{:?}", spans(&report)));
    log.close().unwrap();
    wrong
}

#[test]
fn every_case_is_kept_accounted_for_and_reported() {
    for data in data::cases() {
        let (mut count, mut failed) = (0, 0);
        for (case, expect) in cases_in(&data) {
            if !is_understood(&expect) && !data.is_own {
                continue;
            }
            let wrong = differences(&case, &expect);
            let name = case.file_name().unwrap().to_string_lossy();
            println!("{} {name}", if wrong.is_empty() { "ok  " } else { "FAIL" });
            wrong.iter().for_each(|line| println!("       {line}"));
            failed += usize::from(!wrong.is_empty());
            count += 1;
        }
        println!("{count} cases");
        assert!(failed == 0 && count >= data.at_least(10, 33), "{failed} of {count} cases");
    }
}

#[test]
fn every_case_of_a_format_that_is_not_understood_is_kept_and_its_healthy_lines_are_no_damage() {
    for data in data::cases() {
        let mut count = 0;
        for (case, expect) in cases_in(&data) {
            if is_understood(&expect) {
                continue;
            }
            let input = case.join("input.jsonl");
            let bytes = std::fs::read(&input).unwrap();
            let scratch = tempfile::tempdir().unwrap();
            let log = EventLog::open(scratch.path().join("log")).unwrap();
            let report = import(&log, &input, false);
            let what = case.display();
            assert_eq!(
                (report.outcome, report.format),
                (Outcome::Imported, Some("unknown")),
                "{what}"
            );
            for span in &report.quarantined {
                let start = span.offset as usize;
                let text = &bytes[start..start + span.length as usize];
                assert!(serde_json::from_slice::<Value>(text).is_err(), "{what}: {span:?}");
            }
            let id = report.session.unwrap();
            let mut out = Vec::new();
            jsonl::export(&log.snapshot().unwrap(), &id, .., &mut out, &mut |_| {}).unwrap();
            assert!(out == bytes, "{what}");
            assert_eq!(import(&log, &input, false).outcome, Outcome::Unchanged, "{what}");
            count += 1;
        }
        assert!(count >= data.at_least(1, 1), "{count}");
    }
}

#[test]
fn strict_refuses_exactly_the_cases_with_damage() {
    for data in data::cases() {
        let (mut refused, mut taken) = (0, 0);
        for (case, _) in cases_in(&data) {
            let input = case.join("input.jsonl");
            let scratch = tempfile::tempdir().unwrap();
            let log = EventLog::open(scratch.path().join("log")).unwrap();
            let lenient = import(&log, &input, false);
            let log = EventLog::open(scratch.path().join("strict")).unwrap();
            let strict = import(&log, &input, true);
            let has = |code: &str| lenient.finding_counts.keys().any(|found| found.name() == code);
            let damaged = lenient.quarantined_spans > 0
                || ["welded_records", "utf8_bom", "unknown_type"].into_iter().any(has);
            let outcome = if damaged { Outcome::Refused } else { Outcome::Imported };
            assert_eq!(strict.outcome, outcome, "{}: {:?}", case.display(), strict.message);
            if damaged {
                assert!(strict.message.unwrap().starts_with("line "), "{}", case.display());
                assert_eq!(log.sessions().unwrap().len(), 0, "nothing of it was taken");
                refused += 1;
            } else {
                taken += 1;
            }
        }
        let least = data.at_least(3, 5);
        assert!(refused >= least && taken >= least, "{refused} refused, {taken} taken");
    }
}

/// What the original program could read, we read; what it refused, a strict import refuses.
#[test]
fn every_golden_transcript_is_read_by_its_policy() {
    for data in data::golden("mycodeagent") {
        let dir = &data.dir;
        let index = json(&dir.join("index.json"));
        let cases = index["cases"].as_array().unwrap();
        for case in cases {
            let (name, policy) = (case["name"].as_str().unwrap(), case["policy"].as_str().unwrap());
            let expected = json(&dir.join(format!("{name}.expected.json")));
            let path = dir.join(format!("{name}.jsonl"));
            let scratch = tempfile::tempdir().unwrap();
            let log = EventLog::open(scratch.path().join("log")).unwrap();
            let report = import(&log, &path, false);
            let strict_log = EventLog::open(scratch.path().join("strict")).unwrap();
            let strict = import(&strict_log, &path, true);
            // The events of each session that the original read.
            let empty = expected["lines"]["ok"] == 0 && name != "damage/lone_cr";
            if empty {
                assert_eq!((report.outcome, report.records), (Outcome::Unchanged, 0), "{name}");
                assert_eq!(strict.outcome, Outcome::Refused, "{name}");
                continue;
            }
            let inferred = report.session.clone().unwrap();
            for session in expected["sessions"].as_array().unwrap() {
                let Some(count) = session["read_events"]["count"].as_u64() else { continue };
                let asked = session["session_id"].as_str().unwrap();
                if asked == inferred || name == "damage/session_id_number" {
                    let info = log.snapshot().unwrap().session(&inferred).unwrap().unwrap();
                    let kept = info.events
                        - info.count(Kind::Damaged)
                        - info.count(Kind::Blank)
                        - info.count(Kind::Other);
                    let count = if name == "damage/session_id_number" { 3 } else { count };
                    assert_eq!(kept, count, "{name}: events of {asked}");
                }
            }
            // A salvage keeps at least the lines that are whole.
            let ok = expected["lines"]["ok"].as_u64().unwrap();
            assert!(report.records >= ok, "{name}: {} records of {ok}", report.records);
            if policy == "refuse" {
                assert_eq!(strict.outcome, Outcome::Refused, "{name}");
                let message = strict.message.unwrap();
                assert!(message.starts_with("line "), "{name}: {message}");
                let line = expected["lines"]["problems"][0]["line"].as_u64();
                let said = format!("line {} ", line.unwrap());
                assert!(message.starts_with(&said), "{name}: {message}, expected {said}");
            }
            println!("ok   {name} ({policy})");
        }
        println!("{} files", cases.len());
        assert!(cases.len() >= data.at_least(13, 85));
    }
}
