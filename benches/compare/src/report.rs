//! Tables, targets, and the record of a run.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::peer::{ENTRANTS, Entrant, Result};
use crate::support::Host;
use crate::workload::{Measured, WORKLOADS, Workload};

/// One process of one store.
pub struct Row {
    pub workload: &'static str,
    pub peer: &'static str,
    pub round: u32,
    /// The floor was fast before and after.
    pub steady: bool,
    pub floor_us: [f64; 2],
    pub measured: Measured,
}

#[derive(Default)]
pub struct Report {
    pub rows: Vec<Row>,
}

/// Fewer flushes for each commit, and the commits cannot have been durable.
const FLUSHES_PER_COMMIT: f64 = 0.99;

impl Report {
    /// The median over the rounds that count; of the worst, the worst.
    fn of(&self, workload: &str, peer: &str) -> Option<Measured> {
        let rows = || self.rows.iter().filter(|row| row.workload == workload && row.peer == peer);
        let steady = rows().any(|row| row.steady);
        let rows: Vec<&Measured> =
            rows().filter(|row| row.steady || !steady).map(|row| &row.measured).collect();
        let median = |field: fn(&Measured) -> f64| {
            let mut values: Vec<f64> = rows.iter().map(|row| field(row)).collect();
            values.sort_by(f64::total_cmp);
            let middle = values.len() / 2;
            match values.len() % 2 {
                0 => (values[middle - 1] + values[middle]) / 2.0,
                _ => values[middle],
            }
        };
        let mut all = (*rows.first()?).clone();
        all.p50_us = median(|row| row.p50_us);
        all.p99_us = median(|row| row.p99_us);
        all.p999_us = median(|row| row.p999_us);
        all.max_us = rows.iter().map(|row| row.max_us).fold(0.0, f64::max);
        all.seconds = median(|row| row.seconds / row.events.max(1) as f64) * all.events as f64;
        all.value = all.value.map(|_| median(|row| row.value.unwrap_or(f64::NAN)));
        all.flushes = all.flushes.map(|_| median(|row| row.flushes.unwrap_or(0) as f64) as u64);
        all.device_bytes =
            all.device_bytes.map(|_| median(|row| row.device_bytes.unwrap_or(0) as f64) as u64);
        all.peak_bytes = rows.iter().map(|row| row.peak_bytes).max().unwrap_or(0);
        Some(all)
    }

    pub fn figure(&self, workload: &Workload, peer: &str) -> Option<f64> {
        let measured = self.of(workload.name, peer)?;
        let figure = match workload.figure.0 {
            "p50" => measured.p50_us,
            "rate" => measured.rate(),
            _ => measured.value?,
        };
        (figure > 0.0 && figure.is_finite()).then_some(figure)
    }

