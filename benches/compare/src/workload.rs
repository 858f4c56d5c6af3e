//! What the stores are asked to do. Each runs in a process of its own, in an empty directory, and
//! gives one [`Measured`].

use std::io::Write;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::device::Device;
use crate::peer::{Entrant, Event, Peer, Result};
use crate::support::{Samples, corpus::Corpus, noise, resident};

/// What a workload needs besides a store.
#[derive(Clone, Copy)]
pub struct Task<'a> {
    pub dir: &'a Path,
    /// The file of the workloads that read one.
    pub input: &'a Path,
    /// Events a commit, where the store may choose.
    pub batch: usize,
    /// A thousandth of the amounts is 1.
    pub permille: u64,
    /// No loop goes on longer.
    pub limit: Duration,
}

impl Task<'_> {
    fn amount(&self, whole: u64) -> u64 {
        (whole * self.permille / 1000).max(100)
    }
}

/// A row. What a workload does not measure is zero or absent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    pub events: u64,
    pub seconds: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    /// Commits that one thread waited for, one after the other.
    pub commits: u64,
    pub flushes: Option<u64>,
    pub device_bytes: Option<u64>,
    pub payload_bytes: u64,
    pub disk_bytes: u64,
    pub peak_bytes: u64,
    pub batch: usize,
    /// The figure of a workload that has one of its own.
    pub value: Option<f64>,
}

impl Measured {
    pub fn rate(&self) -> f64 {
        self.events as f64 / self.seconds
    }

    fn timed(&mut self, samples: &mut Samples) {
        let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
        self.p50_us = micros(samples.percentile(0.5));
        self.p99_us = micros(samples.percentile(0.99));
        self.p999_us = micros(samples.percentile(0.999));
        self.max_us = micros(samples.percentile(1.0));
    }
}

pub struct Workload {
    pub name: &'static str,
    pub about: &'static str,
    /// The column that decides: how it is called, its unit, more is better.
    pub figure: (&'static str, &'static str, bool),
    /// Interleaved rounds.
    pub rounds: u32,
    pub wants: Wants,
    pub run: fn(&Entrant, Task<'_>) -> Result<Option<Measured>>,
}

/// What the runner prepares.
#[derive(Clone, Copy, PartialEq)]
pub enum Wants {
    Nothing,
    /// The batch size at which the store is fastest.
    BestBatch,
    /// That, and a JSONL file of 1 GiB.
    Large,
    /// That, and a JSONL file of 50,000 lines.
    Session,
    /// A process that is killed has filled the directory.
    Killed,
}

pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "single",
        about: "one thread, one event of 1 KiB a commit, 64 sessions in turn",
        figure: ("p50", "us", false),
        rounds: 5,
        wants: Wants::Nothing,
        run: |entrant, task| commits(entrant, task, 1, 2_000),
    },
    Workload {
        name: "batch",
        about: "one thread, 64 events of 1 KiB a commit, 64 sessions in turn",
        figure: ("p50", "us", false),
        rounds: 5,
        wants: Wants::Nothing,
        run: |entrant, task| commits(entrant, task, 64, 800),
    },
    Workload {
        name: "threads",
        about: "64 threads, each waits for its own event of 1 KiB",
        figure: ("rate", "events/s", true),
        rounds: 3,
        wants: Wants::Nothing,
        run: threads,
    },
    Workload {
        name: "pipelined",
        about: "one thread, 1,200,000 realistic lines of 0.8 KiB, durable at the store's best batch size",
        figure: ("rate", "events/s", true),
        rounds: 2,
        wants: Wants::BestBatch,
        run: pipelined,
    },
    Workload {
        name: "live",
        about: "20,000 sessions in turn, 1 KiB of random bytes an event, at the store's best batch size",
        figure: ("rate", "events/s", true),
        rounds: 2,
        wants: Wants::BestBatch,
        run: live,
    },
    Workload {
        name: "scan-random",
        about: "the last 1,000 of 2,000 events of 1 KiB of random bytes, 64 sessions written in turn; size on disk",
        figure: ("p50", "us", false),
        rounds: 2,
        wants: Wants::Nothing,
        run: |entrant, task| scan(entrant, task, true),
    },
    Workload {
        name: "scan-lines",
        about: "the last 1,000 of 2,000 realistic lines, 64 sessions written in turn; size on disk",
        figure: ("p50", "us", false),
        rounds: 2,
        wants: Wants::Nothing,
        run: |entrant, task| scan(entrant, task, false),
    },
    Workload {
        name: "resume",
        about: "everything of a session of 50,000 events: read, parsed, and the calls without an answer found",
        figure: ("p50", "us", false),
        rounds: 3,
        wants: Wants::Session,
        run: resume,
    },
    Workload {
        name: "import",
        about: "a JSONL file of 1 GiB, each line checked, durable at the end",
        figure: ("value", "MB/s", true),
        rounds: 1,
        wants: Wants::Large,
        run: import,
    },
    Workload {
        name: "reopen",
        about: "opening after SIGKILL in the middle of 64 KiB commits, 60 MiB written",
        figure: ("value", "ms", false),
        rounds: 3,
        wants: Wants::Killed,
        run: reopen,
    },
    Workload {
        name: "large",
        about: "an append of 100 bytes to a session of 10,000,000 events, against one of 10,000",
        figure: ("value", "ratio", false),
        rounds: 1,
        wants: Wants::BestBatch,
        run: large,
    },
];

