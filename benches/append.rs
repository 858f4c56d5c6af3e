//! What an append costs, as ratios to the least that durability costs, taken in one run.
//!
//! `cargo bench --bench append` prints a table of ratios, then criterion's own statistics.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench"
)]

mod support;

use std::os::unix::fs::FileExt;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group};
use eventlog::{Entry, EventLog, Kind, Session};
use support::{Floor, Samples, compare, corpus::Corpus, noise, print_host, resident, scratch};

fn entry(bytes: &[u8]) -> Entry<'_> {
    Entry::new(Kind::Message, bytes)
}

fn timed(body: impl FnOnce()) -> Duration {
    let start = Instant::now();
    body();
    start.elapsed()
}

/// One event of 1 KiB, one thread: p50 and p99 against the floor.
fn single(log: &EventLog, floor: &mut Floor, name: &str) -> f64 {
    let session = log.session("single").unwrap();
    let bytes = noise(1024, 1);
    compare(
        name,
        40,
        50,
        || floor.append(&bytes),
        || timed(|| _ = session.append(entry(&bytes)).unwrap()),
    )
}

/// Batches of 64 events of 1 KiB.
fn batch(log: &EventLog, floor: &mut Floor) {
    let session = log.session("batch").unwrap();
    let events: Vec<Vec<u8>> = (0..64).map(|seed| noise(1024, seed)).collect();
    let entries: Vec<Entry<'_>> = events.iter().map(|bytes| entry(bytes)).collect();
    let all = events.concat();
    compare(
        "64 x 1 KiB in one batch",
        20,
        50,
        || floor.append(&all),
        || timed(|| _ = session.append_batch(&entries).unwrap()),
    );
}

/// 64 threads, each waiting for its own events.
fn many_threads(log: &EventLog, floor: &mut Floor) {
    const THREADS: usize = 64;
    const EACH: usize = 500;
    let bytes = noise(1024, 3);
    let mut commits = Samples::default();
    (0..500).for_each(|_| commits.push(floor.append(&bytes)));
    let barrier = Barrier::new(THREADS + 1);
    let elapsed = std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (barrier, bytes) = (&barrier, &bytes);
            let session = log.session(&format!("thread-{thread}")).unwrap();
            scope.spawn(move || {
                barrier.wait();
                for _ in 0..EACH {
                    session.append(entry(bytes)).unwrap();
                }
                barrier.wait();
            });
        }
        barrier.wait();
        timed(|| _ = barrier.wait())
    });
    let rate = (THREADS * EACH) as f64 / elapsed.as_secs_f64();
    let single = 1.0 / commits.percentile(0.5).as_secs_f64();
    println!(
        "{:<44} {:>8.0} events/s = {:.1}x one event per flush at the floor",
        "64 threads, 1 KiB, each waits",
        rate,
        rate / single
    );
}

/// One thread hands lines over and waits for the oldest of a window.
fn pipelined(log: &EventLog) {
    const LINES: usize = 600_000;
    let mut corpus = Corpus::new("pipelined", 7);
    let lines: Vec<Vec<u8>> = (0..20_000).map(|_| corpus.line()).collect();
    let bytes: usize = lines.iter().map(Vec::len).sum::<usize>() * (LINES / lines.len());
    let session: Session = log.session("pipelined").unwrap();
    let elapsed = timed(|| {
        let mut tickets = std::collections::VecDeque::new();
        for line in lines.iter().cycle().take(LINES) {
            if tickets.len() == 4096 {
                let ticket: eventlog::Ticket = tickets.pop_front().unwrap();
                ticket.wait().unwrap();
            }
            tickets.push_back(session.submit(&[entry(line)]).unwrap());
        }
        tickets.into_iter().for_each(|ticket| _ = ticket.wait().unwrap());
    });
    println!(
        "{:<44} {:>8.0} events/s, {:.0} MB/s acknowledged (mean line {} bytes), checkpoints running",
        "one thread, pipelined, realistic lines",
        LINES as f64 / elapsed.as_secs_f64(),
        bytes as f64 / elapsed.as_secs_f64() / 1e6,
        bytes / LINES,
    );
}

/// Calls `append` for 60,000 events of 1 KiB, eight at a time, at 20 MB/s.
fn paced(name: &str, mut append: impl FnMut()) {
    const EVENTS: u32 = 60_000;
    let mut samples = Samples::default();
    let start = Instant::now();
    for n in (0..EVENTS).step_by(8) {
        let due = Duration::from_secs_f64(f64::from(n) * 1024.0 / 20e6);
        if let Some(wait) = due.checked_sub(start.elapsed()) {
            std::thread::sleep(wait);
        }
        samples.push(timed(&mut append));
    }
    let (p50, p999) = (samples.percentile(0.5), samples.percentile(0.999));
    println!(
        "{name:<44} p50 {p50:.1?}, p99.9 {p999:.1?} = {:.1}x, max {:.1?} ({} batches of 8 KiB)",
        p999.as_secs_f64() / p50.as_secs_f64(),
        samples.percentile(1.0),
        samples.len(),
    );
}

