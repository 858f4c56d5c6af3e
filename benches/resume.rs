//! What resuming and recording cost, and whether it grows with the session.
//!
//! `cargo bench --bench resume` prints a table, then criterion's own statistics.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench"
)]

mod support;

use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group};
use eventlog::event::{Event, Json, NewEvent, ToolStatus};
use eventlog::format::{Format, Role, Transcript};
use eventlog::memory::{self, Deriver, Manager, SessionMemory};
use eventlog::record::Recorder;
use eventlog::resume::{self, ResumeOptions};
use eventlog::{Attributes, Entry, EventLog, EventRange, Kind, Position};
use support::{Samples, print_host, resident, scratch};

/// The lines of a turn: a message, a call that is carried out and answered, a checkpoint.
fn turn(n: u64, session: &str) -> Vec<String> {
    let run = format!("run-{}", n / 100);
    let call = format!("call-{n}");
    let args =
        Json::from(serde_json::json!({"path": format!("src/part_{}.rs", n % 97), "limit": 200}));
    let with = |key: &str| Json::object().with(key, &args);
    let calls = serde_json::json!({"action_type": "tool_call", "tool_calls": [
        {"id": call, "name": "Read", "arguments": {"path": "src/lib.rs"}}
    ]});
    let answer = serde_json::json!({"tool_name": "Read", "tool_call_id": call});
    let text = "fn main() { println!(\"a line of a file that was read\"); }\n".repeat(12);
    let tool = |status| NewEvent::tool(status, "Read", &call, &with("args")).unwrap();
    let mut events = vec![
        NewEvent::message(Role::User, "Go on with the next part, and tell me what you find"),
        NewEvent::state_transition(None, "thinking", "user_input", &Json::object()),
        NewEvent::message_with(Role::Assistant, "I read the next part.", &calls.into()),
        tool(ToolStatus::Requested),
        tool(ToolStatus::Started),
        NewEvent::tool(ToolStatus::Completed, "Read", &call, &with("result")).unwrap(),
        NewEvent::message_with(Role::Tool, &text, &answer.into()),
        NewEvent::message(Role::Assistant, "There is nothing of interest in it."),
    ];
    if n % 12 == 11 {
        let payload = serde_json::json!({"summary": "s", "runtime_state": {"read_cache": {}}});
        events.push(NewEvent::checkpoint(&payload.into()));
    }
    events.into_iter().map(|event| event.run(&run).step(1).line(session).unwrap()).collect()
}

fn fill(log: &EventLog, id: &str, events: u64) {
    let session = log.session(id).unwrap();
    let mut attributes = Attributes::default();
    attributes.format = Some(Transcript.name().to_owned());
    session.describe(&attributes).unwrap();
    let mut n = 0;
    while session.head() < events {
        let lines: Vec<String> = (n..n + 64).flat_map(|n| turn(n, id)).collect();
        n += 64;
        let left = (events - session.head()) as usize;
        let entries: Vec<Entry<'_>> = lines
            .iter()
            .take(left)
            .map(|line| Transcript.classify(line.as_bytes()).unwrap().into_entry(line.as_bytes()))
            .collect();
        session.append_batch(&entries).unwrap();
    }
    log.checkpoint().unwrap();
}

fn row(what: &str, figures: &str) {
    println!("{what:<58} {figures}");
}

fn open_sessions() {
    let scratch = scratch();
    let log = EventLog::open(scratch.path()).unwrap();
    let before = resident().0;
    let recorders: Vec<Recorder> = (0..10_000)
        .map(|n| Recorder::new(log.session(&format!("session-{n:05}")).unwrap(), "run-1").unwrap())
        .collect();
    std::thread::scope(|scope| {
        for share in recorders.chunks(recorders.len() / 64 + 1) {
            scope.spawn(move || {
                for recorder in share {
                    recorder.message(0, Role::User, &"a question ".repeat(20)).unwrap();
                    recorder.terminal(1, "completed", &Json::object()).unwrap();
                }
            });
        }
    });
    let (now, peak) = resident();
    let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    row(
        "10,000 open sessions, resident before, with them, at most",
        &format!("{:.0}, {:.0}, {:.0} MiB", mib(before), mib(now), mib(peak)),
    );
}

fn last_checkpoint(log: &EventLog, id: &str) -> Duration {
    let mut samples = Samples::default();
    for _ in 0..200 {
        let start = Instant::now();
        let range = EventRange::between(Position::LastCheckpoint, Position::End);
        let entry = log.read(id, range).unwrap().next().unwrap().unwrap();
        assert_eq!(entry.kind(), Kind::Checkpoint);
        samples.push(start.elapsed());
    }
    samples.percentile(0.5)
}

/// A compaction that keeps the last messages.
fn compact(log: &EventLog, id: &str) {
    let messages = log.snapshot().unwrap().session(id).unwrap().unwrap().count(Kind::Message);
    let payload = serde_json::json!({"summary": "what was done before",
        "retain_start_idx": messages - 20, "messages_compacted": messages - 20});
    let recorder = Recorder::new(log.session(id).unwrap(), "run-last").unwrap();
    recorder.checkpoint(1, &payload.into()).unwrap();
    Manager::open(log.session(id).unwrap()).unwrap().keep().unwrap();
}

