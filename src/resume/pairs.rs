//! Which answer is that of which call.
//!
//! In this order: the message that the answer's link names; the message that it stands right behind;
//! the newest message in the same run with an open call of its id. Of several such calls of a message
//! it is the first that has ended by what its lifecycle says. A call is left behind when its id is used again
//! after the user has spoken or in another run: then only a link leads to it, and it never gets the
//! answer of a later call. Nor does a call get an answer from before the user spoke.

use std::collections::VecDeque;

use crate::entry::Seq;
use crate::event::{Event, Text};
use crate::finding::{Code, Finding};
use crate::steps;

use super::lifecycle::{Attached, Lifecycle, Stage};
use super::view::ViewCall;
use super::{Map, Set, approval};

/// A message with calls, and the answers found for them.
pub(super) struct Asking<'e, 'a> {
    pub(super) event: &'e Event,
    pub(super) calls: Vec<Asked<'e, 'a>>,
    /// The last of its calls that has an answer.
    last_answered: Option<usize>,
}

/// A call of a message.
pub(super) struct Asked<'e, 'a> {
    pub(super) call: ViewCall,
    /// What its lifecycle facts say.
    pub(super) known: Option<&'a Lifecycle>,
    /// The call itself says that it waits for approval.
    pub(super) waits: bool,
    pub(super) answer: Option<&'e Event>,
}

/// Where a call is.
#[derive(Clone, Copy)]
struct Place {
    message: usize,
    call: usize,
}

/// What has come before: how many turns of the user, and which run it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct When<'e> {
    turn: u64,
    run: &'e str,
}

/// What is known of an id of calls.
#[derive(Default)]
struct Uses<'e> {
    made: u64,
    answered: u64,
    /// The messages with calls of it that had no answer before them, oldest first.
    messages: Vec<Open>,
    /// When the last call was made.
    last: Option<When<'e>>,
    /// Which of `messages` is the newest of that time, of those that may have an open call.
    newest: Option<usize>,
    /// The same for other times.
    newest_at: Map<When<'e>, Option<usize>>,
}

/// Calls of an id in one message that have no answer, in order.
struct Open {
    message: usize,
    /// Those that have ended by what their lifecycles say.
    ended: VecDeque<usize>,
    others: VecDeque<usize>,
    /// Which message of the same time is the next older one.
    older: Option<usize>,
}

impl<'e> Uses<'e> {
    /// A call has been made.
    fn make(&mut self, when: When<'e>) {
        self.made += 1;
        if self.last == Some(when) {
            return;
        }
        let newest = self.newest_at.remove(&when).flatten();
        let before = std::mem::replace(&mut self.newest, newest);
        if let Some(last) = self.last.replace(when) {
            self.newest_at.insert(last, before);
        }
    }

    /// The call that was made last has no answer yet.
    fn open(&mut self, place: Place, has_ended: bool) {
        if self.messages.last().is_none_or(|open| open.message != place.message) {
            let (ended, others) = Default::default();
            let older = self.newest.replace(self.messages.len());
            self.messages.push(Open { message: place.message, ended, others, older });
        }
        if let Some(open) = self.messages.last_mut() {
            let calls = if has_ended { &mut open.ended } else { &mut open.others };
            calls.push_back(place.call);
        }
    }

    /// Takes the open call out that an answer in this message is for: the first that has ended, else
    /// the first.
    fn take(&mut self, message: usize) -> Option<Place> {
        steps::count();
        let at = self.messages.binary_search_by_key(&message, |open| open.message).ok()?;
        let open = self.messages.get_mut(at)?;
        let call = open.ended.pop_front().or_else(|| open.others.pop_front())?;
        self.answered += 1;
        Some(Place { message, call })
    }

    /// The newest message with an open call, of those that were made when the last one was.
    fn newest(&mut self) -> Option<usize> {
        loop {
            steps::count();
            let open = self.messages.get(self.newest?)?;
            if !(open.ended.is_empty() && open.others.is_empty()) {
                return Some(open.message);
            }
            self.newest = open.older;
        }
    }
}

/// Answers to an id whose calls have not come, by when they were given, in order.
type Early<'e> = Map<When<'e>, VecDeque<&'e Event>>;

