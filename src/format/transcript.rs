//! MyCodeAgent's transcript files: one event per line, with its session, run and step.
//!
//! Required fields: `event_id`, `timestamp`, `session_id`, `run_id` (taken as text, whatever scalar
//! they are), `step` (an integer, or what reads as one) and `event_type`. Where a key stands twice
//! the last value counts. Unknown event types are kept as [`Kind::Other`].

use std::borrow::Cow;

use super::fact::{self, Facts};
use super::{Content, Damage, Fact, Format, Record, Role, json};
use crate::entry::Kind;

/// The format of MyCodeAgent's `transcript-*.jsonl`.
///
/// ```
/// use eventlog::{Kind, format::{Format, Transcript}};
///
/// let line = br#"{"event_id":"evt-1","timestamp":"2026-03-01T10:00:00Z","session_id":"s","run_id":"run-1",
///     "step":0,"event_type":"message","payload":{"role":"user","content":"hello"}}"#;
/// let record = Transcript.classify(line).unwrap();
/// assert_eq!((record.kind, record.user_turn), (Kind::Message, true));
/// assert_eq!(record.session.as_deref(), Some("s"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Transcript;

/// What the completion gate writes on the user's behalf is no user's turn.
const GATE_SOURCE: &str = "completion_gate";

/// The newest version of the schema that is known.
const SCHEMA_VERSION: u64 = 1;

impl Format for Transcript {
    fn name(&self) -> &'static str {
        "transcript"
    }

    fn classify<'l>(&self, line: &'l [u8]) -> Result<Record<'l>, Damage> {
        let (found, notes) = json::fields(
            line,
            [
                &["event_id"],
                &["timestamp"],
                &["session_id"],
                &["run_id"],
                &["step"],
                &["event_type"],
                &["schema_version"],
                &["payload", "role"],
                &["payload", "metadata", "source"],
            ],
        )?;
        let [id, time, session, run, step, event_type, version, role, source] = found;
        let required = |field: Option<&'l str>| {
            field.and_then(json::scalar_text).ok_or(Damage::SchemaMismatch)
        };
        let (id, time) = (required(id)?, required(time)?);
        let (session, run) = (required(session)?, required(run)?);
        if !step.is_some_and(is_integer) {
            return Err(Damage::SchemaMismatch);
        }
        let kind = match &*required(event_type)? {
            "message" => Kind::Message,
            "state_transition" => Kind::StateTransition,
            "tool_lifecycle" => Kind::ToolLifecycle,
            "checkpoint" => Kind::Checkpoint,
            "terminal" => Kind::Terminal,
            _ => Kind::Other,
        };
        // In a message without a role the assistant speaks.
        let role = (kind == Kind::Message)
            .then(|| role.and_then(json::string).unwrap_or("assistant".into()));
        let is_gate = || source.and_then(json::string).as_deref() == Some(GATE_SOURCE);
        Ok(Record {
            session: Some(session),
            run: Some(run),
            user_turn: role.as_deref() == Some("user") && !is_gate(),
            id: Some(id),
            time: Some(time),
            role,
            newer_schema: version
                .and_then(|version| version.parse().ok())
                .filter(|version| *version > SCHEMA_VERSION),
            ..Record::new(kind, notes)
        })
    }

    fn facts<'l>(&self, line: &'l [u8]) -> Vec<Fact<'l>> {
        let mut facts = Facts::of(line);
        let Ok(record) = self.classify(line) else { return facts.into_vec() };
        let Ok(([payload], _)) = json::fields(line, [&["payload"]]) else {
            return facts.into_vec();
        };
        // Without one the line says what it says as a whole.
        let (raw, payload) = (payload, payload.unwrap_or("{}"));
        match record.kind {
            Kind::Message => message_facts(payload, record.role.unwrap_or_default(), &mut facts),
            Kind::ToolLifecycle => {
                let [tool, call_id, status] =
                    texts(payload, ["tool_name", "tool_call_id", "status"]);
                let (tool, call_id) = (tool.unwrap_or_default(), call_id.unwrap_or_default());
                let status = status.unwrap_or_default();
                facts.add(raw, Content::Lifecycle { call_id, tool, status, payload });
            }
            Kind::StateTransition => {
                let [to, reason] =
                    texts(payload, ["to_state", "reason"]).map(Option::unwrap_or_default);
                facts.add(raw, Content::Transition { to, reason });
            }
            Kind::Checkpoint => {
                let [id] = texts(payload, ["checkpoint_id"]);
                facts.add(raw, Content::Checkpoint { id, payload });
            }
            Kind::Terminal => {
                let [reason] = texts(payload, ["reason"]).map(Option::unwrap_or_default);
                facts.add(raw, Content::Terminal { reason });
            }
            _ => {}
        }
        facts.into_vec()
    }

    fn is_foreign(&self, line: &[u8]) -> bool {
        const REQUIRED: [&str; 6] =
            ["event_id", "timestamp", "session_id", "run_id", "step", "event_type"];
        json::is_foreign(line, "event_type", &REQUIRED)
    }

    fn scalar_fields(&self) -> &'static [&'static str] {
        &[
            "event_id",
            "timestamp",
            "session_id",
            "run_id",
            "step",
            "event_type",
            "schema_version",
            "reference_id",
        ]
    }
}

