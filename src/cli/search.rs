//! `eventlog search`: what was said in any session.

use clap::Args;
use eventlog::search::{self, Match, Query};
use eventlog::{Snapshot, format, sessions};
use serde::Serialize;

use super::output::{Output, plural};
use super::{Exit, Failure, Global, place, time};

/// Look for text in the messages, tool names and arguments of all sessions, newest first
///
/// Upper and lower case are alike. What stands before a compaction is found too.
#[derive(Debug, Args)]
pub(crate) struct Search {
    /// The text
    query: String,
    /// The text is a regular expression
    #[arg(long)]
    regex: bool,
    /// Only in this session: an id, a unique prefix of one, @last or @N
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Only what was written since: RFC 3339, or 2h, 3d, yesterday
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only what this role says
    #[arg(long, value_name = "ROLE")]
    role: Option<String>,
    /// Only calls and answers of this tool
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// How many messages around each match to print
    #[arg(long, value_name = "N", default_value_t = 0)]
    context: u64,
    /// Print at most so many matches; all are counted
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

#[derive(Serialize)]
struct Line<'a> {
    session: &'a str,
    seq: u64,
    role: &'a str,
    kind: &'static str,
    time: &'a str,
    text: &'a str,
    context: Vec<Near>,
}

#[derive(Serialize)]
struct Near {
    seq: u64,
    text: String,
}

#[derive(Serialize)]
struct Summary {
    r#type: &'static str,
    matches: u64,
    sessions: u64,
}

impl Search {
    pub(crate) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        if self.query.is_empty() {
            return Err(Failure::usage("there is nothing to look for", "give a text"));
        }
        let query = match self.regex {
            true => Query::regex(&self.query)?,
            false => Query::literal(&self.query)?,
        };
        let since = self.since.as_deref().map(time::parse_since).transpose()?;
        let query = query.role(self.role.clone()).tool(self.tool.clone()).since(since);
        let query = query.limit(self.limit.unwrap_or(usize::MAX));
        let log = place::open_to_read(global, output)?;
        let snapshot = log.snapshot()?;
        let mut sessions = sessions::newest_first(&snapshot)?;
        if let Some(session) = &self.session {
            let id = place::session_id(&snapshot, session)?;
            sessions.retain(|session| session.id == id);
        }
        let found = search::search(&snapshot, &sessions, &query)?;
        for found in &found.matches {
            self.print(&snapshot, found, output)?;
        }
        for (session, error) in &found.damaged {
            let message = format!("session {session:?}: {error}");
            output.report(error.kind().name(), &message, error.hint());
        }
        let summary = Summary { r#type: "summary", matches: found.total, sessions: found.sessions };
        if output.json {
            output.json(&summary)?;
        } else {
            let matches = plural(found.total, "match");
            output.note(&format!("{matches} in {}", plural(found.sessions, "session")));
        }
        Ok(match found.total {
            _ if !found.damaged.is_empty() => Exit::Damage,
            0 => Exit::Nothing,
            _ => Exit::Fine,
        })
    }

    fn print(
        &self,
        snapshot: &Snapshot,
        found: &Match,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let context = self.context(snapshot, found)?;
        if output.json {
            return output.json(&Line {
                session: &found.session,
                seq: found.seq,
                role: &found.role,
                kind: found.kind.name(),
                time: &found.time,
                text: &found.text,
                context,
            });
        }
        let (seq, role) = (found.seq.to_string(), &*found.role);
        let (before, after): (Vec<_>, Vec<_>) =
            context.into_iter().partition(|near| near.seq < found.seq);
        for near in before {
            output.row(&[&found.session, &near.seq.to_string(), "", "", &near.text])?;
        }
        output.row(&[&found.session, &seq, role, &found.time, &found.text])?;
        for near in after {
            output.row(&[&found.session, &near.seq.to_string(), "", "", &near.text])?;
        }
        Ok(())
    }

    /// The texts around a match.
    fn context(&self, snapshot: &Snapshot, found: &Match) -> Result<Vec<Near>, Failure> {
        if self.context == 0 {
            return Ok(Vec::new());
        }
        let session = snapshot.session(&found.session)?;
        let format = session.and_then(|session| session.attributes.format);
        let Some(format) = format.as_deref().and_then(format::by_name) else {
            return Ok(Vec::new());
        };
        let from = found.seq.saturating_sub(self.context);
        let to = found.seq.saturating_add(self.context);
        let mut near = Vec::new();
        for event in snapshot.read(&found.session, from..=to)? {
            let event = event?;
            let text = format::text(format, event.bytes()).map(|text| text.into_owned());
            if let Some(text) = text.filter(|_| event.seq() != found.seq) {
                near.push(Near { seq: event.seq(), text });
            }
        }
        Ok(near)
    }
}
