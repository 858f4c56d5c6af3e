//! `eventlog recent`: the last sessions in a few lines, for a system prompt.

use clap::Args;
use eventlog::sessions;

use super::output::Output;
use super::{Exit, Failure, Global, place};

/// Print the last sessions in a few lines, for a system prompt
#[derive(Debug, Args)]
pub(crate) struct Recent {
    /// How many sessions
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5)]
    count: usize,
    /// Only those that worked in the current directory
    #[arg(long)]
    here: bool,
}

impl Recent {
    pub(crate) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let log = place::open_to_read(global, output)?;
        let here = std::env::current_dir().and_then(|dir| dir.canonicalize()).unwrap_or_default();
        let here = self.here.then(|| place::display(&here));
        let text = sessions::recent(&log.snapshot()?, self.count, here.as_deref())?;
        if text.is_empty() {
            output.note("there are no such sessions in this log");
            return Ok(Exit::Nothing);
        }
        match output.json {
            true => output.json(&serde_json::json!({ "text": text }))?,
            false => output.bytes("", text.trim_end().as_bytes())?,
        }
        Ok(Exit::Fine)
    }
}
