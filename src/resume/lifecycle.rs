//! What became of the tool calls: the lifecycle facts of each.
//!
//! Two readings. [`Reading::Original`] merges all facts of one call id in a run, as MyCodeAgent
//! does: which statuses occur counts, not their order. [`Reading::Default`] attaches facts to the
//! open call of an id, in order: when an id is used again, a second, unfinished call is
//! uncertain, never a success, and what comes after the end of a call does not change its end. A
//! call that waits for somebody's approval is known as one.

use std::collections::HashMap;

use crate::entry::{Kind, Seq};
use crate::event::{Event, Json, Text, ToolFact};

use super::approval;

/// How lifecycle facts are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reading {
    /// Facts belong to the open call of their id, in order.
    #[default]
    Default,
    /// All facts of an id in a run are merged, as MyCodeAgent does it.
    Original,
}

impl Reading {
    /// The name in `--json` output.
    ///
    /// ```
    /// assert_eq!(eventlog::resume::Reading::Default.name(), "default");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Reading::Default => "default",
            Reading::Original => "original",
        }
    }
}

/// How far a call got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Stage {
    /// There are facts, and none of them says anything of the below.
    Unknown,
    /// Asked for, not begun.
    Requested,
    /// Not begun: somebody has to approve of it first.
    Waiting,
    /// Begun, and nobody knows how it ended.
    Started,
    /// Ended in failure.
    Failed,
    /// Ended well.
    Completed,
}

/// What is known of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lifecycle {
    /// The run that it belongs to.
    pub run: Text,
    /// The call's id.
    pub call_id: Text,
    /// The tool; the last name that is not empty.
    pub tool: Text,
    /// How far it got.
    pub stage: Stage,
    /// The payload of its last fact.
    pub payload: Json,
    /// The step of its last fact.
    pub step: i64,
    /// Its first and its last fact.
    pub seqs: (Seq, Seq),
}

fn stage_of(status: &str, payload: &Json, reading: Reading) -> Stage {
    let waits = || reading == Reading::Default && approval::waits(payload);
    match status {
        "requested" if waits() => Stage::Waiting,
        "requested" => Stage::Requested,
        "started" => Stage::Started,
        "failed" => Stage::Failed,
        "completed" => Stage::Completed,
        _ if waits() => Stage::Waiting,
        _ => Stage::Unknown,
    }
}

/// The calls that `events` have lifecycle facts of, in the order of their first facts.
pub(super) fn lifecycles(events: &[Event], reading: Reading) -> Vec<Lifecycle> {
    let mut calls: Vec<Lifecycle> = Vec::new();
    // The latest call of a run and an id.
    let mut latest: HashMap<(&str, &str), usize> = HashMap::new();
    for event in events {
        match event.kind {
            Kind::ToolLifecycle => {}
            Kind::StateTransition if reading == Reading::Default => {
                approval::transition(event, &mut calls);
                continue;
            }
            _ => continue,
        }
        let ToolFact { call_id, status, tool } = event.tool();
        if call_id.is_empty() {
            continue;
        }
        let stage = stage_of(status, &event.payload, reading);
        let key = (&*event.run, &**call_id);
        let known = latest.get(&key).copied().and_then(|index| calls.get_mut(index));
        let open = known.filter(|call| reading == Reading::Original || belongs(stage, call));
        let Some(call) = open else {
            latest.insert(key, calls.len());
            calls.push(Lifecycle {
                run: event.run.clone(),
                call_id: call_id.clone(),
                tool: tool.clone(),
                stage,
                payload: event.payload.clone(),
                step: event.step,
                seqs: (event.seq, event.seq),
            });
            continue;
        };
        if !tool.is_empty() {
            call.tool = tool.clone();
        }
        call.seqs.1 = event.seq;
        // In the default reading the end of a call keeps its result.
        let ended = call.stage >= Stage::Failed;
        if reading == Reading::Original || !ended {
            call.payload = event.payload.clone();
            call.step = event.step;
        }
        call.stage =
            call.stage.max(if ended && reading == Reading::Default { call.stage } else { stage });
    }
    calls
}

/// Calls by run and id, in order.
pub(super) struct ByCall<'c>(HashMap<(&'c str, &'c str), Vec<&'c Lifecycle>>);

impl<'c> ByCall<'c> {
    pub(super) fn new(calls: &'c [Lifecycle]) -> ByCall<'c> {
        let mut by_call: HashMap<(&str, &str), Vec<&Lifecycle>> = HashMap::new();
        for call in calls {
            by_call.entry((&call.run, &call.call_id)).or_default().push(call);
        }
        ByCall(by_call)
    }

    /// The n-th call of this id in this run, from 0.
    pub(super) fn nth(&self, run: &str, id: &str, n: usize) -> Option<&'c Lifecycle> {
        self.0.get(&(run, id))?.get(n).copied()
    }
}

/// Whether a fact can be one of this call, or is the first of another call with the same id.
fn belongs(stage: Stage, call: &Lifecycle) -> bool {
    match stage {
        Stage::Unknown | Stage::Failed | Stage::Completed => true,
        Stage::Requested | Stage::Waiting => call.stage <= Stage::Waiting,
        Stage::Started => call.stage <= Stage::Started,
    }
}
