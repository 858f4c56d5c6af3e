//! The state of a resumed session, in the original's reading, against what the original made of the
//! same files. Wording is not compared, structures are.
//!
//! The data is our fixtures, and what `EVENTLOG_GOLDEN` and `EVENTLOG_CASES` name.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test"
)]

#[path = "support/data.rs"]
mod data;
#[path = "support/strict.rs"]
mod strict;

use eventlog::event::{Event, Json, Text};
use eventlog::format::{Role, Transcript};
use eventlog::jsonl::{self, ImportOptions};
use eventlog::memory::{Deriver, Item, SessionMemory};
use eventlog::record::Recorder;
use eventlog::resume::{
    self, ActiveCheckpoint, AllButWriters, Host, HostError, Provider, Reading, ResumeOptions,
    Resumed, State, ViewEntry,
};
use eventlog::{ErrorKind, EventLog};
use serde_json::{Value, json};
use strict::{check_anthropic, check_openai, check_view};

/// A value in the encoding of the golden data: what JSON cannot say is an object with one key.
fn encoded(value: &Json) -> Value {
    if value.is_object() {
        let members = value.members().into_iter();
        return Value::Object(members.map(|(k, v)| (escaped(&k), encoded(&v))).collect());
    }
    let raw = value.as_str();
    match raw.as_bytes()[0] {
        b'[' => Value::Array(value.elements().iter().map(encoded).collect()),
        b'"' => Value::String(value.text().unwrap().to_string()),
        b't' | b'f' | b'n' => serde_json::from_str(raw).unwrap(),
        b'N' => json!({"$float": "nan"}),
        b'I' => json!({"$float": "inf"}),
        _ if raw == "-Infinity" => json!({"$float": "-inf"}),
        _ => number(raw),
    }
}

fn number(raw: &str) -> Value {
    if raw == "-0" {
        return json!(0);
    }
    if raw.bytes().all(|b| b.is_ascii_digit() || b == b'-') {
        return match serde_json::from_str::<Value>(raw) {
            Ok(value) if value.is_i64() || value.is_u64() => value,
            _ => json!({"$int": raw}),
        };
    }
    let float: f64 = raw.parse().unwrap();
    match float {
        f if f == f64::INFINITY => json!({"$float": "inf"}),
        f if f == f64::NEG_INFINITY => json!({"$float": "-inf"}),
        f => json!(f),
    }
}

fn escaped(key: &str) -> String {
    if key.starts_with('$') { format!("${key}") } else { key.to_owned() }
}

/// Whether they say the same; long text and deep values are abbreviated in what is expected.
fn same(found: &Value, expected: &Value) -> bool {
    if let Value::Object(special) = expected
        && special.len() == 1
    {
        let (key, inner) = special.iter().next().unwrap();
        match key.as_str() {
            "$long" => {
                let text = found.as_str().unwrap_or_default();
                let head = inner["head"].as_str().unwrap();
                return text.chars().count() as u64 == inner["chars"].as_u64().unwrap()
                    && text.starts_with(head.trim_end_matches('…'));
            }
            // Each lone surrogate is U+FFFD here.
            "$wtf8_hex" => return found.is_string(),
            "$json" | "$digest" => return true,
            _ => {}
        }
    }
    match (found, expected) {
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|e| same(v, e)))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Number(a), Value::Number(b)) => {
            // The reader of the expected values may be off in the last digit.
            let close = |a: f64, b: f64| a == b || ((a - b) / b).abs() < 1e-14;
            a == b || a.is_f64() && b.is_f64() && close(a.as_f64().unwrap(), b.as_f64().unwrap())
        }
        _ => found == expected,
    }
}

/// A recovered answer as status, code and flag, anything else as it is.
fn without_wording(message: &Value) -> Value {
    let mut message = message.clone();
    if message["metadata"]["recovered"] == true
        && let Some(Ok(content)) = message["content"].as_str().map(serde_json::from_str::<Value>)
        && content["error"]["code"].is_string()
    {
        let (status, code) = (content["status"].clone(), content["error"]["code"].clone());
        message["content"] = json!([status, code, content["data"]["recovered"].clone()]);
    }
    message
}

