//! The trace: everything that happens in a loop, as JSONL beside the transcripts, for people who look
//! for the reason of something. No promise hangs on it: it is not flushed, and secrets are taken out.
//!
//! A line has `ts`, `session_id`, `step`, `event` and `payload`. A message is called
//! `message_written`; a tool call that was requested has a `tool_call` before it, one with a result a
//! `tool_result`; a transition is cut to what a trace needs.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::{RuntimeEvent, Sink, sanitize};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Json, utc};
use crate::format::write::{Object, Spacing};
use crate::io::{Dir, File, OpenMode, write_all_at};
use crate::jsonl::layout::file_name;

/// What a trace keeps of a transition; all of it is needed.
const TRANSITION: [&str; 5] = ["step", "turn_count", "reason", "message_count", "details"];
/// What a model says of its use.
const USAGE: [&str; 3] = ["prompt_tokens", "completion_tokens", "total_tokens"];

/// Writes a trace file, `traces/trace-ID.jsonl` below a directory. An earlier trace of that id is
/// gone on with.
///
/// ```
/// use std::sync::Arc;
/// use eventlog::event::Json;
/// use eventlog::io::StdDir;
/// use eventlog::record::{RuntimeEvent, Sink, TraceSink};
///
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-trace-{}", std::process::id()));
/// let trace = TraceSink::create(Arc::new(StdDir::create(&dir)?), "t1")?;
/// let payload = Json::object().with("token", &Json::string("abc"));
/// trace.emit(&RuntimeEvent::new("run-1", 1, "model_output", payload))?;
/// trace.finish()?;
/// let text = std::fs::read_to_string(dir.join("traces/trace-t1.jsonl"))?;
/// assert!(text.contains(r#""event": "model_output", "payload": {"token": "***"}"#));
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TraceSink {
    id: String,
    state: Mutex<State>,
}

struct State {
    file: Arc<dyn File>,
    /// The last line may be cut off.
    is_torn: bool,
    steps: i64,
    tools_used: u64,
    usage: [u64; 3],
}

impl std::fmt::Debug for TraceSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceSink").field("id", &self.id).finish_non_exhaustive()
    }
}

impl TraceSink {
    /// Opens the trace file of `id`, which is its name and stands in its lines.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn create(root: Arc<dyn Dir>, id: &str) -> Result<TraceSink> {
        let name = format!("trace-{}.jsonl", file_name(id));
        let failed = |error| Error::io(format!("cannot open traces/{name}"), error);
        let dir = root.subdir("traces", true).map_err(failed)?;
        let file = dir.open(&name, OpenMode::Create).map_err(failed)?;
        let end = file.len().map_err(failed)?;
        let mut last = [0];
        let is_torn =
            end > 0 && file.read_at(&mut last, end - 1).map_err(failed)? == 1 && last != *b"\n";
        let state = State { file, is_torn, steps: 0, tools_used: 0, usage: [0; 3] };
        Ok(TraceSink { id: id.to_owned(), state: Mutex::new(state) })
    }

    /// Writes the summary, `session_summary`: steps, tool calls and tokens.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn finish(&self) -> Result<()> {
        let state = &mut *self.state.lock();
        let mut usage = Json::object();
        for (key, sum) in USAGE.into_iter().zip(state.usage) {
            usage = usage.with(key, &Json::raw(sum.to_string()));
        }
        let payload = Json::object()
            .with("steps", &Json::raw(state.steps.to_string()))
            .with("tools_used", &Json::raw(state.tools_used.to_string()))
            .with("total_usage", &usage);
        state.write(&self.id, 0, "session_summary", &payload)
    }
}

impl Sink for TraceSink {
    fn name(&self) -> &'static str {
        "trace"
    }

    /// # Errors
    ///
    /// `Usage` for a transition in which something is missing; `Io`.
    fn emit(&self, event: &RuntimeEvent) -> Result<()> {
        let (payload, step) = (&event.payload, event.step);
        let state = &mut *self.state.lock();
        let mut write = |name: &str, payload: &Json| state.write(&self.id, step, name, payload);
        match event.name.as_str() {
            "message" => write("message_written", payload)?,
            "state_transition" => write("state_transition", &transition(payload)?)?,
            "tool_lifecycle" => {
                if let Some((name, short)) = in_short(payload) {
                    write(name, &short)?;
                }
                write("tool_lifecycle", payload)?;
            }
            name => write(name, payload)?,
        }
        state.steps = state.steps.max(step);
        state.tools_used += u64::from(is_request(event));
        if let ("model_output", Some(usage)) = (&*event.name, payload.get("usage")) {
            for (key, sum) in USAGE.into_iter().zip(&mut state.usage) {
                let count = usage.get(key).and_then(|count| count.as_str().parse::<u64>().ok());
                *sum = sum.saturating_add(count.unwrap_or_default());
            }
        }
        Ok(())
    }
}

/// Several sinks of this process may write one file.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The value as JSON that every reader takes.
fn safe(value: Json) -> Json {
    value.made_safe().unwrap_or(value)
}

impl State {
    fn write(&mut self, id: &str, step: i64, name: &str, payload: &Json) -> Result<()> {
        let line = Object::new(Spacing::Spaced)
            .text("ts", &utc(Timestamp::now()))
            .text("session_id", id)
            .raw("step", &step.to_string())
            .text("event", name)
            .raw("payload", safe(sanitize(payload)).as_str());
        // A line that was cut off stays, on a line of its own.
        let before = if self.is_torn { "\n" } else { "" };
        let line = format!("{before}{}\n", line.finish());
        self.is_torn = true;
        let _one = ONE_AT_A_TIME.lock();
        let end = self.file.len();
        end.and_then(|end| write_all_at(&*self.file, line.as_bytes(), end))
            .map_err(|error| Error::io("cannot write the trace", error))?;
        self.is_torn = false;
        Ok(())
    }
}

fn is_request(event: &RuntimeEvent) -> bool {
    event.name == "tool_lifecycle"
        && event.payload.get("status").is_some_and(|status| status.id() == "requested")
}

/// The call or the result that a step of a tool call tells of.
fn in_short(payload: &Json) -> Option<(&'static str, Json)> {
    let get = |key: &str| payload.get(key).unwrap_or_else(|| Json::raw("null"));
    let inner = payload.get("payload").unwrap_or_else(Json::object);
    let tool = Json::object().with("tool", &get("tool_name"));
    match &*get("status").id() {
        "requested" => {
            let args = inner.get("args").unwrap_or_else(Json::object);
            Some(("tool_call", tool.with("args", &args).with("tool_call_id", &get("tool_call_id"))))
        }
        "completed" | "failed" => {
            let text = |text: Json| Json::object().with("text", &text);
            let result = inner.get("result").or_else(|| inner.get("result_text").map(text))?;
            Some(("tool_result", tool.with("result", &result)))
        }
        _ => None,
    }
}

fn transition(payload: &Json) -> Result<Json> {
    let mut short = Json::object();
    for key in TRANSITION {
        let value = payload.get(key).ok_or_else(|| {
            Error::new(ErrorKind::Usage, format!("a state_transition event has no {key:?}"))
        })?;
        short = short.with(key, &value);
    }
    Ok(short)
}
