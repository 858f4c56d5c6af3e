//! `eventlog sessions`: the list of sessions.

use std::borrow::Cow;

use clap::Args;
use eventlog::format::recursive::Meta;
use eventlog::format::{self, Content, Format};
use eventlog::{EventRange, Kind, Position, SessionInfo, Snapshot, StoredEntry};
use jiff::Timestamp;
use serde::Serialize;

use super::output::{Output, size};
use super::{Exit, Failure, Global, place, time};

/// List the sessions, newest first
#[derive(Debug, Args)]
pub(crate) struct Sessions {}

#[derive(Serialize)]
struct Row {
    session: String,
    format: Option<String>,
    workspace: Option<String>,
    parent: Option<String>,
    status: Option<String>,
    events: u64,
    messages: u64,
    damaged: u64,
    findings: Vec<&'static str>,
    created_at: Option<String>,
    updated_at: Option<String>,
    latest_run: Option<String>,
    first_prompt: Option<String>,
    last_prompt: Option<String>,
    cost_usd: Option<f64>,
    usage: Usage,
    bytes: u64,
    stored_bytes: u64,
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
        let snapshot = log.snapshot()?;
        let mut rows: Vec<(Option<Timestamp>, Row)> = Vec::new();
        let mut exit = Exit::Fine;
        for session in snapshot.sessions() {
            // One damaged session hides no other.
            match session.and_then(|session| row(&snapshot, session, output.local)) {
                Ok(row) => rows.push(row),
                Err(error) => {
                    output.report(error.kind().name(), &error.to_string(), error.hint());
                    exit = Exit::Damage;
                }
            }
        }
        rows.sort_by(|(a_time, a), (b_time, b)| (b_time, &b.session).cmp(&(a_time, &a.session)));
        if output.json {
            for (_, row) in &rows {
                output.json(row)?;
            }
        } else {
            self.print(&rows, output)?;
        }
        Ok(exit)
    }

    fn print(&self, rows: &[(Option<Timestamp>, Row)], output: &mut Output) -> Result<(), Failure> {
        let people = output.people;
        let cells = rows.iter().map(|(updated, row)| {
            let updated = updated.map(|t| time::short(t, output.local)).unwrap_or_default();
            let bytes = if people { size(row.bytes) } else { row.bytes.to_string() };
            let prompt = row.first_prompt.clone().unwrap_or_default();
            vec![
                row.session.clone(),
                updated,
                row.events.to_string(),
                row.messages.to_string(),
                row.damaged.to_string(),
                bytes,
                row.status.clone().unwrap_or_default(),
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
        Some((at, _)) => format!("{}…", line.get(..at).unwrap_or_default()),
        None => line,
    }
}

fn row(
    snapshot: &Snapshot,
    session: SessionInfo,
    local: bool,
) -> eventlog::Result<(Option<Timestamp>, Row)> {
    let format = session.attributes.format.as_deref().and_then(format::by_name);
    let facts = format.map(|format| facts(snapshot, &session, format)).transpose()?;
    let facts = facts.unwrap_or_default();
    // The lines' own times tell more than when they were imported.
    let created = facts.created.or_else(|| time::from_micros(session.created_unix_micros));
    let updated = facts.updated.or_else(|| time::from_micros(session.updated_unix_micros));
    let damaged = session.count(Kind::Damaged);
    // What a description says is what its program last said.
    let meta = session.attributes.meta.as_deref().map(str::as_bytes);
    let meta = meta.and_then(|meta| Meta::parse(meta).ok());
    let usage = meta.as_ref().and_then(Meta::usage);
    let said = meta.as_ref().map(|meta| meta.status.name().to_owned());
    let row = Row {
        format: session.attributes.format.clone(),
        workspace: session.attributes.workspace.clone(),
        parent: session.attributes.parent.clone(),
        status: facts.status.or(said),
        events: session.events,
        messages: session.count(Kind::Message),
        damaged,
        findings: if damaged > 0 { vec!["damaged"] } else { Vec::new() },
        created_at: created.map(|t| time::rfc3339(t, local)),
        updated_at: updated.map(|t| time::rfc3339(t, local)),
        latest_run: session.last_run.clone(),
        first_prompt: facts.first_prompt,
        last_prompt: facts.last_prompt,
        cost_usd: None,
        usage: usage.map_or_else(Usage::default, Usage::from),
        bytes: session.bytes,
        stored_bytes: session.stored_bytes,
        session: session.id,
    };
    Ok((updated, row))
}

#[derive(Default)]
struct Facts {
    created: Option<Timestamp>,
    updated: Option<Timestamp>,
    status: Option<String>,
    first_prompt: Option<String>,
    last_prompt: Option<String>,
}

/// What the lines themselves say.
fn facts(
    snapshot: &Snapshot,
    session: &SessionInfo,
    format: &dyn Format,
) -> eventlog::Result<Facts> {
    let id = session.id.as_str();
    let is_record = |entry: &eventlog::Result<StoredEntry>| {
        entry.as_ref().map_or(true, |e| !matches!(e.kind(), Kind::Blank | Kind::Damaged))
    };
    let time_of = |entry: Option<&StoredEntry>| {
        let record = format.classify(entry?.bytes()).ok()?;
        record.time.and_then(|text| time::parse(&text))
    };
    // Damage at the ends is passed over, but not without limit.
    const NEAR: usize = 1000;
    let first = snapshot.read(id, ..)?.take(NEAR).find(is_record).transpose()?;
    let last = snapshot.read(id, ..)?.rev().take(NEAR).find(is_record).transpose()?;
    let prompt = |n: Option<u64>| -> eventlog::Result<Option<String>> {
        let Some(n) = n else { return Ok(None) };
        let Some(seq) = snapshot.find(id, Position::UserTurn(n))? else { return Ok(None) };
        let range = EventRange::from(seq..=seq);
        let entry = snapshot.read(id, range)?.next().transpose()?;
        Ok(entry.and_then(|entry| format::text(format, entry.bytes()).map(Cow::into_owned)))
    };
    let turns = session.user_turns;
    let status = last.as_ref().filter(|entry| entry.kind() == Kind::Terminal);
    Ok(Facts {
        created: time_of(first.as_ref()),
        updated: time_of(last.as_ref()),
        status: status.and_then(|entry| reason(format, entry.bytes())),
        first_prompt: prompt((turns > 0).then_some(0))?,
        last_prompt: prompt(turns.checked_sub(1))?,
    })
}

/// Why a run ended, in the word of its last record.
fn reason(format: &dyn Format, line: &[u8]) -> Option<String> {
    format.facts(line).into_iter().find_map(|fact| match fact.content {
        Content::Terminal { reason } => Some(reason.into_owned()),
        _ => None,
    })
}