/// Pairs answers with calls, message by message.
pub(super) struct Pairs<'e, 'a> {
    attached: &'a Attached<'a>,
    pub(super) asking: Vec<Asking<'e, 'a>>,
    /// By the id of a message: which of `asking` it is.
    messages: Map<&'e str, usize>,
    /// By the id of calls.
    ids: Map<Text, Uses<'e>>,
    early: Map<Text, Early<'e>>,
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
        let mut asked: Vec<Asked<'e, 'a>> = Vec::with_capacity(calls.len());
        let mut last_answered = None;
        // How many calls of each id the message has made so far.
        let mut made: Map<&str, usize> = Map::default();
        let mut ids: Option<Set<&str>> = None;
        for (n, call) in calls.iter().enumerate() {
            steps::count();
            let answer = self.take_early(event, &call.id);
            let made = made.entry(&call.id).or_default();
            let known = self.attached.of(&event.run, &call.id, event.seq, *made);
            *made += 1;
            let uses = self.ids.entry(call.id.clone()).or_default();
            uses.make(when);
            match answer {
                Some(_) => {
                    uses.answered += 1;
                    last_answered = Some(n);
                }
                None => {
                    let has_ended = known.is_some_and(|known| known.stage >= Stage::Failed);
                    uses.open(Place { message: index, call: n }, has_ended);
                }
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
                    let all = || calls.iter().map(|call| &*call.id).collect();
                    derived(event.seq, n, ids.get_or_insert_with(all))
                }
            };
            let (name, arguments) = (call.name.clone(), call.arguments.clone());
            let waits = approval::waits(&call.raw);
            let in_view = ViewCall { id, name, arguments };
            asked.push(Asked { call: in_view, known, waits, answer });
        }
        self.asking.push(Asking { event, calls: asked, last_answered });
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
        let mut here = early.remove(&when).unwrap_or_default();
        let links =
            |answer: &Event| !event.id.is_empty() && answer.parent.as_deref() == Some(&*event.id);
        // What is left behind waits for nothing any more.
        let old = early.drain().flat_map(|(_, answers)| answers);
        let mut linked: Option<&'e Event> = None;
        for answer in old.inspect(|_| steps::count()) {
            let is_first = linked.is_none_or(|linked| answer.seq < linked.seq);
            let other = match links(answer) && is_first {
                true => linked.replace(answer),
                false => Some(answer),
            };
            self.orphans.extend(other);
        }
        let found = match (linked, here.front()) {
            (Some(linked), Some(first)) if first.seq < linked.seq => {
                self.orphans.push(linked);
                here.pop_front()
            }
            (Some(linked), _) => Some(linked),
            (None, _) => here.pop_front(),
        };
        if here.is_empty() {
            self.early.remove(id);
        } else {
            early.insert(when, here);
        }
        let answer = found?;
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
                self.early.entry(id).or_default().entry(when).or_default().push_back(event);
            }
            return;
        };
        let Some(asking) = self.asking.get_mut(place.message) else { return };
        let asked_by = &*asking.event.id;
        let linked = event.parent.as_deref().is_none_or(|parent| parent == asked_by);
        let wrong_link = !linked && !asked_by.is_empty();
        let behind = asking.last_answered > Some(place.call);
        asking.last_answered = asking.last_answered.max(Some(place.call));
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
    fn take_open(&mut self, event: &'e Event, id: &Text) -> Option<Place> {
        let uses = self.ids.get_mut(id)?;
        let linked = event.parent.as_deref().and_then(|parent| self.messages.get(parent));
        for message in linked.into_iter().chain(&self.row) {
            if let Some(place) = uses.take(*message) {
                return Some(place);
            }
        }
        let is_same_run = uses.last.is_some_and(|last| last.run == &*event.run);
        let newest = if is_same_run { uses.newest() } else { None };
        newest.and_then(|message| uses.take(message))
    }

    /// Reports what has found no call.
    pub(super) fn end(&mut self) {
        let early = std::mem::take(&mut self.early).into_values();
        self.orphans.extend(early.flat_map(Early::into_values).flatten());
        let mut orphans = std::mem::take(&mut self.orphans);
        orphans.sort_by_key(|event| event.seq);
        for event in orphans {
            self.find(Code::OrphanResult, event.seq, "an answer to no call is not sent");
        }
    }
}

/// An id for a call that has none, which no other call of the message has; these are `ids`.
fn derived(seq: Seq, n: usize, ids: &Set<&str>) -> Text {
    let mut id = format!("call-{seq}-{n}");
    while ids.contains(&*id) {
        steps::count();
        id.push('-');
    }
    id.into()
}