/// The fields of a payload as text.
fn texts<'l, const N: usize>(payload: &'l str, keys: [&str; N]) -> [Option<Cow<'l, str>>; N] {
    let paths = keys.each_ref().map(std::slice::from_ref);
    match json::fields(payload.as_bytes(), paths) {
        Ok((found, _)) => found.map(|raw| raw.and_then(json::scalar_text)),
        Err(_) => [const { None }; N],
    }
}

fn message_facts<'l>(payload: &'l str, role: Cow<'l, str>, facts: &mut Facts<'l>) {
    let Ok(([content, calls, tool, call_id, reasoning], _)) = json::fields(
        payload.as_bytes(),
        [
            &["content"],
            &["metadata", "tool_calls"],
            &["metadata", "tool_name"],
            &["metadata", "tool_call_id"],
            &["metadata", "reasoning_content"],
        ],
    ) else {
        return;
    };
    let text = content.and_then(json::string).unwrap_or_default();
    let role = Role::from_text(role);
    if role == Role::Tool {
        let call_id = call_id.and_then(json::scalar_text).unwrap_or_default();
        let tool = tool.and_then(json::scalar_text);
        facts.add(content, Content::Answer { call_id, tool, text });
        return;
    }
    if let Some(thought) = reasoning.and_then(json::string).filter(|text| !text.is_empty()) {
        facts.add(reasoning, Content::Reasoning(thought));
    }
    facts.add(content, Content::Text { role, text });
    for call in calls.map(super::skip::elements).unwrap_or_default() {
        facts.add(Some(call), fact::call(call));
    }
}

/// What the original reads as an integer: a number that is finite, a boolean, or digits in a
/// string.
fn is_integer(raw: &str) -> bool {
    match raw {
        "true" | "false" => true,
        "null" => false,
        text if text.starts_with('"') => json::string(raw).is_some_and(|digits| {
            let digits = digits.trim();
            let digits = digits.strip_prefix(['+', '-']).unwrap_or(digits);
            !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
        }),
        text => text.parse::<f64>().is_ok_and(f64::is_finite),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(session: &str, step: &str, kind: &str, payload: &str) -> String {
        format!(
            "{{\"event_id\": \"e\", \"timestamp\": \"t\", \"session_id\": {session}, \
             \"run_id\": \"run-1\", \"step\": {step}, \"event_type\": \"{kind}\", \
             \"payload\": {payload}}}"
        )
    }

    #[test]
    fn ids_are_taken_as_text_and_steps_as_integers() {
        for (session, text) in [("\"s\"", "s"), ("5", "5"), ("true", "True"), ("null", "None")] {
            let line = line(session, "0", "message", "{}");
            let record = Transcript.classify(line.as_bytes()).unwrap();
            assert_eq!(record.session.as_deref(), Some(text));
        }
        for step in ["3", "2.9", "true", "\"3\"", "\" -7 \""] {
            assert!(Transcript.classify(line("1", step, "message", "{}").as_bytes()).is_ok());
        }
        for step in ["null", "\"x\"", "\"\"", "1e999", "[]", "{}"] {
            let line = line("1", step, "message", "{}");
            assert_eq!(Transcript.classify(line.as_bytes()), Err(Damage::SchemaMismatch));
        }
    }

    #[test]
    fn the_bytes_of_a_fact_without_a_payload_are_the_whole_line() {
        for kind in ["tool_lifecycle", "state_transition", "checkpoint", "terminal"] {
            let line = line("\"s\"", "0", kind, "{}").replace(", \"payload\": {}", "");
            let facts = Transcript.facts(line.as_bytes());
            assert_eq!(facts.len(), 1, "{kind}");
            assert_eq!(facts[0].bytes, 0..line.len(), "{kind}");
        }
    }

    #[test]
    fn an_unknown_type_is_kept_as_other() {
        let line = line("\"s\"", "0", "brand_new", "{}");
        assert_eq!(Transcript.classify(line.as_bytes()).unwrap().kind, Kind::Other);
    }

    #[test]
    fn a_message_of_the_completion_gate_is_no_user_turn() {
        let user = line("\"s\"", "0", "message", "{\"role\":\"user\"}");
        assert!(Transcript.classify(user.as_bytes()).unwrap().user_turn);
        let gate = "{\"role\": \"user\", \"metadata\": {\"source\": \"completion_gate\"}}";
        let gate = line("\"s\"", "0", "message", gate);
        assert!(!Transcript.classify(gate.as_bytes()).unwrap().user_turn);
    }
}
