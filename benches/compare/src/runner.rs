//! Which process runs when: rounds of all stores, the floor before and after each, a directory of
//! its own for each.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Run;
use crate::device::Device;
use crate::peer::{ENTRANTS, Entrant, Result};
use crate::report::{Report, Row};
use crate::support::{Floor, Samples, corpus::Corpus, noise};
use crate::workload::{Measured, WORKLOADS, Wants, Workload};

/// A row counts when the floor before and after it is at most so many times the best one seen.
const SLOW_FLOOR: f64 = 2.0;
/// So often a row is measured again that did not count.
const TRIES: u32 = 4;

pub fn run(run: &Run) -> Result<()> {
    std::fs::create_dir_all(&run.scratch)?;
    let scratch = tempfile::tempdir_in(&run.scratch)?;
    if Device::of(scratch.path()).is_none() {
        eprintln!("this system counts no flushes: durability is not checked");
    }
    let mut runner = Runner {
        run,
        floor: FloorWatch::new(scratch.path()),
        dir: scratch.path().to_owned(),
        batches: HashMap::new(),
        inputs: HashMap::new(),
        report: Report::default(),
    };
    let wanted = |name: &str, list: &[String]| list.is_empty() || list.iter().any(|n| n == name);
    for workload in WORKLOADS.iter().filter(|workload| wanted(workload.name, &run.workloads)) {
        for round in 0..workload.rounds {
            for entrant in ENTRANTS
                .iter()
                .filter(|entrant| wanted(entrant.name, &run.peers) || entrant.name == "floor")
            {
                runner.row(workload, entrant, round)?;
            }
        }
        runner.report.print(workload);
    }
    runner.report.print_targets();
    if !run.no_record {
        let dir = runner.report.write(run.host.as_deref())?;
        eprintln!("the record is in {}", dir.display());
    }
    Ok(())
}

struct Runner<'a> {
    run: &'a Run,
    floor: FloorWatch,
    dir: PathBuf,
    /// The best batch size of a store.
    batches: HashMap<&'static str, usize>,
    inputs: HashMap<u64, PathBuf>,
    report: Report,
}

