//! `eventlog show`: the events of a session.

use clap::Args;
use eventlog::{EventRange, Position};

use super::output::Output;
use super::{Exit, Failure, Global, events, place};

/// Print the events of a session
///
/// One event per line: its seq, its kind, and the line as it was written.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// A session id, a unique prefix of one, @last or @N
    session: String,
    /// The first event
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,
    /// The last event
    #[arg(long, value_name = "N")]
    to: Option<u64>,
}

impl Show {
    pub(crate) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        if self.to.is_some_and(|to| to < self.from) {
            return Err(Failure::usage("--to is before --from", "give the smaller seq to --from"));
        }
        let log = place::open_to_read(global, output)?;
        let snapshot = log.snapshot()?;
        let id = place::session_id(&snapshot, &self.session)?;
        let to = self.to.map_or(Position::End, |to| Position::Seq(to.saturating_add(1)));
        let range = EventRange::between(Position::Seq(self.from), to);
        let mut exit = Exit::Nothing;
        for event in snapshot.read(&id, range)? {
            exit = Exit::Fine;
            events::print(None, &event?, output)?;
        }
        Ok(exit)
    }
}
