//! A session as a host goes on with it.
//!
//! * `lifecycle`: what became of the tool calls; `observe`: the answer in place of a missing one.
//! * `state`: history, loop, checkpoint, calls, as the host had them.
//! * `view`: what to send to the model.
//! * `provider`: the view as the messages of a provider's API.
//! * `policy`: which calls may be made again.
//! * `host`: handing it over to the program that goes on.

mod host;
mod lifecycle;
mod observe;
mod policy;
mod provider;
mod state;
mod view;

use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::log::Snapshot;
use crate::memory::SessionMemory;

use lifecycle::lifecycles;

pub use host::{ActiveCheckpoint, Applied, Host, HostError};
pub use lifecycle::{Lifecycle, Reading, Stage};
pub use observe::Synthetic;
pub use policy::{AllButWriters, ReadOnlyTools, ReplayPolicy};
pub use provider::Provider;
pub use state::{LoopState, Message, PendingCall, State, Transition, UncertainAction};
pub use view::{View, ViewCall, ViewEntry};

/// How to resume.
#[non_exhaustive]
pub struct ResumeOptions {
    /// How lifecycle facts are read.
    pub reading: Reading,
    /// Only this run.
    pub run: Option<String>,
    /// Which calls may be made again.
    pub policy: Box<dyn ReplayPolicy>,
}

impl Default for ResumeOptions {
    fn default() -> ResumeOptions {
        ResumeOptions { reading: Reading::Default, run: None, policy: Box::new(ReadOnlyTools) }
    }
}

impl std::fmt::Debug for ResumeOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResumeOptions")
            .field("reading", &self.reading)
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}

/// A session, resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resumed {
    /// The session.
    pub session: String,
    /// The run of the last event.
    pub run: String,
    /// Everything that a host needs to go on.
    pub state: State,
    /// What to send to the model.
    pub view: View,
    /// What is fed forward to the model beside it.
    pub memory: SessionMemory,
}

/// Resumes the session `id`: all of it, or one run.
///
/// # Errors
///
/// `NotFound` where the session is not there; `Refused` where it is of no known format or has no
/// event; `Corrupt`, `Io`.
///
/// # Example
///
/// ```
/// use eventlog::{Attributes, Entry, EventLog, Kind, resume::{self, ResumeOptions}};
///
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-resume-{}", std::process::id()));
/// let log = EventLog::open(&dir)?;
/// let session = log.session("s")?;
/// let mut attributes = Attributes::default();
/// attributes.format = Some("transcript".to_owned());
/// session.describe(&attributes)?;
/// let line = |kind: &str, payload: &str| format!(
///     r#"{{"event_id":"e","timestamp":"t","session_id":"s","run_id":"run-1","step":1,"event_type":"{kind}","payload":{payload}}}"#
/// );
/// let started = r#"{"tool_name":"Edit","tool_call_id":"c1","status":"started"}"#;
/// session.append(Entry::new(Kind::ToolLifecycle, line("tool_lifecycle", started).into_bytes()))?;
/// let resumed = resume::resume(&log.snapshot()?, "s", &ResumeOptions::default())?;
/// let action = &resumed.state.uncertain_actions[0];
/// assert_eq!((action.tool_name.as_str(), action.replay_allowed), ("Edit", false));
/// # log.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
pub fn resume(snapshot: &Snapshot, id: &str, options: &ResumeOptions) -> Result<Resumed> {
    let session = snapshot.session(id)?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("there is no session {id:?} in this log"))
            .with_hint("`eventlog sessions` lists them")
    })?;
    let format = session.attributes.format.as_deref().and_then(crate::format::by_name);
    let Some(format) = format else {
        return Err(Error::new(
            ErrorKind::Refused,
            format!("session {id:?} is of no known format"),
        )
        .with_hint("`eventlog show` prints what is in it"));
    };
    let mut events = Vec::new();
    for entry in snapshot.read(id, ..)? {
        events.extend(Event::from_entry(format, &entry?));
    }
    let run = events.last().map(|event| event.run.clone());
    let run = options.run.clone().or(run);
    if let Some(only) = &options.run {
        events.retain(|event| event.run == *only);
    }
    if events.is_empty() && options.run.is_none() {
        return Err(Error::new(ErrorKind::Refused, format!("session {id:?} has no event"))
            .with_hint("`eventlog quarantine` tells what was set aside"));
    }
    let calls = lifecycles(&events, Reading::Default);
    let view = View::of(&events, &calls);
    let state = match options.reading {
        Reading::Default => State::of(&events, &calls, options.reading, &*options.policy),
        reading => State::of(&events, &lifecycles(&events, reading), reading, &*options.policy),
    };
    let memory = SessionMemory::rebuild(&events);
    Ok(Resumed { session: id.to_owned(), run: run.unwrap_or_default(), state, view, memory })
}
