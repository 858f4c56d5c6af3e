//! The five kinds of event with their payloads, the same for all formats.
//!
//! A payload is kept as the JSON that it was, unknown fields included; what is typed is a look into
//! it. A line of a format that has no runs or steps gets the empty run and its place.

mod json;
mod new;
mod text;

use std::borrow::Cow;

use crate::entry::{Kind, Seq, StoredEntry};
use crate::format::{Content, Format, Role, Transcript};

pub use json::Json;
pub(crate) use json::Members;
pub use new::{NewEvent, ToolStatus};
pub(crate) use new::{parse_time, utc};
pub use text::Text;

/// An event of a session.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event {
    /// Its number in the session.
    pub seq: Seq,
    /// What it is.
    pub kind: Kind,
    /// Its id in its format; empty where it has none.
    pub id: Text,
    /// The id of the event that it continues.
    pub parent: Option<Text>,
    /// When it was made, as it was written.
    pub time: Text,
    /// The run that it belongs to.
    pub run: Text,
    /// The step of the agent loop.
    pub step: i64,
    /// What it says: an object.
    pub payload: Json,
    /// A look into the payload.
    detail: Detail,
}

/// What is often asked of a payload, by the kind of event.
#[derive(Clone, Debug)]
enum Detail {
    Message(Said),
    Tool(ToolFact),
    Other,
}

impl Detail {
    fn of(kind: Kind, payload: &Json) -> Detail {
        Detail::found(kind, payload, payload.find(LOOKED_INTO))
    }

    /// What was found at [`LOOKED_INTO`] in the payload.
    fn found(kind: Kind, payload: &Json, found: [Option<&str>; 6]) -> Detail {
        const ASSISTANT: Text = Text::literal(arcstr::literal_substr!("assistant"));
        let [role, content, metadata, call_id, status, tool] = found;
        match kind {
            Kind::Message => {
                let part = |raw: Option<&str>| raw.map(|raw| payload.part(raw));
                let role = part(role);
                let metadata = part(metadata).filter(Json::is_object).unwrap_or_else(Json::object);
                let calls = metadata.get("tool_calls").map(|calls| calls.elements());
                let calls = calls.unwrap_or_default().into_iter().filter(Json::is_object);
                Detail::Message(Said {
                    by: role.as_ref().map_or(ASSISTANT, Json::id),
                    role,
                    content: part(content),
                    calls: calls.map(Call::of).collect(),
                    metadata,
                })
            }
            Kind::ToolLifecycle => {
                let text =
                    |raw: Option<&str>| raw.map(|raw| payload.id_in(raw)).unwrap_or_default();
                let (call_id, status, tool) = (text(call_id), text(status), text(tool));
                Detail::Tool(ToolFact { call_id, status, tool })
            }
            _ => Detail::Other,
        }
    }
}

/// The members of payloads that are looked into.
const LOOKED_INTO: [&str; 6] =
    ["role", "content", "metadata", "tool_call_id", "status", "tool_name"];

/// A step in the life of a tool call; empty where a field is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolFact {
    /// The call.
    pub call_id: Text,
    /// `requested`, `started`, `completed`, `failed`, or what else stands there.
    pub status: Text,
    /// The tool.
    pub tool: Text,
}

/// Everything but the place in the session: the same record twice is equal.
impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        crate::steps::count();
        self.id == other.id
            && self.kind == other.kind
            && self.time == other.time
            && (&self.run, self.step) == (&other.run, other.step)
            && self.payload == other.payload
    }
}

impl Eq for Event {}

/// Of all that is compared: records that differ in one part alone are many, and must not collide.
impl std::hash::Hash for Event {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.id, self.kind, &self.time).hash(state);
        (&self.run, self.step, &self.payload).hash(state);
    }
}

/// How lifecycle facts are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reading {
    /// Facts belong to the open call of their id, in order.
    #[default]
    Default,
    /// All facts of an id in a run are merged, as MyCodeAgent does it.
    Original,
}

impl Reading {
    /// The name in `--json` output.
    ///
    /// ```
    /// assert_eq!(eventlog::event::Reading::Default.name(), "default");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Reading::Default => "default",
            Reading::Original => "original",
        }
    }
}

/// A call of a tool, as a message makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// Its id; empty where it has none.
    pub id: Text,
    /// The tool.
    pub name: Text,
    /// What the tool is called with.
    pub arguments: Json,
    /// The call as it stands there, unknown fields included.
    pub raw: Json,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Said {
    /// Who speaks, as it was written.
    pub role: Option<Json>,
    /// Who speaks; `assistant` where the message names nobody.
    pub by: Text,
    /// What.
    pub content: Option<Json>,
    /// What is known beside it: an object.
    pub metadata: Json,
    /// The calls that it makes.
    pub calls: Vec<Call>,
}

impl Said {
    /// The text.
    pub fn text(&self) -> Text {
        self.content.as_ref().and_then(Json::text).unwrap_or_default()
    }
}

impl Call {
    fn of(raw: Json) -> Call {
        let [id, name] = raw.ids_of(["id", "name"]);
        Call { id, name, arguments: raw.get("arguments").unwrap_or_else(Json::object), raw }
    }
}

