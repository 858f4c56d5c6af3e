//! The commands that go on: `tail -f`, `export --follow` and `import --follow`, beside a process
//! that writes, killed and started again.
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
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn event(n: usize) -> String {
    format!(
        r#"{{"event_id": "e{n}", "timestamp": "t", "session_id": "s", "run_id": "r", "step": 0, "event_type": "message", "payload": {{"role": "user", "content": "number {n}"}}}}"#
    )
}

/// A running command, killed when it is dropped.
struct Running(Child);

impl Running {
    fn start(dir: &Path, args: &[&str]) -> Running {
        let child = Command::new(env!("CARGO_BIN_EXE_eventlog"))
            .current_dir(dir)
            .env("EVENTLOG_DIR", "log")
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Running(child)
    }

    fn write_line(&mut self, line: &str) {
        let stdin = self.0.stdin.as_mut().unwrap();
        stdin.write_all(line.as_bytes()).unwrap();
        stdin.write_all(b"\n").unwrap();
    }

    fn lines(&mut self) -> impl Iterator<Item = String> + use<> {
        BufReader::new(self.0.stdout.take().unwrap()).lines().map_while(Result::ok)
    }

    /// Waits for a note of it on stderr.
    fn wait_for(&mut self, text: &str) {
        let stderr = self.0.stderr.take().unwrap();
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains(text)), "it never says {text:?}");
        // It must not be stopped by a pipe that nobody reads.
        std::thread::spawn(move || lines.for_each(drop));
    }

    fn interrupt(mut self) -> i32 {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        self.0.wait().unwrap().code().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn export(dir: &Path) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_eventlog"));
    command
        .current_dir(dir)
        .env("EVENTLOG_DIR", "log")
        .args(["export", "s"])
        .output()
        .unwrap()
        .stdout
}

#[test]
fn tail_shows_each_event_of_a_living_writer_once_and_in_order() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let mut writer = Running::start(dir, &["append", "s"]);
    writer.write_line(&event(0));
    let mut acknowledged = writer.lines();
    assert_eq!(acknowledged.next().unwrap(), "0\t0");
    let mut tail = Running::start(dir, &["tail", "-f", "s", "--json"]);
    let mut all = Running::start(dir, &["tail", "-f", "--all", "--from", "0"]);
    let (mut one, mut of_all) = (tail.lines(), all.lines());
    for n in 0..300 {
        if n > 0 {
            writer.write_line(&event(n));
        }
        let line: serde_json::Value = serde_json::from_str(&one.next().unwrap()).unwrap();
        assert_eq!(line["seq"], n);
        assert_eq!(line["line"], event(n));
        assert_eq!(of_all.next().unwrap(), format!("s\t{n}\tmessage\t{}", event(n)));
    }
    assert_eq!(tail.interrupt(), 130);
}

#[test]
fn the_mirror_follows_a_living_writer_through_its_own_kills() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let mut writer = Running::start(dir, &["append", "s"]);
    let mut acknowledged = writer.lines();
    let file = dir.join("out/transcripts/transcript-s.jsonl");
    let mut expected = String::new();
    let mut n = 0;
    for round in 0..8 {
        let mirror = if round == 0 {
            writer.write_line(&event(n));
            acknowledged.next().unwrap();
            expected += &(event(n) + "\n");
            n += 1;
            Running::start(dir, &["export", "--follow", "out"])
        } else {
            Running::start(dir, &["export", "--follow", "out"])
        };
        for _ in 0..40 {
            writer.write_line(&event(n));
            acknowledged.next().unwrap();
            expected += &(event(n) + "\n");
            n += 1;
        }
        if round % 2 == 0 {
            eventually("the file is in step", || {
                std::fs::read_to_string(&file).is_ok_and(|found| found == expected)
            });
        } else {
            std::thread::sleep(Duration::from_millis(7 * round));
        }
        // Killed at some moment; what it leaves is a beginning, and the next one goes on.
        drop(mirror);
        let found = std::fs::read_to_string(&file).unwrap();
        assert!(expected.starts_with(&found), "round {round}");
    }
    let mut mirror = Running::start(dir, &["export", "--follow", "out"]);
    mirror.wait_for("keeping");
    eventually("the file is in step", || std::fs::read_to_string(&file).unwrap() == expected);
    assert_eq!(mirror.interrupt(), 130);
    drop(writer);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), expected);
}

fn grow(path: &Path, text: &str) {
    let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[test]
fn followed_files_come_in_as_they_are_written_through_kills_and_restarts() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let files = dir.join("files");
    std::fs::create_dir(&files).unwrap();
    let path: PathBuf = files.join("t.jsonl");
    grow(&path, &(event(0) + "\n"));
    let mut expected = event(0) + "\n";
    for round in 1..4 {
        let mut follower = Running::start(dir, &["import", "--follow", "files"]);
        follower.wait_for("following");
        for n in 0..20 {
            let line = event(round * 100 + n) + "\n";
            // In two pieces: half a line is never taken for damage.
            let (head, tail) = line.split_at(line.len() / 2);
            grow(&path, head);
            std::thread::sleep(Duration::from_millis(3));
            grow(&path, tail);
            expected += &line;
        }
        eventually("the session is in step", || export(dir) == expected.as_bytes());
        if round == 2 {
            assert_eq!(follower.interrupt(), 130);
        }
    }
    // New files and new directories are found.
    let mut follower = Running::start(dir, &["import", "--follow", "files"]);
    follower.wait_for("following");
    std::fs::create_dir(files.join("more")).unwrap();
    let other = event(7).replace("\"s\"", "\"other\"") + "\n";
    std::fs::write(files.join("more/u.jsonl"), &other).unwrap();
    eventually("the new session is there", || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_eventlog"));
        let command = command.current_dir(dir).env("EVENTLOG_DIR", "log");
        command.args(["export", "other"]).output().unwrap().stdout == other.as_bytes()
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_eventlog"));
    let output = command
        .current_dir(dir)
        .env("EVENTLOG_DIR", "log")
        .args(["quarantine", "s"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "nothing was set aside");
}
