//! `eventlog show`: the events of a session.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use eventlog::{EventRange, Position};
use serde::Serialize;

use super::output::Output;
use super::{Exit, Failure, Global, place};

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

#[derive(Serialize)]
struct Line<'a> {
    seq: u64,
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line_base64: Option<String>,
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
            let event = event?;
            exit = Exit::Fine;
            let (seq, kind) = (event.seq(), event.kind().name());
            if output.json {
                let line = std::str::from_utf8(event.bytes()).ok();
                let line_base64 = line.is_none().then(|| STANDARD.encode(event.bytes()));
                output.json(&Line { seq, kind, line, line_base64 })?;
            } else if output.people {
                output.bytes(&format!("{seq:>6}  {kind:<16}  "), event.bytes())?;
            } else {
                output.bytes(&format!("{seq}\t{kind}\t"), event.bytes())?;
            }
        }
        Ok(exit)
    }
}
