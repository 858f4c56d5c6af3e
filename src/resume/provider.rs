//! The view as the messages of a provider's API.
//!
//! The session memory stands behind the system prompt and before the history. No call stands apart
//! from its answers, and no message is empty; that is what the view promises. What else an API
//! refuses is mended here: ids that are there twice or have signs that it does not take, names of
//! tools, the end of the last message.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{Resumed, View, ViewCall, ViewEntry};
use crate::event::{Json, Text};
use crate::format::write::{Object, Spacing};
use crate::steps;

/// Whose messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Provider {
    /// OpenAI's chat messages. Summaries and the memory are `system` messages.
    OpenAi,
    /// Anthropic's messages, in which user and assistant take turns: the answers to the calls of a
    /// message are one message. There is no `system` role in them, so what has it is said by the
    /// user, who also begins.
    Anthropic,
}

/// What stands in the messages beside the history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageOptions {
    /// The session memory as text; empty for none.
    pub memory: String,
    /// Say where records are missing, instead of leaving these marks out.
    pub marks: bool,
}

impl Resumed {
    /// The messages to send, with at most `memory_chars` characters of session memory; 0 for none.
    /// Ids of calls are of at most 40 letters, digits, `_` and `-`, and no two calls have the
    /// same: where the recorded ones are not like that, others stand in their place.
    ///
    /// ```
    /// use eventlog::resume::{Provider, ResumeOptions, resume};
    /// # use eventlog::{EventLog, format::Role, record::Recorder};
    /// # let dir = std::env::temp_dir().join(format!("eventlog-doc-provider-{}", std::process::id()));
    /// # let log = EventLog::open(&dir)?;
    /// # Recorder::new(log.session("s")?, "run-1")?.message(0, Role::User, "hello")?;
    /// let resumed = resume(&log.snapshot()?, "s", &ResumeOptions::default())?;
    /// let messages = resumed.messages(Provider::OpenAi, 0);
    /// assert_eq!(messages[0].as_str(), r#"{"role":"user","content":"hello"}"#);
    /// # log.close()?;
    /// # std::fs::remove_dir_all(dir).ok();
    /// # Ok::<(), eventlog::Error>(())
    /// ```
    pub fn messages(&self, provider: Provider, memory_chars: usize) -> Vec<Json> {
        let memory = self.memory.render(memory_chars);
        self.view.messages(provider, &MessageOptions { memory, marks: false })
    }
}

impl View {
    /// See [`Resumed::messages`].
    pub fn messages(&self, provider: Provider, options: &MessageOptions) -> Vec<Json> {
        let is_system = |entry: &&ViewEntry| matches!(entry, ViewEntry::Message { role, .. } if role == "system");
        let prompts = self.entries.iter().take_while(is_system).count();
        let (prompts, history) = self.entries.split_at(prompts);
        let memory = ViewEntry::Message {
            role: "system".into(),
            content: options.memory.replace('\0', "\u{FFFD}").into(),
            reasoning: None,
            tool_calls: Vec::new(),
            seq: 0,
        };
        let memory = (!super::view::is_blank(&options.memory)).then_some(&memory);
        let mut ids = Ids::default();
        let mut messages = Messages::new(provider);
        for entry in prompts.iter().chain(memory).chain(history) {
            match entry {
                ViewEntry::Message { role, content, tool_calls, .. } => {
                    let calls = tool_calls.iter().map(|call| Call::of(call, &mut ids)).collect();
                    messages.say(role, content, calls);
                }
                // The answers stand behind the calls, in their order.
                ViewEntry::Answer { content, .. } => messages.answer(&ids.next(), content),
                ViewEntry::Pending { .. } => messages.answer(&ids.next(), WAITS),
                ViewEntry::Gap { text, .. } if options.marks => {
                    messages.say("system", &format!("[{text}]"), Vec::new());
                }
                ViewEntry::Gap { .. } | ViewEntry::Compaction { .. } => {}
            }
        }
        messages.finish()
    }
}

/// The answer to a call that waits for approval: an API takes no call without one.
const WAITS: &str = "not carried out: it waits for approval";
/// What a user says where the conversation begins with somebody else.
const BEGINNING: &str = "[the conversation before this is not here]";
/// The longest id and name that the APIs take.
const ID_CHARS_MAX: usize = 40;
const NAME_CHARS_MAX: usize = 64;

/// A call as the APIs take it.
struct Call {
    id: Text,
    name: String,
    arguments: Json,
}

impl Call {
    fn of(call: &ViewCall, ids: &mut Ids) -> Call {
        let name = match plain(&call.name, NAME_CHARS_MAX) {
            name if name.is_empty() => "unknown_tool".to_owned(),
            name => name,
        };
        Call { id: ids.give(&call.id), name, arguments: call.arguments.clone() }
    }

    /// Arguments as the text that a model sent: JSON, or what it sent that is none.
    fn as_text(&self) -> Text {
        self.arguments.text().unwrap_or_else(|| self.arguments.as_str().into())
    }

    /// Arguments as an object, also where they are the text that a model sent; text that is no object
    /// is kept under a key of its own.
    fn as_object(&self) -> Json {
        let text = self.as_text();
        let object = Json::parse(&text).filter(Json::is_object);
        let object = object.map(|object| object.made_safe().unwrap_or(object));
        object.unwrap_or_else(|| match text.trim() {
            "" | "null" => Json::object(),
            text => Json::object().with("arguments", &Json::string(text)),
        })
    }
}

