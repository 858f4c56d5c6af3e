//! The command line as a user runs it: output, exit codes, errors.
#![cfg(feature = "cli")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test"
)]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn eventlog(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("eventlog"));
    command.args(args).env("EVENTLOG_DIR", dir.join("log")).current_dir(dir);
    command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    command
}

fn run(dir: &Path, args: &[&str]) -> Output {
    eventlog(dir, args).stdin(Stdio::null()).output().unwrap()
}

/// stdout of a run that ends with `code`.
#[track_caller]
fn expect(code: i32, dir: &Path, args: &[&str]) -> String {
    let output = run(dir, args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn json_lines(text: &str) -> Vec<serde_json::Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/demo-transcript.jsonl")
}

const ID: &str = "demo-auth-refactor";

fn imported() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    expect(0, dir.path(), &["import", demo().to_str().unwrap()]);
    dir
}

#[test]
fn the_main_job_runs_as_the_readme_says() {
    let dir = imported();
    let dir = dir.path();
    let sessions = expect(0, dir, &["sessions"]);
    assert!(sessions.starts_with(&format!("{ID}\t")), "{sessions}");
    let shown = expect(0, dir, &["show", ID]);
    let demo_bytes = std::fs::read(demo()).unwrap();
    assert_eq!(shown.lines().count(), demo_bytes.split(|b| *b == b'\n').count() - 1);
    expect(0, dir, &["export", ID, "-o", "out.jsonl"]);
    assert!(std::fs::read(dir.join("out.jsonl")).unwrap() == demo_bytes);
    assert!(run(dir, &["export", ID]).stdout == demo_bytes);
    assert!(expect(0, dir, &["verify"]).contains("no problem found"));
}

#[test]
fn import_reports_each_file_and_a_summary_in_json() {
    let dir = tempfile::tempdir().unwrap();
    let path = demo();
    let args = ["import", path.to_str().unwrap(), "--json"];
    let lines = json_lines(&expect(0, dir.path(), &args));
    let size = std::fs::metadata(&path).unwrap().len();
    let file = &lines[0];
    assert_eq!(file["type"], "file");
    assert_eq!(file["outcome"], "imported");
    assert_eq!(file["format"], "transcript");
    assert_eq!(file["session"], ID);
    assert_eq!(file["bytes"], size);
    let sum = ["record_bytes", "separator_bytes", "quarantined_bytes"];
    assert_eq!(sum.iter().map(|key| file[key].as_u64().unwrap()).sum::<u64>(), size);
    let summary = &lines[1];
    assert_eq!((&summary["type"], &summary["imported"]), (&"summary".into(), &1.into()));
    let lines = json_lines(&expect(0, dir.path(), &args));
    assert_eq!(lines[0]["outcome"], "unchanged");
    assert_eq!(lines[0]["new_records"], 0);
}

#[test]
fn damaged_lines_are_kept_reported_and_exit_with_7() {
    let dir = tempfile::tempdir().unwrap();
    let good = std::fs::read_to_string(demo()).unwrap();
    std::fs::write(dir.path().join("d.jsonl"), format!("{good}{{broken\n[1]\n\n{{\"cut")).unwrap();
    let lines = json_lines(&expect(7, dir.path(), &["import", "d.jsonl", "--json"]));
    let reasons: Vec<&str> = lines[0]["quarantined"]
        .as_array()
        .unwrap()
        .iter()
        .map(|span| span["reason"].as_str().unwrap())
        .collect();
    assert_eq!(reasons, ["bad_json", "not_an_object", "torn_tail"]);
    assert_eq!(lines[0]["blank_lines"], 1);
    assert_eq!(lines[0]["unterminated"], true);
    assert_eq!(lines[1]["quarantined"], 3);
    let out = run(dir.path(), &["export", ID]).stdout;
    assert!(out == std::fs::read(dir.path().join("d.jsonl")).unwrap());
    expect(
        4,
        tempfile::tempdir().unwrap().path(),
        &["import", dir.path().join("d.jsonl").to_str().unwrap(), "--strict"],
    );
}

#[test]
fn one_bad_file_does_not_stop_the_others() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.jsonl"), "not a transcript\n").unwrap();
    std::fs::copy(demo(), dir.path().join("b.jsonl")).unwrap();
    let lines = json_lines(&expect(
        3,
        dir.path(),
        &["import", "missing.jsonl", "a.jsonl", "b.jsonl", "--json"],
    ));
    let outcomes: Vec<_> =
        lines.iter().filter(|line| line["type"] == "file").map(|line| &line["outcome"]).collect();
    assert_eq!(outcomes, ["failed", "refused", "imported"]);
    assert_eq!(lines.last().unwrap()["failed"], 1);
    expect(7, dir.path(), &["import", "a.jsonl", "b.jsonl"]);
}

