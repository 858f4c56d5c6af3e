//! `eventlog sessions`: the list of sessions.

use clap::Args;
use eventlog::sessions::{self, Listing, Summary};
use eventlog::{Fork, Kind, format};
use serde::Serialize;

use super::output::{Output, size};
use super::{Exit, Failure, Global, place, time};

/// List the sessions, newest first
///
/// Sessions that another one has started stand below it.
#[derive(Debug, Args)]
pub(crate) struct Sessions {
    /// List the deleted ones instead
    #[arg(long)]
    deleted: bool,
}

#[derive(Serialize)]
struct Row<'a> {
    session: &'a str,
    format: Option<&'a str>,
    workspace: Option<&'a str>,
    parent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_call: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fork_of: Option<ForkOf<'a>>,
    status: Option<&'a str>,
    events: u64,
    messages: u64,
    damaged: u64,
    /// How often turns were taken back.
    rewinds: usize,
    findings: Vec<&'static str>,
    created_at: Option<String>,
    updated_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted_at: Option<String>,
    latest_run: Option<&'a str>,
    first_prompt: Option<&'a str>,
    last_prompt: Option<&'a str>,
    cost_usd: Option<f64>,
    usage: Usage,
    bytes: u64,
    stored_bytes: u64,
}

#[derive(Serialize)]
struct ForkOf<'a> {
    session: &'a str,
    events: u64,
}

/// Tokens, where they are counted.
#[derive(Default, Serialize)]
struct Usage {
    #[serde(skip_serializing_if = "Option::is_none")]
    input_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_creation_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_read_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_tokens: Option<u64>,
}

impl From<format::Usage> for Usage {
    fn from(usage: format::Usage) -> Usage {
        Usage {
            input_tokens: Some(usage.input),
            output_tokens: Some(usage.output),
            cache_creation_tokens: Some(usage.cache_creation),
            cache_read_tokens: Some(usage.cache_read),
            reasoning_tokens: Some(usage.reasoning),
        }
    }
}

impl Sessions {
    pub(crate) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let log = place::open_to_read(global, output)?;
        let listing = sessions::list(&log.snapshot()?, self.deleted)?;
        for error in &listing.damaged {
            output.report(error.kind().name(), &error.to_string(), error.hint());
        }
        if output.json {
            for session in &listing.sessions {
                output.json(&row(session, output.local))?;
            }
        } else {
            self.print(&listing, output)?;
        }
        Ok(if listing.damaged.is_empty() { Exit::Fine } else { Exit::Damage })
    }

    fn print(&self, listing: &Listing, output: &mut Output) -> Result<(), Failure> {
        let people = output.people;
        let cells = listing.tree().into_iter().map(|(depth, session)| {
            let updated = session.updated.map(|t| time::short(t, output.local));
            let info = &session.info;
            let bytes = if people { size(info.bytes) } else { info.bytes.to_string() };
            let prompt = session.first_prompt.clone().unwrap_or_default();
            let id = match people && depth > 0 {
                true => format!("{}└ {}", "  ".repeat(depth - 1), info.id),
                false => info.id.clone(),
            };
            vec![
                id,
                updated.unwrap_or_default(),
                info.events.to_string(),
                session.messages.to_string(),
                info.count(Kind::Damaged).to_string(),
                bytes,
                session.status.clone().unwrap_or_default(),
                if people { shorten(&prompt) } else { prompt },
            ]
        });
        let cells: Vec<Vec<String>> = cells.collect();
        if cells.is_empty() && people {
            output.note("there are no sessions in this log");
            return Ok(());
        }
        let header = [
            "SESSION",
            "UPDATED",
            "EVENTS",
            "MESSAGES",
            "DAMAGED",
            "SIZE",
            "STATUS",
            "FIRST PROMPT",
        ];
        output.table(&header, &[2, 3, 4, 5], &cells)
    }
}

/// What fits beside the other columns.
fn shorten(prompt: &str) -> String {
    const CHARS: usize = 40;
    let line = prompt.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(CHARS) {
        Some((at, _)) => format!("{}…", line.split_at(at).0),
        None => line,
    }
}

fn row(session: &Summary, local: bool) -> Row<'_> {
    let info = &session.info;
    let damaged = info.count(Kind::Damaged);
    let deleted = info.deleted_unix_micros().and_then(time::from_micros);
    Row {
        session: &info.id,
        format: info.attributes.format.as_deref(),
        workspace: info.attributes.workspace.as_deref(),
        parent: info.attributes.parent.as_deref(),
        parent_call: info.attributes.parent_call.as_deref(),
        fork_of: info.fork().map(fork_of),
        status: session.status.as_deref(),
        events: info.events,
        messages: session.messages,
        damaged,
        rewinds: info.rewinds().len(),
        findings: if damaged > 0 { vec!["damaged"] } else { Vec::new() },
        created_at: session.created.map(|t| time::rfc3339(t, local)),
        updated_at: session.updated.map(|t| time::rfc3339(t, local)),
        deleted_at: deleted.map(|t| time::rfc3339(t, local)),
        latest_run: info.last_run.as_deref(),
        first_prompt: session.first_prompt.as_deref(),
        last_prompt: session.last_prompt.as_deref(),
        cost_usd: None,
        usage: session.usage.map_or_else(Usage::default, Usage::from),
        bytes: info.bytes,
        stored_bytes: info.stored_bytes,
    }
}

fn fork_of(fork: &Fork) -> ForkOf<'_> {
    ForkOf { session: &fork.session, events: fork.events }
}