fn message(message: &resume::Message) -> Value {
    json!({
        "role": encoded(&message.role),
        "content": encoded(&message.content),
        "metadata": encoded(&message.metadata),
    })
}

fn optional(value: &Option<Json>) -> Value {
    value.as_ref().map_or(Value::Null, encoded)
}

/// Each part of the state in the encoding of the golden data.
fn parts(state: &State) -> Vec<(&'static str, Value)> {
    let results = |pairs: &[(Text, Json)]| {
        Value::Object(pairs.iter().map(|(k, v)| (escaped(k), encoded(v))).collect())
    };
    let pending = |call: &resume::PendingCall| {
        json!({"tool_call_id": call.tool_call_id, "tool_name": call.tool_name, "step": call.step,
            "payload": encoded(&call.payload)})
    };
    let uncertain = |call: &resume::UncertainAction| {
        json!({"tool_call_id": call.tool_call_id, "tool_name": call.tool_name, "step": call.step,
            "payload": encoded(&call.payload), "replay_allowed": call.replay_allowed})
    };
    let transition = state.loop_state.transition.as_ref().map_or(
        Value::Null,
        |transition| json!({"reason": transition.reason, "details": encoded(&transition.details)}),
    );
    vec![
        ("checkpoint", optional(&state.checkpoint)),
        ("terminal", optional(&state.terminal)),
        ("pending_tool_calls", state.pending_tool_calls.iter().map(pending).collect()),
        ("uncertain_actions", state.uncertain_actions.iter().map(uncertain).collect()),
        ("completed_tool_results", results(&state.completed_tool_results)),
        ("failed_tool_results", results(&state.failed_tool_results)),
        ("runtime_state", encoded(&state.runtime_state)),
        ("step", json!(state.loop_state.step)),
        ("turn_count", json!(state.loop_state.turn_count)),
        ("tool_choice", json!(state.loop_state.tool_choice)),
        ("transition", transition),
    ]
}

/// What differs.
fn differences(state: &State, expected: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for (key, found) in parts(state) {
        let expected = expected.get(key).unwrap_or(&expected["loop_state"][key]);
        if !same(&found, expected) {
            wrong.push(format!("{key}: {found}, expected {expected}"));
        }
    }
    let found: Vec<Value> =
        state.history_messages.iter().map(|m| without_wording(&message(m))).collect();
    let Some(messages) = expected["history_messages"].as_array() else { return wrong };
    if found.len() != messages.len() {
        wrong.push(format!("{} messages, expected {}", found.len(), messages.len()));
    }
    for (n, (found, expected)) in found.iter().zip(messages).enumerate() {
        let expected = without_wording(expected);
        if !same(found, &expected) {
            wrong.push(format!("message {n}: {found}, expected {expected}"));
        }
    }
    wrong
}

/// A host that keeps what it is given, or fails in one of its methods.
#[derive(Default)]
struct Agent {
    calls: Vec<&'static str>,
    fails_in: &'static str,
    history: usize,
}

impl Agent {
    fn called(&mut self, method: &'static str) -> Result<(), HostError> {
        self.calls.push(method);
        let fails = self.fails_in.split(' ').any(|name| name == method);
        let again = self.calls.iter().filter(|call| **call == method).count() > 1;
        match fails && (method != "reset" || again || self.fails_in == "reset") {
            true => Err("no room".into()),
            false => Ok(()),
        }
    }
}

impl Host for Agent {
    fn reset(&mut self) -> Result<(), HostError> {
        self.history = 0;
        self.called("reset")
    }

    fn load_history(&mut self, messages: &[&resume::Message]) -> Result<(), HostError> {
        self.history = messages.len();
        self.called("history")
    }

    fn set_active_checkpoint(&mut self, _: Option<&ActiveCheckpoint>) -> Result<(), HostError> {
        self.called("checkpoint")
    }

    fn restore_read_cache(&mut self, _: &Json) -> Result<(), HostError> {
        self.called("cache")
    }

    fn restore_session_memory(&mut self, _: &SessionMemory) -> Result<(), HostError> {
        self.called("memory")
    }
}