#[test]
fn a_directory_is_searched_and_links_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let sub = dir.path().join("in/deeper");
    std::fs::create_dir_all(&sub).unwrap();
    std::fs::copy(demo(), sub.join("t.jsonl")).unwrap();
    std::fs::write(sub.join("notes.txt"), "no transcript").unwrap();
    std::os::unix::fs::symlink("/etc", sub.join("link")).unwrap();
    std::os::unix::fs::symlink(demo(), sub.join("link.jsonl")).unwrap();
    let lines = json_lines(&expect(0, dir.path(), &["import", "in", "--json"]));
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[test]
fn a_session_is_named_by_id_prefix_last_or_number() {
    let dir = imported();
    let dir = dir.path();
    let mut file = std::fs::read_to_string(demo()).unwrap();
    file = file.replace(ID, "demo-other");
    std::fs::write(dir.join("other.jsonl"), file).unwrap();
    expect(0, dir, &["import", "other.jsonl"]);
    for name in ["demo-auth-refactor", "demo-a", "@2"] {
        assert!(expect(0, dir, &["show", name, "--to", "0"]).contains(ID), "{name}");
    }
    for name in ["@last", "@1", "demo-o"] {
        assert!(expect(0, dir, &["show", name, "--to", "0"]).contains("demo-other"), "{name}");
    }
    let output = run(dir, &["show", "demo-"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr.contains("demo-other") && stderr.contains(ID), "{stderr}");
    expect(3, dir, &["show", "nothing"]);
    expect(3, dir, &["show", "@9"]);
    expect(2, dir, &["show", "@x"]);
}

#[test]
fn show_takes_a_range_and_says_when_it_is_empty() {
    let dir = imported();
    let lines =
        json_lines(&expect(0, dir.path(), &["show", ID, "--from", "2", "--to", "4", "--json"]));
    let seqs: Vec<_> = lines.iter().map(|line| line["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, [2, 3, 4]);
    assert_eq!(lines[0]["kind"], "message");
    assert!(lines[0]["line"].as_str().unwrap().starts_with("{\"event_id\""));
    expect(1, dir.path(), &["show", ID, "--from", "100000"]);
    expect(2, dir.path(), &["show", ID, "--from", "4", "--to", "2"]);
}

#[test]
fn bytes_that_are_no_text_are_shown_in_base64() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = std::fs::read(demo()).unwrap();
    bytes.extend_from_slice(b"\xFF\xFE\n");
    std::fs::write(dir.path().join("b.jsonl"), bytes).unwrap();
    expect(7, dir.path(), &["import", "b.jsonl"]);
    let lines = json_lines(&expect(0, dir.path(), &["show", ID, "--json"]));
    let last = lines.last().unwrap();
    assert_eq!(last["line_base64"], "//4=");
    assert_eq!(last.get("line"), None);
}

#[test]
fn append_acknowledges_what_it_was_given_before_stdin_ends() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = eventlog(dir.path(), &["append", "live", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut acks = BufReader::new(child.stdout.take().unwrap()).lines();
    let demo = std::fs::read_to_string(demo()).unwrap();
    let mut lines = demo.lines();
    for n in 0..3u64 {
        writeln!(stdin, "{}", lines.next().unwrap()).unwrap();
        let ack: serde_json::Value = serde_json::from_str(&acks.next().unwrap().unwrap()).unwrap();
        assert_eq!((&ack["first_seq"], &ack["last_seq"]), (&n.into(), &n.into()));
        assert_eq!(ack["durable"], true);
        // Another process reads while this one has the log open.
        let shown = expect(0, dir.path(), &["show", "live"]);
        assert_eq!(shown.lines().count() as u64, n + 1);
        assert_eq!(json_lines(&expect(0, dir.path(), &["sessions", "--json"]))[0]["events"], n + 1);
        expect(0, dir.path(), &["verify"]);
    }
    let locked = run(dir.path(), &["append", "live", "--json"]);
    assert_eq!(locked.status.code(), Some(5));
    let error: serde_json::Value = serde_json::from_slice(&locked.stdout).unwrap();
    assert_eq!((&error["type"], &error["kind"]), (&"error".into(), &"locked".into()));
    assert!(error["message"].as_str().unwrap().contains(&child.id().to_string()));
    // A last line without a line end.
    write!(stdin, "{}", lines.next().unwrap()).unwrap();
    drop(stdin);
    assert!(acks.next().unwrap().unwrap().contains("\"last_seq\":3"));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_log_whose_writer_was_killed_is_recovered_by_a_reading_command() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = eventlog(dir.path(), &["append", "live"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let first = std::fs::read_to_string(demo()).unwrap().lines().next().unwrap().to_owned();
    writeln!(child.stdin.as_ref().unwrap(), "{first}").unwrap();
    let mut acks = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(acks.next().unwrap().unwrap(), "0\t0");
    child.kill().unwrap();
    child.wait().unwrap();
    let output = run(dir.path(), &["show", "live"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("recovered"), "{stderr}");
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8(output.stdout).unwrap().contains(&first));
    let report = json_lines(&expect(0, dir.path(), &["recover", "--json"]));
    assert_eq!(report[0]["clean"], true);
}

#[test]
fn stats_and_verify_in_json_have_their_fields() {
    let dir = imported();
    let stats = &json_lines(&expect(0, dir.path(), &["stats", "--json"]))[0];
    let keys = [
        "sessions",
        "events",
        "bytes",
        "stored_bytes",
        "ratio",
        "journal_bytes",
        "applied_lsn",
        "durable_lsn",
        "format_version",
        "store_id",
    ];
    for key in keys {
        assert!(stats.get(key).is_some(), "{key}: {stats}");
    }
    assert_eq!(stats["bytes"], std::fs::metadata(demo()).unwrap().len());
    let summary = &json_lines(&expect(0, dir.path(), &["verify", "--json"]))[0];
    assert_eq!(summary["type"], "summary");
    assert_eq!(summary["bytes_accounted"], true);
    assert_eq!(summary["problems"], 0);
}

#[test]
fn sessions_in_json_have_their_fields() {
    let dir = imported();
    let row = &json_lines(&expect(0, dir.path(), &["sessions", "--json"]))[0];
    assert_eq!(row["session"], ID);
    assert_eq!(row["format"], "transcript");
    assert_eq!(row["latest_run"], "run-2");
    assert_eq!(row["first_prompt"].as_str().unwrap().split(' ').next(), Some("Move"));
    assert_eq!(row["last_prompt"], "Now use it in reset.rs too");
    assert_eq!(row["damaged"], 0);
    assert!(row["created_at"].as_str().unwrap().starts_with("2026-03-01T10:00:01"));
    assert!(row["updated_at"].as_str().unwrap().ends_with('Z'));
    for key in ["workspace", "parent", "status", "cost_usd", "usage", "findings", "stored_bytes"] {
        assert!(row.get(key).is_some(), "{key}");
    }
}

#[test]
fn errors_say_what_to_do_and_have_their_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    for command in [&["show", "x"][..], &["sessions"], &["verify"], &["stats"], &["export", "x"]] {
        let output = run(dir.path(), command);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{command:?}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.lines().count() >= 2, "{stderr}");
        assert!(output.stdout.is_empty());
        assert!(!dir.path().join("log").exists(), "reading creates nothing");
    }
    expect(2, dir.path(), &["append", ""]);
    expect(2, dir.path(), &["append", &"x".repeat(513)]);
    expect(2, dir.path(), &["frobnicate"]);
    let output = run(dir.path(), &["show", "--json"]);
    let error: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&error["type"], &error["kind"]), (&"error".into(), &"usage".into()));
}

#[test]
fn export_replaces_a_file_only_when_told() {
    let dir = imported();
    std::fs::write(dir.path().join("precious.jsonl"), "mine").unwrap();
    expect(5, dir.path(), &["export", ID, "-o", "precious.jsonl"]);
    assert_eq!(std::fs::read(dir.path().join("precious.jsonl")).unwrap(), b"mine");
    expect(0, dir.path(), &["export", ID, "-o", "precious.jsonl", "--force"]);
    assert_eq!(
        std::fs::read(dir.path().join("precious.jsonl")).unwrap(),
        std::fs::read(demo()).unwrap()
    );
    expect(6, dir.path(), &["export", ID, "-o", "no/such/dir.jsonl"]);
    let line = &json_lines(&expect(0, dir.path(), &["export", ID, "-o", "j.jsonl", "--json"]))[0];
    assert_eq!((&line["exact"], &line["session"]), (&true.into(), &ID.into()));
}

#[test]
fn files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let dir = imported();
    expect(0, dir.path(), &["export", ID, "-o", "out.jsonl"]);
    let mode =
        |path: &str| std::fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o777;
    for path in ["log", "log/journal"] {
        assert_eq!(mode(path), 0o700, "{path}");
    }
    for path in ["log/events.redb", "log/LOCK", "out.jsonl"] {
        assert_eq!(mode(path), 0o600, "{path}");
    }
}