/// Append latency while checkpoints run, and what the floor's is beside a thread that writes and
/// flushes as much as a checkpoint does.
fn under_checkpoints(log: &EventLog, floor: &mut Floor, dir: &std::path::Path) {
    let session = log.session("paced").unwrap();
    let bytes = noise(1024, 5);
    let group: Vec<Entry<'_>> = (0..8).map(|_| entry(&bytes)).collect();
    let all = bytes.repeat(8);
    for _ in 0..2 {
        paced("20 MB/s while checkpoints run", || _ = session.append_batch(&group).unwrap());
        paced("  the floor alone", || _ = floor.append(&all));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| checkpoint_like(dir, &done));
            paced("  the floor beside 16 MiB, flushed each 0.8 s", || _ = floor.append(&all));
            done.store(true, Ordering::Relaxed);
        });
    }
}

/// Writes 16 MiB as pages of 16 KiB and flushes them, again and again.
fn checkpoint_like(dir: &std::path::Path, done: &AtomicBool) {
    let file = std::fs::File::create(dir.join("beside")).unwrap();
    let page = noise(16 << 10, 9);
    let mut at = 0;
    while !done.load(Ordering::Relaxed) {
        for _ in 0..1024 {
            file.write_all_at(&page, at).unwrap();
            at += page.len() as u64;
        }
        file.sync_data().unwrap();
        std::thread::sleep(Duration::from_millis(800));
    }
}

/// Fills a session up to `events` quickly.
fn fill(log: &EventLog, id: &str, events: u64) {
    let session = log.session(id).unwrap();
    let line =
        br#"{"role":"user","content":"a short line of some words to fill the session with"}"#;
    let group: Vec<Entry<'_>> = (0..1000).map(|_| entry(line)).collect();
    let mut ticket = None;
    while session.head() < events {
        let before = ticket.replace(session.submit(&group).unwrap());
        if let Some(before) = before {
            let before: eventlog::Ticket = before;
            if *before.wait().unwrap().end() + 1 >= events {
                break;
            }
        }
    }
    ticket.into_iter().for_each(|ticket| _ = ticket.wait().unwrap());
}

/// Append to a session of 10 M events against one of 10 k.
fn large_session() {
    let dir = scratch();
    let log = EventLog::open(dir.path().join("log")).unwrap();
    let events: u64 = std::env::var("EVENTLOG_BENCH_EVENTS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(10_000_000);
    fill(&log, "small", 10_000);
    fill(&log, "large", events);
    log.checkpoint().unwrap();
    let (small, large) = (log.session("small").unwrap(), log.session("large").unwrap());
    let bytes = noise(1024, 1);
    compare(
        &format!("append at {} events against {}", large.head(), small.head()),
        40,
        50,
        || timed(|| _ = small.append(entry(&bytes)).unwrap()),
        || timed(|| _ = large.append(entry(&bytes)).unwrap()),
    );
    log.close().unwrap();
}

fn print_memory(what: &str) {
    let (now, peak) = resident();
    println!("{what:<44} {:>8} MiB resident, {} MiB at most so far", now >> 20, peak >> 20);
}

fn report() {
    print_host();
    let dir = scratch();
    let mut floor = Floor::new(dir.path(), 64 << 20);
    let log = EventLog::open(dir.path().join("log")).unwrap();
    single(&log, &mut floor, "1 x 1 KiB, one thread");
    batch(&log, &mut floor);
    many_threads(&log, &mut floor);
    print_memory("memory after 64 threads");
    pipelined(&log);
    print_memory("memory after pipelining, the bench's lines in it");
    under_checkpoints(&log, &mut floor, dir.path());
    single(&log, &mut floor, "1 x 1 KiB, one thread, again");
    log.close().unwrap();
    large_session();
}

fn append(criterion: &mut Criterion) {
    let dir = scratch();
    let mut floor = Floor::new(dir.path(), 64 << 20);
    let log = EventLog::open(dir.path().join("log")).unwrap();
    let session = log.session("s").unwrap();
    let bytes = noise(1024, 1);
    let mut group = criterion.benchmark_group("append 1 KiB durably");
    group.throughput(Throughput::Bytes(1024)).sample_size(20);
    group.measurement_time(Duration::from_secs(3)).warm_up_time(Duration::from_millis(500));
    group.bench_function("floor: pwrite + fdatasync", |b| b.iter(|| floor.append(&bytes)));
    group.bench_function("eventlog", |b| b.iter(|| session.append(entry(&bytes)).unwrap()));
    group.finish();
}

criterion_group!(benches, append);

fn main() {
    // `--list` and `--test` come from test runners, which want no measurements.
    let measures = std::env::args().any(|arg| arg == "--bench")
        && !std::env::args().any(|arg| arg == "--list" || arg == "--test");
    if measures {
        report();
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}