fn applied_differences(resumed: &Resumed, expected: &Value) -> Vec<String> {
    let mut host = Agent::default();
    let applied = resumed.apply_to(&mut host).unwrap();
    let mut found = serde_json::to_value(&applied).unwrap();
    let mut expected = expected.clone();
    if expected.get("error").is_some() {
        // A number that is none: the original cannot go on, here it counts as not given.
        return Vec::new();
    }
    let checkpoint = resumed.state.checkpoint.as_ref();
    if checkpoint.is_some_and(|payload| payload.get("created_at").is_none()) {
        // The time of the resume.
        for value in [&mut found, &mut expected] {
            value["active_checkpoint"]["created_at"] = Value::Null;
        }
    }
    assert_eq!(host.history as u64, applied.history_loaded);
    if found == expected {
        Vec::new()
    } else {
        vec![format!("applied: {found}, expected {expected}")]
    }
}

/// The view is valid, also as the messages of each provider.
fn check_all(resumed: &Resumed, what: &str) {
    check_view(&resumed.view, what);
    for memory_chars in [0, 500] {
        check_anthropic(&resumed.messages(Provider::Anthropic, memory_chars), what);
        check_openai(&resumed.messages(Provider::OpenAi, memory_chars), what);
    }
}

fn a_session_with_everything(log: &EventLog) -> Resumed {
    let recorder = Recorder::new(log.session("s").unwrap(), "run-1").unwrap();
    recorder.message(0, Role::User, "hello").unwrap();
    let checkpoint = Json::parse(r#"{"runtime_state": {"read_cache": {"a": {}}}}"#).unwrap();
    recorder.checkpoint(1, &checkpoint).unwrap();
    resume::resume(&log.snapshot().unwrap(), "s", &ResumeOptions::default()).unwrap()
}

#[test]
fn a_host_gets_everything_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let resumed = a_session_with_everything(&EventLog::open(dir.path()).unwrap());
    let mut host = Agent::default();
    let applied = resumed.apply_to(&mut host).unwrap();
    assert_eq!(host.calls, ["reset", "history", "checkpoint", "cache", "memory"]);
    assert_eq!(applied.active_checkpoint.unwrap().source_message_count, 1);
}

#[test]
fn a_failing_host_method_leaves_a_reset_host_and_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let resumed = a_session_with_everything(&EventLog::open(dir.path()).unwrap());
    for fails_in in ["reset", "history", "checkpoint", "cache", "memory"] {
        let mut host = Agent { fails_in, ..Agent::default() };
        let error = resumed.apply_to(&mut host).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains("no room"), "{error}");
        assert!(std::error::Error::source(&error).is_some());
        assert_eq!(host.calls.last(), Some(&"reset"));
        assert_eq!(host.history, 0);
    }
    let mut host = Agent { fails_in: "cache reset", ..Agent::default() };
    let error = resumed.apply_to(&mut host).unwrap_err();
    assert!(error.hint().unwrap().contains("part of the session"), "{error}");
}

