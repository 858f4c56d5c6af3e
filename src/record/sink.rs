//! Where a host's events go: into a session, to a trace, to several, nowhere.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Recorder, RuntimeEvent};
use crate::entry::Kind;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Json, NewEvent, ToolStatus};

/// Takes the events of a host's loop.
pub trait Sink: Send + Sync {
    /// A name for reports.
    fn name(&self) -> &str;

    /// Takes an event.
    ///
    /// # Errors
    ///
    /// Why it could not; the loop goes on.
    fn emit(&self, event: &RuntimeEvent) -> Result<()>;
}

/// Takes everything and does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSink;

impl Sink for NoSink {
    fn name(&self) -> &'static str {
        "none"
    }

    fn emit(&self, _: &RuntimeEvent) -> Result<()> {
        Ok(())
    }
}

type OnFailure = Box<dyn Fn(&str, &RuntimeEvent, &Error) + Send + Sync>;

/// Several sinks, in turn. One that fails, or panics, stops neither the others nor the loop.
///
/// ```
/// use eventlog::event::Json;
/// use eventlog::record::{NoSink, RuntimeEvent, Sink, Sinks};
///
/// let sinks = Sinks::new().with(NoSink);
/// sinks.emit(&RuntimeEvent::new("run-1", 0, "run_start", Json::object()))?;
/// assert_eq!(sinks.failures(), 0);
/// # Ok::<(), eventlog::Error>(())
/// ```
#[derive(Default)]
pub struct Sinks {
    sinks: Vec<Box<dyn Sink>>,
    failures: AtomicU64,
    on_failure: Option<OnFailure>,
}

impl std::fmt::Debug for Sinks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.sinks.iter().map(|sink| sink.name()).collect();
        f.debug_struct("Sinks").field("sinks", &names).finish_non_exhaustive()
    }
}

impl Sinks {
    /// No sinks.
    pub fn new() -> Sinks {
        Sinks::default()
    }

    /// One more, behind the others.
    #[must_use]
    pub fn with(mut self, sink: impl Sink + 'static) -> Sinks {
        self.sinks.push(Box::new(sink));
        self
    }

    /// Calls `report` with the name of the sink for each failure.
    #[must_use]
    pub fn on_failure(
        mut self,
        report: impl Fn(&str, &RuntimeEvent, &Error) + Send + Sync + 'static,
    ) -> Sinks {
        self.on_failure = Some(Box::new(report));
        self
    }

    /// How often a sink has failed.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}

impl Sink for Sinks {
    fn name(&self) -> &'static str {
        "several"
    }

    /// Never fails: see [`Sinks::on_failure`].
    fn emit(&self, event: &RuntimeEvent) -> Result<()> {
        for sink in &self.sinks {
            // A sink that has panicked is asked again with the next event.
            let outcome = catch_unwind(AssertUnwindSafe(|| sink.emit(event)));
            let outcome = outcome
                .unwrap_or_else(|_| Err(Error::new(ErrorKind::Refused, "the sink panicked")));
            if let Err(error) = outcome {
                self.failures.fetch_add(1, Ordering::Relaxed);
                if let Some(report) = &self.on_failure {
                    report(sink.name(), event, &error);
                }
            }
        }
        Ok(())
    }
}

/// Records the events that a transcript has: the five kinds. The others are passed over.
#[derive(Clone, Debug)]
pub struct TranscriptSink {
    recorder: Recorder,
}

impl TranscriptSink {
    /// A sink into the recorder's session. The run is that of each event.
    pub fn new(recorder: Recorder) -> TranscriptSink {
        TranscriptSink { recorder }
    }
}

impl Sink for TranscriptSink {
    fn name(&self) -> &'static str {
        "transcript"
    }

    /// # Errors
    ///
    /// `Usage` when a field is missing, or is no object where it has to be one; those of [`Recorder`].
    fn emit(&self, event: &RuntimeEvent) -> Result<()> {
        let Some(new) = recorded(event)? else { return Ok(()) };
        self.recorder.for_run(&event.run).record(new.step(event.step)).map(drop)
    }
}

/// What a transcript has of an event.
fn recorded(event: &RuntimeEvent) -> Result<Option<NewEvent>> {
    let payload = &event.payload;
    let required = |key: &str| {
        payload.get(key).filter(|value| !value.is_null()).ok_or_else(|| {
            let message = format!("a {} event has no {key:?}", event.name);
            Error::new(ErrorKind::Usage, message)
        })
    };
    let object = |key: &str| match payload.get(key).filter(|value| !value.is_null()) {
        None => Ok(Json::object()),
        Some(object) if object.is_object() => Ok(object),
        Some(_) => {
            let message = format!("the {key:?} of a {} event is no object", event.name);
            Err(Error::new(ErrorKind::Usage, message))
        }
    };
    let new = match event.name.as_str() {
        "message" => {
            let (role, content) = (required("role")?, required("content")?);
            let payload = Json::object()
                .with("role", &role)
                .with("content", &content)
                .with("metadata", &object("metadata")?);
            NewEvent::new(Kind::Message, payload)
        }
        "state_transition" => {
            let (to, reason) = (required("to_state")?, required("reason")?);
            let from = payload.get("from_state").filter(|from| !from.is_null());
            let from = from.map(|from| from.id());
            let details = object("details")?;
            NewEvent::state_transition(from.as_deref(), &to.id(), &reason.id(), &details)
        }
        "tool_lifecycle" => {
            let (tool, call) = (required("tool_name")?, required("tool_call_id")?);
            let status = required("status")?.id();
            let Some(status) = ToolStatus::from_name(&status) else {
                let message = format!("a tool_lifecycle event has the unknown status {status:?}");
                return Err(Error::new(ErrorKind::Usage, message));
            };
            NewEvent::tool(status, &tool.id(), &call.id(), &object("payload")?)?
        }
        "checkpoint" => {
            let id = required("checkpoint_id")?;
            NewEvent::checkpoint(&object("payload")?.with("checkpoint_id", &id))
        }
        "terminal" => NewEvent::terminal(&required("reason")?.id(), &object("details")?),
        _ => return Ok(None),
    };
    Ok(Some(new))
}
