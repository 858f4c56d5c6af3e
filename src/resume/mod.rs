//! A session as a host goes on with it.
//!
//! * `lifecycle`: what became of the tool calls; `approval`: which wait for somebody; `observe`: the
//!   answer in place of a missing one.
//! * `state`: history, loop, checkpoint, calls, as the host had them.
//! * `view`: what to send to the model; `start`: where that begins; `pairs`: which answer is that of
//!   which call.
//! * `provider`: the view as the messages of a provider's API.
//! * `policy`: which calls may be made again.
//! * `host`: handing it over to the program that goes on.

mod approval;
mod host;
mod lifecycle;
mod observe;
mod pairs;
mod policy;
mod provider;
mod start;
mod state;
mod view;

#[cfg(test)]
mod growth;

use crate::entry::Seq;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Event, Text};
use crate::format::Format;
use crate::log::{SessionInfo, Snapshot};
use crate::memory::{Deriver, SessionMemory};
use crate::parallel;
use crate::sessions::with_format;

use lifecycle::lifecycles;
use start::{Earlier, InMemory, Indexed, Start};

pub use crate::error::HostError;
pub use crate::event::Reading;
pub use host::{ActiveCheckpoint, Applied, Host};
pub use lifecycle::{Lifecycle, Stage};
pub use observe::Synthetic;
pub use policy::{AllButWriters, ReadOnlyTools, ReplayPolicy};
pub use provider::{MessageOptions, Provider};
pub use state::{LoopState, Message, PendingCall, State, Transition, UncertainAction};
pub use view::{View, ViewCall, ViewEntry};

/// By ids, of which a session may have very many.
type Map<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;
/// See [`Map`].
type Set<T> = std::collections::HashSet<T, foldhash::fast::RandomState>;

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
    pub run: Text,
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
    let (session, format) = with_format(snapshot, id)?;
    let mut events = read(snapshot, &session, format, 0)?;
    let last_run = events.last().map(|event| event.run.clone());
    let run = options.run.as_deref().map(Text::from).or(last_run);
    if let Some(only) = &options.run {
        events.retain(|event| event.run == *only);
    }
    if events.is_empty() && options.run.is_none() && session.rewinds().is_empty() {
        let message = match session.events {
            0 => format!("session {id:?} has no event"),
            _ => format!("no line of session {id:?} is a record of a type that is known"),
        };
        return Err(Error::new(ErrorKind::Refused, message)
            .with_hint("`eventlog show` prints its lines, `eventlog quarantine` what is damaged"));
    }
    let many = events.len() >= MANY_EVENTS;
    let deriver = Deriver::default().reading(options.reading);
    let memory = || deriver.rebuild(&events);
    let (both, memory) = parallel::both(many, || state_and_view(&events, options), memory);
    let ((state, view), session) = (both?, id.to_owned());
    Ok(Resumed { session, run: run.unwrap_or_default(), state, view, memory })
}

fn state_and_view(events: &[Event], options: &ResumeOptions) -> Result<(State, View)> {
    let start = Start::find(&mut InMemory::new(events))?;
    let (before, behind) = events.split_at(events.partition_point(|e| e.seq < start.from));
    let calls = lifecycles(behind, Reading::Default);
    // Nearly always the state has the same.
    let same = before.is_empty() && options.reading == Reading::Default;
    let others = (!same).then(|| lifecycles(events, options.reading));
    let mut before = Earlier::new(before.iter().rev().map(|event| Ok(event.id.clone())));
    let in_state = others.as_deref().unwrap_or(&calls);
    let (state, view) = parallel::both(
        events.len() >= MANY_EVENTS,
        || State::of(events, in_state, options.reading, &*options.policy),
        || View::of(behind, start, &calls, &mut before),
    );
    Ok((state, view?))
}

/// What to send to the model of the session `id`: reads what lies behind the last valid compaction,
/// and gives what [`resume`] gives.
///
/// # Errors
///
/// `NotFound` where the session is not there; `Refused` where it is of no known format;
/// `Corrupt`, `Io`.
///
/// # Example
///
/// ```
/// use eventlog::resume;
/// # use eventlog::{EventLog, format::Role, record::Recorder};
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-view-{}", std::process::id()));
/// # let log = EventLog::open(&dir)?;
/// # Recorder::new(log.session("s")?, "run-1")?.message(0, Role::User, "hello")?;
/// let view = resume::view(&log.snapshot()?, "s")?;
/// assert_eq!(view.entries.len(), 1);
/// # log.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
pub fn view(snapshot: &Snapshot, id: &str) -> Result<View> {
    let (session, format) = with_format(snapshot, id)?;
    if !session.rewinds().is_empty() {
        // The index counts messages that do not count any more.
        return Ok(resume(snapshot, id, &ResumeOptions::default())?.view);
    }
    let start = Start::find(&mut Indexed::new(snapshot, &session, format))?;
    let from = start.from;
    let events = read(snapshot, &session, format, from)?;
    let calls = lifecycles(&events, Reading::Default);
    let before = snapshot.read(id, ..from)?.rev();
    let before = before.map(|entry| Ok(Event::from_entry(format, &entry?).map(|event| event.id)));
    View::of(&events, start, &calls, &mut Earlier::new(before.filter_map(Result::transpose)))
}

/// From so many events on it pays to work on several threads.
const MANY_EVENTS: usize = 4096;

/// The events of a session that count, from `from` on.
fn read(
    snapshot: &Snapshot,
    session: &SessionInfo,
    format: &dyn Format,
    from: Seq,
) -> Result<Vec<Event>> {
    let mut pieces = Vec::new();
    for kept in session.kept() {
        for first in (kept.start.max(from)..kept.end).step_by(MANY_EVENTS) {
            pieces.push(first..kept.end.min(first + MANY_EVENTS as u64));
        }
    }
    let pieces = parallel::map(&pieces, |range| {
        let entries = snapshot.read(&session.id, range.clone())?;
        let events = entries.map(|entry| Ok(Event::from_entry(format, &entry?)));
        events.filter_map(Result::transpose).collect::<Result<Vec<Event>>>()
    });
    let left = session.events.saturating_sub(from);
    let mut events = Vec::with_capacity(usize::try_from(left).unwrap_or_default());
    for piece in pieces {
        events.extend(piece?);
    }
    Ok(events)
}