    fn table(&self, workload: &Workload) -> String {
        let (name, unit, more) = workload.figure;
        let mut text = format!("\n{}: {}\n\n", workload.name, workload.about);
        let better = if more { "more" } else { "less" };
        let figure = match name {
            "value" => unit.to_owned(),
            name => format!("{name}, {unit}"),
        };
        let head = [
            "",
            &format!("{figure} ({better} is better)"),
            "/ floor",
            "/ eventlog",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "max us",
            "batch",
            "flushes / commit",
            "written / payload",
            "disk / payload",
            "peak MiB",
            "rounds",
        ];
        let mut rows = vec![head.map(str::to_owned)];
        let [floor, ours] = ["floor", "eventlog"].map(|peer| self.figure(workload, peer));
        for entrant in ENTRANTS {
            let Some(all) = self.of(workload.name, entrant.name) else { continue };
            let figure = self.figure(workload, entrant.name);
            let ratio = |to: Option<f64>| number(figure.zip(to).map(|(a, b)| a / b), 2);
            let counted = |row: &&Row| row.workload == workload.name && row.peer == entrant.name;
            let rounds = self.rows.iter().filter(counted).count();
            let steady = self.rows.iter().filter(counted).filter(|row| row.steady).count();
            let per_commit = all.flushes.filter(|_| all.commits > 0);
            let per_commit = per_commit.map(|flushes| flushes as f64 / all.commits as f64);
            let durable = per_commit.is_none_or(|flushes| flushes >= FLUSHES_PER_COMMIT);
            let payload = |bytes: u64| (bytes > 0).then(|| bytes as f64 / all.payload_bytes as f64);
            let micros = |value: f64| number((value > 0.0).then_some(value), 0);
            rows.push([
                entrant.name.to_owned(),
                if durable { number(figure, 1) } else { "NOT DURABLE".to_owned() },
                ratio(floor),
                ratio(ours),
                micros(all.p50_us),
                micros(all.p99_us),
                micros(all.p999_us),
                micros(all.max_us),
                if all.batch > 0 { all.batch.to_string() } else { "-".to_owned() },
                number(per_commit, 2),
                number(all.device_bytes.and_then(payload), 2),
                number(payload(all.disk_bytes), 2),
                (all.peak_bytes >> 20).to_string(),
                format!("{steady}/{rounds}"),
            ]);
        }
        // Columns that nobody fills are left out.
        let used: Vec<usize> = (0..head.len())
            .filter(|column| *column == 0 || rows[1..].iter().any(|row| row[*column] != "-"))
            .collect();
        for (index, row) in rows.iter().enumerate() {
            let cells: Vec<&str> = used.iter().map(|column| row[*column].as_str()).collect();
            _ = writeln!(text, "| {} |", cells.join(" | "));
            if index == 0 {
                _ = writeln!(text, "| --- |{}", " ---: |".repeat(used.len() - 1));
            }
        }
        text
    }

    pub fn print(&self, workload: &Workload) {
        print!("{}", self.table(workload));
    }

    pub fn print_targets(&self) {
        print!("{}", self.targets());
    }

    /// The targets that can be told from this run.
    fn targets(&self) -> String {
        let workload = |name: &str| WORKLOADS.iter().find(|workload| workload.name == name);
        let figure = |name: &str, peer: &str| self.figure(workload(name)?, peer);
        let ratio = |name: &str, over: &str| Some(figure(name, "eventlog")? / figure(name, over)?);
        let best_indexed = |name: &str| {
            let rivals = ENTRANTS.iter().filter(|e: &&Entrant| e.indexed && e.name != "eventlog");
            rivals.filter_map(|e| figure(name, e.name)).max_by(f64::total_cmp)
        };
        let ours = |name: &str| self.of(name, "eventlog");
        let of_payload = |name: &str, bytes: fn(&Measured) -> u64| {
            ours(name).map(|all| bytes(&all) as f64 / all.payload_bytes as f64)
        };
        let most = |limit: f64, figure: Option<f64>| (limit, false, figure);
        let least = |limit: f64, figure: Option<f64>| (limit, true, figure);
        let rows = [
            ("append of 1 KiB, p50, of the floor", most(1.15, ratio("single", "floor"))),
            ("batch of 64 x 1 KiB, p50, of the floor", most(1.25, ratio("batch", "floor"))),
            ("64 threads, of redb with a commit an event", least(10.0, ratio("threads", "redb"))),
            ("64 threads, of SQLite", least(5.0, ratio("threads", "sqlite"))),
            ("64 threads, of fjall", least(5.0, ratio("threads", "fjall"))),
            ("64 threads, of rocksdb", least(5.0, ratio("threads", "rocksdb"))),
            ("pipelined, events/s", least(200_000.0, figure("pipelined", "eventlog"))),
            (
                "pipelined, of the best rival with an index",
                least(
                    1.5,
                    figure("pipelined", "eventlog")
                        .zip(best_indexed("pipelined"))
                        .map(|(ours, best)| ours / best),
                ),
            ),
            (
                "memory while pipelining, MiB",
                most(150.0, ours("pipelined").map(|all| (all.peak_bytes >> 20) as f64)),
            ),
            ("20,000 live sessions, events/s", least(60_000.0, figure("live", "eventlog"))),
            (
                "20,000 live sessions, written of payload",
                most(6.0, of_payload("live", |all| all.device_bytes.unwrap_or(0))),
            ),
            ("disk of random bytes", most(1.1, of_payload("scan-random", |all| all.disk_bytes))),
            ("disk of realistic lines", most(0.3, of_payload("scan-lines", |all| all.disk_bytes))),
            ("resume of 50,000 events, ms", most(60.0, ours("resume").map(|all| all.p50_us / 1e3))),
            ("import, MB/s", least(150.0, figure("import", "eventlog"))),
            ("reopen after SIGKILL, ms", most(300.0, figure("reopen", "eventlog"))),
            ("append at 10 M events against 10 k", most(1.2, figure("large", "eventlog"))),
        ];
        let mut text =
            "\ntargets\n\n| what | target | measured | |\n| --- | ---: | ---: | --- |\n".to_owned();
        for (what, (limit, more, figure)) in rows {
            let Some(figure) = figure else { continue };
            let holds = if more { figure >= limit } else { figure <= limit };
            let sign = if more { ">=" } else { "<=" };
            let verdict = if holds { "holds" } else { "does not hold" };
            _ = writeln!(
                text,
                "| {what} | {sign} {limit} | {} | {verdict} |",
                number(Some(figure), 2)
            );
        }
        text
    }

