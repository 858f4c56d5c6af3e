//! Arbitrary events: there is always a view, valid for every provider, the same from the index and in both readings of
//! the same log.

use std::collections::VecDeque;

use eventlog::event::{Json, NewEvent};
use eventlog::format::{Format, Recursive, Transcript};
use eventlog::io::sim::SimDisk;
use eventlog::resume::{self, Provider, Reading, ResumeOptions, ViewEntry};
use eventlog::{Attributes, Entry, EventLog, Kind, memory};

/// Kind, run, id, status and flags of an event, each a few of a byte's bits; and some text.
fn event(bytes: [u8; 3], text: &str) -> NewEvent {
    let [kind, id, more] = bytes;
    let id = ["a", "b", "", "c", "é\u{0}", "a", "b", "call-3-0"][usize::from(id & 7)];
    let status =
        ["requested", "started", "completed", "failed", "other"][usize::from(more & 7) % 5];
    let role =
        ["user", "assistant", "tool", "system", "summary", "developer"][usize::from(more & 7) % 6];
    let number = i64::from(more >> 3) - 3;
    let text = Json::string(text);
    let (kind, payload) = match kind & 7 {
        0 | 1 => (
            Kind::Message,
            format!(
                r#"{{"role": "{role}", "content": {text}, "metadata": {{"tool_call_id": {}}}}}"#,
                Json::string(id)
            ),
        ),
        2 => (
            Kind::Message,
            format!(
                r#"{{"role": "assistant", "content": {text}, "metadata": {{"tool_calls": [{{"id": {0}, "name": {text}, "arguments": {{}}}}, {{"id": {0}}}, 3]}}}}"#,
                Json::string(id)
            ),
        ),
        3 | 4 => (
            Kind::ToolLifecycle,
            format!(
                r#"{{"tool_name": "T", "tool_call_id": {}, "status": "{status}", "result": {text}, "error": {text}}}"#,
                Json::string(id)
            ),
        ),
        5 => (
            Kind::Checkpoint,
            format!(
                r#"{{"summary": {text}, "retain_start_idx": {number}, "messages_compacted": {}}}"#,
                more & 1
            ),
        ),
        6 => (
            Kind::StateTransition,
            format!(r#"{{"to_state": "awaiting_approval", "reason": {text}}}"#),
        ),
        _ => (Kind::Terminal, format!(r#"{{"reason": {text}}}"#)),
    };
    NewEvent::new(kind, Json::parse(&payload).unwrap())
        .run(["run-1", "run-2"][usize::from(id.len() > 1)])
}

/// Looks at one input.
pub fn run(data: &[u8]) {
    let disk = SimDisk::new();
    let log = EventLog::builder()
        .background(false)
        .segment_bytes(64 << 10)
        .open_dir(disk.root())
        .unwrap();
    let session = log.session("s").unwrap();
    let format: &dyn Format =
        if data.first().is_some_and(|n| n & 1 == 1) { &Recursive } else { &Transcript };
    let mut attributes = Attributes::default();
    attributes.format = Some(format.name().to_owned());
    session.describe(&attributes).unwrap();
    let mut entries: Vec<Entry<'static>> = Vec::new();
    for (n, part) in data.get(1..).unwrap_or_default().chunks(8).take(200).enumerate() {
        let bytes = [0, 1, 2].map(|n| part.get(n).copied().unwrap_or_default());
        let text = String::from_utf8_lossy(part.get(3..).unwrap_or_default()).into_owned();
        let line = match format.name() {
            "transcript" => event(bytes, &text).line("s").unwrap(),
            // Lines as they are, of this format or not.
            _ => format!(
                r#"{{"uuid":"u{n}","parent_uuid":"u{}","id":"msg_{n:03}","role":"{}","content":{},"tool_call_id":"{}","timestamp":"t"}}"#,
                bytes[0],
                ["user", "assistant", "tool", "system"][usize::from(bytes[1] & 3)],
                Json::string(&text),
                bytes[2] & 3
            ),
        };
        match format.classify(line.as_bytes()) {
            // Now and then without the mark that it was found to be a record.
            Ok(record) if bytes[0] & 0x80 == 0 => {
                entries.push(own(record.into_entry(line.as_bytes())))
            }
            Ok(record) => entries.push(Entry::new(record.kind, line.clone().into_bytes())),
            Err(_) => entries.push(Entry::new(Kind::Damaged, part.to_vec())),
        }
    }
    if entries.is_empty() {
        return;
    }
    session.append_batch(&entries).unwrap();
    let snapshot = log.snapshot().unwrap();
    let Ok(resumed) = resume::resume(&snapshot, "s", &ResumeOptions::default()) else { return };
    assert_eq!(resume::view(&snapshot, "s").unwrap(), resumed.view);
    assert_eq!(memory::of(&snapshot, "s").unwrap(), resumed.memory);
    assert!(resumed.memory.render(64).chars().count() <= 64);
    let mut open: VecDeque<&str> = VecDeque::new();
    for entry in &resumed.view.entries {
        match entry {
            ViewEntry::Message { content, tool_calls, .. } => {
                assert!(open.is_empty() && !content.contains('\0'));
                assert!(!tool_calls.is_empty() || !content.trim().is_empty());
                open.extend(tool_calls.iter().map(|call| call.id.as_str()));
            }
            ViewEntry::Answer { tool_call_id, content, .. } => {
                assert_eq!(open.pop_front(), Some(tool_call_id.as_str()));
                assert!(!content.trim().is_empty() && !content.contains('\0'));
            }
            ViewEntry::Pending { tool_call_id, .. } => {
                assert_eq!(open.pop_front(), Some(tool_call_id.as_str()));
            }
            _ => {}
        }
    }
    assert!(open.is_empty());
    for provider in [Provider::OpenAi, Provider::Anthropic] {
        for message in resumed.messages(provider, 100) {
            serde_json::from_str::<serde_json::Value>(message.as_str()).unwrap();
        }
    }
    let mut options = ResumeOptions::default();
    options.reading = Reading::Original;
    assert_eq!(resume::resume(&snapshot, "s", &options).unwrap().view, resumed.view);
}

fn own(entry: Entry<'_>) -> Entry<'static> {
    entry.into_owned()
}
