//! What happens in a host's loop, as its event bus says it: more than is recorded, by names that the
//! host chooses.

use super::Sink;
use crate::error::Result;
use crate::event::Json;

/// An event of a host's loop. The names of the five kinds are recorded; any other is for traces.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RuntimeEvent {
    /// The run.
    pub run: String,
    /// The step of the loop.
    pub step: i64,
    /// The name of its type: `message`, `model_output`, ...
    pub name: String,
    /// An object. Of a tool call and of a checkpoint what is specific stands in a `payload` inside.
    pub payload: Json,
}

impl RuntimeEvent {
    /// An event.
    pub fn new(run: &str, step: i64, name: &str, payload: Json) -> RuntimeEvent {
        RuntimeEvent { run: run.to_owned(), step, name: name.to_owned(), payload }
    }
}

/// Where a host's loop is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoopState {
    /// The run.
    pub run: String,
    /// The name of the state; `None` before the first transition.
    pub state: Option<String>,
    /// The step.
    pub step: i64,
    /// User's turns so far.
    pub turn_count: u64,
    /// Messages in the context.
    pub message_count: u64,
}

/// Changes the loop's state and tells `sink`. The state has changed also when the sink fails.
///
/// ```
/// use eventlog::event::Json;
/// use eventlog::record::{LoopState, NoSink, transition_state};
///
/// let mut state = LoopState::default();
/// transition_state(&NoSink, &mut state, "user_input", "user_input", &Json::object())?;
/// assert_eq!(state.state.as_deref(), Some("user_input"));
/// # Ok::<(), eventlog::Error>(())
/// ```
///
/// # Errors
///
/// Those of the sink.
pub fn transition_state(
    sink: &dyn Sink,
    state: &mut LoopState,
    to: &str,
    reason: &str,
    details: &Json,
) -> Result<()> {
    let from = state.state.replace(to.to_owned());
    let payload = Json::from(serde_json::json!({
        "from_state": from,
        "to_state": to,
        "step": state.step,
        "turn_count": state.turn_count,
        "reason": reason,
        "message_count": state.message_count,
    }));
    let payload = payload.with("details", details);
    sink.emit(&RuntimeEvent::new(&state.run, state.step, "state_transition", payload))
}

/// Tells `sink` of the checkpoint that is active from now on.
///
/// # Errors
///
/// Those of the sink.
pub fn record_active_checkpoint(
    sink: &dyn Sink,
    state: &LoopState,
    checkpoint_id: &str,
    payload: &Json,
) -> Result<()> {
    let payload =
        Json::object().with("checkpoint_id", &Json::string(checkpoint_id)).with("payload", payload);
    sink.emit(&RuntimeEvent::new(&state.run, state.step, "checkpoint", payload))
}
