//! `eventlog stats`: the log in numbers.

use clap::Args;
use serde::Serialize;

use super::output::{Output, size};
use super::{Exit, Failure, Global, place};

/// Print the log in numbers
#[derive(Debug, Args)]
pub(crate) struct Stats {}

#[derive(Serialize)]
struct Report {
    sessions: u64,
    events: u64,
    bytes: u64,
    stored_bytes: u64,
    ratio: Option<f64>,
    journal_bytes: u64,
    applied_lsn: u64,
    durable_lsn: u64,
    format_version: u32,
    store_id: String,
}

impl Stats {
    pub(crate) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let log = place::open_to_read(global, output)?;
        let stats = log.stats()?;
        let ratio = (stats.bytes > 0)
            .then(|| (stats.stored_bytes as f64 / stats.bytes as f64 * 1000.0).round() / 1000.0);
        let report = Report {
            sessions: stats.sessions,
            events: stats.events,
            bytes: stats.bytes,
            stored_bytes: stats.stored_bytes,
            ratio,
            journal_bytes: stats.journal_bytes,
            applied_lsn: stats.applied_lsn,
            durable_lsn: stats.durable_lsn,
            format_version: stats.format_version,
            store_id: stats.store_id,
        };
        if output.json {
            output.json(&report)?;
            return Ok(Exit::Fine);
        }
        let people = output.people;
        let bytes = |n: u64| if people { size(n) } else { n.to_string() };
        let rows = [
            ("sessions", report.sessions.to_string()),
            ("events", report.events.to_string()),
            ("bytes", bytes(report.bytes)),
            ("stored bytes", bytes(report.stored_bytes)),
            ("ratio", report.ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}"))),
            ("journal bytes", bytes(report.journal_bytes)),
            ("applied lsn", report.applied_lsn.to_string()),
            ("durable lsn", report.durable_lsn.to_string()),
            ("format version", report.format_version.to_string()),
            ("store id", report.store_id),
        ];
        let rows: Vec<Vec<String>> =
            rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
        output.table(&["", ""], &[], &rows)?;
        Ok(Exit::Fine)
    }
}
