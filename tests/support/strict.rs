//! What strict consumers demand of a view, checked by the messages alone.

use std::collections::{HashSet, VecDeque};

use eventlog::event::Json;
use eventlog::resume::{View, ViewEntry};
use serde_json::Value;

/// Each call is answered once or waits, directly behind its message, in order; nothing else is an
/// answer, and nothing is empty.
pub fn check_view(view: &View, what: &str) {
    let mut open: VecDeque<&str> = VecDeque::new();
    for entry in &view.entries {
        match entry {
            ViewEntry::Answer { tool_call_id, content, .. } => {
                assert_eq!(open.pop_front(), Some(tool_call_id.as_str()), "{what}: in order");
                assert!(!content.trim().is_empty(), "{what}: an empty answer");
                assert!(!content.contains('\0'), "{what}");
            }
            ViewEntry::Pending { tool_call_id, .. } => {
                assert_eq!(open.pop_front(), Some(tool_call_id.as_str()), "{what}: in order");
            }
            ViewEntry::Message { content, tool_calls, .. } => {
                assert!(open.is_empty(), "{what}: {open:?} have no answer");
                assert!(!content.trim().is_empty() || !tool_calls.is_empty(), "{what}: empty");
                assert!(!content.contains('\0'), "{what}");
                open.extend(tool_calls.iter().map(|call| call.id.as_str()));
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "{what}: {open:?} have no answer at the end");
}

fn value(message: &Json, what: &str) -> Value {
    let text = message.as_str();
    let value: Value =
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{what}: {error}: {text}"));
    assert!(!has_nul(&value), "{what}: {text}");
    value
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(elements) => elements.iter().any(has_nul),
        Value::Object(members) => {
            members.iter().any(|(key, value)| key.contains('\0') || has_nul(value))
        }
        _ => false,
    }
}

fn is_plain(text: &Value, chars_max: usize) -> bool {
    let text = text.as_str().unwrap();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=chars_max).contains(&text.len()) && text.chars().all(plain)
}

/// What Anthropic's API demands. Returns the messages.
pub fn check_anthropic(messages: &[Json], what: &str) -> Vec<Value> {
    let messages: Vec<Value> = messages.iter().map(|message| value(message, what)).collect();
    let mut asked: Vec<&Value> = Vec::new();
    let mut ids = HashSet::new();
    let mut last = "assistant";
    for message in &messages {
        let role = message["role"].as_str().unwrap();
        assert_ne!(role, last, "{what}: the user begins, and they take turns");
        last = role;
        let blocks = message["content"].as_array().unwrap();
        assert!(!blocks.is_empty(), "{what}: an empty message");
        let of = |kind: &str, key: &str| -> Vec<&Value> {
            blocks.iter().filter(|b| b["type"] == kind).map(|b| &b[key]).collect()
        };
        assert_eq!(of("tool_result", "tool_use_id"), asked, "{what}: calls and their answers");
        let first = blocks.iter().take(asked.len());
        assert!(first.clone().all(|b| b["type"] == "tool_result"), "{what}: answers come first");
        assert!(of("text", "text").iter().all(|t| !t.as_str().unwrap().trim().is_empty()));
        assert!(of("tool_use", "input").iter().all(|input| input.is_object()), "{what}");
        assert!(of("tool_use", "name").iter().all(|name| is_plain(name, 64)), "{what}");
        asked = of("tool_use", "id");
        assert!(asked.iter().all(|id| is_plain(id, 64)), "{what}: {asked:?}");
        assert!(asked.iter().all(|id| ids.insert(id.as_str().unwrap())), "{what}: an id twice");
        assert!(asked.is_empty() || role == "assistant");
    }
    assert!(asked.is_empty(), "{what}: a call without an answer");
    if let Some(end) = messages.last().filter(|message| message["role"] == "assistant") {
        let text = end["content"].as_array().unwrap().last().unwrap()["text"].as_str().unwrap();
        assert_eq!(text, text.trim_end(), "{what}: white space at the end");
    }
    messages
}

/// What OpenAI's API demands. Returns the messages.
pub fn check_openai(messages: &[Json], what: &str) -> Vec<Value> {
    let messages: Vec<Value> = messages.iter().map(|message| value(message, what)).collect();
    let mut asked: VecDeque<&Value> = VecDeque::new();
    let mut ids = HashSet::new();
    for message in &messages {
        let role = message["role"].as_str().unwrap();
        if role == "tool" {
            assert_eq!(asked.pop_front(), Some(&message["tool_call_id"]), "{what}: in order");
        } else {
            assert!(asked.is_empty(), "{what}: {asked:?} have no answer");
            assert!(["system", "user", "assistant"].contains(&role), "{what}: {role}");
        }
        let calls = message["tool_calls"].as_array();
        let is_empty = message["content"].as_str().unwrap().trim().is_empty();
        assert!(!is_empty || calls.is_some(), "{what}: an empty message");
        for call in calls.into_iter().flatten() {
            assert!(is_plain(&call["id"], 40), "{what}: {call}");
            assert!(ids.insert(call["id"].as_str().unwrap()), "{what}: an id twice");
            assert!(is_plain(&call["function"]["name"], 64), "{what}: {call}");
            assert!(call["function"]["arguments"].is_string(), "{what}");
            asked.push_back(&call["id"]);
        }
    }
    assert!(asked.is_empty(), "{what}: a call without an answer");
    messages
}
