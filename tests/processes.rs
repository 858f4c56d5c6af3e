//! Several processes on one log: readers beside a writer see everything acknowledged before they
//! started, a second writer is refused, and kills at random times lose nothing acknowledged.
//!
//! The writing processes are this test program itself, started again with an environment variable
//! set.
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
use std::path::Path;
use std::process::{Child, Command, Stdio};

use eventlog::{Entry, ErrorKind, EventLog, Kind};

const CHILD_LOG: &str = "EVENTLOG_TEST_CHILD_LOG";
const THREADS: usize = 3;

/// Appends from several threads for ever, and prints `thread seq` for each acknowledgement.
#[test]
#[ignore = "no test: the process that the tests start"]
fn child_that_appends_until_it_is_killed() {
    let dir = std::env::var_os(CHILD_LOG).expect("it is started by a test");
    // Small, so that checkpoints and recycling happen all the time.
    let log =
        EventLog::builder().checkpoint_bytes(128 << 10).segment_bytes(64 << 10).open(dir).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let session = log.session(&format!("thread-{thread}")).unwrap();
            scope.spawn(move || {
                loop {
                    let seq = session.head();
                    let line = line(thread, seq);
                    assert_eq!(session.append(Entry::new(Kind::Message, &line[..])).unwrap(), seq);
                    let mut err = std::io::stderr().lock();
                    // The parent may be gone.
                    if writeln!(err, "ack {thread} {seq}").is_err() {
                        return;
                    }
                }
            });
        }
    });
}

fn line(thread: usize, seq: u64) -> Vec<u8> {
    let pad = "x".repeat((seq as usize * 37) % 900);
    format!("{{\"thread\":{thread},\"seq\":{seq},\"pad\":\"{pad}\"}}").into_bytes()
}

struct Writer {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
    /// How many events of each thread are acknowledged.
    acknowledged: [u64; THREADS],
}

impl Writer {
    fn start(dir: &Path) -> Writer {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_appends_until_it_is_killed", "--ignored", "--nocapture"])
            .env(CHILD_LOG, dir)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Writer { child, lines, acknowledged: [0; THREADS] }
    }

    fn take(&mut self, line: &str) {
        let mut words = line.split(' ');
        // What else it says, it says when it fails.
        if words.next() != Some("ack") {
            eprintln!("child: {line}");
        } else {
            // A line that the kill cut off says nothing.
            let thread = words.next().and_then(|word| word.parse::<usize>().ok());
            let seq = words.next().and_then(|word| word.parse::<u64>().ok());
            if let (Some(thread), Some(seq)) = (thread, seq) {
                self.acknowledged[thread] = self.acknowledged[thread].max(seq + 1);
            }
        }
    }

    /// Reads so many acknowledgements.
    fn watch(&mut self, acknowledgements: u64) {
        let wanted = self.acknowledged.iter().sum::<u64>() + acknowledgements;
        while self.acknowledged.iter().sum::<u64>() < wanted {
            let line = self.lines.next().expect("the writer goes on").unwrap();
            self.take(&line);
        }
    }

    fn kill(mut self) -> [u64; THREADS] {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        while let Some(Ok(line)) = self.lines.next() {
            // The last line may be cut, and then its number may be too small, never too large.
            self.take(&line);
        }
        self.acknowledged
    }
}

/// Every session holds at least what was acknowledged, and every event is right.
fn check(log: &EventLog, acknowledged: [u64; THREADS], what: &str) {
    let snapshot = log.snapshot().unwrap();
    for (thread, count) in acknowledged.into_iter().enumerate() {
        if count == 0 {
            continue;
        }
        let mut next = 0;
        for event in snapshot.read(&format!("thread-{thread}"), ..).unwrap() {
            let event = event.unwrap();
            assert_eq!(event.seq(), next, "{what}");
            assert_eq!(event.bytes(), line(thread, next), "{what}");
            next += 1;
        }
        assert!(next >= count, "{what}: {next} events, {count} were acknowledged");
    }
}

#[test]
fn d3_a_reader_sees_everything_acknowledged_before_it_started() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("log");
    let mut writer = Writer::start(&dir);
    writer.watch(200);
    let mut rounds = 0;
    let long_lived = EventLog::open_read_only(&dir).unwrap();
    // On and on, until there have been checkpoints beside the readers.
    let first = long_lived.stats().unwrap().applied_lsn;
    while rounds < 30 || long_lived.stats().unwrap().applied_lsn == first {
        writer.watch(50);
        let acknowledged = writer.acknowledged;
        let log = EventLog::open_read_only(&dir).unwrap();
        check(&log, acknowledged, "a fresh reader");
        check(&long_lived, acknowledged, "a reader that stays");
        let report = log.verify().unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        rounds += 1;
        assert!(rounds < 10_000, "no checkpoint runs");
    }
    writer.kill();
}

#[test]
fn d3_a_second_writer_is_refused_and_told_the_owner() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("log");
    let mut writer = Writer::start(&dir);
    writer.watch(1);
    let error = EventLog::open(&dir).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert_eq!(error.owner().unwrap().pid, Some(writer.child.id()));
    assert!(error.to_string().contains(&writer.child.id().to_string()));
    writer.kill();
    EventLog::open(&dir).unwrap();
}

#[test]
fn d2_a_kill_behind_any_number_of_acknowledgements_loses_nothing_acknowledged() {
    let kills = std::env::var("EVENTLOG_TEST_KILLS").map_or(25, |n| n.parse().unwrap());
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("log");
    let mut total = [0; THREADS];
    for round in 0..kills {
        let mut writer = Writer::start(&dir);
        writer.watch(1 + (round * 7919) % 120);
        let acknowledged = writer.kill();
        for (total, acknowledged) in total.iter_mut().zip(acknowledged) {
            *total = acknowledged.max(*total);
        }
        let what = format!("kill {round}");
        // Every other time the next writer recovers; it is killed as well.
        if round % 2 == 0 {
            let log = EventLog::open(&dir).unwrap();
            check(&log, total, &what);
            assert!(log.verify().unwrap().problems.is_empty(), "{what}");
            log.close().unwrap();
            check(&EventLog::open_read_only(&dir).unwrap(), total, &what);
        } else {
            let refused = EventLog::open_read_only(&dir).map(drop).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::NeedsRecovery, "{what}: {refused}");
        }
    }
    println!("{kills} kills, {total:?} events");
}
