//! A session's records in another format, and an exact account of what that format cannot carry.
//!
//! The lines of the result are new: ids are derived from those of the source, so that converting
//! twice gives the same bytes, and everything that has a place in the target keeps its value.

use std::collections::{BTreeMap, HashMap};

use crate::bytes::within;
use crate::entry::{Kind, StoredEntry};
use crate::format::syntax::{Walker, trim};
use crate::format::write::{Object, Spacing};
use crate::format::{Content, Format, Recursive, Role, Transcript};

/// Converts the records of one session, in order.
#[derive(Debug)]
pub(super) struct Converter<'s> {
    from: &'static dyn Format,
    to: &'static dyn Format,
    session: &'s str,
    not_carried: BTreeMap<String, u64>,
    /// Lines taken.
    lines: u64,
    /// Messages written.
    messages: u64,
    /// User turns written.
    turns: u64,
    step: u64,
    last_uuid: Option<String>,
    last_assistant: Option<String>,
    /// The tools of the calls so far.
    tools: HashMap<String, String>,
    last_time: String,
}

/// Keys of a transcript's line, payload and message metadata that have a place in the other format.
const TRANSCRIPT_CARRIED: [&[&str]; 12] = [
    &["event_id"],
    &["timestamp"],
    &["session_id"],
    &["event_type"],
    &["schema_version"],
    &["payload"],
    &["payload", "role"],
    &["payload", "content"],
    &["payload", "metadata"],
    &["payload", "metadata", "tool_calls"],
    &["payload", "metadata", "tool_call_id"],
    &["payload", "metadata", "reasoning_content"],
];
/// Keys of a recursive line that have a place in the other format.
const RECURSIVE_CARRIED: [&[&str]; 13] = [
    &["uuid"],
    &["role"],
    &["content"],
    &["tool_calls"],
    &["tool_call_id"],
    &["reasoning_content"],
    &["usage"],
    &["timestamp"],
    &["audit"],
    &["type"],
    &["subtype"],
    &["compacted_count"],
    &["summary_uuid"],
];

/// Keys that the target makes anew.
const REMADE: [&str; 4] = ["id", "parent_id", "parent_uuid", "source_tool_assistant_uuid"];

