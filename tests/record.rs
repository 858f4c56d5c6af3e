//! Recording: what is written is what is read, sinks keep out of each other's way, and nothing that a
//! reader could not take is written.
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

use std::path::Path;
use std::sync::{Arc, Mutex};

use eventlog::event::{Event, Json, NewEvent};
use eventlog::format::{Role, Transcript};
use eventlog::io::{Dir, File, OpenMode, StdDir};
use eventlog::jsonl::{self, ImportOptions};
use eventlog::memory::{Deriver, SessionMemory};
use eventlog::record::{
    LoopState, Recorder, RuntimeEvent, Sink, Sinks, TraceSink, TranscriptSink,
    record_active_checkpoint, transition_state,
};
use eventlog::{Entry, Error, ErrorKind, EventLog, Kind};
use serde_json::Value;

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

fn events(log: &EventLog, id: &str) -> Vec<Event> {
    let entries = log.read(id, ..).unwrap().map(|entry| entry.unwrap());
    entries.filter_map(|entry| Event::from_entry(&Transcript, &entry)).collect()
}

fn record_everything(recorder: &Recorder) -> Vec<Event> {
    let args = json(r#"{"path": "a.rs", "unknown": 1.0}"#);
    let calls = json(
        r#"{"action_type": "tool_call", "tool_calls": [{"id": "c1", "name": "Read", "arguments": {}}]}"#,
    );
    let details = json(r#"{"checkpoint_id": "k1"}"#);
    vec![
        recorder.message(0, Role::User, "Help me 🔐\u{2028}\u{0}").unwrap(),
        recorder.state_transition(1, None, "user_input", "user_input", &details).unwrap(),
        recorder.message_with(1, Role::Assistant, "", &calls).unwrap(),
        recorder.tool_requested(1, "Read", "c1", &args).unwrap(),
        recorder.tool_started(1, "Read", "c1", &args).unwrap(),
        recorder.tool_completed(1, "Read", "c1", &json(r#"{"status": "success"}"#)).unwrap(),
        recorder.tool_failed(1, "Edit", "c2", "boom").unwrap(),
        recorder.checkpoint(2, &json(r#"{"summary": "s"}"#)).unwrap(),
        recorder.terminal(2, "completed", &Json::object()).unwrap(),
    ]
}

#[test]
fn what_is_recorded_is_what_is_read_also_after_a_reopen() {
    let dir = tempfile::tempdir().unwrap();
    let log = EventLog::open(dir.path()).unwrap();
    let recorder = Recorder::new(log.session("s").unwrap(), "run-1").unwrap();
    let mut recorded = record_everything(&recorder);
    recorded.extend(record_everything(&recorder.for_run("run-2")));
    let full = |events: &[Event]| format!("{events:?}");
    assert_eq!(full(&events(&log, "s")), full(&recorded));
    drop(recorder);
    log.close().unwrap();
    let log = EventLog::open(dir.path()).unwrap();
    assert_eq!(full(&events(&log, "s")), full(&recorded));
}

#[test]
fn a_recorded_session_comes_in_again_whole_with_no_finding_but_the_nul_that_was_said() {
    let dir = tempfile::tempdir().unwrap();
    let log = EventLog::open(dir.path().join("log")).unwrap();
    record_everything(&Recorder::new(log.session("s").unwrap(), "run-1").unwrap());
    let mut bytes = Vec::new();
    jsonl::export(&log.snapshot().unwrap(), "s", .., &mut bytes, &mut |_| {}).unwrap();
    let path = dir.path().join("transcript-s.jsonl");
    std::fs::write(&path, &bytes).unwrap();
    let other = EventLog::open(dir.path().join("other")).unwrap();
    let report =
        jsonl::import(&other, open(&path), &ImportOptions::default(), &mut |_| {}).unwrap();
    assert_eq!((report.session.as_deref(), report.records), (Some("s"), 9));
    assert_eq!(report.quarantined_bytes, 0);
    let found = report.finding_counts.iter().map(|(code, count)| (code.name(), *count));
    assert_eq!(found.collect::<Vec<_>>(), [("nul_in_string", 1)]);
    assert_eq!(events(&other, "s"), events(&log, "s"));
}

fn open(path: &Path) -> Arc<dyn File> {
    StdDir::open(path.parent().unwrap())
        .unwrap()
        .open(path.file_name().unwrap().to_str().unwrap(), OpenMode::Read)
        .unwrap()
}

#[test]
fn a_refused_event_writes_nothing_and_later_ones_work() {
    let dir = tempfile::tempdir().unwrap();
    let log = EventLog::open(dir.path()).unwrap();
    let recorder = Recorder::new(log.session("s").unwrap(), "run-1").unwrap();
    let not_finite = json(r#"{"x": NaN}"#);
    assert_eq!(recorder.checkpoint(0, &not_finite).unwrap_err().kind(), ErrorKind::Usage);
    let half = json(r#"{"x": "\ud83d"}"#);
    assert_eq!(recorder.terminal(0, "x", &half).unwrap_err().kind(), ErrorKind::Usage);
    let list = NewEvent::new(Kind::Message, json("[]"));
    assert_eq!(recorder.record(list).unwrap_err().kind(), ErrorKind::Usage);
    assert_eq!(recorder.session().head(), 0);
    assert_eq!(recorder.message(0, Role::User, "hello").unwrap().seq, 0);
}

#[test]
fn the_first_event_behind_a_torn_end_stands_on_a_line_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let log = EventLog::open(dir.path().join("log")).unwrap();
    let first = NewEvent::message(Role::User, "a").run("run-1").line("s").unwrap();
    let path = dir.path().join("transcript-s.jsonl");
    std::fs::write(&path, format!("{first}\n{}", &first[..40])).unwrap();
    jsonl::import(&log, open(&path), &ImportOptions::default(), &mut |_| {}).unwrap();
    let recorder = Recorder::new(log.session("s").unwrap(), "run-2").unwrap();
    recorder.message(0, Role::User, "b").unwrap();
    recorder.message(0, Role::User, "c").unwrap();
    let mut bytes = Vec::new();
    jsonl::export(&log.snapshot().unwrap(), "s", .., &mut bytes, &mut |_| {}).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let whole = text.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok());
    assert_eq!((whole.count(), text.lines().count()), (3, 4));
}

#[test]
fn a_session_with_a_newer_schema_is_not_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let log = EventLog::open(dir.path().join("log")).unwrap();
    let line = NewEvent::message(Role::User, "a").run("run-1").line("s").unwrap();
    let newer = line.replace("\"schema_version\": 1", "\"schema_version\": 2");
    let path = dir.path().join("transcript-s.jsonl");
    // Behind it stands what is no record.
    std::fs::write(&path, format!("{line}\n{newer}\n\n{{torn")).unwrap();
    jsonl::import(&log, open(&path), &ImportOptions::default(), &mut |_| {}).unwrap();
    let error = Recorder::new(log.session("s").unwrap(), "run-2").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NewerFormat);
    assert!(error.hint().is_some());
}

#[test]
fn a_session_that_was_described_and_has_no_event_can_be_recorded_into() {
    let dir = tempfile::tempdir().unwrap();
    let log = EventLog::open(dir.path()).unwrap();
    let session = log.session("s").unwrap();
    let mut attributes = eventlog::Attributes::default();
    attributes.format = Some("transcript".to_owned());
    session.describe(&attributes).unwrap();
    let recorder = Recorder::new(session, "run-1").unwrap();
    assert_eq!(recorder.message(0, Role::User, "hello").unwrap().seq, 0);
}

#[test]
fn a_session_of_another_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = EventLog::open(dir.path()).unwrap();
    let session = log.session("r").unwrap();
    let mut attributes = eventlog::Attributes::default();
    attributes.format = Some("recursive".to_owned());
    session.append(Entry::new(Kind::Message, br#"{"role":"user","content":"x"}"#)).unwrap();
    session.describe(&attributes).unwrap();
    let error = Recorder::new(session, "run-1").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.hint().is_some());
}

#[test]
fn listeners_see_events_in_order_from_any_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    let log = EventLog::open(dir.path()).unwrap();
    let recorder = Recorder::new(log.session("s").unwrap(), "run-1").unwrap();
    let memory = Arc::new(Mutex::new(SessionMemory::default()));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (into, seqs) = (memory.clone(), seen.clone());
    recorder.on_recorded(move |event| {
        Deriver::default().update(&mut into.lock().unwrap(), event);
        seqs.lock().unwrap().push(event.seq);
    });
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let recorder = recorder.clone();
            scope.spawn(move || {
                for n in 0..25 {
                    recorder.tool_failed(n, "Edit", &format!("{thread}-{n}"), "boom").unwrap();
                }
            });
        }
    });
    assert_eq!(*seen.lock().unwrap(), (0..100).collect::<Vec<_>>());
    let rebuilt = Deriver::default().rebuild(&events(&log, "s"));
    assert_eq!(memory.lock().unwrap().render(10_000), rebuilt.render(10_000));
}

