//! An agent is killed in the middle of an edit, and its run is resumed.
//!
//! The program starts itself a second time as the agent, waits until that one has written half of a
//! file, and kills it with SIGKILL. Then it opens the log, as a host would after the crash.
//!
//! `cargo run --example crash_resume`
#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use eventlog::EventLog;
use eventlog::event::Json;
use eventlog::format::Role;
use eventlog::record::Recorder;
use eventlog::resume::{ResumeOptions, resume};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    if let (Some("agent"), Some(dir)) = (arguments.next().as_deref(), arguments.next()) {
        return agent(Path::new(&dir));
    }
    let dir = std::env::temp_dir().join(format!("eventlog-crash-{}", std::process::id()));
    let dir = dir.as_path();
    std::fs::create_dir_all(dir)?;
    run_and_kill(dir)?;
    after_the_crash(dir)?;
    std::fs::remove_dir_all(dir)?;
    Ok(())
}

/// The agent: every fact is durable before the next thing is done.
fn agent(dir: &Path) -> Result<(), Box<dyn Error>> {
    let log = EventLog::open(dir.join("log"))?;
    let recorder = Recorder::new(log.session("fix-login")?, "run-1")?;
    let path = Json::from(serde_json::json!({"path": "login.rs"}));

    recorder.message(0, Role::User, "Make the login constant-time")?;
    let calls = [("call-1", "Grep"), ("call-2", "Read"), ("call-3", "Edit")];
    let calls =
        calls.map(|(id, name)| serde_json::json!({"id": id, "name": name, "arguments": {}}));
    let metadata = serde_json::json!({"action_type": "tool_call", "tool_calls": calls});
    recorder.message_with(1, Role::Assistant, "I look where it compares.", &metadata.into())?;

    recorder.tool_started(1, "Grep", "call-1", &path)?;
    recorder.tool_completed(1, "Grep", "call-1", &serde_json::json!({"matches": 2}).into())?;
    // These two run side by side.
    recorder.tool_started(1, "Read", "call-2", &path)?;
    recorder.tool_started(1, "Edit", "call-3", &path)?;
    let mut file = std::fs::File::create(dir.join("login.rs"))?;
    file.write_all(b"fn verify(a: &[u8], b: &[u8]) -> bool { subtle::Const")?;
    println!("half of the file is written");
    std::thread::park();
    Ok(())
}

fn run_and_kill(dir: &Path) -> Result<(), Box<dyn Error>> {
    let mut agent = Command::new(std::env::current_exe()?)
        .arg("agent")
        .arg(dir)
        .stdout(Stdio::piped())
        .spawn()?;
    let output = agent.stdout.take().ok_or("no output")?;
    BufReader::new(output).read_line(&mut String::new())?;
    agent.kill()?;
    println!("the agent: {}", agent.wait()?);
    Ok(())
}

fn after_the_crash(dir: &Path) -> Result<(), Box<dyn Error>> {
    let log = EventLog::open(dir.join("log"))?;
    let resumed = resume(&log.snapshot()?, "fix-login", &ResumeOptions::default())?;

    println!("{} events survived", log.read("fix-login", ..)?.count());
    for action in &resumed.state.uncertain_actions {
        let (call, tool) = (&action.tool_call_id, &action.tool_name);
        match action.replay_allowed {
            true => println!("{call} {tool}: outcome unknown; it only reads, so do it again"),
            false => println!("{call} {tool}: outcome unknown; look before anything is done again"),
        }
    }
    println!("what the model sees:");
    for entry in &resumed.view.entries {
        println!("  {:.104}", serde_json::to_string(entry)?);
    }

    // What this example is there to show holds.
    let uncertain: Vec<_> =
        resumed.state.uncertain_actions.iter().map(|a| (&*a.tool_name, a.replay_allowed)).collect();
    assert_eq!(uncertain, [("Read", true), ("Edit", false)]);
    assert_eq!(resumed.state.completed_tool_results.len(), 1);
    assert_eq!(resumed.view.entries.len(), 5);
    log.close()?;
    Ok(())
}
