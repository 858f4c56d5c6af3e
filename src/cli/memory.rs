//! `eventlog memory`: what is fed forward to the model.

use clap::Args;
use eventlog::memory::{self, Dropped, Item, SessionMemory, Source};
use serde::Serialize;

use super::output::Output;
use super::{Exit, Failure, Global, place};

/// Print what is fed forward to the model: goal, open calls, decisions, failures, work done
///
/// Bounded: of each group the newest items, and how many were dropped.
#[derive(Debug, Args)]
pub(crate) struct Memory {
    /// A session id, a unique prefix of one, @last or @N
    session: String,
    /// At most this many characters
    #[arg(long, value_name = "N", default_value_t = 8000)]
    budget: usize,
}

#[derive(Serialize)]
pub(crate) struct Report<'a> {
    current_goal: Option<&'a Item>,
    completed_work: Vec<&'a Item>,
    key_decisions: Vec<&'a Item>,
    failed_attempts: Vec<&'a Item>,
    todo_items: Vec<Item>,
    verification_status: Vec<Item>,
    dropped: Dropped,
    event_count: u64,
    source: Option<&'a Source>,
    rendered: String,
}

/// The memory as it is reported.
pub(crate) fn report(memory: &SessionMemory, budget: usize) -> Report<'_> {
    Report {
        current_goal: memory.current_goal(),
        completed_work: memory.completed_work().collect(),
        key_decisions: memory.key_decisions().collect(),
        failed_attempts: memory.failed_attempts().collect(),
        todo_items: memory.todo_items(),
        verification_status: memory.verification_status(),
        dropped: memory.dropped(),
        event_count: memory.event_count(),
        source: memory.source(),
        rendered: memory.render(budget),
    }
}

impl Memory {
    pub(crate) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let log = place::open_to_read(global, output)?;
        let snapshot = log.snapshot()?;
        let id = place::session_id(&snapshot, &self.session)?;
        let memory = memory::of(&snapshot, &id)?;
        if output.json {
            output.json(&report(&memory, self.budget))?;
        } else {
            output.bytes("", memory.render(self.budget).as_bytes())?;
        }
        Ok(Exit::Fine)
    }
}