#[cfg(feature = "sim")]
#[test]
fn a_listener_is_told_of_an_event_when_no_power_cut_can_lose_it() {
    use eventlog::io::sim::{Fate, SimDisk};
    let disk = SimDisk::new();
    let open = |disk: &SimDisk| EventLog::builder().background(false).open_dir(disk.root());
    let log = open(&disk).unwrap();
    let recorder = Recorder::new(log.session("s").unwrap(), "run-1").unwrap();
    let told = Arc::new(Mutex::new(0));
    let count = told.clone();
    recorder.on_recorded(move |event| {
        let after = EventLog::builder().background(false);
        let after = after.open_dir(disk.crash(&mut |_| Fate::Dropped).root()).unwrap();
        let last = after.read("s", ..).unwrap().next_back().unwrap().unwrap();
        assert_eq!(last.seq(), event.seq);
        *count.lock().unwrap() += 1;
    });
    for n in 0..5 {
        recorder.message(n, Role::User, "hello").unwrap();
    }
    assert_eq!(*told.lock().unwrap(), 5);
}

#[test]
fn a_listener_may_record() {
    let dir = tempfile::tempdir().unwrap();
    let log = EventLog::open(dir.path()).unwrap();
    let recorder = Recorder::new(log.session("s").unwrap(), "run-1").unwrap();
    let inner = recorder.clone();
    recorder.on_recorded(move |event| {
        if event.kind == Kind::Message {
            inner.checkpoint(0, &Json::object()).unwrap();
        }
    });
    recorder.message(0, Role::User, "hello").unwrap();
    assert_eq!(recorder.session().head(), 2);
}