#[test]
fn hostile_ids_are_data() {
    let dir = tempfile::tempdir().unwrap();
    let id = "../../x\u{1b}[31m\n\u{202e}";
    let mut child = eventlog(dir.path(), &["append", id])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"{}\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!dir.path().parent().unwrap().join("x").exists());
    let row = expect(0, dir.path(), &["sessions"]);
    assert_eq!(row.lines().count(), 1, "{row:?}");
    assert_eq!(json_lines(&expect(0, dir.path(), &["sessions", "--json"]))[0]["session"], id);
    expect(0, dir.path(), &["show", id]);
    let error = run(dir.path(), &["show", &format!("{id}-other")]).stderr;
    assert!(!error.contains(&0x1b), "{}", String::from_utf8_lossy(&error));
}

#[test]
fn the_nearest_log_upwards_is_used() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join(".eventlog")).unwrap();
    std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
    let here = |sub: &str, args: &[&str]| {
        let mut command = eventlog(dir.path(), args);
        command.env_remove("EVENTLOG_DIR").current_dir(dir.path().join(sub));
        command.stdin(Stdio::null()).output().unwrap()
    };
    assert!(here("a/b", &["import", demo().to_str().unwrap()]).status.success());
    assert!(dir.path().join(".eventlog/events.redb").exists());
    assert!(here("a", &["show", ID]).status.success());
    let home = dir.path().join("home");
    let mut command = eventlog(dir.path(), &["-v", "sessions"]);
    command.env_remove("EVENTLOG_DIR").env("XDG_DATA_HOME", &home).current_dir("/");
    let stderr = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert!(stderr.contains(home.join("eventlog").to_str().unwrap()), "{stderr}");
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let dir = imported();
    // More than a pipe holds, so that it writes into the closed one whenever that is closed.
    let line = std::fs::read_to_string(demo()).unwrap();
    let long = format!("{}\n", line.lines().next().unwrap()).repeat(2000);
    std::fs::write(dir.path().join("long.jsonl"), &long).unwrap();
    assert!(long.len() > 256 << 10);
    expect(0, dir.path(), &["import", "long.jsonl", "--as", "long"]);
    let mut child = eventlog(dir.path(), &["show", "long"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_damaged_journal_is_reported_by_every_reading_command_every_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = eventlog(dir.path(), &["append", "s"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acks = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in std::fs::read_to_string(demo()).unwrap().lines().take(3) {
        writeln!(child.stdin.as_ref().unwrap(), "{line}").unwrap();
        acks.next().unwrap().unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let journal = dir.path().join("log/journal");
    let segment = std::fs::read_dir(&journal).unwrap().next().unwrap().unwrap().path();
    let whole = std::fs::read(&segment).unwrap();
    let end = whole.iter().rposition(|b| *b != 0).unwrap();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let mut zeroed = whole.clone();
    let second = whole.windows(4).enumerate().filter(|(_, w)| w == b"EVLB").nth(1).unwrap().0;
    zeroed[4096..second].fill(0);
    for damaged in [flipped(end - 60), flipped(4096 + 30), zeroed] {
        std::fs::write(&segment, damaged).unwrap();
        for _ in 0..2 {
            for args in [&["verify"][..], &["sessions"], &["stats"], &["export", "s"], &["recover"]]
            {
                let output = run(dir.path(), args);
                let stderr = String::from_utf8_lossy(&output.stderr);
                assert_eq!(output.status.code(), Some(4), "{args:?}: {stderr}");
                assert!(output.stdout.is_empty());
            }
        }
    }
    std::fs::write(&segment, whole).unwrap();
    assert_eq!(expect(0, dir.path(), &["show", "s"]).lines().count(), 3);
}

#[test]
fn a_log_with_missing_parts_is_damaged_not_absent() {
    let dir = imported();
    let log = dir.path().join("log");
    let journal = log.join("journal");
    let away = dir.path().join("away");
    for part in [log.join("events.redb"), journal] {
        std::fs::rename(&part, &away).unwrap();
        for args in [&["verify"][..], &["export", ID], &["recover"], &["append", "s"]] {
            let output = run(dir.path(), args);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(4), "{args:?}: {stderr}");
            assert!(stderr.contains("restore"), "{stderr}");
        }
        if part.is_dir() {
            std::fs::remove_dir(&part).unwrap();
        }
        std::fs::rename(&away, &part).unwrap();
    }
    expect(0, dir.path(), &["verify"]);
}

#[test]
fn export_writes_to_devices_and_through_links() {
    let dir = imported();
    let demo_bytes = std::fs::read(demo()).unwrap();
    expect(0, dir.path(), &["export", ID, "-o", "/dev/null"]);
    use std::os::unix::fs::FileTypeExt;
    assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    std::fs::write(dir.path().join("sub/target.jsonl"), "old").unwrap();
    let link = dir.path().join("link.jsonl");
    std::os::unix::fs::symlink("sub/target.jsonl", &link).unwrap();
    expect(5, dir.path(), &["export", ID, "-o", "link.jsonl"]);
    expect(0, dir.path(), &["export", ID, "-o", "link.jsonl", "--force"]);
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert!(std::fs::read(dir.path().join("sub/target.jsonl")).unwrap() == demo_bytes);
    std::os::unix::fs::symlink("nowhere/x.jsonl", dir.path().join("dangling")).unwrap();
    expect(6, dir.path(), &["export", ID, "-o", "dangling", "--force"]);
}

#[test]
fn a_dry_run_creates_nothing_and_compares_with_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = demo();
    let args = ["import", "--dry-run", "--json", path.to_str().unwrap()];
    let lines = json_lines(&expect(0, dir.path(), &args));
    assert_eq!(lines[0]["outcome"], "imported");
    assert!(!dir.path().join("log").exists());
    expect(0, dir.path(), &["import", path.to_str().unwrap()]);
    assert_eq!(json_lines(&expect(0, dir.path(), &args))[0]["outcome"], "unchanged");
}

#[test]
fn what_is_no_file_is_refused_and_never_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let lines = json_lines(&expect(6, dir.path(), &["import", "--json", "fifo"]));
    let file = lines.iter().find(|line| line["type"] == "file").unwrap();
    assert_eq!(file["outcome"], "failed");
    for key in ["format", "session", "bytes", "records", "quarantined", "findings", "message"] {
        assert!(file.get(key).is_some(), "{key}: {file}");
    }
    expect(2, dir.path(), &["import", "-"]);
    expect(3, dir.path(), &["import", "nothing-there.jsonl"]);
    use std::os::unix::ffi::OsStrExt;
    let odd = dir.path().join(std::ffi::OsStr::from_bytes(b"odd-\xFF.jsonl"));
    std::fs::copy(demo(), &odd).unwrap();
    let output = eventlog(dir.path(), &["import"]).arg(&odd).output().unwrap();
    assert!(output.status.success());
}

#[test]
fn piped_text_is_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let odd = "bad\u{1b}[31mred\u{1}\u{7f}";
    let demo = std::fs::read_to_string(demo()).unwrap();
    std::fs::write(dir.path().join("o.jsonl"), format!("{demo}{odd}\n")).unwrap();
    expect(7, dir.path(), &["import", "o.jsonl"]);
    assert!(expect(0, dir.path(), &["show", ID]).ends_with(&format!("\tdamaged\t{odd}\n")));
}

