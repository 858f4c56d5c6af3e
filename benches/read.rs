//! What reading, reopening, and keeping cost.
//!
//! `cargo bench --bench read` prints a table, then criterion's own statistics. Work that must not
//! share memory with the bench, or that ends in an abort, runs in this program started again.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench"
)]

mod support;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group};
use eventlog::{Entry, EventLog, Kind, Sync, Ticket};
use support::{corpus::Corpus, noise, print_host, resident, scratch};

const CHILD: &str = "EVENTLOG_BENCH_CHILD";
const CHILD_LOG: &str = "EVENTLOG_BENCH_CHILD_LOG";

fn entry(bytes: &[u8]) -> Entry<'_> {
    Entry::new(Kind::Message, bytes)
}

/// Writes `bytes` of realistic lines, interleaved over `sessions`, as fast as they become durable.
fn write_corpus(log: &EventLog, sessions: usize, bytes: usize) -> (u64, u64) {
    let mut corpora: Vec<_> = (0..sessions)
        .map(|n| {
            let id = format!("session-{n:04}");
            (log.session(&id).unwrap(), Corpus::new(&id, n as u64))
        })
        .collect();
    let mut tickets: std::collections::VecDeque<Ticket> = std::collections::VecDeque::new();
    let (mut written, mut events) = (0u64, 0u64);
    while written < bytes as u64 {
        for (session, corpus) in &mut corpora {
            let line = corpus.line();
            written += line.len() as u64 + 1;
            events += 1;
            if tickets.len() == 4096 {
                tickets.pop_front().unwrap().wait().unwrap();
            }
            tickets.push_back(session.submit(&[entry(&line)]).unwrap());
        }
    }
    tickets.into_iter().for_each(|ticket| _ = ticket.wait().unwrap());
    (written, events)
}

fn allocated(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(
            |path| {
                if path.is_dir() {
                    allocated(&path)
                } else {
                    path.metadata().unwrap().blocks() * 512
                }
            },
        )
        .sum()
}

fn child(what: &str, dir: &Path) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .arg("--bench")
        .env(CHILD, what)
        .env(CHILD_LOG, dir)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The work of a child.
fn run_child(what: &str) {
    let dir = std::env::var_os(CHILD_LOG).unwrap();
    match what {
        "memory" => {
            let log = EventLog::open(dir).unwrap();
            let start = Instant::now();
            let (bytes, events) = write_corpus(&log, 64, 400 << 20);
            let seconds = start.elapsed().as_secs_f64();
            let (_, peak) = resident();
            println!(
                "{:.0} MiB resident at most, {:.0} MB/s, {:.0} events/s",
                peak as f64 / f64::from(1 << 20),
                bytes as f64 / seconds / 1e6,
                events as f64 / seconds
            );
        }
        "full journal" => {
            // All that may be in a journal: what back-pressure allows.
            let builder = EventLog::builder().background(false).sync(Sync::Os);
            let log = builder.checkpoint_bytes(64 << 20).open(dir).unwrap();
            let session = log.session("s").unwrap();
            let mut corpus = Corpus::new("s", 1);
            let mut bytes = 0;
            while bytes < 60 << 20 {
                let lines: Vec<Vec<u8>> = (0..16).map(|_| corpus.line()).collect();
                bytes += lines.iter().map(Vec::len).sum::<usize>();
                let entries: Vec<_> = lines.iter().map(|line| entry(line)).collect();
                session.append_batch(&entries).unwrap();
            }
            std::process::abort();
        }
        other => unreachable!("{other}"),
    }
}

fn reopen() {
    let dir = scratch();
    let mut times = Vec::new();
    for n in 0..5 {
        let dir = dir.path().join(format!("log-{n}"));
        child("full journal", &dir);
        let start = Instant::now();
        let log = EventLog::open(&dir).unwrap();
        times.push(start.elapsed());
        let recovery = log.recovery();
        assert!(!recovery.clean && recovery.replayed_events > 10_000, "{recovery:?}");
        log.close().unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
    }
    times.sort();
    println!(
        "{:<44} {:.0?} (of {times:.0?})",
        "reopen after a kill, 60 MiB in the journal", times[2]
    );
}

