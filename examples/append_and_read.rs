//! The library in a minute: append, hand over, read back, read from the last checkpoint.
#![allow(clippy::print_stdout, reason = "an example")]

use eventlog::{Entry, EventLog, EventRange, Kind, Position};

fn main() -> eventlog::Result<()> {
    let dir = std::env::temp_dir().join(format!("eventlog-example-{}", std::process::id()));
    let log = EventLog::open(&dir)?;

    // Durable when it returns.
    let session = log.session("s-123")?;
    let question = br#"{"role":"user","content":"help me refactor the auth module"}"#;
    session.append(Entry::new(Kind::Message, question).user_turn(true).run("run-1"))?;

    // Several events, all or none.
    let answer = [
        Entry::new(Kind::Message, br#"{"role":"assistant","content":"reading it first"}"#),
        Entry::new(Kind::ToolLifecycle, br#"{"tool":"Read","status":"started"}"#),
    ];
    session.append_batch(&answer)?;

    // Handed over now, durable when the ticket says so; or `.await` it.
    let ticket = session.submit(&[Entry::new(Kind::Checkpoint, br#"{"summary":"auth"}"#)])?;
    println!("durable: events {:?}", ticket.wait()?);

    for event in log.read("s-123", ..)? {
        let event = event?;
        println!("{} {:<15} {}", event.seq(), event.kind(), String::from_utf8_lossy(event.bytes()));
    }
    let resume = EventRange::between(Position::LastCheckpoint, Position::End);
    println!("to resume from: {} event", log.read("s-123", resume)?.count());

    log.close()?;
    // Only an example throws its log away; that it cannot is no failure of the example.
    _ = std::fs::remove_dir_all(dir);
    Ok(())
}
