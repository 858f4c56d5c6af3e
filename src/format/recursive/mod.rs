//! recursive-agent's sessions: a directory with `transcript.jsonl`, one message per line, and files
//! beside it.
//!
//! This file has the lines; [`meta`](Meta) is the `.meta.json` beside them, [`place`] the names of
//! directories, and the lock file. Required of a message: `id`, `role`, `content` and `timestamp`,
//! all text. A compaction is a line of its own, `type` system and `subtype` compact_boundary with
//! a `timestamp`, even if it looks like a message too. Lines of other types are kept as
//! [`Kind::Other`].

mod meta;
pub mod place;

use std::borrow::Cow;

use super::fact::{self, Facts};
use super::{Content, Damage, Fact, Format, Record, Role, Usage, json};
use crate::bytes::within;
use crate::entry::Kind;

pub(crate) use meta::Derived;
pub use meta::{Meta, MetaError, Status};

/// The format of recursive-agent's `transcript.jsonl`.
///
/// ```
/// use eventlog::{Kind, format::{Format, Recursive}};
///
/// let line = br#"{"uuid":"u-1","id":"msg_001","role":"user","content":"hello","timestamp":"2026-03-01T10:00:00Z"}"#;
/// let record = Recursive.classify(line).unwrap();
/// assert_eq!((record.kind, record.number), (Kind::Message, Some(1)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Recursive;

impl Format for Recursive {
    fn name(&self) -> &'static str {
        "recursive"
    }

    fn classify<'l>(&self, line: &'l [u8]) -> Result<Record<'l>, Damage> {
        let (found, notes) = json::fields(
            line,
            [
                &["id"],
                &["role"],
                &["content"],
                &["timestamp"],
                &["uuid"],
                &["parent_uuid"],
                &["type"],
                &["subtype"],
                &["turn"],
                &["compacted_count"],
            ],
        )?;
        let [id, role, content, time, uuid, parent, kind, subtype, turn, compacted] = found;
        let time = time.and_then(json::string).ok_or(Damage::SchemaMismatch)?;
        if kind == Some("\"system\"") && subtype == Some("\"compact_boundary\"") {
            let is_count = |raw: Option<&str>| raw.is_none_or(|raw| raw.parse::<u64>().is_ok());
            if !is_count(turn) || !is_count(compacted) {
                return Err(Damage::SchemaMismatch);
            }
            return Ok(Record { time: Some(time), ..Record::new(Kind::Checkpoint, notes) });
        }
        let message = id.and_then(json::string).zip(role.and_then(json::string));
        let has_content = content.is_some_and(|content| content.starts_with('"'));
        match (message, kind.and_then(json::string)) {
            (Some((id, role)), _) if has_content => Ok(Record {
                user_turn: role == "user",
                number: id.strip_prefix("msg_").and_then(|number| number.parse().ok()),
                id: uuid.and_then(json::string).filter(|uuid| !uuid.is_empty()),
                parent: parent.and_then(json::string).filter(|parent| !parent.is_empty()),
                time: Some(time),
                role: Some(role),
                ..Record::new(Kind::Message, notes)
            }),
            (None, Some(_)) => Ok(Record { time: Some(time), ..Record::new(Kind::Other, notes) }),
            _ => Err(Damage::SchemaMismatch),
        }
    }

    fn facts<'l>(&self, line: &'l [u8]) -> Vec<Fact<'l>> {
        let mut facts = Facts::of(line);
        let (Ok(record), Ok(text)) = (self.classify(line), std::str::from_utf8(line)) else {
            return facts.into_vec();
        };
        let paths: [&[&str]; 6] = [
            &["content"],
            &["tool_calls"],
            &["tool_call_id"],
            &["reasoning_content"],
            &["usage"],
            &["summary_uuid"],
        ];
        let Ok(([content, calls, call_id, reasoning, usage, summary], _)) =
            json::fields(line, paths)
        else {
            return facts.into_vec();
        };
        let string = |raw: Option<&'l str>| raw.and_then(json::string);
        match record.kind {
            Kind::Checkpoint => {
                facts.add(None, Content::Checkpoint { id: string(summary), payload: text });
            }
            Kind::Message => {
                if let Some(thought) = string(reasoning).filter(|text| !text.is_empty()) {
                    facts.add(reasoning, Content::Reasoning(thought));
                }
                let role = Role::from_text(record.role.unwrap_or_default());
                let text = string(content).unwrap_or_default();
                if role == Role::Tool {
                    let call_id = string(call_id).unwrap_or_default();
                    facts.add(content, Content::Answer { call_id, tool: None, text });
                } else {
                    facts.add(content, Content::Text { role, text });
                }
                for call in calls.map(crate::format::skip::elements).unwrap_or_default() {
                    facts.add(Some(call), fact::call(call));
                }
                if let Some(raw) = usage {
                    facts.add(usage, Content::Usage(tokens(raw)));
                }
            }
            _ => {}
        }
        facts.into_vec()
    }

    fn names_no_session(&self) -> bool {
        true
    }

    /// Lines of many programs have a type and a time.
    fn is_telling(&self, record: &Record<'_>) -> bool {
        record.kind == Kind::Message
    }

    fn is_foreign(&self, line: &[u8]) -> bool {
        let subtype = json::fields(line, [&["subtype"]]);
        let is_boundary = matches!(subtype, Ok(([Some("\"compact_boundary\"")], _)));
        !is_boundary && json::is_foreign(line, "role", &["id", "role", "content", "timestamp"])
    }

    fn scalar_fields(&self) -> &'static [&'static str] {
        &[
            "uuid",
            "parent_uuid",
            "source_tool_assistant_uuid",
            "id",
            "parent_id",
            "role",
            "content",
            "tool_call_id",
            "reasoning_content",
            "timestamp",
            "type",
            "subtype",
            "turn",
            "compacted_count",
            "summary_uuid",
        ]
    }
}