    /// Keeps the raw figures and the tables in `benches/runs`.
    pub fn write(&self, host: Option<&str>) -> Result<PathBuf> {
        let machine = Host::read();
        let host = host.map_or_else(|| label(&machine), str::to_owned);
        let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runs");
        let dir = runs.join(format!("{}-{host}", today()));
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join("raw.csv"), self.csv())?;
        let mut summary = format!("# {}\n\n{machine}, {}\n\n", today(), compiler());
        for entrant in ENTRANTS {
            _ = writeln!(summary, "* {}: {}", entrant.name, entrant.setting);
        }
        for workload in WORKLOADS.iter().filter(|w| self.rows.iter().any(|r| r.workload == w.name))
        {
            summary += &self.table(workload);
        }
        summary += &self.targets();
        std::fs::write(dir.join("summary.md"), summary)?;
        Ok(dir.canonicalize()?)
    }

    fn csv(&self) -> String {
        let mut text = "workload,peer,round,steady,floor_before_us,floor_after_us,events,seconds,\
            p50_us,p99_us,p999_us,max_us,commits,flushes,device_bytes,payload_bytes,disk_bytes,\
            peak_bytes,batch,value\n"
            .to_owned();
        let option = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
        for Row { workload, peer, round, steady, floor_us: [before, after], measured: m } in
            &self.rows
        {
            _ = writeln!(
                text,
                "{workload},{peer},{round},{steady},{before:.1},{after:.1},{},{:.6},{:.1},{:.1},\
                {:.1},{:.1},{},{},{},{},{},{},{},{}",
                m.events,
                m.seconds,
                m.p50_us,
                m.p99_us,
                m.p999_us,
                m.max_us,
                m.commits,
                option(m.flushes),
                option(m.device_bytes),
                m.payload_bytes,
                m.disk_bytes,
                m.peak_bytes,
                m.batch,
                m.value.map_or(String::new(), |value| format!("{value:.4}")),
            );
        }
        text
    }
}

fn number(value: Option<f64>, digits: usize) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value >= 10_000.0 => {
            // Thousands are easier to read apart.
            let whole = (value.round() as u64).to_string();
            let head = whole.len() % 3;
            let mut text = whole[..head].to_owned();
            for at in (head..whole.len()).step_by(3) {
                if !text.is_empty() {
                    text.push(',');
                }
                text += &whole[at..at + 3];
            }
            text
        }
        Some(value) => format!("{value:.digits$}"),
    }
}

fn today() -> String {
    jiff::Timestamp::now().strftime("%F").to_string()
}

/// What a record is called after: the processor and its cores.
fn label(host: &Host) -> String {
    let words: Vec<String> = host
        .processor
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty() && !matches!(*word, "R" | "TM" | "CPU"))
        .take(3)
        .map(str::to_ascii_lowercase)
        .collect();
    format!("{}-{}-core", words.join("-"), host.cores)
}

fn compiler() -> String {
    let output = std::process::Command::new("rustc").arg("--version").output();
    output.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