/// Watches the device while `body` runs.
fn watched(
    task: &Task<'_>,
    measured: &mut Measured,
    body: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let device = Device::of(task.dir);
    let before = device.as_ref().and_then(Device::read);
    let start = Instant::now();
    body()?;
    measured.seconds = start.elapsed().as_secs_f64();
    if let (Some(before), Some(after)) = (before, device.as_ref().and_then(Device::read)) {
        measured.flushes = Some(after.flushes - before.flushes);
        measured.device_bytes = Some(after.written_bytes - before.written_bytes);
    }
    Ok(())
}

fn commits(entrant: &Entrant, task: Task<'_>, batch: u64, count: u64) -> Result<Option<Measured>> {
    const SESSIONS: u64 = 64;
    let peer = (entrant.open)(task.dir)?;
    let payloads: Vec<Vec<u8>> = (0..256).map(|seed| noise(1024, seed)).collect();
    let group = |n: u64| -> Vec<Event<'_>> {
        let first = n / SESSIONS * batch;
        (first..first + batch)
            .map(|seq| Event {
                session: (n % SESSIONS) as u32,
                seq,
                bytes: &payloads[((n * batch + seq) % 256) as usize],
            })
            .collect()
    };
    let (warm, count) = (count / 10, task.amount(count));
    (0..warm).try_for_each(|n| peer.append(&group(n)))?;
    let (mut samples, mut measured) = (Samples::default(), Measured::default());
    let mut commits = 0;
    watched(&task, &mut measured, || {
        let until = Instant::now() + task.limit;
        for n in warm..warm + count {
            let events = group(n);
            let start = Instant::now();
            peer.append(&events)?;
            samples.push(start.elapsed());
            commits += 1;
            if Instant::now() > until {
                break;
            }
        }
        Ok(())
    })?;
    measured.timed(&mut samples);
    measured.commits = commits;
    measured.events = commits * batch;
    measured.payload_bytes = measured.events * 1024;
    measured.batch = batch as usize;
    measured.peak_bytes = resident().1;
    Ok(Some(measured))
}

fn threads(entrant: &Entrant, task: Task<'_>) -> Result<Option<Measured>> {
    const THREADS: u32 = 64;
    let peer = (entrant.open)(task.dir)?;
    let each = task.amount(500);
    let bytes = noise(1024, 3);
    let barrier = Barrier::new(THREADS as usize + 1);
    let mut measured = Measured::default();
    let mut all = Samples::default();
    watched(&task, &mut measured, || {
        let until = Instant::now() + task.limit;
        let append = |session: u32| -> Result<Vec<Duration>> {
            barrier.wait();
            let mut samples = Vec::new();
            for seq in 0..each {
                let start = Instant::now();
                peer.append(&[Event { session, seq, bytes: &bytes }])?;
                samples.push(start.elapsed());
                if Instant::now() > until {
                    break;
                }
            }
            Ok(samples)
        };
        let append = &append;
        std::thread::scope(|scope| {
            let running: Vec<_> =
                (0..THREADS).map(|session| scope.spawn(move || append(session))).collect();
            barrier.wait();
            for thread in running {
                let samples = thread.join().map_err(|_| "a thread panicked")??;
                samples.into_iter().for_each(|sample| all.push(sample));
            }
            Ok(())
        })
    })?;
    measured.events = all.len() as u64;
    measured.payload_bytes = measured.events * 1024;
    measured.batch = 1;
    measured.timed(&mut all);
    measured.peak_bytes = resident().1;
    Ok(Some(measured))
}

