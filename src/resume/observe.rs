//! The answer that stands in for one that was never recorded.

use crate::event::{Json, Reading};
use crate::format::write::{Object, Spacing, respaced};

use super::lifecycle::{Lifecycle, Stage};

/// What kind of answer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Synthetic {
    /// The result that the lifecycle has.
    Recovered,
    /// The failure that the lifecycle has.
    Failed,
    /// Begun, and nobody knows how it ended.
    Uncertain,
    /// Never begun.
    NotExecuted,
    /// Nothing is known.
    Unknown,
}

impl Synthetic {
    /// The name in `--json` output.
    ///
    /// ```
    /// assert_eq!(eventlog::resume::Synthetic::NotExecuted.name(), "not_executed");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Synthetic::Recovered => "recovered",
            Synthetic::Failed => "failed",
            Synthetic::Uncertain => "uncertain",
            Synthetic::NotExecuted => "not_executed",
            Synthetic::Unknown => "unknown",
        }
    }
}

/// The text of an answer for a call of which `call` is known, and what kind of answer it is.
pub(super) fn observation(call: Option<&Lifecycle>, reading: Reading) -> (String, Synthetic) {
    let Some(call) = call else {
        let message = "nothing was recorded of this call; look at what it may have done first";
        return (error("RECOVERY_STATE_UNKNOWN", message), Synthetic::Unknown);
    };
    match call.stage {
        Stage::Completed => (result(&call.payload), Synthetic::Recovered),
        Stage::Failed => {
            let message = failure(&call.payload, reading)
                .unwrap_or_else(|| "the call failed, and its error was not recorded".to_owned());
            (error("EXECUTION_FAILED", &message), Synthetic::Failed)
        }
        Stage::Started => {
            let message = "the call was cut off after it had begun; find out what it did before it \
                           is made again";
            (error("INTERRUPTED_UNCERTAIN", message), Synthetic::Uncertain)
        }
        Stage::Requested | Stage::Waiting => {
            let message = "the call was never begun; it may be made again";
            (error("NOT_EXECUTED_REPLAN", message), Synthetic::NotExecuted)
        }
        Stage::Unknown => {
            let message = "what was recorded of this call does not tell how far it got";
            (error("RECOVERY_STATE_UNKNOWN", message), Synthetic::Unknown)
        }
    }
}

/// What the call gave.
fn result(payload: &Json) -> String {
    let result = match payload.get("result") {
        Some(result) => result,
        None => payload.get("result_text").unwrap_or_else(|| Json::raw("null")),
    };
    if result.is_null() {
        return "{\"status\": \"success\", \"data\": {\"recovered\": true}}".to_owned();
    }
    match result.text() {
        Some(text) => text.to_string(),
        None => respaced(result.as_str(), Spacing::Spaced),
    }
}

/// Why the call failed.
fn failure(payload: &Json, reading: Reading) -> Option<String> {
    let as_text = |value: Json| match value.text() {
        Some(text) => text.to_string(),
        None => respaced(value.as_str(), Spacing::Spaced),
    };
    let error = payload.get("error").filter(|error| !error.is_null());
    let error = error.map(as_text).filter(|error| !error.is_empty());
    let in_result = || {
        let error = payload.get("result")?.get("error")?;
        let message = error.get("message").filter(|message| !message.is_null());
        Some(as_text(message.unwrap_or(error))).filter(|message| !message.trim().is_empty())
    };
    match reading {
        Reading::Original => error,
        // The original has it and does not look there.
        Reading::Default => error.or_else(in_result),
    }
}

fn error(code: &str, message: &str) -> String {
    let error = Object::new(Spacing::Spaced).text("code", code).text("message", message).finish();
    let object = Object::new(Spacing::Spaced).text("status", "error").raw("error", &error);
    object.raw("data", "{\"recovered\": true}").finish()
}