#[test]
fn a_sub_agents_session_names_its_parent_and_the_call_also_after_a_reopen() {
    let dir = tempfile::tempdir().unwrap();
    let log = EventLog::open(dir.path()).unwrap();
    let recorder = Recorder::new(log.session("main").unwrap(), "run-1").unwrap();
    recorder.tool_started(1, "Task", "call-7", &Json::object()).unwrap();
    let child = recorder.sub_agent(log.session("child").unwrap(), "run-1", "call-7").unwrap();
    child.message(0, Role::User, "look").unwrap();
    drop((recorder, child));
    log.close().unwrap();
    let log = EventLog::open(dir.path()).unwrap();
    let attributes = log.session("child").unwrap().attributes().unwrap().unwrap();
    assert_eq!(attributes.parent.as_deref(), Some("main"));
    assert_eq!(attributes.parent_call.as_deref(), Some("call-7"));
    assert_eq!(attributes.format.as_deref(), Some("transcript"));
}

/// Fails, or panics, at every event.
struct Broken {
    panics: bool,
}

impl Sink for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    fn emit(&self, _: &RuntimeEvent) -> Result<(), Error> {
        assert!(!self.panics, "on purpose");
        Err(Error::from_io("cannot write", "x", std::io::ErrorKind::StorageFull.into()))
    }
}

