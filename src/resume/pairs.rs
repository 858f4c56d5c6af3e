//! Which answer is that of which call.
//!
//! In this order: the message that the answer's link names; the message that it stands right behind;
//! the newest message in the same run with an open call of its id. Of several such calls of a message
//! it is the first that has ended by what its lifecycle says. A call is left behind when its id is used again
//! after the user has spoken or in another run: then only a link leads to it, and it never gets the
//! answer of a later call. Nor does a call get an answer from before the user spoke.

use std::collections::VecDeque;

use crate::entry::Seq;
use crate::event::{Call, Event, Text};
use crate::finding::{Code, Finding};

use super::lifecycle::{Attached, Stage};
use super::view::ViewCall;
use super::{Map, approval};

/// A message with calls, and the answers found for them.
pub(super) struct Asking<'e> {
    pub(super) event: &'e Event,
    pub(super) calls: Vec<Asked<'e>>,
}

/// A call of a message.
pub(super) struct Asked<'e> {
    pub(super) call: ViewCall,
    /// The id as it was recorded.
    pub(super) id: Text,
    /// The call itself says that it waits for approval.
    pub(super) waits: bool,
    pub(super) answer: Option<&'e Event>,
}

/// Where a call is, and when it was made.
#[derive(Clone, Copy)]
struct Place<'e> {
    message: usize,
    call: usize,
    when: When<'e>,
}

/// What has come before: how many turns of the user, and which run it is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct When<'e> {
    turn: u64,
    run: &'e str,
}

/// What is known of an id of calls.
#[derive(Default)]
struct Uses<'e> {
    made: u64,
    answered: u64,
    /// Calls without an answer, oldest first.
    open: Vec<Place<'e>>,
    /// When the last call was made.
    last: Option<When<'e>>,
}

/// An answer whose call has not come.
struct Early<'e> {
    event: &'e Event,
    when: When<'e>,
}

/// Pairs answers with calls, message by message.
pub(super) struct Pairs<'e, 'a> {
    attached: &'a Attached<'a>,
    pub(super) asking: Vec<Asking<'e>>,
    /// By the id of a message: which of `asking` it is.
    messages: Map<&'e str, usize>,
    /// By the id of calls.
    ids: Map<Text, Uses<'e>>,
    early: Map<Text, VecDeque<Early<'e>>>,
    orphans: Vec<&'e Event>,
    turn: u64,
    /// The message with calls that stands right before, with nothing but its answers between.
    row: Option<usize>,
    pub(super) findings: Vec<Finding>,
}

impl<'e, 'a> Pairs<'e, 'a> {
    pub(super) fn new(attached: &'a Attached<'a>) -> Pairs<'e, 'a> {
        Pairs {
            attached,
            asking: Vec::new(),
            messages: Map::default(),
            ids: Map::default(),
            early: Map::default(),
            orphans: Vec::new(),
            turn: 0,
            row: None,
            findings: Vec::new(),
        }
    }

    /// Whether the lifecycle of a call says that it has ended.
    fn has_ended(&self, place: &Place<'_>, id: &str) -> bool {
        let Some(asking) = self.asking.get(place.message) else { return false };
        let before = asking.calls.iter().take(place.call).filter(|call| call.id == id).count();
        let known = self.attached.of(&asking.event.run, id, asking.event.seq, before);
        known.is_some_and(|known| known.stage >= Stage::Failed)
    }

    fn find(&mut self, code: Code, seq: Seq, message: impl Into<String>) {
        self.findings.push(Finding { seq: Some(seq), ..Finding::new(code, message) });
    }

