//! Events that a host makes: their payloads, ids and times, and the line that they become.
//!
//! The payloads are those of MyCodeAgent's transcripts. What a reader could not take, or would take
//! for something else, is refused here, before anything is written.

use jiff::Timestamp;

use super::{Detail, Event, Json, Text};
use crate::entry::{Entry, Kind, Seq};
use crate::error::{Error, ErrorKind, Result};
use crate::format::write::{Object, Spacing, respaced};
use crate::format::{Format, Role, Transcript};

/// The version of the schema that is written.
const SCHEMA_VERSION: u64 = 1;

/// What has become of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ToolStatus {
    /// The model has asked for it.
    Requested,
    /// It is being run: from here on it may have had an effect.
    Started,
    /// It has run, and there is a result.
    Completed,
    /// It has failed.
    Failed,
}

impl ToolStatus {
    const ALL: [ToolStatus; 4] =
        [ToolStatus::Requested, ToolStatus::Started, ToolStatus::Completed, ToolStatus::Failed];

    /// The status that has this name in a payload.
    pub fn from_name(name: &str) -> Option<ToolStatus> {
        ToolStatus::ALL.into_iter().find(|status| status.name() == name)
    }

    /// The name in a payload.
    pub fn name(self) -> &'static str {
        match self {
            ToolStatus::Requested => "requested",
            ToolStatus::Started => "started",
            ToolStatus::Completed => "completed",
            ToolStatus::Failed => "failed",
        }
    }
}

/// An event that is not in a log yet. It has an id and a time of its own.
///
/// ```
/// use eventlog::event::NewEvent;
/// use eventlog::format::Role;
///
/// let event = NewEvent::message(Role::User, "Help me refactor the auth module").run("run-1");
/// assert!(event.line("s-123")?.contains(r#""run_id": "run-1", "step": 0, "event_type": "message""#));
/// # Ok::<(), eventlog::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "an event is written by a recorder"]
pub struct NewEvent {
    event: Event,
    /// Why it cannot be written.
    refused: Option<&'static str>,
}

/// The kinds that are recorded.
const RECORDED: [Kind; 5] =
    [Kind::Message, Kind::StateTransition, Kind::ToolLifecycle, Kind::Checkpoint, Kind::Terminal];
const NO_OBJECT: &str = "a part of it that has to be an object is none";
const KEY_TWICE: &str = "it has a key twice, and readers differ in which they take";
const HALF_PAIR: &str = "it has half of a surrogate pair, which UTF-8 cannot say";

impl NewEvent {
    /// An event of any kind with a payload of the caller's making.
    pub fn new(kind: Kind, payload: Json) -> NewEvent {
        let payload = Json::raw(respaced(payload.as_str(), Spacing::Spaced));
        let event = Event {
            seq: 0,
            kind,
            id: new_id("evt").into(),
            parent: None,
            time: utc(Timestamp::now()).into(),
            run: Text::default(),
            step: 0,
            detail: Detail::of(kind, &payload),
            payload,
        };
        let is_recorded = RECORDED.contains(&kind);
        let refused = (!is_recorded).then_some("it is of a kind that is not recorded");
        NewEvent { event, refused }
    }

    /// An event with a part that has to be an object.
    fn of(kind: Kind, payload: Object, part: &Json) -> NewEvent {
        let mut event = NewEvent::new(kind, Json::raw(payload.finish()));
        event.refused = event.refused.or_else(|| refusal(part));
        event
    }

    /// A message without metadata.
    pub fn message(role: Role<'_>, content: &str) -> NewEvent {
        NewEvent::message_with(role, content, &Json::object())
    }

    /// A message. `metadata` is an object: `action_type` and `tool_calls` of an assistant,
    /// `tool_name` and `tool_call_id` of a tool.
    pub fn message_with(role: Role<'_>, content: &str, metadata: &Json) -> NewEvent {
        let payload = Object::new(Spacing::Spaced)
            .text("role", role.name())
            .text("content", content)
            .raw("metadata", metadata.as_str());
        NewEvent::of(Kind::Message, payload, metadata)
    }

    /// A change of the agent loop's state; `details` is an object.
    pub fn state_transition(
        from: Option<&str>,
        to: &str,
        reason: &str,
        details: &Json,
    ) -> NewEvent {
        let from = from.map_or_else(|| Json::raw("null"), Json::string);
        let payload = Object::new(Spacing::Spaced)
            .raw("from_state", from.as_str())
            .text("to_state", to)
            .text("reason", reason)
            .raw("details", details.as_str());
        NewEvent::of(Kind::StateTransition, payload, details)
    }