#[test]
fn the_state_in_the_originals_reading_is_the_originals() {
    for data in data::golden("mycodeagent") {
        let (dir, json) = (&data.dir, data::json);
        let index = json(&dir.join("index.json"));
        let (mut compared, mut failed) = (0, 0);
        for case in index["cases"].as_array().unwrap() {
            let (name, policy) = (case["name"].as_str().unwrap(), case["policy"].as_str().unwrap());
            if policy != "match" {
                continue;
            }
            let expected = json(&dir.join(format!("{name}.expected.json")));
            let scratch = tempfile::tempdir().unwrap();
            let log = EventLog::open(scratch.path().join("log")).unwrap();
            let found = &jsonl::discover(&dir.join(format!("{name}.jsonl"))).files[0];
            let report = found.import(Some(&log), &ImportOptions::default(), &mut |_| {}).unwrap();
            let id = report.session.unwrap();
            let session = &expected["sessions"].as_array().unwrap()[0];
            if session["session_id"] != id.as_str() {
                continue;
            }
            let mut options = ResumeOptions::default();
            options.reading = Reading::Original;
            options.policy = Box::new(AllButWriters);
            let snapshot = log.snapshot().unwrap();
            let mut wrong = Vec::new();
            let load = &session["load_session"];
            if load.get("error").is_none() {
                let resumed = resume::resume(&snapshot, &id, &options).unwrap();
                assert_eq!(load["run_id"], resumed.run.as_str(), "{name}");
                check_all(&resumed, name);
                wrong.extend(memory_differences(&log, &id, &session["memory"]["rebuild"]));
                wrong.extend(differences(&resumed.state, load));
                wrong.extend(applied_differences(&resumed, &session["applied"]));
                compared += 1;
            }
            for run in session["runs"].as_array().unwrap_or(&Vec::new()) {
                let Some(load) = run.get("load").filter(|load| load.get("loop_state").is_some())
                else {
                    continue;
                };
                options.run = Some(run["run_id"].as_str().unwrap().to_owned());
                let resumed = resume::resume(&snapshot, &id, &options).unwrap();
                wrong.extend(differences(&resumed.state, load));
                compared += 1;
            }
            if !wrong.is_empty() {
                println!("FAIL {name}");
                wrong
                    .iter()
                    .take(4)
                    .for_each(|line| println!("     {}", &line[..line.floor_char_boundary(900)]));
                failed += 1;
            }
        }
        println!("{compared} states");
        assert!(failed == 0 && compared >= data.at_least(20, 101), "{failed} of {compared}");
    }
}