impl Runner<'_> {
    fn row(&mut self, workload: &Workload, entrant: &'static Entrant, round: u32) -> Result<()> {
        let batch = match workload.wants {
            Wants::Nothing | Wants::Killed => 1,
            Wants::BestBatch | Wants::Large | Wants::Session => self.best_batch(entrant)?,
        };
        for attempt in 1..=TRIES {
            let before = self.floor.measure();
            progress(&format!("{} {round} {}", workload.name, entrant.name));
            let measured = self.measure(workload, entrant, batch, self.run.permille)?;
            let after = self.floor.measure();
            let Some(measured) = measured else {
                break;
            };
            let steady = self.floor.is_fast(before) && self.floor.is_fast(after);
            if steady || attempt == TRIES {
                self.report.rows.push(Row {
                    workload: workload.name,
                    peer: entrant.name,
                    round,
                    steady,
                    floor_us: [before, after].map(|floor| floor.as_secs_f64() * 1e6),
                    measured,
                });
                break;
            }
            // The disk has slow minutes.
            std::thread::sleep(Duration::from_secs(5));
        }
        progress("");
        Ok(())
    }

    fn best_batch(&mut self, entrant: &'static Entrant) -> Result<usize> {
        if entrant.name == "eventlog" {
            // It takes events one by one; the flush is shared without a batch.
            return Ok(1);
        }
        if let Some(batch) = self.batches.get(entrant.name) {
            return Ok(*batch);
        }
        let pipelined = WORKLOADS.iter().find(|workload| workload.name == "pipelined");
        let pipelined = pipelined.ok_or("the workload is missing")?;
        let mut best = (64, 0.0);
        for batch in [64, 512, 4096] {
            let permille = (self.run.permille / 12).max(1);
            let measured = self.measure(pipelined, entrant, batch, permille)?;
            let rate = measured.map_or(0.0, |measured| measured.rate());
            if rate > best.1 {
                best = (batch, rate);
            }
        }
        self.batches.insert(entrant.name, best.0);
        Ok(best.0)
    }

    /// Runs it in a process of its own; `None` if the store has no way to do it.
    fn measure(
        &mut self,
        workload: &Workload,
        entrant: &Entrant,
        batch: usize,
        permille: u64,
    ) -> Result<Option<Measured>> {
        let input = match workload.wants {
            Wants::Large => self.input((1 << 30) * permille / 1000, u64::MAX)?,
            Wants::Session => self.input(u64::MAX, 50 * permille)?,
            _ => PathBuf::from("-"),
        };
        let dir = tempfile::tempdir_in(&self.dir)?;
        if workload.wants == Wants::Killed {
            if !entrant.recovers() {
                return Ok(None);
            }
            kill(entrant, dir.path())?;
        }
        let output = Command::new(std::env::current_exe()?)
            .args(["measure", workload.name, entrant.name])
            .args([dir.path(), &input])
            .args([batch.to_string(), permille.to_string(), self.run.limit.to_string()])
            .stderr(Stdio::inherit())
            .output()?;
        if !output.status.success() {
            let status = output.status;
            return Err(format!("{} of {} ended with {status}", workload.name, entrant.name).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// A JSONL file of at most so many bytes or lines, made once.
    fn input(&mut self, bytes: u64, lines: u64) -> Result<PathBuf> {
        let name = bytes.min(lines);
        if let Some(path) = self.inputs.get(&name) {
            return Ok(path.clone());
        }
        let path = self.dir.join(format!("session-{name}.jsonl"));
        let mut file = std::io::BufWriter::with_capacity(1 << 20, std::fs::File::create(&path)?);
        let mut corpus = Corpus::new("bench", 1);
        let (mut written, mut count) = (0, 0);
        while written < bytes && count < lines {
            let mut line = corpus.line();
            line.push(b'\n');
            file.write_all(&line)?;
            written += line.len() as u64;
            count += 1;
        }
        file.into_inner()?.sync_all()?;
        self.inputs.insert(name, path.clone());
        Ok(path)
    }
}

/// What is going on, where somebody sees it.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{text}");
    }
}

/// Has a process fill the directory, and kills it.
fn kill(entrant: &Entrant, dir: &Path) -> Result<()> {
    let mut filler = Command::new(std::env::current_exe()?)
        .args(["fill", entrant.name])
        .arg(dir)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = String::new();
    let stdout = filler.stdout.take().ok_or("there is no pipe")?;
    BufReader::new(stdout).read_line(&mut said)?;
    // In the middle of a commit, wherever that is.
    std::thread::sleep(Duration::from_millis(7));
    filler.kill()?;
    filler.wait()?;
    match said.trim() {
        "ready" => Ok(()),
        _ => Err(format!("{} could not be filled", entrant.name).into()),
    }
}

/// The floor all along: single flushes of 1 KiB.
struct FloorWatch {
    floor: Floor,
    bytes: Vec<u8>,
    best: Duration,
}

impl FloorWatch {
    fn new(dir: &Path) -> FloorWatch {
        let floor = Floor::new(dir, 16 << 20);
        let mut watch = FloorWatch { floor, bytes: noise(1024, 1), best: Duration::MAX };
        (0..3).for_each(|_| _ = watch.measure());
        watch
    }

    fn measure(&mut self) -> Duration {
        let mut samples = Samples::default();
        (0..200).for_each(|_| samples.push(self.floor.append(&self.bytes)));
        let median = samples.percentile(0.5);
        self.best = self.best.min(median);
        median
    }

    fn is_fast(&self, floor: Duration) -> bool {
        floor.as_secs_f64() <= self.best.as_secs_f64() * SLOW_FLOOR
    }
}
