//! What writing a session out as JSONL costs, against a copy of the same file that is flushed.
//!
//! `cargo bench --bench export`; `EVENTLOG_BENCH_BYTES` sets the size (default 512 MiB).
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench"
)]

mod support;

use std::sync::Arc;
use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group};
use eventlog::io::{Dir, StdDir};
use eventlog::{Entry, EventLog, Kind, jsonl};
use support::{corpus::Corpus, print_host, resident, scratch};

fn fill(log: &EventLog, bytes: u64) -> u64 {
    let session = log.session("bench").unwrap();
    let mut corpus = Corpus::new("bench", 1);
    let mut written = 0;
    while written < bytes {
        let lines: Vec<Vec<u8>> = (0..512).map(|_| corpus.line()).collect();
        let entries: Vec<_> = lines.iter().map(|l| Entry::new(Kind::Message, &l[..])).collect();
        session.append_batch(&entries).unwrap();
        written += lines.iter().map(|line| line.len() as u64 + 1).sum::<u64>();
    }
    log.checkpoint().unwrap();
    written
}

fn table() {
    let bytes = std::env::var("EVENTLOG_BENCH_BYTES").map_or(512 << 20, |n| n.parse().unwrap());
    let scratch = scratch();
    let log = EventLog::open(scratch.path().join("log")).unwrap();
    let bytes = fill(&log, bytes);
    let dir: Arc<dyn Dir> = Arc::new(StdDir::open(scratch.path()).unwrap());
    let snapshot = log.snapshot().unwrap();
    let rate = |start: Instant| bytes as f64 / 1e6 / start.elapsed().as_secs_f64();
    println!("\n{bytes} bytes in one session");
    println!("{:<34} {:>10} {:>10}", "", "MB/s", "of a copy");
    for _ in 0..3 {
        let start = Instant::now();
        jsonl::export(&snapshot, "bench", .., &mut std::io::sink(), &mut |_| {}).unwrap();
        println!("{:<34} {:>10.0}", "export to nowhere", rate(start));
        let start = Instant::now();
        jsonl::write_file(dir.clone(), "export.jsonl", true, |out| {
            jsonl::export(&snapshot, "bench", .., out, &mut |_| {})
        })
        .unwrap();
        let exported = rate(start);
        let (from, to) = (scratch.path().join("export.jsonl"), scratch.path().join("copy"));
        let start = Instant::now();
        std::fs::copy(&from, &to).unwrap();
        std::fs::File::open(&to).unwrap().sync_all().unwrap();
        let copied = rate(start);
        println!(
            "{:<34} {:>10.0} {:>9.2}x",
            "export to a file, durable",
            exported,
            exported / copied
        );
        std::fs::remove_file(from).unwrap();
        std::fs::remove_file(to).unwrap();
    }
    println!("{:<34} {:>10} MiB", "resident", resident().1 >> 20);
}

fn export(criterion: &mut Criterion) {
    let scratch = scratch();
    let log = EventLog::open(scratch.path().join("log")).unwrap();
    let bytes = fill(&log, 16 << 20);
    let snapshot = log.snapshot().unwrap();
    let mut group = criterion.benchmark_group("export");
    group.throughput(Throughput::Bytes(bytes));
    group.sample_size(10);
    group.bench_function("export", |bencher| {
        bencher.iter(|| {
            jsonl::export(&snapshot, "bench", .., &mut std::io::sink(), &mut |_| {}).unwrap()
        });
    });
    group.finish();
}

criterion_group!(benches, export);

fn main() {
    print_host();
    table();
    benches();
    Criterion::default().configure_from_args().final_summary();
}
