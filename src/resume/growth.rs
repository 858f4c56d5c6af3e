//! The work for a session grows with the session, whatever is in it: steps for n against those for 2n.

use std::sync::Arc;

use super::*;
use crate::entry::{Entry, SharedBytes, StoredEntry};
use crate::event::Json;
use crate::format::{Recursive, Transcript};

/// Lines of a session, in the making.
#[derive(Default)]
struct Lines(Vec<String>);

impl Lines {
    fn event(&mut self, run: &str, kind: &str, payload: &str) {
        let n = self.0.len();
        self.0.push(format!(
            r#"{{"event_id":"e{n}","timestamp":"t","session_id":"s","run_id":"{run}","step":1,"event_type":"{kind}","payload":{payload}}}"#
        ));
    }

    fn user(&mut self) {
        self.event("r", "message", r#"{"role":"user","content":"x"}"#);
    }

    fn calls<I: AsRef<str>>(&mut self, run: &str, ids: impl IntoIterator<Item = I>) {
        let call = |id: I| format!(r#"{{"id":"{}","name":"T"}}"#, id.as_ref());
        let calls: Vec<String> = ids.into_iter().map(call).collect();
        let calls = calls.join(",");
        let metadata = format!(r#"{{"tool_calls":[{calls}]}}"#);
        let payload = format!(r#"{{"role":"assistant","content":"x","metadata":{metadata}}}"#);
        self.event(run, "message", &payload);
    }

    fn answer(&mut self, run: &str, id: &str) {
        let metadata = format!(r#"{{"tool_call_id":"{id}"}}"#);
        let payload = format!(r#"{{"role":"tool","content":"y","metadata":{metadata}}}"#);
        self.event(run, "message", &payload);
    }

    fn fact(&mut self, id: &str, status: &str) {
        let payload = format!(r#"{{"tool_name":"T","tool_call_id":"{id}","status":"{status}"}}"#);
        self.event("r", "tool_lifecycle", &payload);
    }

    fn approval(&mut self, state: &str, call: &str) {
        let details = format!(r#"{{"tool_call_id":"{call}"}}"#);
        let payload = format!(r#"{{"to_state":"{state}","reason":"x","details":{details}}}"#);
        self.event("r", "state_transition", &payload);
    }

    fn checkpoint(&mut self, payload: &str) {
        self.event("r", "checkpoint", payload);
    }

    fn events(&self, format: &dyn Format) -> Vec<Event> {
        let stored = |(seq, line): (usize, &String)| {
            let Entry { kind, terminator, .. } =
                format.classify(line.as_bytes()).unwrap().into_entry(line.as_bytes());
            let flags = crate::entry::Flags::default();
            let bytes = SharedBytes::new(Arc::new(line.clone().into_bytes()), 0..line.len());
            StoredEntry { seq: seq as u64, kind, terminator, flags, detail: 0, bytes }
        };
        let entries = self.0.iter().enumerate().map(stored);
        entries.map(|entry| Event::from_entry(format, &entry).unwrap()).collect()
    }
}

fn ids(n: usize) -> impl DoubleEndedIterator<Item = String> {
    (0..n).map(|n| format!("c{n}"))
}

/// What is done with a session, in steps.
fn steps_of(format: &dyn Format, lines: &Lines) -> u64 {
    let events = lines.events(format);
    assert!(events.len() < MANY_EVENTS, "the steps of other threads are not counted");
    let (_, steps) = crate::steps::of(|| {
        let original = ResumeOptions { reading: Reading::Original, ..ResumeOptions::default() };
        state_and_view(&events, &original).unwrap();
        let (_, view) = state_and_view(&events, &ResumeOptions::default()).unwrap();
        for provider in [Provider::OpenAi, Provider::Anthropic] {
            view.messages(provider, &MessageOptions::default());
        }
        Deriver::default().rebuild(&events)
    });
    steps
}

#[track_caller]
fn grows_with(format: &dyn Format, make: impl Fn(usize, &mut Lines)) {
    let steps = |n: usize| {
        let mut lines = Lines::default();
        make(n, &mut lines);
        steps_of(format, &lines)
    };
    let (once, twice) = (steps(300), steps(600));
    assert!(twice * 10 <= once * 22, "{once} steps for n, {twice} for 2n");
    assert!(once > 0, "no steps are counted");
}

#[track_caller]
fn grows(make: impl Fn(usize, &mut Lines)) {
    grows_with(&Transcript, make);
}

#[test]
fn the_calls_of_a_message_cost_as_many_steps_as_there_are() {
    grows(|n, lines| lines.calls("r", ids(n)));
    grows(|n, lines| {
        lines.calls("r", ids(n));
        ids(n).for_each(|id| lines.answer("r", &id));
    });
    grows(|n, lines| {
        lines.calls("r", ids(n));
        ids(n).rev().for_each(|id| lines.answer("r", &id));
    });
    grows(|n, lines| {
        lines.calls("r", ids(n));
        ids(n).for_each(|id| lines.fact(&id, "completed"));
    });
    grows(|n, lines| lines.calls("r", ids(n).map(|_| "")));
}

#[test]
fn an_id_that_is_used_again_and_again_costs_as_many_steps_as_there_are_uses() {
    // By calls of one message, by messages, by runs in turn, by turns of the user.
    grows(|n, lines| {
        lines.calls("r", ids(n).map(|_| "x"));
        (0..n).for_each(|_| lines.answer("r", "x"));
    });
    grows(|n, lines| {
        lines.calls("r", ids(n).map(|_| "x"));
        for status in ["started", "completed"] {
            (0..n).for_each(|_| lines.fact("x", status));
        }
        (0..n).for_each(|_| lines.answer("r", "x"));
    });
    grows(|n, lines| {
        (0..n).for_each(|_| lines.calls("r", ["x"]));
        (0..n).for_each(|_| lines.answer("r", "x"));
    });
    grows(|n, lines| {
        (0..n).for_each(|n| lines.calls(["r", "q"][n % 2], ["x"]));
        (0..n).for_each(|n| lines.answer(["r", "q"][n % 2], "x"));
    });
    grows(|n, lines| {
        for _ in 0..n {
            lines.user();
            lines.calls("r", ["x"]);
            lines.fact("x", "started");
        }
        (0..n).for_each(|_| lines.answer("r", "x"));
    });
    grows_with(&Recursive, |n, lines| {
        for n in 0..n {
            lines.0.push(format!(
                r#"{{"uuid":"u{n}","id":"m","role":"assistant","content":"x","tool_calls":[{{"id":"x","name":"T"}}],"timestamp":"t"}}"#
            ));
        }
        for n in 0..n {
            lines.0.push(format!(
                r#"{{"uuid":"a{n}","parent_uuid":"u{n}","id":"m","role":"tool","content":"x","tool_call_id":"x","timestamp":"t"}}"#
            ));
        }
    });
}

#[test]
fn answers_cost_as_many_steps_as_there_are_wherever_their_call_stands() {
    grows(|n, lines| {
        lines.calls("r", ["x"]);
        (0..n).for_each(|_| lines.answer("r", "x"));
    });
    grows(|n, lines| {
        (0..n).for_each(|_| lines.answer("r", "x"));
        lines.calls("r", ids(n).map(|_| "x"));
    });
    grows(|n, lines| {
        (0..n).for_each(|_| lines.answer("r", "x"));
        for _ in 0..n {
            lines.answer("q", "x");
            lines.calls("r", ["x"]);
        }
    });
}

#[test]
fn approvals_cost_as_many_steps_as_there_are_however_many_calls_wait() {
    grows(|n, lines| {
        ids(n).for_each(|id| lines.fact(&id, "requested"));
        for _ in 0..n {
            lines.approval("awaiting_approval", "");
            lines.approval("approved", "");
        }
    });
    grows(|n, lines| {
        ids(n).for_each(|id| lines.fact(&id, "requested"));
        ids(n).for_each(|id| lines.approval("awaiting_approval", &id));
    });
}

#[test]
fn records_of_one_id_cost_as_many_steps_as_there_are() {
    // What differs is the payload, or the time alone.
    for differs in ["\"content\":\"x", "\"timestamp\":\"t"] {
        grows(|n, lines| {
            (0..n).for_each(|_| lines.user());
            for (n, line) in lines.0.iter_mut().enumerate() {
                *line = line.replace(&format!("e{n}\""), "e\"");
                *line = line.replace(differs, &format!("{differs}{n}"));
            }
        });
    }
}

#[test]
fn compactions_without_a_summary_cost_as_many_steps_as_there_are() {
    let boundary = r#"{"subtype":"compact_boundary"}"#;
    grows(|n, lines| {
        lines.calls("r", ids(n));
        (0..n).for_each(|_| lines.checkpoint(boundary));
    });
    grows(|n, lines| {
        (0..n).for_each(|_| lines.checkpoint(boundary));
        lines.calls("r", ids(n));
    });
    let retained = r#"{"summary":"","messages_compacted":1,"retain_start_idx":0}"#;
    grows(|n, lines| {
        lines.calls("r", ids(n));
        (0..n).for_each(|_| lines.checkpoint(retained));
    });
    grows(|n, lines| {
        (0..n).for_each(|_| lines.checkpoint(&retained.replace(r#""""#, r#""x""#)));
        lines.calls("r", ids(n));
    });
}

#[test]
fn kept_state_and_metadata_cost_as_many_steps_as_they_have_keys() {
    let keys = |n: usize| {
        let keys: Vec<String> = ids(n).map(|key| format!("\"{key}\":1")).collect();
        keys.join(",")
    };
    grows(|n, lines| lines.checkpoint(&format!(r#"{{"runtime_state":{{{}}}}}"#, keys(n))));
    grows(|n, lines| {
        let metadata = format!(r#"{{{},"_transcript_run_id":"q"}}"#, keys(n));
        let payload = format!(r#"{{"role":"user","content":"x","metadata":{metadata}}}"#);
        lines.event("r", "message", &payload);
    });
}

#[test]
fn ids_for_a_provider_cost_as_many_steps_as_there_are_calls() {
    // Long ones that differ at their end alone, each used twice; short ones that look like made ones.
    grows(|n, lines| {
        let start = "a".repeat(36);
        lines.calls("r", (0..2 * n).map(|n| format!("{start}{:04}", n / 2)));
    });
    grows(|n, lines| {
        lines.calls("r", (0..n).map(|n| format!("a-{n}")).chain((0..n).map(|_| "a".to_owned())));
    });
}

#[test]
fn the_members_of_an_object_cost_as_many_steps_as_there_are() {
    let steps = |n: usize, keys: usize| {
        let members: Vec<String> = (0..n).map(|n| format!("\"{}\": {n}", n % keys)).collect();
        let json = Json::raw(format!("{{{}}}", members.join(", ")));
        crate::steps::of(|| (json.members().len(), json.with("0", &Json::object()))).1
    };
    for keys in [1, 150, 1000] {
        let (once, twice) = (steps(300, keys), steps(600, keys));
        assert!(twice * 10 <= once * 22, "{once} steps for n, {twice} for 2n");
        assert!(once > 0, "no steps are counted");
    }
}
