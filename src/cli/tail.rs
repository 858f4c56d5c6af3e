//! `eventlog tail`: the last events, and those to come.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::Args;
use eventlog::io::Watch;
use eventlog::{ErrorKind, EventLog, SessionInfo, Snapshot};

use super::output::Output;
use super::{Exit, Failure, Global, events, interrupt, place};

/// Print the last events of a session, and follow it
///
/// Works on a log that another process writes; each event is shown once it is durable. New sessions
/// show up with --all.
#[derive(Debug, Args)]
pub(crate) struct Tail {
    /// A session id, a unique prefix of one, @last or @N
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    session: Option<String>,
    /// All sessions
    #[arg(long)]
    all: bool,
    /// Go on until interrupted: print events as they are appended
    #[arg(short, long)]
    follow: bool,
    /// How many of the events that are there to print [default: 10, with --all --follow none]
    #[arg(short = 'n', long, value_name = "N")]
    lines: Option<u64>,
    /// Begin with this event instead
    #[arg(long, value_name = "SEQ", conflicts_with = "lines")]
    from: Option<u64>,
}

/// How often to look without being told.
const LOOK: Duration = Duration::from_secs(2);
/// Events that come in quick succession are read together.
const PAUSE: Duration = Duration::from_millis(15);

/// By session when it was made, and how many of its events have been printed.
type Seen = BTreeMap<String, (u64, u64)>;

impl Tail {
    pub(crate) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let log = place::open_to_read(global, output)?;
        // Before the first look, so that nothing falls in between.
        let watch = self.follow.then(|| place::log_dir(global)).transpose()?;
        let watch = watch.map(|dir| Watch::new(&[&dir]));
        let snapshot = log.snapshot()?;
        let session = self.session.as_deref();
        let session = session.map(|name| place::session_id(&snapshot, name)).transpose()?;
        let mut next: Seen = Seen::new();
        let mut printed = false;
        for (id, made, events) in self.heads(&snapshot, session.as_deref())? {
            let lines = self.lines.unwrap_or(if self.all && self.follow { 0 } else { 10 });
            let from = self.from.unwrap_or(events.saturating_sub(lines)).min(events);
            printed |= from < events;
            self.print(&snapshot, &id, from, output)?;
            next.insert(id, (made, self.from.unwrap_or(0).max(events)));
        }
        drop(snapshot);
        let Some(watch) = watch else {
            return Ok(if printed { Exit::Fine } else { Exit::Nothing });
        };
        output.flush()?;
        interrupt::attend();
        loop {
            interrupt::wait(&watch, LOOK);
            if interrupt::interrupted() {
                return Err(Failure::Interrupted);
            }
            let began = Instant::now();
            self.look(&log, session.as_deref(), &mut next, output)?;
            std::thread::sleep(PAUSE.saturating_sub(began.elapsed()));
        }
    }

    /// The sessions that are meant, each with when it was made and the number of its events.
    fn heads(
        &self,
        snapshot: &Snapshot,
        session: Option<&str>,
    ) -> Result<Vec<(String, u64, u64)>, Failure> {
        let head = |session: SessionInfo| (session.id, session.created_unix_micros, session.events);
        Ok(match session {
            Some(id) => snapshot.session(id)?.map(head).into_iter().collect(),
            None => snapshot.sessions().flatten().map(head).collect(),
        })
    }

    /// Prints what has come.
    fn look(
        &self,
        log: &EventLog,
        session: Option<&str>,
        next: &mut Seen,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let snapshot = match log.snapshot() {
            // Its writer crashed; the next one recovers it.
            Err(error) if error.kind() == ErrorKind::NeedsRecovery => return Ok(()),
            other => other?,
        };
        for (id, made, events) in self.heads(&snapshot, session)? {
            // One that was removed for good and made again begins anew.
            let seen = next.get(&id).filter(|(before, _)| *before == made);
            let from = seen.map_or(self.from.unwrap_or(0), |(_, seen)| *seen);
            if from < events {
                self.print(&snapshot, &id, from, output)?;
                next.insert(id, (made, events));
            }
        }
        output.flush()
    }

    fn print(
        &self,
        snapshot: &Snapshot,
        id: &str,
        from: u64,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let who = (self.all || output.json).then_some(id);
        for event in snapshot.read(id, from..)? {
            events::print(who, &event?, output)?;
        }
        Ok(())
    }
}