#[test]
fn names_with_an_at_sign_are_never_taken_over_by_a_session() {
    let dir = imported();
    let mut child = eventlog(dir.path(), &["append", "\\@1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let line = std::fs::read_to_string(demo()).unwrap();
    writeln!(child.stdin.take().unwrap(), "{}", line.lines().next().unwrap()).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(expect(0, dir.path(), &["show", "@2", "--to", "0"]).contains(ID));
    assert_eq!(expect(0, dir.path(), &["show", "\\@1"]).lines().count(), 1);
    expect(2, dir.path(), &["export", ""]);
    let rows = json_lines(&expect(0, dir.path(), &["sessions", "--json"]));
    assert!(rows.iter().all(|row| row["format"] == "transcript"), "{rows:?}");
}

#[test]
fn repair_never_replaces_what_it_has_not_kept() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let whole = std::fs::read(demo()).unwrap();
    let damaged = [b"\xEF\xBB\xBF", &whole[..], b"garbage\r\n\n{\"torn"].concat();
    std::fs::write(at("t.jsonl"), &damaged).unwrap();
    std::os::unix::fs::symlink("t.jsonl", at("link")).unwrap();
    for out in ["t.jsonl", "./t.jsonl", "link", "-"] {
        expect(2, dir.path(), &["repair", "t.jsonl", "-o", out, "--force"]);
        assert!(std::fs::read(at("t.jsonl")).unwrap() == damaged, "{out}");
    }
    // What stands in the place of the set-aside bytes is kept.
    std::fs::write(at("o.jsonl.damaged"), "precious").unwrap();
    expect(7, dir.path(), &["repair", "t.jsonl", "-o", "o.jsonl"]);
    expect(7, dir.path(), &["repair", "t.jsonl", "-o", "o.jsonl", "--force"]);
    assert_eq!(std::fs::read(at("o.jsonl.damaged")).unwrap(), b"precious");
    assert!(at("o.jsonl.damaged-1").exists() && at("o.jsonl.damaged-2").exists());
    assert!(std::fs::read(at("o.jsonl")).unwrap() == whole);
    // In place: mode, name and original are kept, also through a link.
    std::fs::set_permissions(at("t.jsonl"), std::fs::Permissions::from_mode(0o640)).unwrap();
    let line = &json_lines(&expect(7, dir.path(), &["repair", "link", "--in-place", "--json"]))[0];
    assert_eq!(line["outcome"], "repaired");
    assert!(at("link").symlink_metadata().unwrap().is_symlink());
    assert!(std::fs::read(at("t.jsonl")).unwrap() == whole);
    assert_eq!(at("t.jsonl").metadata().unwrap().permissions().mode() & 0o777, 0o640);
    assert!(std::fs::read(line["original"].as_str().unwrap()).unwrap() == damaged);
    assert!(
        std::fs::read_to_string(line["damaged"].as_str().unwrap()).unwrap().contains("torn_tail")
    );
    expect(0, dir.path(), &["repair", "t.jsonl", "--in-place"]);
    assert!(!at("t.jsonl.orig-1").exists(), "a clean file is left alone");
}

#[test]
fn repair_takes_a_file_for_what_import_takes_it_for() {
    let dir = tempfile::tempdir().unwrap();
    let message = |id: &str| {
        format!(r#"{{"id":"{id}","role":"user","content":"x","timestamp":"2026-03-02T10:00:00Z"}}"#)
    };
    // No line is a record as a whole, and what is not of the format is kept all the same.
    let text = format!("{{\"a\":1}}\nx{}\nx{}\n", message("msg_001"), message("msg_002"));
    std::fs::write(dir.path().join("t.jsonl"), &text).unwrap();
    let import = &json_lines(&expect(7, dir.path(), &["import", "t.jsonl", "--json"]))[0];
    let repair = &json_lines(&expect(4, dir.path(), &["repair", "t.jsonl", "--json"]))[0];
    for key in ["format", "records", "quarantined", "bytes", "record_bytes", "quarantined_bytes"] {
        assert_eq!(import[key], repair[key], "{key}");
    }
    assert_eq!((&repair["format"], &repair["records"]), (&"recursive".into(), &3.into()));
    // A document is no damaged JSONL.
    let document =
        format!("{{\n  \"goal\": \"g\",\n  \"transcript\": [\n{}\n]\n}}\n", message("m"));
    std::fs::write(dir.path().join("d.json"), &document).unwrap();
    expect(5, dir.path(), &["repair", "d.json", "--in-place"]);
    assert_eq!(std::fs::read_to_string(dir.path().join("d.json")).unwrap(), document);
}

#[test]
fn an_export_into_a_directory_stays_in_it() {
    let dir = imported();
    std::fs::create_dir_all(dir.path().join("out")).unwrap();
    std::fs::create_dir(dir.path().join("elsewhere")).unwrap();
    let link = dir.path().join("out/transcripts");
    std::os::unix::fs::symlink(dir.path().join("elsewhere"), &link).unwrap();
    expect(6, dir.path(), &["export", ID, "-o", "out/"]);
    assert!(std::fs::read_dir(dir.path().join("elsewhere")).unwrap().next().is_none());
    std::fs::remove_file(&link).unwrap();
    std::fs::create_dir(&link).unwrap();
    let target = dir.path().join("elsewhere/f");
    let name = format!("out/transcripts/transcript-{ID}.jsonl");
    std::os::unix::fs::symlink(&target, dir.path().join(name)).unwrap();
    expect(6, dir.path(), &["export", ID, "-o", "out/", "--force"]);
    assert!(!target.exists());
}

#[test]
fn an_export_removes_what_a_killed_one_has_left_and_nothing_of_a_running_one() {
    let dir = imported();
    let left = dir.path().join(".eventlog-0123456789abcdef.tmp");
    std::fs::write(&left, "what was written before the kill").unwrap();
    let living = dir.path().join(".eventlog-fedcba9876543210.tmp");
    std::fs::write(&living, "of a process that is running").unwrap();
    let held = std::fs::File::open(&living).unwrap();
    held.lock().unwrap();
    expect(0, dir.path(), &["export", ID, "-o", "out.jsonl"]);
    assert!(!left.exists() && living.exists());
}

#[test]
fn a_session_that_has_just_begun_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("d/s")).unwrap();
    std::fs::write(dir.path().join("d/s/transcript.jsonl"), "").unwrap();
    let lines = json_lines(&expect(0, dir.path(), &["import", "d", "--json"]));
    assert_eq!(lines[0]["outcome"], "unchanged");
    // A file that is no session does not make the others a failure, and is not passed over.
    std::fs::copy(demo(), dir.path().join("d/t.jsonl")).unwrap();
    std::fs::write(dir.path().join("d/u.jsonl"), "no JSON\n").unwrap();
    let lines = json_lines(&expect(7, dir.path(), &["import", "d", "--json"]));
    let outcomes: Vec<_> = lines.iter().map(|line| line["outcome"].clone()).collect();
    assert_eq!(outcomes[..3], ["unchanged", "imported", "refused"]);
    let sum = |line: &serde_json::Value| {
        ["record_bytes", "separator_bytes", "quarantined_bytes"]
            .iter()
            .map(|key| line[*key].as_u64().unwrap())
            .sum::<u64>()
    };
    assert!(lines[..3].iter().all(|line| line["bytes"] == sum(line)));
}

