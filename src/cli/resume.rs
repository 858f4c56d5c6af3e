//! `eventlog resume`: where a session stands, and what to send to the model.

use clap::{Args, ValueEnum};
use eventlog::event::Json;
use eventlog::resume::{
    self, AllButWriters, MessageOptions, Provider, Reading, ResumeOptions, Resumed, State,
    ViewEntry,
};
use eventlog::{Finding, SessionInfo, Snapshot, memory, sessions};
use serde::Serialize;

use super::output::{Output, plural};
use super::{Exit, Failure, Global, place};

/// Show where a session stands: history, checkpoint, pending and uncertain calls
///
/// Without SESSION it is the latest session of the current directory's workspace, never another
/// one's. An uncertain call was begun, and nobody knows how it ended: find out what it did before
/// it is made again.
#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// A session id, a unique prefix of one, @last or @N
    session: Option<String>,
    /// Print the messages to send to the model, as JSON, instead
    #[arg(long)]
    view: bool,
    /// Whose messages the view is written as
    #[arg(long, value_name = "NAME", default_value = "plain", requires = "view")]
    provider: ProviderName,
    /// Say in the messages where records are missing
    #[arg(long, requires = "view")]
    marks: bool,
    /// How tool lifecycle facts are read: original merges all facts of a call id, as MyCodeAgent
    /// does
    #[arg(long, value_name = "READING", default_value = "default")]
    reading: ReadingName,
    /// Only this run
    #[arg(long, value_name = "ID")]
    run: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ProviderName {
    /// The view as it is, with its marks, without the session memory
    Plain,
    /// OpenAI's chat messages
    Openai,
    /// Anthropic's messages
    Anthropic,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ReadingName {
    Default,
    Original,
}

#[derive(Serialize)]
struct Report<'a> {
    session: &'a str,
    run: &'a str,
    format: Option<&'a str>,
    reading: &'static str,
    state: &'a State,
    view: &'a [ViewEntry],
    view_from_seq: u64,
    findings: Vec<FindingLine<'a>>,
    memory: super::memory::Report<'a>,
    digest: String,
}

/// How much of the memory is rendered beside the view.
const MEMORY_CHARS: usize = 8000;

#[derive(Serialize)]
struct FindingLine<'a> {
    code: &'static str,
    seq: Option<u64>,
    message: &'a str,
}

fn finding(finding: &Finding) -> FindingLine<'_> {
    FindingLine { code: finding.code.name(), seq: finding.seq, message: &finding.message }
}

impl Resume {
    pub(crate) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let log = place::open_to_read(global, output)?;
        let snapshot = log.snapshot()?;
        let id = match &self.session {
            Some(session) => place::session_id(&snapshot, session)?,
            None => latest_here(&snapshot)?,
        };
        let mut options = ResumeOptions::default();
        options.run.clone_from(&self.run);
        if let ReadingName::Original = self.reading {
            options.reading = Reading::Original;
            options.policy = Box::new(AllButWriters);
        }
        if self.view {
            return self.print_view(&snapshot, &id, &options, output);
        }
        let resumed = resume::resume(&snapshot, &id, &options)?;
        if output.json {
            let session = snapshot.session(&id)?;
            let format = session.as_ref().and_then(|info| info.attributes.format.as_deref());
            output.json(&Report {
                session: &id,
                run: &resumed.run,
                format,
                reading: options.reading.name(),
                state: &resumed.state,
                view: &resumed.view.entries,
                view_from_seq: resumed.view.from_seq,
                findings: resumed.view.findings.iter().map(finding).collect(),
                memory: super::memory::report(&resumed.memory, MEMORY_CHARS),
                digest: resumed.view.digest(),
            })?;
            return Ok(Exit::Fine);
        }
        print(&resumed, output)?;
        Ok(Exit::Fine)
    }

    /// Reads what lies behind the last compaction alone, unless it is of one run.
    fn print_view(
        &self,
        snapshot: &Snapshot,
        id: &str,
        options: &ResumeOptions,
        output: &mut Output,
    ) -> Result<Exit, Failure> {
        let view = match self.run {
            Some(_) => resume::resume(snapshot, id, options)?.view,
            None => resume::view(snapshot, id)?,
        };
        let provider = match self.provider {
            ProviderName::Plain => {
                for entry in &view.entries {
                    output.json(entry)?;
                }
                return Ok(Exit::Fine);
            }
            ProviderName::Openai => Provider::OpenAi,
            ProviderName::Anthropic => Provider::Anthropic,
        };
        let mut messages = MessageOptions::default();
        messages.memory = memory::of(snapshot, id)?.render(MEMORY_CHARS);
        messages.marks = self.marks;
        for message in view.messages(provider, &messages) {
            output.json(&message)?;
        }
        Ok(Exit::Fine)
    }
}

/// The newest session of the workspace that the current directory is in.
fn latest_here(snapshot: &Snapshot) -> Result<String, Failure> {
    let here = std::env::current_dir().and_then(|dir| dir.canonicalize()).unwrap_or_default();
    let is_here = |session: &SessionInfo| {
        let workspace = session.attributes.workspace.as_deref();
        workspace.is_some_and(|workspace| here.starts_with(workspace))
    };
    let found = sessions::newest_first(snapshot)?.into_iter().find(is_here);
    found.map(|session| session.id).ok_or_else(|| {
        let message = format!("no session of this log worked in {}", here.display());
        let hint = "name a session; `eventlog sessions` lists them".to_owned();
        Failure::Own(Exit::NotFound, "not_found", message, Some(hint))
    })
}

fn print(resumed: &Resumed, output: &mut Output) -> Result<(), Failure> {
    let state = &resumed.state;
    let run = if resumed.run.is_empty() { "-" } else { &resumed.run };
    output.row(&["session", &resumed.session, "run", run])?;
    let history = plural(state.history_messages.len() as u64, "message");
    let turns = plural(state.loop_state.turn_count, "user turn");
    output.row(&["history", &history, &turns])?;
    if let Some(checkpoint) = &state.checkpoint {
        let id = checkpoint.get("checkpoint_id").as_ref().and_then(text).unwrap_or_default();
        output.row(&["checkpoint", if id.is_empty() { "without an id" } else { &id }])?;
    }
    let ended = state.terminal_by_run.iter().rev().find(|(name, _)| *name == resumed.run);
    let reason = ended.and_then(|(_, end)| end.as_ref()?.get("reason").as_ref().and_then(text));
    if !resumed.run.is_empty() {
        output.row(&["ended", reason.as_deref().unwrap_or("no: the run was cut off")])?;
    }
    for call in &state.pending_tool_calls {
        let what = match call.awaiting_approval {
            true => "waits for approval; it stays open",
            false => "never begun; it may be made again",
        };
        output.row(&["pending", &call.tool_name, &call.tool_call_id, what])?;
    }
    for action in &state.uncertain_actions {
        let what = match action.replay_allowed {
            true => "begun, outcome unknown; it only reads, and may be made again",
            false => "begun, outcome unknown; find out what it did before it is made again",
        };
        output.row(&["uncertain", &action.tool_name, &action.tool_call_id, what])?;
    }
    for finding in &resumed.view.findings {
        let seq = finding.seq.map(|seq| format!("event {seq}")).unwrap_or_default();
        output.row(&["finding", finding.code.name(), &seq, &finding.message])?;
    }
    output.row(&[
        "view",
        &plural(resumed.view.entries.len() as u64, "entry"),
        &resumed.view.digest(),
    ])
}

fn text(value: &Json) -> Option<String> {
    value.text().map(|text| text.to_string())
}
