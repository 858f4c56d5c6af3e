//! MyCodeAgent's transcript files: one event per line, with its session, run and step.
//!
//! Required fields: `event_id`, `timestamp`, `session_id`, `run_id` (taken as text, whatever scalar
//! they are), `step` (an integer, or what reads as one) and `event_type`. Where a key stands twice
//! the last value counts. Unknown event types are kept as [`Kind::Other`].

use std::borrow::Cow;

use super::{Damage, Format, Record, json};
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

impl Format for Transcript {
    fn name(&self) -> &'static str {
        "transcript"
    }

    fn classify<'l>(&self, line: &'l [u8]) -> Result<Record<'l>, Damage> {
        let keys =
            ["event_id", "timestamp", "session_id", "run_id", "step", "event_type", "payload"];
        let [id, time, session, run, step, event_type, payload] =
            json::fields(json::text(line)?, keys)?;
        let required = |field: Option<&'l str>| {
            field.and_then(json::scalar_text).ok_or(Damage::SchemaMismatch)
        };
        required(id)?;
        required(time)?;
        let session = required(session)?;
        let run = required(run)?;
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
        let user_turn = kind == Kind::Message && payload.is_some_and(is_user_turn);
        Ok(Record { kind, session: Some(session), run: Some(run), user_turn })
    }

    fn time<'l>(&self, line: &'l [u8]) -> Option<Cow<'l, str>> {
        let [time] = json::fields(json::text(line).ok()?, ["timestamp"]).ok()?;
        json::string(time?)
    }

    fn text<'l>(&self, line: &'l [u8]) -> Option<Cow<'l, str>> {
        payload_text(line, "content")
    }

    fn reason<'l>(&self, line: &'l [u8]) -> Option<Cow<'l, str>> {
        payload_text(line, "reason")
    }
}

fn payload_text<'l>(line: &'l [u8], key: &'static str) -> Option<Cow<'l, str>> {
    let [payload] = json::fields(json::text(line).ok()?, ["payload"]).ok()?;
    let [value] = json::fields(payload?, [key]).ok()?;
    json::string(value?)
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

fn is_user_turn(payload: &str) -> bool {
    let Ok([role, metadata]) = json::fields(payload, ["role", "metadata"]) else {
        return false;
    };
    let source = metadata.and_then(|metadata| {
        let [source] = json::fields(metadata, ["source"]).ok()?;
        json::string(source?)
    });
    role.and_then(json::string).as_deref() == Some("user") && source.as_deref() != Some(GATE_SOURCE)
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
