//! What a record says, in terms that all formats share.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use super::{Format, json, syntax};

/// Who speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role<'l> {
    /// The instructions of the host.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// A tool, answering a call.
    Tool,
    /// A summary that stands for what was before it.
    Summary,
    /// Anything else, as the line has it. It is never taken for another role.
    Other(Cow<'l, str>),
}

impl<'l> Role<'l> {
    pub(super) fn from_text(text: Cow<'l, str>) -> Role<'l> {
        match &*text {
            "system" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "tool" => Role::Tool,
            "summary" => Role::Summary,
            _ => Role::Other(text),
        }
    }

    /// The role's name in the formats.
    ///
    /// ```
    /// assert_eq!(eventlog::format::Role::Assistant.name(), "assistant");
    /// ```
    pub fn name(&self) -> &str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
            Role::Summary => "summary",
            Role::Other(name) => name,
        }
    }
}

impl fmt::Display for Role<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Tokens that a model call took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens of the prompt.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// Tokens written to the provider's cache.
    pub cache_creation: u64,
    /// Tokens read from the provider's cache.
    pub cache_read: u64,
    /// Tokens of reasoning.
    pub reasoning: u64,
}

impl Usage {
    /// Whether no token was counted.
    ///
    /// ```
    /// assert!(eventlog::format::Usage::default().is_zero());
    /// ```
    pub fn is_zero(&self) -> bool {
        *self == Usage::default()
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        for (sum, more) in [
            (&mut self.input, other.input),
            (&mut self.output, other.output),
            (&mut self.cache_creation, other.cache_creation),
            (&mut self.cache_read, other.cache_read),
            (&mut self.reasoning, other.reasoning),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// One thing that a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fact<'l> {
    /// Which bytes of the line it comes from.
    pub bytes: Range<usize>,
    /// What it says.
    pub content: Content<'l>,
}

/// What a fact says. Text is decoded, with U+FFFD for each lone surrogate; `arguments`, `payload`
/// and `details` are JSON as it stands in the line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Content<'l> {
    /// A message's text; empty where it has none.
    Text {
        /// Who speaks.
        role: Role<'l>,
        /// What.
        text: Cow<'l, str>,
    },
    /// What the model thought before it answered.
    Reasoning(Cow<'l, str>),
    /// The model calls a tool.
    Call {
        /// The call's id; empty where the line has none.
        id: Cow<'l, str>,
        /// The tool.
        name: Cow<'l, str>,
        /// What it is called with, as JSON.
        arguments: Option<&'l str>,
    },
    /// A tool's answer to a call.
    Answer {
        /// The call's id.
        call_id: Cow<'l, str>,
        /// The tool, where the line names it.
        tool: Option<Cow<'l, str>>,
        /// The answer.
        text: Cow<'l, str>,
    },
    /// A step in the life of a call.
    Lifecycle {
        /// The call's id.
        call_id: Cow<'l, str>,
        /// The tool.
        tool: Cow<'l, str>,
        /// `requested`, `started`, `completed`, `failed`, or what else the line has.
        status: Cow<'l, str>,
        /// All that is known of the step, as JSON.
        payload: &'l str,
    },
    /// The agent loop changes its state.
    Transition {
        /// The new state.
        to: Cow<'l, str>,
        /// Why.
        reason: Cow<'l, str>,
    },
    /// The context was compacted; what came before is summed up.
    Checkpoint {
        /// Its id, or the id of the record that holds the summary.
        id: Option<Cow<'l, str>>,
        /// All that is known of it, as JSON.
        payload: &'l str,
    },
    /// A run ends.
    Terminal {
        /// Why.
        reason: Cow<'l, str>,
    },
    /// What a model call took.
    Usage(Usage),
}

/// Collects the facts of a line.
pub(super) struct Facts<'l> {
    line: &'l [u8],
    facts: Vec<Fact<'l>>,
}

impl<'l> Facts<'l> {
    pub(super) fn of(line: &'l [u8]) -> Facts<'l> {
        Facts { line, facts: Vec::new() }
    }

    /// Adds a fact that comes from `raw`, a part of the line; from all of it with `None`.
    pub(super) fn add(&mut self, raw: Option<&'l str>, content: Content<'l>) {
        let bytes = match raw {
            Some(raw) => {
                let start = syntax::offset_in(self.line, raw.as_bytes());
                start..start + raw.len()
            }
            None => 0..self.line.len(),
        };
        self.facts.push(Fact { bytes, content });
    }

    pub(super) fn into_vec(self) -> Vec<Fact<'l>> {
        self.facts
    }
}

/// A call from `{"id": .., "name": .., "arguments": ..}`.
pub(super) fn call(raw: &str) -> Content<'_> {
    let found = json::fields(raw.as_bytes(), [&["id"], &["name"], &["arguments"]]);
    let [id, name, arguments] = found.map(|(found, _)| found).unwrap_or_default();
    let text = |raw| json::scalar_text(raw).filter(|_| raw != "null");
    let id = id.and_then(text).unwrap_or_default();
    let name = name.and_then(text).unwrap_or_default();
    Content::Call { id, name, arguments }
}

/// The text of the message in a line, `None` where it is no message.
///
/// ```
/// use eventlog::format::{Recursive, text};
///
/// let line = br#"{"id":"msg_001","role":"user","content":"hello","timestamp":"2026-03-01T10:00:00Z"}"#;
/// assert_eq!(text(&Recursive, line).unwrap(), "hello");
/// ```
pub fn text<'l>(format: &dyn Format, line: &'l [u8]) -> Option<Cow<'l, str>> {
    format.facts(line).into_iter().find_map(|fact| match fact.content {
        Content::Text { text, .. } | Content::Answer { text, .. } => Some(text),
        _ => None,
    })
}
