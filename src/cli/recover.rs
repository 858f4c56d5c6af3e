//! `eventlog recover`: open a log that a crash left.

use clap::Args;
use eventlog::EventLog;
use serde::Serialize;

use super::output::{Output, plural};
use super::{Exit, Failure, Global, place};

/// Open a log that a crash left, and say what was found
///
/// Every command recovers a log when it has to; this one does nothing else. Only where the last
/// batch of the journal is damaged in such a way that nobody can tell whether it had been
/// acknowledged, the log refuses to open, and --drop-last-batch opens it without that batch. The
/// segment with the damage is kept.
#[derive(Debug, Args)]
pub(crate) struct Recover {
    /// Leave out the last batch if its damage is ambiguous
    #[arg(long)]
    drop_last_batch: bool,
}

#[derive(Serialize)]
struct Dropped {
    batch: u64,
    segment: String,
    offset: u64,
    kept_as: String,
}

#[derive(Serialize)]
struct Report {
    clean: bool,
    replayed_batches: u64,
    replayed_events: u64,
    dropped: Option<Dropped>,
}

impl Recover {
    pub(crate) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let dir = place::log_dir(global)?;
        let builder = EventLog::builder().create(false);
        if !EventLog::exists(&dir) && !dir.is_dir() {
            let message = format!("there is no event log in {}", dir.display());
            let hint = "say where it is with --log DIR".to_owned();
            return Err(Failure::Own(Exit::NotFound, "not_found", message, Some(hint)));
        }
        let log = builder.drop_last_batch(self.drop_last_batch).open(&dir)?;
        let recovery = log.recovery();
        log.close()?;
        let dropped = recovery.dropped.map(|dropped| Dropped {
            batch: dropped.batch,
            segment: dropped.segment,
            offset: dropped.offset,
            kept_as: dropped.kept_as,
        });
        let exit = if dropped.is_some() { Exit::Partial } else { Exit::Fine };
        let report = Report {
            clean: recovery.clean,
            replayed_batches: recovery.replayed_batches,
            replayed_events: recovery.replayed_events,
            dropped,
        };
        if output.json {
            output.json(&report)?;
            return Ok(exit);
        }
        output.line(&if report.clean {
            "the log was closed cleanly; there was nothing to do".to_owned()
        } else {
            format!("recovered {} from the journal", plural(report.replayed_events, "event"))
        })?;
        if let Some(dropped) = &report.dropped {
            output.line(&format!(
                "left out batch {} ({} at byte {}); the segment is kept as {}",
                dropped.batch, dropped.segment, dropped.offset, dropped.kept_as
            ))?;
        }
        Ok(exit)
    }
}