/// An entry of the view, in the short form of the cases.
fn short(entry: &ViewEntry) -> String {
    match entry {
        ViewEntry::Message { role, tool_calls, .. } if !tool_calls.is_empty() => {
            let ids: Vec<&str> = tool_calls.iter().map(|call| call.id.as_str()).collect();
            format!("{role} calls {}", ids.join(","))
        }
        ViewEntry::Message { role, content, .. } => format!("{role} {content}"),
        ViewEntry::Answer { tool_call_id, synthetic: Some(kind), .. } => {
            format!("tool {tool_call_id} (synthetic: {kind})")
        }
        ViewEntry::Answer { tool_call_id, .. } => format!("tool {tool_call_id}"),
        ViewEntry::Gap { .. } => "(gap".to_owned(),
        ViewEntry::Compaction { .. } => "(compaction)".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Whether an entry is what the case says, which abbreviates.
fn is_as_said(entry: &ViewEntry, said: &str) -> bool {
    let found = short(entry);
    if let ViewEntry::Answer { content, synthetic: None, .. } = entry
        && let Some((head, text)) = said.split_once(" '")
    {
        return found == head && text.strip_suffix('\'') == Some(content);
    }
    if said.starts_with("(gap") {
        return found == "(gap";
    }
    if let Some((role, rest)) = said.split_once(" (")
        && let Some(count) = rest.strip_suffix(" chars)")
    {
        let ViewEntry::Message { role: found, content, .. } = entry else { return false };
        return found == role && content.chars().count().to_string() == count;
    }
    match said.strip_suffix('…') {
        Some(head) => found.starts_with(head),
        None if !said.contains(' ') => found.starts_with(said),
        None if said.contains(" (") && !said.contains("(synthetic") => {
            found.starts_with(said.split_once(' ').unwrap().0)
        }
        None => found == said,
    }
}

#[test]
fn the_views_of_all_cases_are_what_they_say_and_valid() {
    for data in data::cases() {
        let (mut compared, mut views, mut failed) = (0, 0, 0);
        for (case, expect) in data::cases_in(&data) {
            if !data::is_understood(&expect) {
                continue;
            }
            let name = case.file_name().unwrap().to_string_lossy().into_owned();
            let scratch = tempfile::tempdir().unwrap();
            let log = EventLog::open(scratch.path().join("log")).unwrap();
            let found = &jsonl::discover(&case.join("input.jsonl")).files[0];
            let report = found.import(Some(&log), &ImportOptions::default(), &mut |_| {}).unwrap();
            let id = report.session.unwrap();
            let snapshot = log.snapshot().unwrap();
            let resumed = resume::resume(&snapshot, &id, &ResumeOptions::default()).unwrap();
            check_all(&resumed, &name);
            assert_eq!(resume::view(&snapshot, &id).unwrap(), resumed.view, "{name}");
            let again = resume::resume(&snapshot, &id, &ResumeOptions::default()).unwrap();
            assert_eq!(resumed.view.digest(), again.view.digest(), "{name}");
            let mut wrong = Vec::new();
            if let Some(said) = expect["resume"]["view"].as_array() {
                views += 1;
                let said: Vec<&str> = said.iter().map(|entry| entry.as_str().unwrap()).collect();
                let same = said.len() == resumed.view.entries.len()
                    && resumed.view.entries.iter().zip(&said).all(|(e, said)| is_as_said(e, said));
                if !same {
                    let found: Vec<String> = resumed.view.entries.iter().map(short).collect();
                    wrong.push(format!("view {found:?}, expected {said:?}"));
                }
            }
            let codes: Vec<&str> = report
                .finding_counts
                .keys()
                .map(|code| code.name())
                .chain(resumed.view.findings.iter().map(|finding| finding.code.name()))
                .collect();
            for expected in expect["findings"].as_array().unwrap() {
                let code = expected.as_str().unwrap();
                if !codes.contains(&code) && !["disk_full", "read_only"].contains(&code) {
                    wrong.push(format!("{code} is missing in {codes:?}"));
                }
            }
            println!("{} {name}", if wrong.is_empty() { "ok  " } else { "FAIL" });
            wrong.iter().for_each(|line| println!("       {line}"));
            failed += usize::from(!wrong.is_empty());
            compared += 1;
        }
        println!("{compared} cases, {views} views");
        assert!(failed == 0 && compared >= data.at_least(9, 33), "{failed} of {compared}");
        assert!(views >= data.at_least(9, 10), "{views} views");
    }
}

/// The session's events.
fn events(log: &EventLog, id: &str) -> Vec<Event> {
    let entries = log.read(id, ..).unwrap().map(|entry| entry.unwrap());
    entries.filter_map(|entry| Event::from_entry(&Transcript, &entry)).collect()
}

/// The memory of each way to build it against the rebuild of the original: which items, of which
/// events, in which order.
fn memory_differences(log: &EventLog, id: &str, expected: &Value) -> Vec<String> {
    let Some(lists) = expected.as_object() else { return Vec::new() };
    let events = events(log, id);
    let deriver = Deriver::new(usize::MAX).reading(Reading::Original);
    let build = |events: &[Event]| deriver.rebuild(events);
    let memory = build(&events);
    // From a rebuild of any beginning on.
    for k in [0, events.len() / 3, events.len().saturating_sub(1)] {
        let mut on = build(&events[..k]);
        events[k..].iter().for_each(|event| deriver.update(&mut on, event));
        assert_eq!(on, memory);
    }
    let sources = |items: Vec<&Item>| -> Value {
        items.iter().map(|item| serde_json::to_value(&item.source).unwrap()).collect()
    };
    let (todo, verification) = (memory.todo_items(), memory.verification_status());
    let mut wrong = Vec::new();
    for (key, items) in [
        ("completed_work", memory.completed_work().collect()),
        ("key_decisions", memory.key_decisions().collect()),
        ("failed_attempts", memory.failed_attempts().collect()),
        ("todo_items", todo.iter().collect()),
        ("verification_status", verification.iter().collect()),
    ] {
        let Some(list) = lists[key].as_array() else { continue };
        let said: Value = list.iter().map(|item| item["source"].clone()).collect();
        if sources(items) != said {
            wrong.push(format!("memory, {key}: {said}"));
        }
    }
    if let Some(goal) = lists["current_goal"].as_object() {
        let found = memory.current_goal();
        if found
            .map(|goal| Value::from(goal.text.clone()))
            .as_ref()
            .is_none_or(|text| !same(text, &goal["text"]))
        {
            wrong.push(format!("memory, goal: {found:?}, expected {goal:?}"));
        }
    }
    if lists["event_count"] != memory.event_count() {
        wrong.push(format!("memory, events: {}", memory.event_count()));
    }
    for budget in [0, 1, 11, 12, 13, 64, 500, 2000] {
        assert!(memory.render(budget).chars().count() <= budget);
    }
    wrong
}
