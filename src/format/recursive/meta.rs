//! The `.meta.json` beside a transcript: what recursive-agent shows in its lists.
//!
//! It is derived from the transcript, and where the two differ the transcript is right. Unknown
//! fields are kept.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::first_chars;
use crate::entry::Kind;
use crate::format::{Content, Format, Recursive, Role, Usage};

/// The newest version of the description that is known.
const SCHEMA_VERSION: u64 = 1;
/// How much of a prompt is kept, in characters.
const PROMPT_CHARS: usize = 200;
/// How much of the first prompt becomes the session's name.
const NAME_CHARS: usize = 60;

/// How far a session is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Status {
    /// Going on, or nobody said otherwise.
    #[default]
    Active,
    /// Ended as it should.
    Completed,
    /// Ended by a crash.
    Crashed,
    /// Ended by the user.
    Interrupted,
    /// Set aside.
    Paused,
}

impl Status {
    /// The word in the file.
    ///
    /// ```
    /// assert_eq!(eventlog::format::recursive::Status::Crashed.name(), "crashed");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Status::Active => "active",
            Status::Completed => "completed",
            Status::Crashed => "crashed",
            Status::Interrupted => "interrupted",
            Status::Paused => "paused",
        }
    }
}

impl<'de> Deserialize<'de> for Status {
    /// Words of earlier versions are understood; an unknown one is `active`.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Status, D::Error> {
        let word = String::deserialize(deserializer)?;
        Ok(match word.as_str() {
            "completed" | "success" => Status::Completed,
            "crashed" | "incomplete" => Status::Crashed,
            "interrupted" | "cancelled" => Status::Interrupted,
            "paused" => Status::Paused,
            _ => Status::Active,
        })
    }
}

/// Tokens of a whole session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Cost {
    total_input_tokens: u64,
    total_output_tokens: u64,
    total_cache_creation_tokens: u64,
    total_cache_read_tokens: u64,
    total_reasoning_tokens: u64,
}

/// A session's description.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Meta {
    /// The version of the description.
    #[serde(default = "schema_version")]
    pub schema_version: u32,
    /// The session's id; not always the name of its directory.
    pub session_id: String,
    /// What the session is for.
    pub goal: String,
    /// The model.
    pub model: String,
    /// Its provider.
    pub provider: String,
    /// When the session began, as text.
    pub created_at: String,
    /// When it was last written to, as text.
    pub updated_at: String,
    /// How many messages it has.
    pub message_count: u64,
    /// How far it is.
    #[serde(default)]
    pub status: Status,
    /// A hash over the tools that it was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_registry_hash: Option<String>,
    /// The beginning of the first user message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_prompt: Option<String>,
    /// The beginning of the last user message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_prompt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cost: Option<Cost>,
    /// The set of options that it was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// Its name: one that was given, or the beginning of the first prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What else stands in the file.
    #[serde(flatten)]
    extra: Map<String, Value>,
}

fn schema_version() -> u32 {
    SCHEMA_VERSION as u32
}

/// Why a description cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetaError {
    /// It is not what a description looks like: why.
    Unreadable(String),
    /// It is of a newer version.
    NewerSchema(u32),
}

impl fmt::Display for MetaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetaError::Unreadable(why) => write!(f, "the description cannot be read: {why}"),
            MetaError::NewerSchema(found) => {
                write!(f, "the description is of schema version {found}, known is {SCHEMA_VERSION}")
            }
        }
    }
}

impl std::error::Error for MetaError {}

impl Meta {
    /// The description in the bytes of a `.meta.json`.
    ///
    /// # Errors
    ///
    /// `Unreadable` where a required field is missing or of another type, `NewerSchema`.
    ///
    /// # Example
    ///
    /// ```
    /// use eventlog::format::recursive::{Meta, Status};
    ///
    /// let text = r#"{"session_id":"s","goal":"g","model":"m","provider":"p","created_at":"t",
    ///     "updated_at":"t","message_count":2,"status":"success"}"#;
    /// assert_eq!(Meta::parse(text.as_bytes()).unwrap().status, Status::Completed);
    /// ```
    pub fn parse(bytes: &[u8]) -> Result<Meta, MetaError> {
        let meta: Meta = serde_json::from_slice(bytes)
            .map_err(|error| MetaError::Unreadable(error.to_string()))?;
        match u64::from(meta.schema_version) {
            0..=SCHEMA_VERSION => Ok(meta),
            _ => Err(MetaError::NewerSchema(meta.schema_version)),
        }
    }

