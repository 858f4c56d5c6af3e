//! A host with a thousand sessions, written to from 64 threads.
//!
//! `cargo run --release --example many_sessions`
#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::time::Instant;

use eventlog::EventLog;
use eventlog::event::Json;
use eventlog::format::Role;
use eventlog::record::Recorder;
use eventlog::resume::{ResumeOptions, resume};

const SESSIONS: usize = 1000;
const THREADS: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("eventlog-many-{}", std::process::id()));
    let log = EventLog::open(&dir)?;
    let start = Instant::now();
    let ids: Vec<String> = (0..SESSIONS).map(|n| format!("session-{n:04}")).collect();
    std::thread::scope(|scope| {
        let share = SESSIONS.div_ceil(THREADS);
        let workers: Vec<_> = ids
            .chunks(share)
            .map(|ids| {
                let log = &log;
                scope.spawn(move || ids.iter().try_for_each(|id| converse(log, id)))
            })
            .collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    let events = log.sessions()?.iter().map(|session| session.events).sum::<u64>();
    let seconds = start.elapsed().as_secs_f64();
    println!("{SESSIONS} sessions, {events} events, each durable before the next: {seconds:.1} s");

    let snapshot = log.snapshot()?;
    for id in &ids {
        let resumed = resume(&snapshot, id, &ResumeOptions::default())?;
        assert_eq!(resumed.state.history_messages.len(), 2);
        assert!(resumed.state.uncertain_actions.is_empty());
    }
    println!("all of them resume");
    log.close()?;
    std::fs::remove_dir_all(dir)?;
    Ok(())
}

/// One short run. The errors of a log can go from thread to thread.
fn converse(log: &EventLog, id: &str) -> eventlog::Result<()> {
    let recorder = Recorder::new(log.session(id)?, "run-1")?;
    let none = Json::object();
    recorder.message(0, Role::User, "What is in this directory?")?;
    recorder.tool_started(1, "LS", "call-1", &none)?;
    recorder.tool_completed(1, "LS", "call-1", &none)?;
    recorder.message(1, Role::Assistant, "Nothing of interest.")?;
    recorder.terminal(1, "completed", &none)?;
    Ok(())
}
