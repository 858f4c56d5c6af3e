//! What bringing JSONL in costs: the scanner alone, and a durable import of a large file of which
//! 2 % of the lines are damaged, against a copy of the file that is flushed.
//!
//! `cargo bench --bench import`; `EVENTLOG_BENCH_BYTES` sets the size of the file (default 1 GiB).
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench"
)]

mod support;

use std::hint::black_box;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group};
use eventlog::EventLog;
use eventlog::format::Transcript;
use eventlog::jsonl::{self, ImportOptions, Outcome};
use support::{corpus::Corpus, print_host, resident, scratch};

/// A transcript of about `bytes`, every 50th line of it damaged in one of four ways.
fn write_damaged(path: &Path, bytes: u64) -> u64 {
    let mut file = std::io::BufWriter::with_capacity(1 << 20, std::fs::File::create(path).unwrap());
    let mut corpus = Corpus::new("bench", 1);
    let (mut written, mut n) = (0, 0u64);
    while written < bytes {
        let mut line = corpus.line();
        n += 1;
        if n.is_multiple_of(50) {
            match n / 50 % 4 {
                0 => line.truncate(line.len() / 2),
                1 => line = vec![0; 100],
                2 => line = [&line[..60], &line[..]].concat(),
                _ => *line.last_mut().unwrap() = 0xFF,
            }
        }
        line.push(b'\n');
        file.write_all(&line).unwrap();
        written += line.len() as u64;
    }
    file.into_inner().unwrap().sync_all().unwrap();
    written
}

fn copy_and_flush(from: &Path, to: &Path) {
    std::fs::copy(from, to).unwrap();
    std::fs::File::open(to).unwrap().sync_all().unwrap();
}

fn table() {
    let bytes = std::env::var("EVENTLOG_BENCH_BYTES").map_or(1 << 30, |n| n.parse().unwrap());
    let dir = scratch();
    let path = dir.path().join("damaged.jsonl");
    let bytes = write_damaged(&path, bytes);
    let rate = |start: Instant| bytes as f64 / 1e6 / start.elapsed().as_secs_f64();
    println!("\n{} bytes, 2 % of the lines damaged", bytes);
    println!("{:<34} {:>10} {:>10}", "", "MB/s", "of a copy");
    for round in 0..3 {
        let start = Instant::now();
        copy_and_flush(&path, &dir.path().join("copy"));
        let copied = rate(start);
        std::fs::remove_file(dir.path().join("copy")).unwrap();
        let log_dir = dir.path().join(format!("log-{round}"));
        let log = EventLog::open(&log_dir).unwrap();
        let found = &jsonl::discover(&path).files[0];
        let before = resident();
        let start = Instant::now();
        let report = found.import(Some(&log), &ImportOptions::default(), &mut |_| {}).unwrap();
        let imported = rate(start);
        assert_eq!(report.outcome, Outcome::Imported);
        assert!(report.quarantined_spans > 0);
        println!("{:<34} {:>10.0} {:>9.2}x", "import, durable", imported, imported / copied);
        let start = Instant::now();
        let again = found.import(Some(&log), &ImportOptions::default(), &mut |_| {}).unwrap();
        assert_eq!(again.outcome, Outcome::Unchanged);
        println!("{:<34} {:>10.0} {:>9.2}x", "import again", rate(start), rate(start) / copied);
        println!("{:<34} {:>10} MiB, {} before", "resident", resident().1 >> 20, before.0 >> 20);
        log.close().unwrap();
        std::fs::remove_dir_all(log_dir).unwrap();
    }
}

fn scan(criterion: &mut Criterion) {
    let mut corpus = Corpus::new("bench", 1);
    let lines: Vec<Vec<u8>> = (0..4000).map(|_| [corpus.line(), b"\n".to_vec()].concat()).collect();
    let bytes = lines.concat();
    let mut group = criterion.benchmark_group("import");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.sample_size(10);
    group.bench_function("scan", |bencher| {
        bencher.iter(|| {
            let mut records = 0;
            jsonl::scan(&bytes[..], 1 << 20, &Transcript, "bench", &mut |span| {
                records += u64::from(matches!(span.what, jsonl::What::Record { .. }));
                Ok(())
            })
            .unwrap();
            assert_eq!(records, 4000);
            black_box(records)
        });
    });
    group.finish();
}

criterion_group!(benches, scan);

fn main() {
    print_host();
    table();
    benches();
    Criterion::default().configure_from_args().final_summary();
}
