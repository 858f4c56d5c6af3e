//! eventlog beside the stores that people would use instead.
//!
//! `cargo run --release` runs every workload with every store, in turns, each in a process and a
//! directory of its own, with the floor measured before and after; prints a table for each, and
//! keeps the raw figures in `benches/runs/DATE-HOST/`. What is measured how, and why that is fair,
//! stands in COMPARE.md.

mod device;
mod peer;
mod peers;
mod report;
mod runner;
#[path = "../../support/mod.rs"]
mod support;
mod workload;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use peer::Result;
use workload::{Task, WORKLOADS};

/// Measure eventlog beside other stores
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    inner: Option<Inner>,
    #[command(flatten)]
    run: Run,
}

#[derive(Args)]
pub struct Run {
    /// Only these workloads
    #[arg(long, value_delimiter = ',', value_parser = WORKLOADS.iter().map(|w| w.name).collect::<Vec<_>>())]
    workloads: Vec<String>,
    /// Only these stores
    #[arg(long, value_delimiter = ',')]
    peers: Vec<String>,
    /// Thousandths of the amounts, to try it out
    #[arg(long, default_value_t = 1000)]
    permille: u64,
    /// No measured loop goes on longer than so many seconds
    #[arg(long, default_value_t = 20)]
    limit: u64,
    /// Where the stores lie; it has to be the disk that matters
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/target/scratch"), hide_default_value = true)]
    scratch: PathBuf,
    /// What the machine is called in the record; by default its processor and cores
    #[arg(long)]
    host: Option<String>,
    /// Print only, write no record
    #[arg(long)]
    no_record: bool,
}

/// What the processes are told that this one starts.
#[derive(Subcommand)]
enum Inner {
    #[command(hide = true)]
    Measure(Measure),
    #[command(hide = true)]
    Fill { peer: String, dir: PathBuf },
}

#[derive(Args)]
struct Measure {
    workload: String,
    peer: String,
    dir: PathBuf,
    input: PathBuf,
    batch: usize,
    permille: u64,
    limit: u64,
}

impl Measure {
    fn run(&self) -> Result<()> {
        let task = Task {
            dir: &self.dir,
            input: &self.input,
            batch: self.batch,
            permille: self.permille,
            limit: Duration::from_secs(self.limit),
        };
        let workload = WORKLOADS.iter().find(|workload| workload.name == self.workload);
        let workload = workload.ok_or("no such workload")?;
        let measured = (workload.run)(peer::entrant(&self.peer)?, task)?;
        println!("{}", serde_json::to_string(&measured)?);
        Ok(())
    }
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    match &cli.inner {
        None => runner::run(&cli.run),
        Some(Inner::Measure(measure)) => measure.run(),
        Some(Inner::Fill { peer, dir }) => workload::fill_until_killed(peer::entrant(peer)?, dir),
    }
}
