//! Calls that wait for somebody's approval.
//!
//! Neither format has a field for that, and hosts write it in ways of their own: as a lifecycle
//! status (`awaiting_approval`), as a field beside it (`"requires_approval": true`, `"approval":
//! "pending"`), as a state of the loop, or in the call itself. What is read here is the words:
//! something about approval, confirmation or permission that is pending, awaited, requested or
//! required. A word like `approved` says that it is over.

use crate::entry::Seq;
use crate::event::{Event, Json, Text};
use crate::format::json_each_member;
use crate::steps;

use super::Map;
use super::lifecycle::{Lifecycle, Stage};

/// What is waited for.
const SUBJECTS: [&str; 5] = ["approval", "approve", "confirm", "permission", "consent"];
/// That it has not come.
const OPEN: [&str; 6] = ["pending", "await", "waiting", "request", "requir", "need"];
/// What is longer is no such word.
const WORD_BYTES_MAX: usize = 64;

/// Upper and lower case are alike.
fn has(text: &str, words: &[&str]) -> bool {
    let text = text.as_bytes();
    words
        .iter()
        .any(|word| text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word.as_bytes())))
}

/// Whether a word like `awaiting_approval` or `approval-requested` says that something waits.
fn says_so(word: &str) -> bool {
    word.len() <= WORD_BYTES_MAX && has(word, &SUBJECTS) && has(word, &OPEN)
}

/// Whether a word like `approved` or `permission_denied` says that nothing waits any more.
pub(super) fn is_over(word: &str) -> bool {
    const ENDS: [&str; 6] = ["approved", "reject", "denied", "declined", "granted", "confirmed"];
    word.len() <= WORD_BYTES_MAX && has(word, &ENDS) && !says_so(word)
}

/// Whether what is known of a call, an object, says that nothing is waited for any more.
pub(super) fn is_resolved(call: &Json) -> bool {
    let mut resolved = false;
    json_each_member(call.as_str(), |key, value| {
        let is_word = key.len().max(value.len()) <= WORD_BYTES_MAX;
        resolved |= is_word && has(key, &SUBJECTS) && (value == "false" || is_over(value));
    });
    resolved
}

/// Whether what is known of a call, an object, says that it waits.
pub(super) fn waits(call: &Json) -> bool {
    let mut waits = false;
    json_each_member(call.as_str(), |key, value| {
        if key.len().max(value.len()) > WORD_BYTES_MAX {
            return;
        }
        let is_state = matches!(key, "status" | "state" | "phase");
        waits |= match value.starts_with('"') {
            true if is_state => says_so(value),
            true => has(value, &OPEN) && has(key, &SUBJECTS),
            false => value == "true" && has(key, &SUBJECTS) && has(key, &OPEN),
        };
    });
    waits
}

/// What loops have said of the calls that wait: one that begins or ends to wait for approval does so
/// for the calls that have been asked for and not begun; the one that it names, else all of its run.
///
/// What was said last of a call counts, and is looked up when the call is looked at: a loop that says
/// something of all calls, again and again, costs no more than one of a single call.
#[derive(Default)]
pub(super) struct Approvals<'e>(Map<&'e str, InRun>);

/// What was said in a run.
#[derive(Default)]
struct InRun {
    of_all: Option<(Seq, Stage)>,
    by_id: Map<Text, (Seq, Stage)>,
}

impl<'e> Approvals<'e> {
    /// Takes a transition in.
    pub(super) fn transition(&mut self, event: &'e Event) {
        let states = event.payload.find(["to_state", "reason"]);
        let says = |what: fn(&str) -> bool| states.into_iter().flatten().any(what);
        let stage = match (says(says_so), says(is_over)) {
            (true, _) => Stage::Waiting,
            (_, true) => Stage::Requested,
            _ => return,
        };
        let details = event.payload.get("details");
        let named = details.map(|details| details.id_of("tool_call_id")).unwrap_or_default();
        let said = self.0.entry(&event.run).or_default();
        let latest = (event.seq, stage);
        match named.is_empty() {
            true => said.of_all = Some(latest),
            false => _ = said.by_id.insert(named, latest),
        }
    }

    /// Brings the stage of a call up to what was said since its last fact.
    pub(super) fn settle(&self, call: &mut Lifecycle) {
        steps::count();
        if !matches!(call.stage, Stage::Requested | Stage::Waiting) {
            return;
        }
        let Some(said) = self.0.get(&*call.run) else { return };
        let last = said.of_all.max(said.by_id.get(&call.call_id).copied());
        if let Some((_, stage)) = last.filter(|(seq, _)| *seq > call.seqs.1) {
            call.stage = stage;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(text: &str) -> bool {
        waits(&Json::parse(text).unwrap())
    }

    #[test]
    fn hosts_say_in_many_ways_that_a_call_waits_for_approval() {
        for waiting in [
            r#"{"status": "awaiting_approval"}"#,
            r#"{"status": "approval-requested"}"#,
            r#"{"status": "requested", "requires_approval": true}"#,
            r#"{"status": "requested", "approval": "pending"}"#,
            r#"{"needsApproval": true}"#,
            r#"{"state": "WAITING_FOR_CONFIRMATION"}"#,
            r#"{"permission_status": "required"}"#,
        ] {
            assert!(says(waiting), "{waiting}");
        }
    }

    #[test]
    fn what_is_approved_refused_or_only_talks_of_approval_does_not_wait() {
        for not in [
            r#"{"status": "requested"}"#,
            r#"{"status": "requested", "approval": "approved"}"#,
            r#"{"status": "requested", "requires_approval": false}"#,
            r#"{"status": "requested", "args": {"text": "awaiting approval"}}"#,
            r#"{"status": "requested", "approved_by": "me"}"#,
        ] {
            assert!(!says(not), "{not}");
        }
    }
}