fn disk() {
    let dir = scratch();
    for (name, sessions) in [("one session", 1), ("64 sessions interleaved", 64)] {
        let dir = dir.path().join(format!("log-{sessions}"));
        let log = EventLog::open(&dir).unwrap();
        let (bytes, _) = write_corpus(&log, sessions, 256 << 20);
        log.close().unwrap();
        let stored = allocated(&dir);
        println!(
            "{:<44} {:.3}x of {} MiB JSONL",
            format!("disk, realistic lines, {name}"),
            stored as f64 / bytes as f64,
            bytes >> 20
        );
    }
    let dir = dir.path().join("noise");
    let log = EventLog::open(&dir).unwrap();
    let mut tickets = Vec::new();
    const EVENTS: usize = 130_000;
    for n in 0..EVENTS {
        let session = log.session(&format!("session-{}", n % 64)).unwrap();
        tickets.push(session.submit(&[entry(&noise(1024, n as u64))]).unwrap());
    }
    tickets.into_iter().for_each(|ticket| _ = ticket.wait().unwrap());
    log.close().unwrap();
    let ratio = allocated(&dir) as f64 / (EVENTS * 1024) as f64;
    println!(
        "{:<44} {ratio:.3}x of {} MB",
        "disk, random bytes, 64 sessions",
        EVENTS * 1024 / 1_000_000
    );
}

fn scan() {
    let dir = scratch();
    let log = EventLog::open(dir.path().join("log")).unwrap();
    let (bytes, events) = write_corpus(&log, 1, 256 << 20);
    log.checkpoint().unwrap();
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let start = Instant::now();
        let mut seen = 0u64;
        for event in log.read("session-0000", ..).unwrap() {
            seen += event.unwrap().bytes().len() as u64 + 1;
        }
        assert_eq!(seen, bytes);
        best = best.min(start.elapsed());
    }
    println!(
        "{:<44} {:.2} GB/s of JSONL, {:.1} M events/s",
        "scan of a checkpointed session",
        bytes as f64 / best.as_secs_f64() / 1e9,
        events as f64 / best.as_secs_f64() / 1e6
    );
    log.close().unwrap();
}

fn report() {
    print_host();
    let dir = scratch();
    println!("{:<44} {}", "writing at full speed", child("memory", &dir.path().join("log")).trim());
    drop(dir);
    reopen();
    scan();
    disk();
}

fn read(criterion: &mut Criterion) {
    let dir = scratch();
    let log = EventLog::open(dir.path().join("log")).unwrap();
    let (_, events) = write_corpus(&log, 1, 64 << 20);
    log.checkpoint().unwrap();
    let mut group = criterion.benchmark_group("read 1,000 events");
    group.throughput(Throughput::Elements(1000)).sample_size(30);
    group.measurement_time(Duration::from_secs(3)).warm_up_time(Duration::from_millis(500));
    let mut at = 0;
    group.bench_function("from the store, at changing places", |b| {
        b.iter(|| {
            at = (at + 7919) % (events - 1000);
            let range = at..at + 1000;
            log.read("session-0000", range)
                .unwrap()
                .map(|e| e.unwrap().bytes().len())
                .sum::<usize>()
        })
    });
    group.bench_function("the last ones, backwards", |b| {
        b.iter(|| {
            let events = log.read("session-0000", ..).unwrap().rev().take(1000);
            events.map(|e| e.unwrap().bytes().len()).sum::<usize>()
        })
    });
    group.finish();
    let session = log.session("in-memory").unwrap();
    for _ in 0..10 {
        let lines: Vec<_> = (0..100).map(|n| noise(1024, n)).collect();
        session.append_batch(&lines.iter().map(|line| entry(line)).collect::<Vec<_>>()).unwrap();
    }
    criterion.bench_function("read 1,000 events/from memory", |b| {
        b.iter(|| session.read(..).unwrap().map(|e| e.unwrap().bytes().len()).sum::<usize>())
    });
}

criterion_group!(benches, read);

fn main() {
    if let Ok(what) = std::env::var(CHILD) {
        return run_child(&what);
    }
    let measures = std::env::args().any(|arg| arg == "--bench")
        && !std::env::args().any(|arg| arg == "--list" || arg == "--test");
    if measures {
        report();
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}