    /// A step in the life of a tool call. `extra` is an object: `args` with the first two steps,
    /// `result` or `result_text` with a completed call, `error` or `result` with a failed one.
    ///
    /// # Errors
    ///
    /// `Usage` when `extra` is no object, or has one of the event's own fields: who read the event
    /// would take that for the call's status or id.
    pub fn tool(status: ToolStatus, tool: &str, call_id: &str, extra: &Json) -> Result<NewEvent> {
        if let Some(why) = refusal(extra) {
            let message = format!("a tool_lifecycle payload cannot be written: {why}");
            return Err(Error::new(ErrorKind::Usage, message));
        }
        let mut payload = Object::new(Spacing::Spaced)
            .text("tool_name", tool)
            .text("tool_call_id", call_id)
            .text("status", status.name());
        for (key, value) in extra.members() {
            if matches!(&*key, "tool_name" | "tool_call_id" | "status") {
                let message = format!("{key:?} is a field of the event itself");
                return Err(Error::new(ErrorKind::Usage, message)
                    .with_hint("put it into `args`, `result` or another object of its own"));
            }
            payload = payload.raw(&key, value.as_str());
        }
        Ok(NewEvent::of(Kind::ToolLifecycle, payload, extra))
    }

    /// A checkpoint of the context. Without `checkpoint_id` or `created_at` it gets new ones.
    pub fn checkpoint(payload: &Json) -> NewEvent {
        let mut event = NewEvent::new(Kind::Checkpoint, payload.clone());
        event.refused = refusal(payload);
        if event.refused.is_some() {
            return event;
        }
        let missing = |key, payload: &Json| payload.get(key).is_none_or(|value| value.is_null());
        for (key, value) in
            [("checkpoint_id", new_id("ckpt").into()), ("created_at", event.event.time.clone())]
        {
            if missing(key, &event.event.payload) {
                event.event.payload = event.event.payload.with(key, &Json::string(&value));
            }
        }
        event
    }

    /// The end of a run; `details` is an object.
    pub fn terminal(reason: &str, details: &Json) -> NewEvent {
        let payload =
            Object::new(Spacing::Spaced).text("reason", reason).raw("details", details.as_str());
        NewEvent::of(Kind::Terminal, payload, details)
    }

    /// Sets the run: one turn of the user, `run-1`, `run-2`.
    pub fn run(mut self, run: &str) -> NewEvent {
        self.event.run = run.into();
        self
    }

    /// Sets the step of the loop inside of the run; 0, the default, is the user's message.
    pub fn step(mut self, step: i64) -> NewEvent {
        self.event.step = step;
        self
    }

    /// Its id: `evt-` and 32 hex digits.
    pub fn id(&self) -> &str {
        &self.event.id
    }

    /// The documented line, without its line end.
    ///
    /// # Errors
    ///
    /// `Usage` when the payload or a part of it that has to be an object is none, when it holds a
    /// number that is not finite or half of a surrogate pair, and for a kind that is not recorded.
    pub fn line(&self, session: &str) -> Result<String> {
        let event = &self.event;
        let refused = |what: &str| {
            let message = format!("a {} payload cannot be written: {what}", event.kind);
            Err(Error::new(ErrorKind::Usage, message))
        };
        if let Some(why) = self.refused.or_else(|| refusal(&event.payload)) {
            return refused(why);
        }
        if event.payload.notes().non_finite || is_too_large(event.payload.as_str()) {
            return refused("it has a number that is not finite, which JSON cannot say");
        }
        let line = Object::new(Spacing::Spaced)
            .text("event_id", &event.id)
            .text("timestamp", &event.time)
            .text("session_id", session)
            .text("run_id", &event.run)
            .raw("step", &event.step.to_string())
            .text("event_type", event.kind.name())
            .raw("payload", event.payload.as_str())
            .number("schema_version", SCHEMA_VERSION);
        Ok(line.finish())
    }

    /// The entry for its [`line`](NewEvent::line).
    pub(crate) fn entry<'l>(&self, line: &'l str) -> Result<Entry<'l>> {
        let record = Transcript.classify(line.as_bytes());
        record.map(|record| record.into_entry(line.as_bytes())).map_err(|_| {
            let message = format!("a {} payload cannot be written", self.event.kind);
            Error::new(ErrorKind::Usage, message)
        })
    }

    /// The event with its place.
    pub(crate) fn at(self, seq: Seq) -> Event {
        Event { seq, ..self.event }
    }
}

/// Why a value cannot be a part of an event.
fn refusal(value: &Json) -> Option<&'static str> {
    match value.is_object() {
        false => Some(NO_OBJECT),
        true if value.notes().lone_surrogate => Some(HALF_PAIR),
        true => value.notes().duplicate_key.then_some(KEY_TWICE),
    }
}

/// Whether a number in JSON is one that readers take for infinite.
fn is_too_large(json: &str) -> bool {
    // Between the quotes of strings; an escaped quote only makes more to look at.
    let outside =
        json.split('"').step_by(2).flat_map(|part| part.split([',', ':', '[', ']', '{', '}']));
    let numbers = outside.map(str::trim).filter(|token| token.len() > 3);
    numbers.into_iter().any(|token| token.parse::<f64>().is_ok_and(f64::is_infinite))
}

/// An id that no other event has, in the order of time.
fn new_id(prefix: &str) -> String {
    format!("{prefix}-{}", uuid::Uuid::now_v7().simple())
}