    /// The bytes of a `.meta.json`, as recursive-agent writes it.
    ///
    /// ```
    /// # use eventlog::format::recursive::Meta;
    /// let text = Meta::default().to_text();
    /// assert!(text.starts_with("{\n  \"schema_version\": "));
    /// ```
    pub fn to_text(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// The tokens of the session.
    pub fn usage(&self) -> Option<Usage> {
        self.cost.map(|cost| Usage {
            input: cost.total_input_tokens,
            output: cost.total_output_tokens,
            cache_creation: cost.total_cache_creation_tokens,
            cache_read: cost.total_cache_read_tokens,
            reasoning: cost.total_reasoning_tokens,
        })
    }
}

/// What a transcript says that its description repeats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Derived {
    messages: u64,
    first_prompt: Option<String>,
    last_prompt: Option<String>,
    first_time: Option<String>,
    last_time: Option<String>,
    usage: Usage,
}

impl Derived {
    /// Takes a line into account.
    pub(crate) fn add(&mut self, kind: Kind, line: &[u8]) {
        if !matches!(kind, Kind::Message | Kind::Checkpoint) {
            return;
        }
        let Ok(record) = Recursive.classify(line) else { return };
        self.messages += u64::from(kind == Kind::Message);
        if let Some(time) = record.time {
            self.first_time.get_or_insert_with(|| time.to_string());
            self.last_time = Some(time.into_owned());
        }
        for fact in Recursive.facts(line) {
            match fact.content {
                Content::Text { role: Role::User, text } => {
                    let prompt = first_chars(&text, PROMPT_CHARS).into_owned();
                    self.first_prompt.get_or_insert_with(|| prompt.clone());
                    self.last_prompt = Some(prompt);
                }
                Content::Usage(usage) => self.usage += usage,
                _ => {}
            }
        }
    }

    /// The description of the session `id`: what `known` has and the lines do not tell, and the
    /// rest from the lines.
    pub(crate) fn meta(self, id: &str, known: Option<Meta>) -> Meta {
        let is_new = known.is_none();
        let mut meta = known.unwrap_or_default();
        meta.schema_version = schema_version();
        if is_new {
            meta.session_id = id.to_owned();
            meta.goal = self.first_prompt.clone().unwrap_or_default();
            meta.created_at = self.first_time.clone().unwrap_or_default();
        }
        if is_new || meta.message_count != self.messages {
            meta.updated_at = self.last_time.or(self.first_time).unwrap_or(meta.updated_at);
        }
        meta.message_count = self.messages;
        if let Some(prompt) = &self.first_prompt {
            let name = first_chars(prompt, NAME_CHARS).into_owned();
            meta.name.get_or_insert(name);
        }
        meta.first_prompt = self.first_prompt;
        meta.last_prompt = self.last_prompt;
        meta.cost = (!self.usage.is_zero()).then_some(Cost {
            total_input_tokens: self.usage.input,
            total_output_tokens: self.usage.output,
            total_cache_creation_tokens: self.usage.cache_creation,
            total_cache_read_tokens: self.usage.cache_read,
            total_reasoning_tokens: self.usage.reasoning,
        });
        meta
    }

    /// In what `meta` differs from the transcript.
    pub(crate) fn differences(&self, meta: &Meta) -> Vec<String> {
        let mut found = Vec::new();
        if meta.message_count != self.messages {
            let (said, is) = (meta.message_count, self.messages);
            found.push(format!("message_count is {said}, there are {is}"));
        }
        for (field, said, is) in [
            ("first_prompt", &meta.first_prompt, &self.first_prompt),
            ("last_prompt", &meta.last_prompt, &self.last_prompt),
        ] {
            if said.is_some() && said != is {
                found.push(format!("{field} is not that of the transcript"));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_written_as_it_was_read_with_unknown_fields() {
        let text = "{\n  \"schema_version\": 1,\n  \"session_id\": \"s\",\n  \"goal\": \"g\",\n  \
                    \"model\": \"m\",\n  \"provider\": \"p\",\n  \"created_at\": \"t\",\n  \
                    \"updated_at\": \"t\",\n  \"message_count\": 1,\n  \"status\": \"paused\",\n  \
                    \"name\": \"n\",\n  \"later\": {\n    \"x\": 1\n  }\n}";
        assert_eq!(Meta::parse(text.as_bytes()).unwrap().to_text(), text);
    }

    #[test]
    fn what_cannot_be_used_is_told_apart() {
        let newer = r#"{"schema_version":2,"session_id":"","goal":"","model":"","provider":"",
            "created_at":"","updated_at":"","message_count":0}"#;
        assert_eq!(Meta::parse(newer.as_bytes()), Err(MetaError::NewerSchema(2)));
        for bad in [&b""[..], b"\0\0\0\0", b"{}", b"[]", b"\xff"] {
            assert!(matches!(Meta::parse(bad), Err(MetaError::Unreadable(_))));
        }
    }
}