/// The tokens in a `usage` object.
fn tokens(raw: &str) -> Usage {
    let found = json::fields(
        raw.as_bytes(),
        [
            &["input_tokens"],
            &["output_tokens"],
            &["cache_creation_tokens"],
            &["cache_read_tokens"],
            &["reasoning_tokens"],
        ],
    );
    let counts = found.map(|(found, _)| found).unwrap_or_default();
    let [input, output, cache_creation, cache_read, reasoning] =
        counts.map(|raw| raw.and_then(|raw| raw.parse().ok()).unwrap_or_default());
    Usage { input, output, cache_creation, cache_read, reasoning }
}

/// The first `max` characters of a text.
fn first_chars(text: &str, max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max) {
        Some((at, _)) => within(text, ..at).into(),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &str) -> Result<Kind, Damage> {
        Recursive.classify(line.as_bytes()).map(|record| record.kind)
    }

    #[test]
    fn a_message_needs_id_role_content_and_time_as_text() {
        let whole = r#"{"id":"m","role":"user","content":"x","timestamp":"t"}"#;
        assert_eq!(kind(whole), Ok(Kind::Message));
        for bad in [
            r#"{"role":"user","content":"x","timestamp":"t"}"#,
            r#"{"id":"m","role":"user","content":null,"timestamp":"t"}"#,
            r#"{"id":"m","role":"user","content":"x"}"#,
            r#"{"id":1,"role":"user","content":"x","timestamp":"t"}"#,
        ] {
            assert_eq!(kind(bad), Err(Damage::SchemaMismatch), "{bad}");
        }
    }

    #[test]
    fn a_boundary_is_a_checkpoint_even_if_it_looks_like_a_message() {
        let boundary = r#""type":"system","subtype":"compact_boundary","timestamp":"t""#;
        assert_eq!(kind(&format!("{{{boundary}}}")), Ok(Kind::Checkpoint));
        let message = r#""id":"m","role":"system","content":"x""#;
        assert_eq!(kind(&format!("{{{message},{boundary}}}")), Ok(Kind::Checkpoint));
        assert_eq!(kind(&format!("{{{boundary},\"turn\":-1}}")), Err(Damage::SchemaMismatch));
        let other = r#"{"type":"system","subtype":"note","timestamp":"t"}"#;
        assert_eq!(kind(other), Ok(Kind::Other));
    }

    #[test]
    fn each_fact_knows_its_bytes() {
        let line = r#"{"id":"msg_002","role":"assistant","content":"on it","tool_calls":[{"id":"c","name":"Read","arguments":{"p":1}}],"reasoning_content":"hm","usage":{"input_tokens":5,"output_tokens":2},"timestamp":"t"}"#;
        let facts = Recursive.facts(line.as_bytes());
        let bytes: Vec<&str> = facts.iter().map(|fact| &line[fact.bytes.clone()]).collect();
        let expected = [
            "\"hm\"",
            "\"on it\"",
            r#"{"id":"c","name":"Read","arguments":{"p":1}}"#,
            r#"{"input_tokens":5,"output_tokens":2}"#,
        ];
        assert_eq!(bytes, expected);
        let usage = Usage { input: 5, output: 2, ..Usage::default() };
        assert_eq!(facts.last().unwrap().content, Content::Usage(usage));
    }
}