/// The text in the signs that the APIs take in ids and names.
fn plain(text: &str, chars_max: usize) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    text.chars().take(chars_max).map(plain).collect()
}

/// Ids of calls, each given once.
#[derive(Default)]
struct Ids {
    given: HashSet<String>,
    /// By a beginning and how many digits stand behind it: all smaller numbers have been given.
    numbers: HashMap<(String, usize), u64>,
    /// The ids of the calls whose answers come next, in order.
    open: VecDeque<Text>,
}

impl Ids {
    /// The id if the APIs take it and no call has had it, else one that is made of it.
    fn give(&mut self, id: &str) -> Text {
        let base = plain(id, ID_CHARS_MAX);
        let id = match base.is_empty() || self.given.contains(&base) {
            true => self.numbered(&base),
            false => base,
        };
        self.given.insert(id.clone());
        let id = Text::from(id);
        self.open.push_back(id.clone());
        id
    }

    /// The first id of `base-2`, `base-3`, ... that has not been given, with as much of `base` as there
    /// is room for. Of no base it is `-1`, `-2`, ...
    fn numbered(&mut self, base: &str) -> String {
        let mut first = if base.is_empty() { 1 } else { 2 };
        let mut digits = 0;
        loop {
            digits += 1;
            let start: String = base.chars().take(ID_CHARS_MAX - "-".len() - digits).collect();
            let number = self.numbers.entry((start.clone(), digits)).or_insert(first);
            first = 10u64.pow(digits as u32);
            while *number < first {
                steps::count();
                let id = format!("{start}-{number}");
                *number += 1;
                if !self.given.contains(&id) {
                    return id;
                }
            }
        }
    }

    fn next(&mut self) -> Text {
        self.open.pop_front().unwrap_or_default()
    }
}

/// The messages of a provider in the making.
enum Messages {
    OpenAi(Vec<Json>),
    /// Blocks, by who says them in turn.
    Anthropic(Vec<(&'static str, Vec<Block>)>),
}

enum Block {
    Text(Text),
    Other(String),
}

fn object() -> Object {
    Object::new(Spacing::Compact)
}

fn array(elements: &[String]) -> String {
    format!("[{}]", elements.join(","))
}

impl Messages {
    fn new(provider: Provider) -> Messages {
        match provider {
            Provider::OpenAi => Messages::OpenAi(Vec::new()),
            Provider::Anthropic => Messages::Anthropic(Vec::new()),
        }
    }

    fn say(&mut self, role: &str, content: &str, calls: Vec<Call>) {
        match self {
            Messages::OpenAi(messages) => {
                let role = if role == "summary" { "system" } else { role };
                let message = object().text("role", role).text("content", content);
                let call = |call: Call| {
                    let arguments = call.as_text();
                    let function = object().text("name", &call.name).text("arguments", &arguments);
                    let whole = object().text("id", &call.id).text("type", "function");
                    whole.raw("function", &function.finish()).finish()
                };
                let calls: Vec<String> = calls.into_iter().map(call).collect();
                let message = match calls.is_empty() {
                    true => message,
                    false => message.raw("tool_calls", &array(&calls)),
                };
                messages.push(Json::raw(message.finish()));
            }
            Messages::Anthropic(turns) => {
                let role = if role == "assistant" { "assistant" } else { "user" };
                if !super::view::is_blank(content) {
                    add(turns, role, Block::Text(content.into()));
                }
                for call in calls {
                    let block = object().text("type", "tool_use").text("id", &call.id);
                    let block = block.text("name", &call.name);
                    let block = block.raw("input", call.as_object().as_str());
                    add(turns, role, Block::Other(block.finish()));
                }
            }
        }
    }

    fn answer(&mut self, id: &str, content: &str) {
        match self {
            Messages::OpenAi(messages) => {
                let message = object().text("role", "tool").text("tool_call_id", id);
                messages.push(Json::raw(message.text("content", content).finish()));
            }
            Messages::Anthropic(turns) => {
                let block = object().text("type", "tool_result").text("tool_use_id", id);
                add(turns, "user", Block::Other(block.text("content", content).finish()));
            }
        }
    }

    fn finish(self) -> Vec<Json> {
        let mut turns = match self {
            Messages::OpenAi(messages) => return messages,
            Messages::Anthropic(turns) => turns,
        };
        if turns.first().is_some_and(|(role, _)| *role == "assistant") {
            turns.insert(0, ("user", vec![Block::Text(BEGINNING.into())]));
        }
        // A message of the model that is gone on with must not end in white space.
        if let Some(("assistant", blocks)) = turns.last_mut()
            && let Some(Block::Text(text)) = blocks.last_mut()
        {
            *text = text.trim_end().into();
        }
        let block = |block: Block| match block {
            Block::Text(text) => object().text("type", "text").text("text", &text).finish(),
            Block::Other(block) => block,
        };
        let message = |(role, blocks): (&str, Vec<Block>)| {
            let blocks: Vec<String> = blocks.into_iter().map(block).collect();
            Json::raw(object().text("role", role).raw("content", &array(&blocks)).finish())
        };
        turns.into_iter().map(message).collect()
    }
}

fn add(turns: &mut Vec<(&'static str, Vec<Block>)>, role: &'static str, block: Block) {
    match turns.last_mut() {
        Some((last, blocks)) if *last == role => blocks.push(block),
        _ => turns.push((role, vec![block])),
    }
}
