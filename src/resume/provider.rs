//! The view as the messages of a provider's API.
//!
//! The session memory stands behind the system prompt and before the history. Marks are left out. No
//! call stands apart from its answers, and no message is empty; that is what the view promises.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::{Value, json};

use super::{Resumed, ViewCall, ViewEntry};
use crate::event::Json;

/// Whose messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Provider {
    /// OpenAI's chat messages. Summaries and the memory are `system` messages.
    OpenAi,
    /// Anthropic's messages, in which user and assistant take turns: the answers to the calls of a
    /// message are one message. There is no `system` role in them, so what has it is said by the
    /// user. Ids of calls are of letters, digits, `_` and `-`, and no two calls have the same: where
    /// the recorded ones are not like that, others stand in their place.
    Anthropic,
}

impl Resumed {
    /// The messages to send, with at most `memory_chars` characters of session memory; 0 for none.
    ///
    /// ```
    /// use eventlog::resume::{Provider, ResumeOptions, resume};
    /// # use eventlog::{EventLog, format::Role, record::Recorder};
    /// # let dir = std::env::temp_dir().join(format!("eventlog-doc-provider-{}", std::process::id()));
    /// # let log = EventLog::open(&dir)?;
    /// # Recorder::new(log.session("s")?, "run-1")?.message(0, Role::User, "hello")?;
    /// let resumed = resume(&log.snapshot()?, "s", &ResumeOptions::default())?;
    /// let messages = resumed.messages(Provider::OpenAi, 0);
    /// assert_eq!(messages, [serde_json::json!({"role": "user", "content": "hello"})]);
    /// # log.close()?;
    /// # std::fs::remove_dir_all(dir).ok();
    /// # Ok::<(), eventlog::Error>(())
    /// ```
    pub fn messages(&self, provider: Provider, memory_chars: usize) -> Vec<Value> {
        let is_system = |entry: &&ViewEntry| matches!(entry, ViewEntry::Message { role, .. } if role == "system");
        let prompts = self.view.entries.iter().take_while(is_system).count();
        let (prompts, history) = self.view.entries.split_at(prompts);
        let memory = Some(self.memory.render(memory_chars)).filter(|text| !text.trim().is_empty());
        let memory = memory.map(|content| ViewEntry::Message {
            role: "system".into(),
            content: content.into(),
            reasoning: None,
            tool_calls: Vec::new(),
            seq: 0,
        });
        let entries = prompts.iter().chain(&memory).chain(history);
        match provider {
            Provider::OpenAi => entries.filter_map(openai).collect(),
            Provider::Anthropic => {
                let mut turns = Turns::default();
                entries.for_each(|entry| turns.add(entry));
                turns.messages()
            }
        }
    }
}

fn openai(entry: &ViewEntry) -> Option<Value> {
    Some(match entry {
        ViewEntry::Message { role, content, tool_calls, .. } => {
            let role = if role == "summary" { "system" } else { role };
            if tool_calls.is_empty() {
                return Some(json!({"role": role, "content": content}));
            }
            let call = |call: &ViewCall| {
                let arguments = arguments(&call.arguments);
                json!({"id": call.id, "type": "function",
                    "function": {"name": call.name, "arguments": arguments}})
            };
            let calls: Vec<Value> = tool_calls.iter().map(call).collect();
            json!({"role": role, "content": content, "tool_calls": calls})
        }
        ViewEntry::Answer { tool_call_id, content, .. } => {
            json!({"role": "tool", "tool_call_id": tool_call_id, "content": content})
        }
        _ => return None,
    })
}

/// Arguments as the text that a model sent: JSON, or what it sent that is none.
fn arguments(arguments: &Json) -> String {
    arguments.text().map_or_else(|| arguments.as_str().to_owned(), |text| text.to_string())
}

/// Arguments as an object, also where they are the text that a model sent; text that is no object is
/// kept under a key of its own.
fn input(arguments: &Json) -> Value {
    let text = self::arguments(arguments);
    let object = serde_json::from_str(&text).ok().filter(Value::is_object);
    object.unwrap_or_else(|| match text.trim() {
        "" | "null" => json!({}),
        text => json!({"arguments": text}),
    })
}

/// Blocks, by who says them in turn.
#[derive(Default)]
struct Turns {
    turns: Vec<(&'static str, Vec<Value>)>,
    ids: HashSet<String>,
    /// How often an id has been asked for.
    used: HashMap<String, u64>,
    /// The ids of the calls whose answers come next, in order.
    open: VecDeque<String>,
}

impl Turns {
    fn add(&mut self, entry: &ViewEntry) {
        match entry {
            ViewEntry::Message { role, content, tool_calls, .. } => {
                let role = if role == "assistant" { "assistant" } else { "user" };
                if !content.trim().is_empty() {
                    self.say(role, json!({"type": "text", "text": content}));
                }
                for call in tool_calls {
                    let id = self.new_id(&call.id);
                    let (name, input) = (&call.name, input(&call.arguments));
                    let block = json!({"type": "tool_use", "id": id, "name": name, "input": input});
                    self.say(role, block);
                    self.open.push_back(id);
                }
            }
            ViewEntry::Answer { tool_call_id, content, .. } => {
                // The answers stand behind the calls, in their order.
                let id = self.open.pop_front().unwrap_or_else(|| tool_call_id.to_string());
                let block = json!({"type": "tool_result", "tool_use_id": id, "content": content});
                self.say("user", block);
            }
            _ => {}
        }
    }

    /// The id if the API takes it and no call has had it, else one that is made of it.
    fn new_id(&mut self, id: &str) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let base: String = id.chars().map(plain).collect();
        let n = self.used.entry(base.clone()).or_default();
        loop {
            *n += 1;
            let id = if *n == 1 { base.clone() } else { format!("{base}-{n}") };
            if self.ids.insert(id.clone()) {
                return id;
            }
        }
    }

    fn say(&mut self, role: &'static str, block: Value) {
        match self.turns.last_mut() {
            Some((last, blocks)) if *last == role => blocks.push(block),
            _ => self.turns.push((role, vec![block])),
        }
    }

    fn messages(self) -> Vec<Value> {
        let message = |(role, blocks)| json!({"role": role, "content": Value::Array(blocks)});
        self.turns.into_iter().map(message).collect()
    }
}