/// A time as a line has it; in UTC where it names no zone.
pub(crate) fn parse_time(text: &str) -> Option<Timestamp> {
    let in_utc = || {
        let time: jiff::civil::DateTime = text.parse().ok()?;
        jiff::tz::TimeZone::UTC.to_timestamp(time).ok()
    };
    text.parse().ok().or_else(in_utc)
}

/// A time in UTC as the format writes it: to the microsecond, without a fraction that is zero.
pub(crate) fn utc(time: Timestamp) -> String {
    let seconds = time.strftime("%Y-%m-%dT%H:%M:%S");
    match time.subsec_nanosecond() / 1000 {
        0 => format!("{seconds}Z"),
        micros => format!("{seconds}.{micros:06}Z"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(event: &NewEvent) -> String {
        event.line("s").unwrap_err().to_string()
    }

    fn refusal(payload: &str) -> String {
        refused(&NewEvent::checkpoint(&Json::parse(payload).unwrap()))
    }

    #[test]
    fn what_has_to_be_an_object_is_never_left_out_silently() {
        let list = Json::parse("[1]").unwrap();
        let null = Json::raw("null");
        for event in [
            NewEvent::message_with(Role::User, "x", &list),
            NewEvent::terminal("completed", &Json::string("x")),
            NewEvent::state_transition(None, "a", "b", &null),
            NewEvent::checkpoint(&Json::string("x")),
            NewEvent::new(Kind::Message, list.clone()),
        ] {
            assert!(refused(&event).contains("object"), "{event:?}");
        }
        assert!(NewEvent::tool(ToolStatus::Completed, "Read", "c1", &list).is_err());
        let keys = Json::parse(r#"{"\ud800": 1, "\ud801": 2}"#).unwrap();
        assert!(NewEvent::tool(ToolStatus::Completed, "Read", "c1", &keys).is_err());
    }

    #[test]
    fn kinds_that_no_reader_knows_are_refused() {
        for kind in [Kind::Other, Kind::Damaged, Kind::Blank] {
            assert!(refused(&NewEvent::new(kind, Json::object())).contains("kind"));
        }
        assert!(is_too_large("[1,-1e400]") && !is_too_large(r#"{"a": "1e400", "b": 1e300}"#));
    }

    #[test]
    fn what_no_reader_could_take_is_refused() {
        assert!(refusal(r#"{"a": [1, NaN]}"#).contains("not finite"));
        assert!(refusal(r#"{"a": {"b": -Infinity}}"#).contains("not finite"));
        assert!(refusal(r#"{"a": "\ud800"}"#).contains("surrogate"));
        assert!(refusal(r#"{"\ud800": 5, "checkpoint_id": null}"#).contains("surrogate"));
        assert!(refusal(r#"{"a": [1e999]}"#).contains("not finite"));
        assert!(refusal("[1]").contains("object"));
    }

    #[test]
    fn a_payload_that_would_replace_the_events_own_fields_is_refused() {
        for own in ["status", "tool_call_id", "tool_name"] {
            let extra = Json::object().with(own, &Json::string("x"));
            let error = NewEvent::tool(ToolStatus::Completed, "Read", "c1", &extra).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.hint().is_some());
        }
    }

    #[test]
    fn numbers_key_order_escapes_and_unknown_keys_survive() {
        let payload = r#"{"z": 1.0, "a": 1e-05, "n": 123456789012345678901234567890, "é": "\u00e9\/", "z2": {"y": [], "b": null}}"#;
        let event = NewEvent::new(Kind::Checkpoint, Json::parse(payload).unwrap());
        assert!(event.line("s").unwrap().contains(payload));
    }

    #[test]
    fn times_have_microseconds_or_none() {
        let time = |text: &str| utc(text.parse().unwrap());
        assert_eq!(time("2026-03-01T10:00:00.1234567Z"), "2026-03-01T10:00:00.123456Z");
        assert_eq!(time("2026-03-01T10:00:00Z"), "2026-03-01T10:00:00Z");
        assert_eq!(time("2026-03-01T10:00:00.000001Z"), "2026-03-01T10:00:00.000001Z");
    }

    #[test]
    fn times_without_a_zone_are_in_utc() {
        let time = parse_time("2026-03-01T10:00:00.5").unwrap();
        assert_eq!(Some(time), parse_time("2026-03-01T11:00:00.5+01:00"));
        assert_eq!(parse_time("soon"), None);
    }

    #[test]
    fn a_checkpoint_gets_an_id_and_a_time_and_keeps_its_own() {
        let made = NewEvent::checkpoint(&Json::object()).event.payload;
        assert!(made.get("checkpoint_id").unwrap().id().starts_with("ckpt-"));
        assert!(made.get("created_at").is_some());
        let own = Json::object().with("checkpoint_id", &Json::string("k1"));
        let kept = NewEvent::checkpoint(&own).event.payload;
        assert_eq!(kept.get("checkpoint_id").unwrap().id(), "k1");
    }
}