impl Event {
    /// The event in a stored entry; `None` for damage, separators and other sessions' records.
    ///
    /// ```
    /// use eventlog::{Entry, EventLog, Kind, event::Event, format::Recursive};
    ///
    /// # let dir = std::env::temp_dir().join(format!("eventlog-doc-event-{}", std::process::id()));
    /// # let log = EventLog::open(&dir)?;
    /// let line = br#"{"id":"msg_001","role":"user","content":"hello","timestamp":"2026-03-01T10:00:00Z"}"#;
    /// log.session("s")?.append(Entry::new(Kind::Message, &line[..]))?;
    /// let entry = log.read("s", ..)?.next().unwrap()?;
    /// let event = Event::from_entry(&Recursive, &entry).unwrap();
    /// assert_eq!(event.said().text(), "hello");
    /// # log.close()?;
    /// # std::fs::remove_dir_all(dir).ok();
    /// # Ok::<(), eventlog::Error>(())
    /// ```
    pub fn from_entry(format: &dyn Format, entry: &StoredEntry) -> Option<Event> {
        if matches!(entry.kind(), Kind::Damaged | Kind::Blank | Kind::Other) {
            return None;
        }
        let line = std::str::from_utf8(crate::format::syntax::trim(entry.bytes())).ok()?;
        let (seq, kind) = (entry.seq(), entry.kind());
        if format.name() != Transcript.name() {
            let record = format.classify(entry.bytes()).ok()?;
            let owned = |field: Option<Cow<'_, str>>| field.map(|field| field.into_owned().into());
            let payload = message_payload(format, entry.bytes());
            return Some(Event {
                seq,
                kind,
                id: owned(record.id).unwrap_or_default(),
                parent: owned(record.parent),
                time: owned(record.time).unwrap_or_default(),
                run: owned(record.run).unwrap_or_default(),
                step: seq.try_into().unwrap_or(i64::MAX),
                detail: Detail::of(kind, &payload),
                payload,
            });
        }
        // What was a record when it was appended still is one.
        if !entry.is_record() && format.classify(entry.bytes()).is_err() {
            return None;
        }
        let line = Json::raw(line);
        let ([id, time, run, number, said], inner) = line.find_and(
            ["event_id", "timestamp", "run_id", "step", "payload"],
            "payload",
            LOOKED_INTO,
        );
        let text = |raw: Option<&str>| raw.map(|raw| line.scalar_text(raw)).unwrap_or_default();
        let (payload, detail) = match said {
            Some(raw) if raw.starts_with('{') => {
                (line.part(raw), Detail::found(kind, &line, inner))
            }
            other => {
                let payload = other.map_or_else(Json::object, |raw| of_pairs(&line.part(raw)));
                let detail = Detail::of(kind, &payload);
                (payload, detail)
            }
        };
        Some(Event {
            seq,
            kind,
            id: text(id),
            parent: None,
            time: text(time),
            run: text(run),
            step: number.map_or(0, step),
            payload,
            detail,
        })
    }

    /// What a message says; of another event nothing.
    pub fn said(&self) -> &Said {
        static NOTHING: Said = Said {
            role: None,
            by: Text::EMPTY,
            content: None,
            metadata: Json::OBJECT,
            calls: Vec::new(),
        };
        if let Detail::Message(said) = &self.detail { said } else { &NOTHING }
    }

    /// A step in the life of a tool call; of another event nothing.
    pub fn tool(&self) -> &ToolFact {
        static NOTHING: ToolFact =
            ToolFact { call_id: Text::EMPTY, status: Text::EMPTY, tool: Text::EMPTY };
        if let Detail::Tool(fact) = &self.detail { fact } else { &NOTHING }
    }

    /// A field of the payload as text, empty where there is none.
    pub fn field(&self, key: &str) -> Text {
        self.payload.id_of(key)
    }
}

/// The object that a list of pairs is.
fn of_pairs(value: &Json) -> Json {
    let pair = |pair: Json| match pair.elements().as_slice() {
        [key, value] => Some((key.id(), value.clone())),
        _ => None,
    };
    let members: Vec<(Text, Json)> = value.elements().into_iter().filter_map(pair).collect();
    Json::from_members(&members)
}

/// A step as the original reads it: numbers are cut, digits in a string count.
fn step(raw: &str) -> i64 {
    match raw {
        "true" => 1,
        raw => {
            let text = raw.trim_matches('"').trim();
            let whole = text.parse::<i64>().ok();
            whole.unwrap_or_else(|| text.parse::<f64>().map_or(0, |number| number as i64))
        }
    }
}

/// What a line of another format says, in the terms of a message or a checkpoint.
fn message_payload(format: &dyn Format, line: &[u8]) -> Json {
    let mut message = Json::object();
    let mut metadata = Json::object();
    let mut calls = Vec::new();
    for fact in format.facts(line) {
        let raw = line.get(fact.bytes).and_then(|raw| std::str::from_utf8(raw).ok());
        match fact.content {
            Content::Text { role, text } => {
                let role = Json::string(role.name());
                message = message.with("role", &role).with("content", &Json::string(&text));
            }
            Content::Answer { call_id, tool, text } => {
                let role = Json::string(Role::Tool.name());
                message = message.with("role", &role).with("content", &Json::string(&text));
                if let Some(tool) = tool {
                    metadata = metadata.with("tool_name", &Json::string(&tool));
                }
                metadata = metadata.with("tool_call_id", &Json::string(&call_id));
            }
            Content::Call { .. } => calls.extend(raw),
            Content::Reasoning(text) => {
                metadata = metadata.with("reasoning_content", &Json::string(&text));
            }
            Content::Usage(_) => {
                metadata = metadata.with("usage", &Json::raw(raw.unwrap_or("{}")));
            }
            Content::Checkpoint { payload, .. } => return Json::raw(payload),
            _ => {}
        }
    }
    if !calls.is_empty() {
        metadata = metadata.with("tool_calls", &Json::raw(format!("[{}]", calls.join(", "))));
    }
    if let Some(audit) = crate::format::raw_field(line, "audit") {
        metadata = metadata.with("audit", &Json::raw(audit));
    }
    message.with("metadata", &metadata)
}
