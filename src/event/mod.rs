//! The five kinds of event with their payloads, the same for all formats.
//!
//! A payload is kept as the JSON that it was, unknown fields included; what is typed is a look into
//! it. A line of a format that has no runs or steps gets the empty run and its place.

mod json;
mod new;

use crate::entry::{Kind, Seq, StoredEntry};
use crate::format::{Content, Format, Role, json_member, json_text};

pub use json::Json;
pub(crate) use new::utc;
pub use new::{NewEvent, ToolStatus};

/// An event of a session.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event {
    /// Its number in the session.
    pub seq: Seq,
    /// What it is.
    pub kind: Kind,
    /// Its id in its format; empty where it has none.
    pub id: String,
    /// The id of the event that it continues.
    pub parent: Option<String>,
    /// When it was made, as it was written.
    pub time: String,
    /// The run that it belongs to.
    pub run: String,
    /// The step of the agent loop.
    pub step: i64,
    /// What it says: an object.
    pub payload: Json,
}

/// Everything but the place in the session: the same record twice is equal.
impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        self.id == other.id
            && self.kind == other.kind
            && self.time == other.time
            && self.run == other.run
            && self.payload == other.payload
    }
}

impl Eq for Event {}

impl std::hash::Hash for Event {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.id.hash(state);
        self.payload.hash(state);
    }
}

/// A call of a tool, as a message makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// Its id; empty where it has none.
    pub id: String,
    /// The tool.
    pub name: String,
    /// What the tool is called with.
    pub arguments: Json,
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
    /// assert_eq!(event.text(), "hello");
    /// # log.close()?;
    /// # std::fs::remove_dir_all(dir).ok();
    /// # Ok::<(), eventlog::Error>(())
    /// ```
    pub fn from_entry(format: &dyn Format, entry: &StoredEntry) -> Option<Event> {
        if matches!(entry.kind(), Kind::Damaged | Kind::Blank | Kind::Other) {
            return None;
        }
        let line = entry.bytes();
        let record = format.classify(line).ok()?;
        let owned = |text: Option<std::borrow::Cow<'_, str>>| text.map(|text| text.into_owned());
        // It is whole: that has just been found.
        let text = std::str::from_utf8(crate::format::syntax::trim(line)).unwrap_or_default();
        let field = |key| json_member(text, key);
        let (payload, step) = match format.name() {
            "transcript" => (payload(field("payload")), field("step").map_or(0, step)),
            _ => (message_payload(format, line), entry.seq().try_into().unwrap_or(i64::MAX)),
        };
        Some(Event {
            seq: entry.seq(),
            kind: entry.kind(),
            id: owned(record.id).unwrap_or_default(),
            parent: owned(record.parent),
            time: owned(record.time).unwrap_or_default(),
            run: owned(record.run).unwrap_or_default(),
            step,
            payload,
        })
    }

    /// The role of a message; `assistant` where it names none.
    pub fn role(&self) -> String {
        let role = json_member(self.payload.as_str(), "role");
        role.map_or_else(|| "assistant".to_owned(), |role| json::id(role).into_owned())
    }

    /// The text of a message.
    pub fn text(&self) -> String {
        let content = json_member(self.payload.as_str(), "content");
        let content = content.filter(|content| content.starts_with('"'));
        content.and_then(json_text).unwrap_or_default().into_owned()
    }

    /// What is known of a message beside its text.
    pub fn metadata(&self) -> Json {
        let metadata = self.payload.get("metadata").filter(Json::is_object);
        metadata.unwrap_or_else(Json::object)
    }

    /// The calls that a message makes.
    pub fn calls(&self) -> Vec<Call> {
        let Some(calls) = json_member(self.payload.as_str(), "metadata")
            .and_then(|metadata| json_member(metadata, "tool_calls"))
        else {
            return Vec::new();
        };
        let call = |call: Json| Call {
            id: call.id_of("id").into_owned(),
            name: call.id_of("name").into_owned(),
            arguments: call.get("arguments").unwrap_or_else(Json::object),
        };
        Json::raw(calls).elements().into_iter().filter(Json::is_object).map(call).collect()
    }

    /// A field of the payload as text, empty where there is none.
    pub fn field(&self, key: &str) -> String {
        self.payload.id_of(key).into_owned()
    }

    /// A field of the metadata as text, empty where there is none.
    pub(crate) fn meta(&self, key: &str) -> String {
        let metadata = json_member(self.payload.as_str(), "metadata");
        let value = metadata.and_then(|metadata| json_member(metadata, key));
        value.map(json::id).unwrap_or_default().into_owned()
    }
}

/// A payload as an object: a list of pairs becomes one.
fn payload(raw: Option<&str>) -> Json {
    let value = Json::raw(raw.unwrap_or("{}"));
    if value.is_object() {
        return value;
    }
    let pair = |pair: Json| match pair.elements().as_slice() {
        [key, value] => Some((key.id(), value.clone())),
        _ => None,
    };
    let members: Vec<(String, Json)> = value.elements().into_iter().filter_map(pair).collect();
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