#[test]
fn a_log_that_others_may_read_is_reported_and_left_as_it_is() {
    use std::os::unix::fs::PermissionsExt;
    let dir = imported();
    let quiet = run(dir.path(), &["sessions"]);
    assert!(quiet.stderr.is_empty());
    let mode = std::fs::Permissions::from_mode;
    std::fs::set_permissions(dir.path().join("log"), mode(0o755)).unwrap();
    std::fs::set_permissions(dir.path().join("log/events.redb"), mode(0o644)).unwrap();
    let output = run(dir.path(), &["sessions"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("perm_too_open"));
    let now = dir.path().join("log/events.redb").metadata().unwrap().permissions().mode();
    assert_eq!(now & 0o777, 0o644);
}

/// Its bytes belong to the line that was cut off, and its line is its own.
#[test]
fn an_append_behind_a_torn_end_begins_a_line_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let event = |id: &str| {
        format!(
            r#"{{"event_id":"{id}","timestamp":"t","session_id":"s","run_id":"r","step":0,"event_type":"message","payload":{{}}}}"#
        )
    };
    std::fs::write(dir.path().join("t.jsonl"), event("a") + "\n{\"event").unwrap();
    expect(7, dir.path(), &["import", "t.jsonl"]);
    let mut child = eventlog(dir.path(), &["append", "s"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all((event("b") + "\n").as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let exported = expect(0, dir.path(), &["export", "s"]);
    assert_eq!(exported, event("a") + "\n{\"event\n" + &event("b") + "\n");
    expect(0, dir.path(), &["verify"]);
}

#[test]
fn what_a_repair_sets_aside_stands_beside_what_it_writes_also_through_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("real")).unwrap();
    std::fs::write(at("in.jsonl"), "{\"a\":1}\n{\"b").unwrap();
    std::fs::write(at("real/out.jsonl"), "old").unwrap();
    std::fs::write(at("real/out.jsonl.damaged"), "precious").unwrap();
    std::os::unix::fs::symlink("real/out.jsonl", at("out.jsonl")).unwrap();
    let args = ["repair", "in.jsonl", "-o", "out.jsonl", "--force", "--json"];
    let line = &json_lines(&expect(7, dir.path(), &args))[0];
    assert_eq!(std::fs::read(at("real/out.jsonl.damaged")).unwrap(), b"precious");
    let damaged = std::fs::canonicalize(line["damaged"].as_str().unwrap()).unwrap();
    let beside = std::fs::canonicalize(at("real")).unwrap();
    assert_eq!(damaged.parent(), Some(&*beside), "beside the file that the link leads to");
    assert!(std::fs::read_to_string(damaged).unwrap().contains("torn_tail"));
}

#[test]
fn search_finds_text_tools_and_arguments_and_counts_all() {
    let dir = imported();
    let summary = |args: &[&str]| {
        let code = i32::from(args.contains(&"nowhere to be found"));
        json_lines(&expect(code, dir.path(), args)).pop().unwrap()
    };
    let all = summary(&["search", "LOGIN.RS", "--json"]);
    assert!(all["matches"].as_u64().unwrap() >= 2 && all["sessions"] == 1, "{all}");
    assert_eq!(summary(&["search", "LOGIN.RS", "--json", "--limit", "1"]), all);
    assert_eq!(summary(&["search", "nowhere to be found", "--json"])["matches"], 0);
    let user = summary(&["search", "login", "--role", "user", "--json"]);
    assert!(user["matches"].as_u64().unwrap() < all["matches"].as_u64().unwrap());
    expect(2, dir.path(), &["search", "(", "--regex"]);
    expect(2, dir.path(), &["search", "x", "--since", "soon"]);
    expect(0, dir.path(), &["search", "log.n", "--regex", "--since", "2026-01-01T00:00:00Z"]);
}

#[test]
fn resume_shows_where_a_session_stands_and_what_to_send() {
    let dir = imported();
    let text = expect(0, dir.path(), &["resume", ID]);
    assert!(text.contains("uncertain\t") || text.contains("history\t"), "{text}");
    let value = &json_lines(&expect(0, dir.path(), &["resume", ID, "--json"]))[0];
    for key in
        ["session", "run", "format", "reading", "state", "view", "findings", "memory", "digest"]
    {
        assert!(!value[key].is_null(), "{key}");
    }
    let again = &json_lines(&expect(0, dir.path(), &["resume", ID, "--json"]))[0];
    assert_eq!(value["digest"], again["digest"]);
    for provider in ["plain", "openai", "anthropic"] {
        let lines = expect(0, dir.path(), &["resume", ID, "--view", "--provider", provider]);
        let is_entry = |line: &serde_json::Value| {
            line["role"].is_string() || provider == "plain" && line["marker"].is_string()
        };
        let lines = json_lines(&lines);
        assert!(!lines.is_empty() && lines.iter().all(is_entry), "{provider}");
    }
    expect(0, dir.path(), &["memory", ID, "--budget", "100"]);
    // Never another project's.
    expect(3, dir.path(), &["resume"]);
}

#[test]
fn every_command_has_a_manual_page_and_completions() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    expect(0, dir, &["man", "--dir", "man"]);
    let page = expect(0, dir, &["man"]);
    assert_eq!(page, std::fs::read_to_string(dir.join("man/eventlog.1")).unwrap());
    let fish = expect(0, dir, &["completions", "fish"]);
    let help = expect(0, dir, &["-h"]);
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let names = commands.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let names: Vec<&str> = names.filter(|name| !matches!(*name, "" | "help")).collect();
    assert!(names.contains(&"import") && names.contains(&"man"), "{help}");
    for name in names {
        assert!(dir.join(format!("man/eventlog-{name}.1")).is_file(), "{name}");
        assert!(fish.contains(&format!("-a \"{name}\"")), "{name}");
    }
    for shell in ["bash", "zsh", "elvish", "powershell"] {
        assert!(expect(0, dir, &["completions", shell]).contains("quarantine"), "{shell}");
    }
    expect(6, dir, &["man", "--dir", "man/eventlog.1"]);
}

