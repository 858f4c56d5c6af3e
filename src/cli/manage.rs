//! `eventlog rewind`, `fork` and `delete`: what is done to a session as a whole.

use std::io::IsTerminal;

use clap::Args;
use eventlog::{EventLog, sessions};
use serde::Serialize;

use super::output::{Output, plural};
use super::{Exit, Failure, Global, place};

/// Take the last turns of a session back; it can be undone
///
/// The events stay in the log and in its exports; resuming, the memory and what is recorded next go
/// on as if they were not there. `--undo` takes the rewind back, as long as nothing has been
/// recorded since.
#[derive(Debug, Args)]
pub(crate) struct Rewind {
    /// A session id, a unique prefix of one, @last or @N
    session: String,
    /// Keep the user turns before this one, counted from 0
    #[arg(long, value_name = "N", required_unless_present = "undo")]
    to_turn: Option<u64>,
    /// Undo the last rewind
    #[arg(long, conflicts_with = "to_turn")]
    undo: bool,
}

#[derive(Serialize)]
struct Rewound<'a> {
    session: &'a str,
    /// The first event and the one behind the last that are taken back, or were.
    from_seq: u64,
    to_seq: u64,
    undone: bool,
}

impl Rewind {
    pub(crate) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let (log, id) = open(global, &self.session, output)?;
        let rewind = match self.to_turn {
            Some(turn) => sessions::rewind(&log, &id, turn)?,
            None => sessions::undo_rewind(&log, &id)?,
        };
        log.close()?;
        let (from_seq, to_seq, undone) = (rewind.from, rewind.to, self.undo);
        if output.json {
            output.json(&Rewound { session: &id, from_seq, to_seq, undone })?;
            return Ok(Exit::Fine);
        }
        let events = plural(to_seq - from_seq, "event");
        let what = if undone { "count again" } else { "taken back" };
        output.row(&[&id, &format!("{events} {what}"), &format!("from event {from_seq} on")])?;
        Ok(Exit::Fine)
    }
}

/// Begin a session with the events of another up to a point
///
/// Both then go on by themselves.
#[derive(Debug, Args)]
pub(crate) struct Fork {
    /// A session id, a unique prefix of one, @last or @N
    session: String,
    /// The last event that the new session has
    #[arg(long, value_name = "SEQ")]
    at: u64,
    /// The new session's id
    #[arg(long, value_name = "ID")]
    r#as: String,
}

#[derive(Serialize)]
struct Forked<'a> {
    session: &'a str,
    fork_of: &'a str,
    events: u64,
}

impl Fork {
    pub(crate) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let new = place::new_id(&self.r#as)?;
        let (log, id) = open(global, &self.session, output)?;
        let events = sessions::fork(&log, &id, self.at, new)?;
        log.close()?;
        if output.json {
            output.json(&Forked { session: new, fork_of: &id, events })?;
        } else {
            output.row(&[new, &format!("{} of {id}", plural(events, "event"))])?;
        }
        Ok(Exit::Fine)
    }
}

/// Delete a session; a second step removes it for good
///
/// A deleted session is not listed, searched, exported or resumed any more. It stays in the log, and
/// `--undo` brings it back, until `--purge` removes it.
#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// The session's full id, or for one that is not deleted a unique prefix, @last or @N
    session: String,
    /// Bring a deleted session back
    #[arg(long)]
    undo: bool,
    /// Remove a deleted session for good
    #[arg(long, conflicts_with = "undo")]
    purge: bool,
    /// Do not ask before removing for good
    #[arg(long, requires = "purge")]
    yes: bool,
}

#[derive(Serialize)]
struct Deleted<'a> {
    session: &'a str,
    outcome: &'static str,
}

impl Delete {
    pub(crate) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let log = place::open_to_write(global, false, output)?;
        let (id, outcome) = if self.undo || self.purge {
            let id = place::literal(&self.session).unwrap_or(&self.session).to_owned();
            if self.undo {
                sessions::restore(&log, &id)?;
                (id, "restored")
            } else {
                self.ask(&log, &id, output)?;
                sessions::purge(&log, &id)?;
                (id, "purged")
            }
        } else {
            let id = place::session_id(&log.snapshot()?, &self.session)?;
            sessions::delete(&log, &id)?;
            (id, "deleted")
        };
        log.close()?;
        if output.json {
            output.json(&Deleted { session: &id, outcome })?;
            return Ok(Exit::Fine);
        }
        output.row(&[outcome, &id])?;
        if outcome == "deleted" {
            output.note("`eventlog delete --undo` brings it back, `--purge` removes it for good");
        }
        Ok(Exit::Fine)
    }

    /// Nothing is removed for good without somebody's word.
    fn ask(&self, log: &EventLog, id: &str, output: &mut Output) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        let refused =
            |message: &str| Failure::usage(message, "give --yes to remove it without being asked");
        if !std::io::stdin().is_terminal() || output.json {
            return Err(refused("there is nobody to ask whether it is to be removed for good"));
        }
        let events = log.snapshot()?.session(id)?.map_or(0, |session| session.events);
        output.ask(&format!(
            "remove {:?} with its {} for good? [y/N] ",
            id,
            plural(events, "event")
        ));
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer);
        match read.is_ok() && matches!(answer.trim(), "y" | "yes") {
            true => Ok(()),
            false => Err(refused("it was not removed")),
        }
    }
}

fn open(
    global: &Global,
    session: &str,
    output: &mut Output,
) -> Result<(EventLog, String), Failure> {
    let log = place::open_to_write(global, false, output)?;
    let id = place::session_id(&log.snapshot()?, session)?;
    Ok((log, id))
}
