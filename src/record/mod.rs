//! Writing down what happens in a run, as it happens.
//!
//! A [`Recorder`] writes the five kinds of event into a session. A host that has an event bus of
//! its own gives [`RuntimeEvent`]s to a [`Sink`] instead: one that records, one that traces, several.

mod recorder;
mod runtime;
mod sanitize;
mod sink;
mod trace;

pub use recorder::{Recorder, check_writable};
pub use runtime::{LoopState, RuntimeEvent, record_active_checkpoint, transition_state};
pub use sanitize::sanitize;
pub use sink::{NoSink, Sink, Sinks, TranscriptSink};
pub use trace::TraceSink;