    fn when(&self, event: &'e Event) -> When<'e> {
        When { turn: self.turn, run: &event.run }
    }

    /// A message without calls.
    pub(super) fn said(&mut self, event: &Event) {
        self.turn += u64::from(event.said().by == "user");
        self.row = None;
    }

    /// A message with calls. Returns which of [`Pairs::asking`] it is.
    pub(super) fn asks(&mut self, event: &'e Event) -> usize {
        let calls = &event.said().calls;
        let index = self.asking.len();
        let when = self.when(event);
        let mut asked: Vec<Asked<'e>> = Vec::with_capacity(calls.len());
        for (n, call) in calls.iter().enumerate() {
            let answer = self.take_early(event, &call.id);
            let uses = self.ids.entry(call.id.clone()).or_default();
            uses.made += 1;
            uses.last = Some(when);
            match answer {
                Some(_) => uses.answered += 1,
                None => uses.open.push(Place { message: index, call: n, when }),
            }
            if uses.made == 2 && !call.id.is_empty() {
                let message = format!("several calls have the id {:?}", call.id);
                self.find(Code::ReusedCallId, event.seq, message);
            }
            let id = match call.id.is_empty() {
                false => call.id.clone(),
                true => {
                    let message = "a call without an id gets a derived one";
                    self.find(Code::EmptyCallId, event.seq, message);
                    derived(event.seq, n, calls)
                }
            };
            let (name, arguments) = (call.name.clone(), call.arguments.clone());
            let waits = approval::waits(&call.raw);
            let in_view = ViewCall { id, name, arguments };
            asked.push(Asked { call: in_view, id: call.id.clone(), waits, answer });
        }
        self.asking.push(Asking { event, calls: asked });
        if !event.id.is_empty() {
            self.messages.insert(&event.id, index);
        }
        self.row = Some(index);
        index
    }

    /// An answer that stood before the call that `event` makes.
    fn take_early(&mut self, event: &'e Event, id: &Text) -> Option<&'e Event> {
        let when = self.when(event);
        let early = self.early.get_mut(id)?;
        let links = |answer: &Early<'_>| {
            !event.id.is_empty() && answer.event.parent.as_deref() == Some(&*event.id)
        };
        let fits = |answer: &Early<'_>| links(answer) || answer.when == when;
        let at = early.iter().position(fits);
        let found = at.and_then(|at| early.remove(at));
        // What is left behind waits for nothing any more.
        let (kept, old) = std::mem::take(early).into_iter().partition(|a| a.when == when);
        *early = kept;
        let old: VecDeque<Early<'e>> = old;
        self.orphans.extend(old.into_iter().map(|answer| answer.event));
        let answer = found?.event;
        let message = "an answer that stands before its call stands behind it";
        self.find(Code::ResultBeforeCall, answer.seq, message);
        Some(answer)
    }

    /// An answer.
    pub(super) fn answers(&mut self, event: &'e Event) {
        let id = event.said().metadata.id_of("tool_call_id");
        let Some(place) = self.take_open(event, &id) else {
            if self.ids.get(&id).is_some_and(|uses| uses.answered > 0) {
                let message =
                    format!("the call {id:?} has an answer already; this one is not sent");
                self.find(Code::DuplicateResult, event.seq, message);
            } else {
                let when = self.when(event);
                self.early.entry(id).or_default().push_back(Early { event, when });
            }
            return;
        };
        let Some(asking) = self.asking.get_mut(place.message) else { return };
        let asked_by = &*asking.event.id;
        let linked = event.parent.as_deref().is_none_or(|parent| parent == asked_by);
        let wrong_link = !linked && !asked_by.is_empty();
        let behind = asking.calls.iter().skip(place.call + 1).any(|call| call.answer.is_some());
        if let Some(call) = asking.calls.get_mut(place.call) {
            call.answer = Some(event);
        }
        if wrong_link {
            let message = "an answer whose link names another message than the one with the call";
            self.find(Code::WrongSourceLink, event.seq, message);
        }
        if behind || self.row != Some(place.message) {
            let message = "an answer stands in its place behind its call";
            self.find(Code::ResultsOutOfCallOrder, event.seq, message);
        }
    }

    /// The open call that an answer belongs to.
    fn take_open(&mut self, event: &'e Event, id: &Text) -> Option<Place<'e>> {
        let uses = self.ids.get(id)?;
        let linked = event.parent.as_deref().and_then(|parent| self.messages.get(parent));
        let in_message = |message: Option<usize>| {
            let here = |place: &&Place<'_>| Some(place.message) == message;
            let mut places = uses.open.iter().filter(here);
            let first = places.clone().next();
            places.find(|place| self.has_ended(place, id)).or(first).copied()
        };
        let is_left = |place: &Place<'_>| Some(place.when) != uses.last;
        let in_run = |place: &&Place<'_>| !is_left(place) && place.when.run == &*event.run;
        let newest = || uses.open.iter().rev().find(in_run).map(|place| place.message);
        let found = in_message(linked.copied())
            .or_else(|| in_message(self.row))
            .or_else(|| in_message(newest()))?;
        let uses = self.ids.get_mut(id)?;
        uses.answered += 1;
        let place = |place: &Place<'_>| (place.message, place.call) != (found.message, found.call);
        uses.open.retain(place);
        Some(found)
    }

    /// Reports what has found no call.
    pub(super) fn end(&mut self) {
        let early = std::mem::take(&mut self.early).into_values().flatten();
        self.orphans.extend(early.map(|early| early.event));
        let mut orphans = std::mem::take(&mut self.orphans);
        orphans.sort_by_key(|event| event.seq);
        for event in orphans {
            self.find(Code::OrphanResult, event.seq, "an answer to no call is not sent");
        }
    }
}

/// An id for a call that has none, which no other call of the message has.
fn derived(seq: Seq, n: usize, calls: &[Call]) -> Text {
    let mut id = format!("call-{seq}-{n}");
    while calls.iter().any(|call| call.id == id) {
        id.push('-');
    }
    id.into()
}
