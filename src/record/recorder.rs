//! The recorder: typed events into a session.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use parking_lot::{Mutex, ReentrantMutex, RwLock};

use crate::entry::{Entry, Kind};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Event, Json, NewEvent, ToolStatus};
use crate::format::{Format, Role, Transcript};
use crate::log::Session;
use crate::memtable::Attributes;

/// Writes the events of a run into a session, each of them durable when the call returns.
///
/// Cheap to clone, to be used from any thread. What is written are lines of MyCodeAgent's
/// transcripts; a session that holds lines of another format is refused.
///
/// ```
/// use eventlog::EventLog;
/// use eventlog::event::Json;
/// use eventlog::format::Role;
/// use eventlog::record::Recorder;
///
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-recorder-{}", std::process::id()));
/// let log = EventLog::open(&dir)?;
/// let recorder = Recorder::new(log.session("s-123")?, "run-1")?;
/// recorder.message(0, Role::User, "Help me refactor the auth module")?;
/// let args = Json::object().with("path", &Json::string("auth.rs"));
/// recorder.tool_requested(1, "Read", "call-1", &args)?;
/// recorder.tool_started(1, "Read", "call-1", &args)?;
/// recorder.tool_completed(1, "Read", "call-1", &Json::object())?;
/// assert_eq!(recorder.terminal(1, "completed", &Json::object())?.seq, 4);
/// # log.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
///
/// # Errors
///
/// Those of [`Session::append`] from every method; `Usage` for an event that no reader could take,
/// with nothing written.
#[derive(Clone)]
pub struct Recorder {
    shared: Arc<Shared>,
    run: Arc<str>,
}

type Listener = Arc<dyn Fn(&Event) + Send + Sync>;

struct Shared {
    session: Session,
    /// What has to stand before the first event does.
    begun: Mutex<bool>,
    listeners: RwLock<Vec<Listener>>,
    /// Held from before the write until the listeners have been called: they see the events in
    /// order. A listener may record; its events are told of when the one before has been.
    order: ReentrantMutex<RefCell<Telling>>,
}

/// Events that the listeners have not been told of.
#[derive(Default)]
struct Telling {
    queue: VecDeque<Event>,
    under_way: bool,
}

/// How far up a session is followed to those that started it.
const ANCESTORS_MAX: usize = 1000;
/// How many events at a session's end are looked at for a record.
const LOOK_BACK: usize = 64;

/// Refuses a session that is deleted, or whose last record has a schema that is newer than what is
/// known here: lines of the older one behind it would be read as what they are not.
///
/// # Errors
///
/// `Refused`, `NewerFormat`; those of [`Session::read`].
pub fn check_writable(session: &Session) -> Result<()> {
    let Some(info) = session.snapshot()?.session(session.id())? else { return Ok(()) };
    crate::sessions::refuse_deleted(&info)?;
    let format = crate::sessions::format_of(&info);
    let Some(format) = format else { return Ok(()) };
    for entry in session.read(..)?.rev().take(LOOK_BACK) {
        let entry = entry?;
        let Ok(record) = format.classify(entry.bytes()) else { continue };
        let Some(version) = record.newer_schema else { return Ok(()) };
        let message = format!(
            "the session {:?} has events of schema version {version}, which is newer than this build",
            session.id()
        );
        return Err(Error::new(ErrorKind::NewerFormat, message)
            .with_hint("use a newer version of eventlog, or a session of its own"));
    }
    Ok(())
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let session = self.shared.session.id();
        f.debug_struct("Recorder")
            .field("session", &session)
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}

impl Recorder {
    /// A recorder for a run of a session. Nothing is written before the first event.
    ///
    /// # Errors
    ///
    /// `Refused` when the session is deleted or holds lines of another format, `NewerFormat` when
    /// they have a newer schema; those of [`Session::read`].
    pub fn new(session: Session, run: &str) -> Result<Recorder> {
        let known = session.attributes()?;
        let format = known.and_then(|attributes| attributes.format);
        if let Some(other) = format.as_deref().filter(|name| *name != Transcript.name()) {
            let message =
                format!("the session {:?} holds lines of the format {other:?}", session.id());
            return Err(Error::new(ErrorKind::Refused, message)
                .with_hint("record into a session of its own, or convert it with an export"));
        }
        check_writable(&session)?;
        let shared = Shared {
            begun: Mutex::default(),
            session,
            listeners: RwLock::default(),
            order: ReentrantMutex::default(),
        };
        Ok(Recorder { shared: Arc::new(shared), run: run.into() })
    }

    /// The same recorder for another run.
    pub fn for_run(&self, run: &str) -> Recorder {
        Recorder { run: run.into(), ..self.clone() }
    }

    /// A recorder for the session of a sub-agent, which is linked to this one and to the call that
    /// started it.
    ///
    /// # Errors
    ///
    /// `Refused` where the session has itself started this one; those of [`Recorder::new`] and
    /// [`Session::describe`].
    pub fn sub_agent(&self, session: Session, run: &str, call_id: &str) -> Result<Recorder> {
        self.refuse_ancestor(session.id())?;
        let recorder = Recorder::new(session, run)?;
        let attributes = Attributes {
            parent: Some(self.shared.session.id().to_owned()),
            parent_call: Some(call_id.to_owned()),
            ..Attributes::default()
        };
        recorder.shared.session.describe(&attributes)?;
        Ok(recorder)
    }