/// Streams `events` in, until the time is up.
fn stream<'a>(
    peer: &dyn Peer,
    task: &Task<'_>,
    events: impl Iterator<Item = Event<'a>>,
) -> Result<Measured> {
    let (mut samples, mut measured) = (Samples::default(), Measured::default());
    let (mut count, mut bytes) = (0, 0);
    watched(task, &mut measured, || {
        let until = Instant::now() + task.limit;
        let mut events = events.inspect(|event| {
            count += 1;
            bytes += event.bytes.len() as u64;
        });
        let mut timely = std::iter::from_fn(|| (Instant::now() < until).then(|| events.next())?);
        peer.append_all(&mut timely, task.batch, &mut samples)
    })?;
    measured.events = count;
    measured.payload_bytes = bytes;
    measured.batch = task.batch;
    measured.timed(&mut samples);
    Ok(measured)
}

/// Lines of 0.8 KiB in the mean: of the long ones every third.
fn lines(session: &str, seed: u64, count: usize) -> Vec<Vec<u8>> {
    let mut corpus = Corpus::new(session, seed);
    let mut long = 0;
    std::iter::repeat_with(|| corpus.line())
        .filter(|line| {
            long += usize::from(line.len() > 1600);
            line.len() <= 1600 || long.is_multiple_of(3)
        })
        .take(count)
        .collect()
}

fn pipelined(entrant: &Entrant, task: Task<'_>) -> Result<Option<Measured>> {
    let peer = (entrant.open)(task.dir)?;
    let lines = lines("pipelined", 7, 20_000);
    let count = task.amount(1_200_000);
    let events = (0..count).map(|seq| Event {
        session: 1,
        seq,
        bytes: &lines[(seq % lines.len() as u64) as usize],
    });
    let mut measured = stream(&*peer, &task, events)?;
    measured.peak_bytes = resident().1;
    Ok(Some(measured))
}

fn live(entrant: &Entrant, task: Task<'_>) -> Result<Option<Measured>> {
    const SESSIONS: u64 = 20_000;
    let peer = (entrant.open)(task.dir)?;
    let payloads: Vec<Vec<u8>> = (0..1024).map(|seed| noise(1024, seed)).collect();
    let events = (0..task.amount(1_000_000)).map(|n| Event {
        session: (n % SESSIONS) as u32,
        seq: n / SESSIONS,
        bytes: &payloads[(n % 1021) as usize],
    });
    let mut measured = Measured::default();
    let mut streamed = Measured::default();
    // What was put off belongs to what is written.
    watched(&task, &mut measured, || {
        streamed = stream(&*peer, &task, events)?;
        peer.settle()
    })?;
    streamed.device_bytes = measured.device_bytes;
    streamed.peak_bytes = resident().1;
    Ok(Some(streamed))
}

fn disk_bytes(dir: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut sum = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        sum += if meta.is_dir() { disk_bytes(&entry.path())? } else { meta.blocks() * 512 };
    }
    Ok(sum)
}

fn scan(entrant: &Entrant, task: Task<'_>, random: bool) -> Result<Option<Measured>> {
    const SESSIONS: u32 = 64;
    if entrant.only_appends() {
        return Ok(None);
    }
    let each = task.amount(2_000) / 10 * 10;
    let mut measured = Measured::default();
    {
        let peer = (entrant.open)(task.dir)?;
        let mut sessions: Vec<Corpus> = (0..SESSIONS)
            .map(|n| Corpus::new(&format!("session-{n:05}"), u64::from(n) + 1))
            .collect();
        for first in (0..each).step_by(10) {
            for session in 0..SESSIONS {
                let payloads: Vec<Vec<u8>> = (first..first + 10)
                    .map(|seq| match random {
                        true => noise(1024, u64::from(session) << 32 | seq),
                        false => sessions[session as usize].line(),
                    })
                    .collect();
                measured.payload_bytes += payloads.iter().map(|p| p.len() as u64).sum::<u64>();
                let events: Vec<Event<'_>> = (first..)
                    .zip(&payloads)
                    .map(|(seq, bytes)| Event { session, seq, bytes })
                    .collect();
                peer.append(&events)?;
            }
        }
        peer.settle()?;
    }
    measured.disk_bytes = disk_bytes(task.dir)?;
    let peer = (entrant.open)(task.dir)?;
    let mut samples = Samples::default();
    let mut bytes = 0;
    for round in 0..5 * SESSIONS {
        let start = Instant::now();
        let mut seen = 0;
        let known = peer.scan(round % SESSIONS, each / 2, &mut |event| {
            seen += 1;
            bytes += event.len();
            std::hint::black_box(event);
        })?;
        if !known {
            return Ok(Some(measured));
        }
        samples.push(start.elapsed());
        // Random bytes hold line ends, so JSONL has more lines than events then.
        assert!(seen == each / 2 || (random && seen > 0), "{seen} events were read");
    }
    std::hint::black_box(bytes);
    measured.timed(&mut samples);
    measured.events = u64::from(5 * SESSIONS) * (each / 2);
    measured.peak_bytes = resident().1;
    Ok(Some(measured))
}