#[test]
fn the_long_help_of_a_command_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    for (command, said) in [
        ("resume", "Without SESSION it is the latest session"),
        ("import", "What a file is, is told by what most of its records are"),
        ("append", "appended as damaged"),
        ("completions", "bash-completion/completions"),
    ] {
        let help = expect(0, dir.path(), &["help", command]);
        assert!(help.contains(said), "{help}");
    }
}

#[test]
fn a_new_session_takes_no_name_with_an_at_sign_but_by_its_escape() {
    let dir = imported();
    std::fs::write(dir.path().join("own.jsonl"), std::fs::read(demo()).unwrap()).unwrap();
    expect(2, dir.path(), &["fork", ID, "--at", "0", "--as", "@f"]);
    expect(0, dir.path(), &["fork", ID, "--at", "0", "--as", "\\@f"]);
    expect(2, dir.path(), &["import", "own.jsonl", "--as", "@i"]);
    expect(0, dir.path(), &["import", "own.jsonl", "--as", "\\@i"]);
    expect(2, dir.path(), &["append", "@last"]);
    let rows = json_lines(&expect(0, dir.path(), &["sessions", "--json"]));
    let ids: Vec<&str> = rows.iter().map(|row| row["session"].as_str().unwrap()).collect();
    assert!(ids.contains(&"@f") && ids.contains(&"@i") && ids.len() == 3, "{ids:?}");
}

