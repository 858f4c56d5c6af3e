//! The view as the messages of a provider's API.
//!
//! The session memory stands behind the system prompt and before the history. Marks are left out. No
//! call stands apart from its answers, and no message is empty; that is what the view promises.

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
    /// message are one message. There is no `system` role in them, so what has it is said by the user.
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
            role: "system".to_owned(),
            content,
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
    arguments.text().map_or_else(|| arguments.as_str().to_owned(), |text| text.into_owned())
}

/// Blocks, by who says them in turn.
#[derive(Default)]
struct Turns(Vec<(&'static str, Vec<Value>)>);

impl Turns {
    fn add(&mut self, entry: &ViewEntry) {
        match entry {
            ViewEntry::Message { role, content, tool_calls, .. } => {
                let role = if role == "assistant" { "assistant" } else { "user" };
                if !content.trim().is_empty() {
                    self.say(role, json!({"type": "text", "text": content}));
                }
                for call in tool_calls {
                    let input = serde_json::to_value(&call.arguments).ok();
                    let input = input.filter(Value::is_object).unwrap_or_else(|| json!({}));
                    let (id, name) = (&call.id, &call.name);
                    let block = json!({"type": "tool_use", "id": id, "name": name, "input": input});
                    self.say(role, block);
                }
            }
            ViewEntry::Answer { tool_call_id, content, .. } => self.say(
                "user",
                json!({"type": "tool_result", "tool_use_id": tool_call_id, "content": content}),
            ),
            _ => {}
        }
    }

    fn say(&mut self, role: &'static str, block: Value) {
        match self.0.last_mut() {
            Some((last, blocks)) if *last == role => blocks.push(block),
            _ => self.0.push((role, vec![block])),
        }
    }

    fn messages(self) -> Vec<Value> {
        let message = |(role, blocks)| json!({"role": role, "content": Value::Array(blocks)});
        self.0.into_iter().map(message).collect()
    }
}