    /// Refuses a session that this one comes from.
    fn refuse_ancestor(&self, id: &str) -> Result<()> {
        let snapshot = self.shared.session.snapshot()?;
        let mut at = Some(self.shared.session.id().to_owned());
        let mut left = ANCESTORS_MAX;
        while let Some(ancestor) = at.filter(|_| left > 0) {
            if ancestor == id {
                let message = format!("the session {id:?} cannot be a sub-agent of its own");
                return Err(Error::new(ErrorKind::Refused, message)
                    .with_hint("give the sub-agent a session of its own"));
            }
            at = snapshot.session(&ancestor)?.and_then(|session| session.attributes.parent);
            left -= 1;
        }
        Ok(())
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.shared.session
    }

    /// The run.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Calls `listener` after each event of this recorder and its clones that has become durable, in
    /// order: session memory hangs here. While a recorder has listeners, its events are written one
    /// at a time. When a listener panics the others are still told, and then the panic goes on; the
    /// event is durable.
    pub fn on_recorded(&self, listener: impl Fn(&Event) + Send + Sync + 'static) {
        self.shared.listeners.write().push(Arc::new(listener));
    }

    /// A message.
    pub fn message(&self, step: i64, role: Role<'_>, content: &str) -> Result<Event> {
        self.record(NewEvent::message(role, content).step(step))
    }

    /// A message with metadata, an object.
    pub fn message_with(
        &self,
        step: i64,
        role: Role<'_>,
        content: &str,
        metadata: &Json,
    ) -> Result<Event> {
        self.record(NewEvent::message_with(role, content, metadata).step(step))
    }

    /// A change of the loop's state; `details` is an object.
    pub fn state_transition(
        &self,
        step: i64,
        from: Option<&str>,
        to: &str,
        reason: &str,
        details: &Json,
    ) -> Result<Event> {
        self.record(NewEvent::state_transition(from, to, reason, details).step(step))
    }

    /// The model has asked for a call.
    pub fn tool_requested(&self, step: i64, tool: &str, call: &str, args: &Json) -> Result<Event> {
        self.tool(step, ToolStatus::Requested, tool, call, "args", args)
    }

    /// A call is about to run. Written before it does, so that it is known to be uncertain if no
    /// outcome follows.
    pub fn tool_started(&self, step: i64, tool: &str, call: &str, args: &Json) -> Result<Event> {
        self.tool(step, ToolStatus::Started, tool, call, "args", args)
    }

    /// A call has run; `result` is what it gave.
    pub fn tool_completed(
        &self,
        step: i64,
        tool: &str,
        call: &str,
        result: &Json,
    ) -> Result<Event> {
        self.tool(step, ToolStatus::Completed, tool, call, "result", result)
    }

    /// A call has failed.
    pub fn tool_failed(&self, step: i64, tool: &str, call: &str, error: &str) -> Result<Event> {
        self.tool(step, ToolStatus::Failed, tool, call, "error", &Json::string(error))
    }

    fn tool(
        &self,
        step: i64,
        status: ToolStatus,
        tool: &str,
        call: &str,
        key: &str,
        value: &Json,
    ) -> Result<Event> {
        let extra = Json::object().with(key, value);
        self.record(NewEvent::tool(status, tool, call, &extra)?.step(step))
    }

    /// A checkpoint of the context: an object, which gets a `checkpoint_id` and a `created_at` if it
    /// has none.
    pub fn checkpoint(&self, step: i64, payload: &Json) -> Result<Event> {
        self.record(NewEvent::checkpoint(payload).step(step))
    }

    /// The end of the run; `details` is an object.
    pub fn terminal(&self, step: i64, reason: &str, details: &Json) -> Result<Event> {
        self.record(NewEvent::terminal(reason, details).step(step))
    }

    /// An event of any kind, in the recorder's run. Returns it with its seq.
    pub fn record(&self, event: NewEvent) -> Result<Event> {
        let event = event.run(&self.run);
        let line = event.line(self.shared.session.id())?;
        let entry = event.entry(&line)?;
        if self.shared.listeners.read().is_empty() {
            self.prepare()?;
            return Ok(event.at(self.shared.session.append(entry)?));
        }
        let telling = self.shared.order.lock();
        self.prepare()?;
        let event = event.at(self.shared.session.append(entry)?);
        telling.borrow_mut().queue.push_back(event.clone());
        if std::mem::replace(&mut telling.borrow_mut().under_way, true) {
            return Ok(event);
        }
        let mut panic = None;
        loop {
            let Some(next) = telling.borrow_mut().queue.pop_front() else { break };
            let listeners = self.shared.listeners.read().clone();
            for listener in listeners {
                if let Err(first) = catch_unwind(AssertUnwindSafe(|| listener(&next))) {
                    panic.get_or_insert(first);
                }
            }
        }
        telling.borrow_mut().under_way = false;
        match panic {
            Some(panic) => resume_unwind(panic),
            None => Ok(event),
        }
    }

    /// What has to stand before the first event.
    fn prepare(&self) -> Result<()> {
        let mut begun = self.shared.begun.lock();
        let session = &self.shared.session;
        if !*begun && session.attributes()?.is_none_or(|known| known.format.is_none()) {
            let format = Some(Transcript.name().to_owned());
            session.describe(&Attributes { format, ..Attributes::default() })?;
        }
        // An event never goes on with somebody else's line.
        if session.ends_open()? {
            session.append(Entry::new(Kind::Blank, b""))?;
        }
        *begun = true;
        Ok(())
    }
}
