//! What became of the tool calls: the lifecycle facts of each.
//!
//! Two readings. [`Reading::Original`] merges all facts of one call id in a run, as MyCodeAgent
//! does: which statuses occur counts, not their order. [`Reading::Default`] attaches facts to the
//! open call of an id, in order: when an id is used again, a second, unfinished call is
//! uncertain, never a success, and what comes after the end of a call does not change its end. A
//! fact that stands there twice, byte for byte, is one. A call that waits for somebody's approval is
//! known as one.

use crate::entry::{Kind, Seq};
use crate::event::{Event, Json, Reading, Text, ToolFact};

use super::approval::Approvals;
use super::{Map, Set, approval};

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
    /// A fact that tells of another end than the one before it.
    pub other_end: Option<Seq>,
    begun: bool,
    /// A message has made a call of the same id since.
    made_again: bool,
    /// How many turns of the user came before its last fact.
    turn: u64,
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
    let mut latest: Map<(&str, &str), usize> = Map::default();
    let mut seen = Seen::default();
    let mut approvals = Approvals::default();
    let mut turn = 0;
    for event in events {
        match event.kind {
            Kind::ToolLifecycle => {}
            _ if reading == Reading::Original => continue,
            Kind::StateTransition => {
                approvals.transition(event);
                continue;
            }
            Kind::Message => {
                turn += u64::from(event.said().by == "user");
                for call in &event.said().calls {
                    let key = (&*event.run, &*call.id);
                    let known = latest.get(&key).copied().and_then(|index| calls.get_mut(index));
                    if known.is_some_and(|known| known.is_made_again(turn)) {
                        latest.remove(&key);
                    }
                }
                continue;
            }
            _ => continue,
        }
        let ToolFact { call_id, status, .. } = event.tool();
        if call_id.is_empty() || (reading == Reading::Default && seen.add(event)) {
            continue;
        }
        let stage = stage_of(status, &event.payload, reading);
        let key = (&*event.run, &**call_id);
        let known = latest.get(&key).copied().and_then(|index| calls.get_mut(index));
        match known.filter(|call| reading == Reading::Original || call.takes(stage)) {
            Some(call) => {
                approvals.settle(call);
                call.add(event, stage, reading, turn);
            }
            None => {
                latest.insert(key, calls.len());
                calls.push(Lifecycle::begin(event, stage, turn));
            }
        }
    }
    calls.iter_mut().for_each(|call| approvals.settle(call));
    calls
}

impl Lifecycle {
    fn begin(event: &Event, stage: Stage, turn: u64) -> Lifecycle {
        let ToolFact { call_id, tool, .. } = event.tool();
        Lifecycle {
            run: event.run.clone(),
            call_id: call_id.clone(),
            tool: tool.clone(),
            stage,
            payload: event.payload.clone(),
            step: event.step,
            seqs: (event.seq, event.seq),
            other_end: None,
            begun: stage == Stage::Started,
            made_again: false,
            turn,
        }
    }

    /// A message makes a call of this id. Returns whether later facts are that call's: this one has
    /// ended, or has been left behind since the user spoke.
    fn is_made_again(&mut self, turn: u64) -> bool {
        self.made_again = true;
        self.stage >= Stage::Failed || self.turn != turn
    }

    /// Whether a fact can be one of this call, or is the first of another call with the same id.
    fn takes(&self, stage: Stage) -> bool {
        let is_open = self.stage < Stage::Failed;
        match stage {
            Stage::Unknown | Stage::Failed | Stage::Completed => true,
            // Facts may stand in the wrong order. What begins behind another message with the id is
            // the call of that message.
            Stage::Requested | Stage::Waiting | Stage::Started => {
                is_open && !(self.begun && self.made_again)
            }
        }
    }