#[test]
fn a_failing_or_panicking_sink_stops_neither_the_others_nor_the_loop() {
    let dir = tempfile::tempdir().unwrap();
    let log = EventLog::open(dir.path()).unwrap();
    let recorder = Recorder::new(log.session("s").unwrap(), "run-1").unwrap();
    let reported = Arc::new(Mutex::new(Vec::new()));
    let reports = reported.clone();
    let sinks = Sinks::new()
        .with(Broken { panics: false })
        .with(Broken { panics: true })
        .with(TranscriptSink::new(recorder))
        .on_failure(move |sink, _, error| {
            reports.lock().unwrap().push((sink.to_owned(), error.kind()));
        });
    let payload = json(r#"{"role": "user", "content": "hello"}"#);
    sinks.emit(&RuntimeEvent::new("run-1", 0, "message", payload)).unwrap();
    assert_eq!(sinks.failures(), 2);
    let broken = |kind| ("broken".to_owned(), kind);
    assert_eq!(*reported.lock().unwrap(), [broken(ErrorKind::Full), broken(ErrorKind::Refused)]);
    assert_eq!(events(&log, "s").len(), 1);
}

#[test]
fn the_helpers_write_what_a_transcript_and_a_trace_need() {
    let dir = tempfile::tempdir().unwrap();
    let log = EventLog::open(dir.path().join("log")).unwrap();
    let recorder = Recorder::new(log.session("s").unwrap(), "run-1").unwrap();
    let root = Arc::new(StdDir::open(dir.path()).unwrap());
    let sinks = Sinks::new()
        .with(TranscriptSink::new(recorder))
        .with(TraceSink::create(root, "t").unwrap());
    let mut state = LoopState::default();
    state.run = "run-1".to_owned();
    transition_state(&sinks, &mut state, "a", "start", &Json::object()).unwrap();
    transition_state(&sinks, &mut state, "b", "next", &json(r#"{"k": 1}"#)).unwrap();
    record_active_checkpoint(&sinks, &state, "k1", &json(r#"{"summary": "s"}"#)).unwrap();
    assert_eq!(sinks.failures(), 0);
    let events = events(&log, "s");
    let states: Vec<_> =
        events.iter().map(|e| (e.field("from_state"), e.field("to_state"))).collect();
    assert_eq!(states[1], ("a".into(), "b".into()));
    assert_eq!((events[2].kind, &*events[2].field("checkpoint_id")), (Kind::Checkpoint, "k1"));
    assert_eq!(events[2].run, "run-1");
}

#[test]
fn a_trace_goes_on_behind_a_line_that_was_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("traces")).unwrap();
    let path = dir.path().join("traces/trace-t.jsonl");
    std::fs::write(&path, "{\"ts\": \"2").unwrap();
    let trace = TraceSink::create(Arc::new(StdDir::open(dir.path()).unwrap()), "t").unwrap();
    trace.emit(&RuntimeEvent::new("run-1", 0, "run_start", Json::object())).unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (2, "{\"ts\": \"2"));
    assert!(serde_json::from_str::<Value>(lines[1]).is_ok());
}

/// Golden values as JSON text: text that is no UTF-8 becomes escapes.
fn decoded(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(hex)) = members.get("$wtf8_hex") {
                return wtf8(hex);
            }
            let member = |(key, value): (&String, &Value)| {
                format!("{}: {}", serde_json::to_string(key).unwrap(), decoded(value))
            };
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(", "))
        }
        Value::Array(elements) => {
            format!("[{}]", elements.iter().map(decoded).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

fn wtf8(hex: &str) -> String {
    let byte = |at: usize| u32::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let bytes: Vec<u32> = (0..hex.len()).step_by(2).map(byte).collect();
    let mut text = String::from("\"");
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == 0xED && bytes[at + 1] >= 0xA0 {
            let unit = 0xD000 | (bytes[at + 1] & 0x3F) << 6 | (bytes[at + 2] & 0x3F);
            text.push_str(&format!("\\u{unit:04x}"));
            at += 3;
        } else {
            text.push(char::from_u32(bytes[at]).filter(char::is_ascii).unwrap());
            at += 1;
        }
    }
    text + "\""
}

/// For comparing: halves of surrogate pairs are no text for a parser.
fn value(text: &str) -> Value {
    let surrogates = ["\\ud83d", "\\uD83D"];
    let text = surrogates.iter().fold(text.to_owned(), |text, half| text.replace(half, "\\ufffd"));
    serde_json::from_str(&text).unwrap()
}

fn without(mut line: Value, keys: &[&str]) -> Value {
    line.as_object_mut().unwrap().retain(|key, _| !keys.contains(&&**key));
    line
}

#[test]
fn sinks_write_what_the_original_ones_wrote() {
    for data in data::golden("mycodeagent") {
        let golden = data::json(&data.dir.join("sinks.json"));
        let dir = tempfile::tempdir().unwrap();
        let log = EventLog::open(dir.path().join("log")).unwrap();
        let recorder = Recorder::new(log.session("session-sink").unwrap(), "run-1").unwrap();
        let trace = Arc::new(
            TraceSink::create(Arc::new(StdDir::open(dir.path()).unwrap()), "trace-1").unwrap(),
        );
        let trace_path = dir.path().join("traces/trace-trace-1.jsonl");
        let transcript = TranscriptSink::new(recorder.clone());
        let mut lines_seen = 0;
        for row in golden["rows"].as_array().unwrap() {
            let event = &row["event"];
            let runtime = RuntimeEvent::new(
                event["run_id"].as_str().unwrap(),
                event["step"].as_i64().unwrap(),
                event["type"].as_str().unwrap(),
                json(&decoded(&event["payload"])),
            );
            let head = recorder.session().head();
            let mut failures = Vec::new();
            for (class, outcome) in [
                ("TraceRuntimeEventSink", trace.emit(&runtime)),
                ("TranscriptRuntimeEventSink", transcript.emit(&runtime)),
            ] {
                if outcome.is_err() {
                    failures.push(class);
                }
            }
            let expected: Vec<&str> = row["failures"]
                .as_array()
                .unwrap()
                .iter()
                .map(|f| f["sink"].as_str().unwrap())
                .collect();
            assert_eq!(failures, expected, "{event}");

            let trace_text = std::fs::read_to_string(&trace_path).unwrap();
            let traced: Vec<Value> =
                trace_text.lines().skip(lines_seen).map(|l| without(value(l), &["ts"])).collect();
            lines_seen += traced.len();
            let expected: Vec<Value> =
                row["trace"].as_array().unwrap().iter().map(|line| value(&decoded(line))).collect();
            assert_eq!(traced, expected, "{event}");

            let entries = log.read("session-sink", head..).ok().into_iter().flatten();
            let recorded: Vec<Value> = entries
                .map(|entry| value(std::str::from_utf8(entry.unwrap().bytes()).unwrap()))
                .map(|line| without(line, &["event_id", "timestamp"]))
                .collect();
            let expected: Vec<Value> = row["transcript"]
                .as_array()
                .unwrap()
                .iter()
                .map(|line| value(&decoded(line)))
                .collect();
            assert_eq!(recorded, expected, "{event}");
        }
        assert_eq!(lines_seen as u64, golden["trace_file_lines"].as_u64().unwrap());
        trace.finish().unwrap();
        let trace_text = std::fs::read_to_string(&trace_path).unwrap();
        let summary = value(trace_text.lines().last().unwrap());
        assert_eq!(summary["payload"], golden["trace_summary_payload"]);
        assert_eq!(golden["trace_file_name"], "trace-trace-1.jsonl");
    }
}

#[test]
fn a_listener_that_records_upsets_nobodys_order() {
    let dir = tempfile::tempdir().unwrap();
    let log = EventLog::open(dir.path()).unwrap();
    let recorder = Recorder::new(log.session("s").unwrap(), "run-1").unwrap();
    let again = recorder.clone();
    recorder.on_recorded(move |event| {
        if event.seq < 3 {
            again.terminal(0, "completed", &Json::object()).unwrap();
        }
    });
    let seen = Arc::new(Mutex::new(Vec::new()));
    let into = seen.clone();
    recorder.on_recorded(move |event| into.lock().unwrap().push(event.seq));
    recorder.message(0, Role::User, "go").unwrap();
    assert_eq!(*seen.lock().unwrap(), [0, 1, 2, 3]);
}

#[test]
fn a_listener_that_panics_keeps_no_other_from_its_event() {
    let dir = tempfile::tempdir().unwrap();
    let log = EventLog::open(dir.path()).unwrap();
    let recorder = Recorder::new(log.session("s").unwrap(), "run-1").unwrap();
    recorder.on_recorded(|event| assert_ne!(event.seq, 0, "the first"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let into = seen.clone();
    recorder.on_recorded(move |event| into.lock().unwrap().push(event.seq));
    let record = || recorder.message(0, Role::User, "go");
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(record)).is_err());
    recorder.message(0, Role::User, "on").unwrap();
    assert_eq!(*seen.lock().unwrap(), [0, 1]);
}

#[test]
fn two_traces_of_one_id_keep_each_others_lines_and_are_json() {
    let dir = tempfile::tempdir().unwrap();
    let root: Arc<dyn eventlog::io::Dir> =
        Arc::new(eventlog::io::StdDir::open(dir.path()).unwrap());
    let traces = [(); 2].map(|()| TraceSink::create(root.clone(), "t").unwrap());
    for n in 0..3 {
        for trace in &traces {
            let payload =
                Json::parse(&format!(r#"{{"n": {n}, "x": NaN, "y": "\ud800"}}"#)).unwrap();
            trace.emit(&RuntimeEvent::new("run-1", 1, "model_output", payload)).unwrap();
        }
    }
    let text = std::fs::read_to_string(dir.path().join("traces/trace-t.jsonl")).unwrap();
    assert_eq!(text.lines().count(), 6);
    assert!(text.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
}