/// What the model gets: the view behind the last compaction, and the memory.
fn view_and_memory(log: &EventLog, id: &str) -> Duration {
    let mut samples = Samples::default();
    for _ in 0..200 {
        let start = Instant::now();
        let snapshot = log.snapshot().unwrap();
        let view = resume::view(&snapshot, id).unwrap();
        let memory = memory::of(&snapshot, id).unwrap();
        samples.push(start.elapsed());
        assert!((20..60).contains(&view.entries.len()) && memory.event_count() > 9_000);
    }
    samples.percentile(0.5)
}

fn sessions_of_all_sizes() {
    let scratch = scratch();
    let log = EventLog::open(scratch.path()).unwrap();
    for (id, events) in [("10k", 10_000), ("50k", 50_000), ("1m", 1_000_000)] {
        fill(&log, id, events);
    }
    let (small, large) = (last_checkpoint(&log, "10k"), last_checkpoint(&log, "1m"));
    let ratio = large.as_secs_f64() / small.as_secs_f64();
    row(
        "last checkpoint of 1,000,000 events, of 10,000",
        &format!("{large:.1?}, {small:.1?}: {ratio:.2}x"),
    );
    let mut samples = Samples::default();
    for _ in 0..20 {
        let start = Instant::now();
        let snapshot = log.snapshot().unwrap();
        let resumed = resume::resume(&snapshot, "50k", &ResumeOptions::default()).unwrap();
        samples.push(start.elapsed());
        assert!(resumed.state.history_messages.len() > 20_000);
    }
    row("full resume of 50,000 events", &format!("{:.1?}", samples.percentile(0.5)));
    let mut samples = Samples::default();
    for _ in 0..10 {
        let start = Instant::now();
        assert_eq!(log.read("50k", ..).unwrap().count(), 50_000);
        samples.push(start.elapsed());
    }
    row("  of that, reading the events", &format!("{:.1?}", samples.percentile(0.5)));

    compact(&log, "10k");
    compact(&log, "1m");
    let (small, large) = (view_and_memory(&log, "10k"), view_and_memory(&log, "1m"));
    let ratio = large.as_secs_f64() / small.as_secs_f64();
    row(
        "view and memory of 1,000,000 events, of 10,000",
        &format!("{large:.1?}, {small:.1?}: {ratio:.2}x"),
    );

    let entries = log.read("50k", ..).unwrap().map(|entry| entry.unwrap());
    let events: Vec<Event> =
        entries.filter_map(|entry| Event::from_entry(&Transcript, &entry)).collect();
    let deriver = Deriver::default();
    let mut memory = SessionMemory::default();
    let mut at = |count: usize| {
        while (memory.event_count() as usize) < events.len() - 1000
            && (memory.event_count() as usize) < count
        {
            let next = memory.event_count() as usize;
            deriver.update(&mut memory, &events[next]);
        }
        let mut memory = memory.clone();
        let next = memory.event_count() as usize;
        let start = Instant::now();
        events[next..next + 900].iter().for_each(|event| deriver.update(&mut memory, event));
        start.elapsed() / 900
    };
    let (few, many) = (at(100), at(50_000));
    row(
        "ingest_event behind 49,000 events, behind 100",
        &format!("{many:.2?}, {few:.2?}: {:.2}x", many.as_secs_f64() / few.as_secs_f64()),
    );
}

fn recording() {
    let scratch = scratch();
    let log = EventLog::open(scratch.path()).unwrap();
    let engine = log.session("engine").unwrap();
    let recorder = Recorder::new(log.session("recorder").unwrap(), "run-1").unwrap();
    let text = "x".repeat(700);
    let line = NewEvent::message(Role::Assistant, &text).run("run-1").line("recorder").unwrap();
    let (mut bare, mut recorded) = (Samples::default(), Samples::default());
    for _ in 0..3000 {
        let start = Instant::now();
        engine.append(Entry::new(Kind::Message, line.as_bytes())).unwrap();
        bare.push(start.elapsed());
        let start = Instant::now();
        recorder.message(0, Role::Assistant, &text).unwrap();
        recorded.push(start.elapsed());
    }
    let (bare, recorded) = (bare.percentile(0.5), recorded.percentile(0.5));
    row(
        "a recorder's append of 1 KiB, the engine's (p50)",
        &format!("{recorded:.1?}, {bare:.1?}: {:.2}x", recorded.as_secs_f64() / bare.as_secs_f64()),
    );
}

fn criterion_resume(criterion: &mut Criterion) {
    let scratch = scratch();
    let log = EventLog::open(scratch.path()).unwrap();
    fill(&log, "s", 5_000);
    let snapshot = log.snapshot().unwrap();
    let mut group = criterion.benchmark_group("resume");
    group.sample_size(20);
    group.bench_function("5,000 events", |bencher| {
        bencher.iter(|| resume::resume(&snapshot, "s", &ResumeOptions::default()).unwrap());
    });
    group.finish();
}

criterion_group!(benches, criterion_resume);

fn main() {
    print_host();
    open_sessions();
    recording();
    sessions_of_all_sizes();
    benches();
    Criterion::default().configure_from_args().final_summary();
}