    fn add(&mut self, event: &Event, stage: Stage, reading: Reading, turn: u64) {
        let ToolFact { tool, status, .. } = event.tool();
        if !tool.is_empty() {
            self.tool = tool.clone();
        }
        self.seqs.1 = event.seq;
        self.turn = turn;
        self.begun |= stage == Stage::Started;
        // In the default reading the end of a call keeps its result.
        let ended = self.stage >= Stage::Failed && reading == Reading::Default;
        if ended {
            if stage >= Stage::Failed && stage != self.stage {
                self.other_end = Some(event.seq);
            }
            return;
        }
        // So does a beginning, against a request that comes too late.
        if reading == Reading::Original || stage >= self.stage || stage == Stage::Unknown {
            self.payload = event.payload.clone();
            self.step = event.step;
        }
        let is_over = || approval::is_over(status) || approval::is_resolved(&event.payload);
        if self.stage == Stage::Waiting && stage <= Stage::Requested && is_over() {
            self.stage = Stage::Requested;
        }
        self.stage = self.stage.max(stage);
    }
}

/// Records by id, to tell one that is there twice.
#[derive(Default)]
pub(super) struct Seen<'e> {
    first: Map<&'e str, &'e Event>,
    /// Those whose id was there before.
    others: Set<&'e Event>,
}

impl<'e> Seen<'e> {
    /// Takes a record in, and returns whether an equal one was there.
    pub(super) fn add(&mut self, event: &'e Event) -> bool {
        if event.id.is_empty() {
            return false;
        }
        let first = *self.first.entry(&event.id).or_insert(event);
        if first.seq == event.seq {
            return false;
        }
        let is_new = self.others.insert(event);
        first == event || !is_new
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.first.contains_key(id)
    }
}

/// Which lifecycle is that of which call of a message.
pub(super) struct Attached<'c>(Map<(&'c str, &'c str), Known<'c>>);

/// What is known of an id in a run.
#[derive(Default)]
struct Known<'c> {
    /// The messages that make calls of it, how many each, and the lifecycles of these.
    messages: Vec<(Seq, usize, Vec<&'c Lifecycle>)>,
    /// All lifecycles.
    all: Vec<&'c Lifecycle>,
}

impl<'c> Attached<'c> {
    /// `made` are the calls of all messages, in order: run, id, and the message's seq.
    pub(super) fn new(
        calls: &'c [Lifecycle],
        made: impl Iterator<Item = (&'c str, &'c str, Seq)>,
    ) -> Attached<'c> {
        let mut known: Map<(&str, &str), Known<'_>> = Map::default();
        for call in calls {
            known.entry((&call.run, &call.call_id)).or_default().all.push(call);
        }
        for (run, id, seq) in made {
            let Some(known) = known.get_mut(&(run, id)) else { continue };
            match known.messages.last_mut() {
                Some((last, count, _)) if *last == seq => *count += 1,
                _ => known.messages.push((seq, 1, Vec::new())),
            }
        }
        for known in known.values_mut() {
            let mut owned = vec![0; known.messages.len()];
            for call in &known.all {
                // The message before its first fact. Where that has its own already, and where there
                // is none, the one that stands among its facts: it was asked for first.
                let (first, last) = call.seqs;
                let before = known.messages.partition_point(|(seq, ..)| *seq < first);
                let among = known.messages.get(before).filter(|(seq, ..)| *seq < last);
                let at = match before.checked_sub(1) {
                    Some(at) if among.is_none() || owned.get(at) == Some(&0) => at,
                    _ if among.is_some() => before,
                    _ => continue,
                };
                if let (Some((.., calls)), Some(owned)) =
                    (known.messages.get_mut(at), owned.get_mut(at))
                {
                    calls.push(call);
                    *owned += 1;
                }
            }
        }
        Attached(known)
    }

    /// The lifecycle of the `n`-th call of this id in the message `seq`. Of several attempts it is
    /// the last.
    pub(super) fn of(&self, run: &str, id: &str, seq: Seq, n: usize) -> Option<&'c Lifecycle> {
        let known = self.0.get(&(run, id))?;
        let at = known.messages.binary_search_by_key(&seq, |(seq, ..)| *seq).ok()?;
        let (_, count, calls) = known.messages.get(at)?;
        match n + 1 < *count || calls.len() <= n {
            true => calls.get(n).copied(),
            false => calls.last().copied(),
        }
    }

    /// The first lifecycle of this id, whatever message made the call.
    pub(super) fn first(&self, run: &str, id: &str) -> Option<&'c Lifecycle> {
        self.0.get(&(run, id))?.all.first().copied()
    }
}