#[test]
fn what_no_format_knows_is_kept_and_said_to_be_of_no_use_for_resuming() {
    let dir = tempfile::tempdir().unwrap();
    let line = r#"{"type":"user","message":{"role":"user","content":"hello"},"uuid":"u1","sessionId":"abc","timestamp":"2026-01-01T00:00:00Z"}"#;
    std::fs::write(dir.path().join("other.jsonl"), format!("{line}\n")).unwrap();
    let output = run(dir.path(), &["import", "other.jsonl"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr.contains("its format is unknown"), "{stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.ends_with("\t1 new\tof an unknown format\n"), "{stdout}");
    for (command, kept) in [("import", "unchanged"), ("repair", "clean")] {
        let file = &json_lines(&expect(0, dir.path(), &[command, "other.jsonl", "--json"]))[0];
        assert_eq!((&file["format"], &file["outcome"]), (&"unknown".into(), &kept.into()));
    }
    let session = &json_lines(&expect(0, dir.path(), &["sessions", "--json"]))[0];
    assert_eq!((&session["format"], &session["damaged"]), (&"unknown".into(), &0.into()));
    let output = run(dir.path(), &["resume", "other"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("session \"other\" is of no known format"), "{stderr}");
}

#[test]
fn an_empty_place_for_the_log_is_an_error_that_says_so_unless_another_is_given() {
    let dir = imported();
    let with = |args: &[&str]| eventlog(dir.path(), args).env("EVENTLOG_DIR", "").output().unwrap();
    let output = with(&["sessions"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("leave out --log and EVENTLOG_DIR"), "{stderr}");
    assert!(with(&["--log", "log", "sessions"]).status.success());
}

#[test]
fn appended_lines_of_another_program_are_kept_as_other_and_not_as_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let known = std::fs::read_to_string(demo()).unwrap();
    let foreign = r#"{"type":"user","uuid":"u1","timestamp":"2026-01-01T00:00:00Z"}"#;
    let append = |id: &str, text: &str| {
        let mut child = eventlog(dir.path(), &["append", id])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        child.wait().unwrap().code()
    };
    assert_eq!(append(ID, &format!("{foreign}\n{known}{foreign}\n")), Some(0));
    assert_eq!(append("foreign", &format!("{foreign}\n[1]\n{{}}\n")), Some(0));
    // A known session keeps its format.
    assert_eq!(append(ID, &format!("{foreign}\n{foreign}\n")), Some(0));
    assert_eq!(append(ID, "no JSON\n"), Some(7));
    // One that is of none yet gets one.
    assert_eq!(append("later", &format!("{foreign}\n")), Some(0));
    assert_eq!(append("later", &known), Some(0));
    let sessions = json_lines(&expect(0, dir.path(), &["sessions", "--json"]));
    let of = |id: &str| sessions.iter().find(|session| session["session"] == id).unwrap();
    assert_eq!((&of(ID)["format"], &of(ID)["damaged"]), (&"transcript".into(), &1.into()));
    assert_eq!(of("later")["format"], "transcript");
    assert_eq!(
        (&of("foreign")["format"], &of("foreign")["damaged"]),
        (&"unknown".into(), &0.into())
    );
}
