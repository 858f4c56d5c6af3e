//! What the benches share: the floor, ratios taken in one run, a corpus that looks like life.
#![allow(
    dead_code,
    missing_docs,
    clippy::unwrap_used,
    reason = "bench code; each bench uses a part"
)]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub mod corpus;

/// A directory on the disk that the project is built on, removed on drop. Never a memory file
/// system.
pub fn scratch() -> tempfile::TempDir {
    let target = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/bench-scratch");
    std::fs::create_dir_all(&target).unwrap();
    tempfile::tempdir_in(target).unwrap()
}

/// The least that durability costs: one pwrite and one fdatasync into a zero-filled file.
pub struct Floor {
    file: File,
    offset: u64,
    capacity: u64,
}

impl Floor {
    pub fn new(dir: &std::path::Path, capacity: u64) -> Floor {
        let file =
            OpenOptions::new().create(true).truncate(true).write(true).open(dir.join("floor"));
        let file = file.unwrap();
        let zeros = vec![0; 1 << 20];
        for at in (0..capacity).step_by(zeros.len()) {
            file.write_all_at(&zeros, at).unwrap();
        }
        file.sync_all().unwrap();
        Floor { file, offset: 0, capacity }
    }

    pub fn append(&mut self, bytes: &[u8]) -> Duration {
        if self.offset + bytes.len() as u64 > self.capacity {
            self.offset = 0;
        }
        let start = Instant::now();
        self.file.write_all_at(bytes, self.offset).unwrap();
        self.file.sync_data().unwrap();
        self.offset += bytes.len() as u64;
        start.elapsed()
    }
}

/// Latencies of one subject.
#[derive(Default)]
pub struct Samples(Vec<Duration>);

impl Samples {
    pub fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn percentile(&mut self, p: f64) -> Duration {
        self.0.sort_unstable();
        let index = ((self.0.len() - 1) as f64 * p) as usize;
        self.0[index]
    }
}

/// Runs two subjects in turns of `turn` calls and prints their percentiles and ratios.
pub fn compare(
    name: &str,
    turns: usize,
    turn: usize,
    mut floor: impl FnMut() -> Duration,
    mut subject: impl FnMut() -> Duration,
) -> f64 {
    let (mut a, mut b) = (Samples::default(), Samples::default());
    for _ in 0..turn * 2 {
        floor();
        subject();
    }
    for _ in 0..turns {
        (0..turn).for_each(|_| a.push(floor()));
        (0..turn).for_each(|_| b.push(subject()));
    }
    let ratio = |p| b_over_a(&mut b, &mut a, p);
    let mut ratio = ratio;
    let (r50, r99) = (ratio(0.5), ratio(0.99));
    println!(
        "{name:<44} p50 {:>8.1?} / floor {:>8.1?} = {r50:.2}x   p99 {:>8.1?} / {:>8.1?} = {r99:.2}x",
        b.percentile(0.5),
        a.percentile(0.5),
        b.percentile(0.99),
        a.percentile(0.99),
    );
    r50
}

fn b_over_a(b: &mut Samples, a: &mut Samples, p: f64) -> f64 {
    b.percentile(p).as_secs_f64() / a.percentile(p).as_secs_f64()
}

/// Bytes that do not compress, the same every time.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Resident memory of this process: now and at most, in bytes.
pub fn resident() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
    };
    (field("VmRSS:").unwrap_or(0), field("VmHWM:").unwrap_or(0))
}

/// What was measured on.
pub struct Host {
    pub cores: usize,
    pub processor: String,
    pub kernel: String,
}

impl Host {
    pub fn read() -> Host {
        let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpu = file("/proc/cpuinfo");
        let model = cpu.lines().find_map(|line| line.strip_prefix("model name"));
        Host {
            cores: std::thread::available_parallelism().map_or(0, |n| n.get()),
            processor: model.unwrap_or("unknown").trim_matches(['\t', ' ', ':']).to_owned(),
            kernel: file("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} cores, {}, Linux {}", self.cores, self.processor, self.kernel)
    }
}

pub fn print_host() {
    println!("host: {}", Host::read());
}