impl<'s> Converter<'s> {
    pub(super) fn new(
        from: &'static dyn Format,
        to: &'static dyn Format,
        session: &'s str,
    ) -> Converter<'s> {
        Converter {
            from,
            to,
            session,
            not_carried: BTreeMap::new(),
            lines: 0,
            messages: 0,
            turns: 0,
            step: 0,
            last_uuid: None,
            last_assistant: None,
            tools: HashMap::new(),
            last_time: String::new(),
        }
    }

    /// What was left out, each with its number: `state_transition records (3)`.
    pub(super) fn not_carried(self) -> Vec<String> {
        self.not_carried.into_iter().map(|(what, n)| format!("{what} ({n})")).collect()
    }

    fn leave_out(&mut self, what: &str) {
        *self.not_carried.entry(what.to_owned()).or_default() += 1;
    }

    /// The line for an event, `None` for one that the target has no place for.
    pub(super) fn line(&mut self, event: &StoredEntry) -> Option<String> {
        let line = event.bytes();
        match event.kind() {
            Kind::Blank => return None,
            Kind::Message | Kind::Checkpoint => {}
            Kind::Damaged => {
                self.leave_out("damaged spans");
                return None;
            }
            kind => {
                self.leave_out(&format!("{kind} records"));
                return None;
            }
        }
        let record = self.from.classify(line).ok()?;
        self.lines += 1;
        if let Some(time) = record.time.as_deref() {
            self.last_time = time.to_owned();
        }
        let converted = match (self.from.name(), self.to.name(), event.kind()) {
            ("transcript", "recursive", Kind::Message) => self.recursive_line(line, record.id),
            ("recursive", "transcript", Kind::Message) => self.transcript_line(line, record.id),
            ("recursive", "transcript", _) => Some(self.checkpoint(line)),
            // A boundary would hide everything before it; a checkpoint need not.
            _ => {
                self.leave_out(&format!("{} records", event.kind()));
                return None;
            }
        };
        self.count_keys(line);
        converted
    }

    /// Counts the keys that are left out.
    fn count_keys(&mut self, line: &[u8]) {
        let (carried, prefixes): (&[&[&str]], &[&[&str]]) = match self.from.name() {
            "transcript" => (&TRANSCRIPT_CARRIED, &[&[], &["payload"], &["payload", "metadata"]]),
            _ => (&RECURSIVE_CARRIED, &[&[]]),
        };
        let line = trim(line);
        let mut left = Vec::new();
        Walker::default().walk(line, 0, &mut |path, _| {
            if carried.iter().any(|keys| path.is(keys)) {
                return;
            }
            if prefixes.iter().any(|prefix| path.is_member_of(prefix)) {
                left.push(path.last_key());
            }
        });
        for key in left {
            if !REMADE.contains(&key.as_str()) {
                self.leave_out(&format!("field {key}"));
            }
        }
    }

    fn recursive_line(
        &mut self,
        line: &[u8],
        id: Option<std::borrow::Cow<'_, str>>,
    ) -> Option<String> {
        let mut calls = Vec::new();
        let mut said = None;
        let mut call_id = None;
        let mut thought = None;
        for fact in Transcript.facts(line) {
            match fact.content {
                Content::Text { role, text } => {
                    let name = match &role {
                        Role::Summary => {
                            self.leave_out("role summary, written as system");
                            "system".to_owned()
                        }
                        role => role.name().to_owned(),
                    };
                    said = Some((name, text.into_owned()));
                }
                Content::Answer { call_id: id, text, .. } => {
                    call_id = Some(id.into_owned());
                    said = Some(("tool".to_owned(), text.into_owned()));
                }
                Content::Reasoning(text) => thought = Some(text.into_owned()),
                Content::Call { id, name, arguments } => {
                    let raw = within(line, fact.bytes.clone());
                    self.count_call_keys(raw);
                    let call = Object::new(Spacing::Compact).text("id", &id).text("name", &name);
                    calls.push(call.raw("arguments", arguments.unwrap_or("{}")).finish());
                }
                _ => {}
            }
        }
        let (role, content) = said?;
        let payload = crate::format::raw_field(line, "payload").unwrap_or_default();
        let given = crate::format::raw_field(payload.as_bytes(), "content");
        if given.is_some_and(|given| !given.starts_with('"') && given != "null") {
            self.leave_out("content that is no text");
        }
        let uuid = derived_uuid(id.as_deref().unwrap_or_default(), self.lines);
        let parent = match role.as_str() {
            // Answers belong to the message with the calls.
            "tool" => self.last_assistant.clone().or_else(|| self.last_uuid.clone()),
            _ => self.last_uuid.clone(),
        };
        self.messages += 1;
        let number = self.messages;
        let parent_id = (number > 1).then(|| format!("msg_{:03}", number - 1));
        let mut object = Object::new(Spacing::Compact)
            .text("uuid", &uuid)
            .text_if("parent_uuid", parent.as_deref())
            .text_if("source_tool_assistant_uuid", parent.as_deref().filter(|_| role == "tool"))
            .text("id", &format!("msg_{number:03}"))
            .text_if("parent_id", parent_id.as_deref())
            .text("role", &role)
            .text("content", &content);
        if !calls.is_empty() {
            object = object.raw("tool_calls", &format!("[{}]", calls.join(",")));
        }
        if role == "assistant" {
            self.last_assistant = Some(uuid.clone());
        }
        self.last_uuid = Some(uuid);
        let object = object
            .text_if("tool_call_id", call_id.as_deref())
            .text_if("reasoning_content", thought.as_deref());
        Some(object.text("timestamp", &self.last_time).finish())
    }

    /// Counts what a call has beside its id, its name and its arguments.
    fn count_call_keys(&mut self, raw: &[u8]) {
        let raw = std::str::from_utf8(raw).unwrap_or_default();
        for (key, _) in crate::format::json_members(raw) {
            if !matches!(&*key, "id" | "name" | "arguments") {
                self.leave_out(&format!("field {key} of calls"));
            }
        }
    }

    fn event(&self, id: &str, kind: &str, payload: &str) -> String {
        Object::new(Spacing::Spaced)
            .text("event_id", &format!("evt-{}", derived_uuid(id, self.lines).replace('-', "")))
            .text("timestamp", &self.last_time)
            .text("session_id", self.session)
            .text("run_id", &format!("run-{}", self.turns.max(1)))
            .number("step", self.step)
            .text("event_type", kind)
            .raw("payload", payload)
            .number("schema_version", 1)
            .finish()
    }

    fn transcript_line(
        &mut self,
        line: &[u8],
        id: Option<std::borrow::Cow<'_, str>>,
    ) -> Option<String> {
        let mut said = None;
        let mut calls = Vec::new();
        let mut metadata = Object::new(Spacing::Spaced);
        for fact in Recursive.facts(line) {
            let raw = std::str::from_utf8(within(line, fact.bytes.clone())).ok();
            match fact.content {
                Content::Text { role, text } => {
                    said = Some((role.name().to_owned(), text.into_owned()));
                }
                Content::Answer { call_id, text, .. } => {
                    let tool = self.tools.get(&*call_id).cloned().unwrap_or_default();
                    metadata = metadata.text("tool_name", &tool).text("tool_call_id", &call_id);
                    said = Some(("tool".to_owned(), text.into_owned()));
                }
                Content::Call { id, name, arguments } => {
                    self.count_call_keys(raw.unwrap_or_default().as_bytes());
                    self.tools.insert(id.to_string(), name.to_string());
                    let call = Object::new(Spacing::Spaced).text("id", &id).text("name", &name);
                    calls.push(call.raw("arguments", arguments.unwrap_or("{}")).finish());
                }
                Content::Reasoning(thought) => {
                    metadata = metadata.text("reasoning_content", &thought);
                }
                Content::Usage(_) => metadata = metadata.raw("usage", raw.unwrap_or("{}")),
                _ => {}
            }
        }
        let (role, content) = said?;
        if role == "assistant" {
            let action = if calls.is_empty() { "final" } else { "tool_call" };
            metadata = metadata.text("action_type", action);
        }
        if !calls.is_empty() {
            metadata = metadata.raw("tool_calls", &format!("[{}]", calls.join(", ")));
        }
        if let Some(audit) = crate::format::raw_field(line, "audit") {
            metadata = metadata.raw("audit", audit);
        }
        if role == "user" {
            self.turns += 1;
            self.step = 0;
        }
        let payload = Object::new(Spacing::Spaced)
            .text("role", &role)
            .text("content", &content)
            .raw("metadata", &metadata.finish());
        let event = self.event(id.as_deref().unwrap_or_default(), "message", &payload.finish());
        self.messages += 1;
        self.step += 1;
        Some(event)
    }

    fn checkpoint(&mut self, line: &[u8]) -> String {
        let id = crate::format::raw_field(line, "summary_uuid").unwrap_or("\"\"");
        let count = crate::format::raw_field(line, "compacted_count").unwrap_or("0");
        let payload = Object::new(Spacing::Spaced)
            .text("summary", "")
            .raw("messages_compacted", count)
            .raw("checkpoint_id", id)
            .text("created_at", &self.last_time);
        self.event(id, "checkpoint", &payload.finish())
    }
}

/// A uuid that follows from the id and the place of a record.
fn derived_uuid(id: &str, place: u64) -> String {
    if let Ok(uuid) = id.strip_prefix("evt-").unwrap_or(id).parse::<uuid::Uuid>() {
        return uuid.to_string();
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(id.as_bytes()).update(&place.to_le_bytes());
    let mut bytes = [0; 16];
    hasher.finalize_xof().fill(&mut bytes);
    uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string()
}