fn resume(entrant: &Entrant, task: Task<'_>) -> Result<Option<Measured>> {
    if entrant.only_appends() || entrant.name == "okaywal" {
        return Ok(None);
    }
    let imported = {
        let peer = (entrant.open)(task.dir)?;
        let imported = peer.import(task.input, 1, task.batch)?;
        peer.settle()?;
        imported
    };
    let peer = (entrant.open)(task.dir)?;
    let (mut samples, mut measured) = (Samples::default(), Measured::default());
    for _ in 0..5 {
        let start = Instant::now();
        let resumed = peer.resume(1)?;
        samples.push(start.elapsed());
        assert_eq!(resumed, Some(imported));
    }
    measured.timed(&mut samples);
    measured.events = imported;
    measured.peak_bytes = resident().1;
    Ok(Some(measured))
}

fn import(entrant: &Entrant, task: Task<'_>) -> Result<Option<Measured>> {
    if entrant.only_appends() {
        return Ok(None);
    }
    let peer = (entrant.open)(task.dir)?;
    let bytes = task.input.metadata()?.len();
    let mut measured = Measured::default();
    let mut events = 0;
    watched(&task, &mut measured, || {
        events = peer.import(task.input, 1, task.batch)?;
        Ok(())
    })?;
    measured.events = events;
    measured.payload_bytes = bytes;
    measured.value = Some(bytes as f64 / 1e6 / measured.seconds);
    measured.batch = task.batch;
    measured.peak_bytes = resident().1;
    Ok(Some(measured))
}

/// Fills the directory and goes on until it is killed.
pub fn fill_until_killed(entrant: &Entrant, dir: &Path) -> Result<()> {
    let peer = (entrant.open)(dir)?;
    let payloads: Vec<Vec<u8>> = (0..64).map(|seed| noise(1024, seed)).collect();
    for group in 0.. {
        let events: Vec<Event<'_>> = (group * 64..)
            .zip(&payloads)
            .map(|(seq, bytes)| Event { session: (group % 64) as u32, seq, bytes })
            .collect();
        peer.append(&events)?;
        if group == 960 {
            println!("ready");
            std::io::stdout().flush()?;
        }
    }
    Ok(())
}

fn reopen(entrant: &Entrant, task: Task<'_>) -> Result<Option<Measured>> {
    let start = Instant::now();
    let peer = (entrant.open)(task.dir)?;
    let elapsed = start.elapsed();
    let mut last = 0;
    if peer.scan(0, 0, &mut |_| last += 1)? && last < 64 * 15 {
        return Err(format!("of session 0 only {last} events are there").into());
    }
    let mut measured = Measured::default();
    measured.events = last;
    measured.value = Some(elapsed.as_secs_f64() * 1e3);
    measured.peak_bytes = resident().1;
    Ok(Some(measured))
}

fn large(entrant: &Entrant, task: Task<'_>) -> Result<Option<Measured>> {
    if entrant.name == "floor" {
        return Ok(None);
    }
    let peer = (entrant.open)(task.dir)?;
    let bytes = &noise(100, 5)[..];
    let (small, many) = (10_000, task.amount(10_000_000));
    let mut ignored = Samples::default();
    let patient = Task { limit: Duration::from_secs(120), batch: task.batch.max(4096), ..task };
    let until = Instant::now() + patient.limit;
    let mut heads = [0, 0];
    for (session, count) in [(1, small), (2, many)] {
        let events = (0..count).map(|seq| Event { session, seq, bytes });
        let mut timely = events
            .take_while(|_| Instant::now() < until)
            .inspect(|event| heads[session as usize - 1] = event.seq + 1);
        peer.append_all(&mut timely, patient.batch, &mut ignored)?;
    }
    if heads[1] < many {
        // It cannot even be filled in that time.
        return Ok(None);
    }
    peer.settle()?;
    let mut samples = [Samples::default(), Samples::default()];
    let until = Instant::now() + task.limit;
    for n in 0..4_000 {
        // In turns of fifty, so that both see the same disk.
        let which = n / 50 % 2;
        let event = Event { session: which as u32 + 1, seq: heads[which], bytes };
        heads[which] += 1;
        let start = Instant::now();
        peer.append(&[event])?;
        samples[which].push(start.elapsed());
        if Instant::now() > until && !samples[1].is_empty() {
            break;
        }
    }
    let [small, large] = &mut samples;
    let mut measured = Measured::default();
    measured.timed(large);
    measured.events = many;
    measured.value = Some(measured.p50_us / (small.percentile(0.5).as_secs_f64() * 1e6));
    measured.batch = patient.batch;
    measured.peak_bytes = resident().1;
    Ok(Some(measured))
}
