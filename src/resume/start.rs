//! Where the view begins: at the last compaction that is valid.
//!
//! A compaction is valid when there is a summary for what it leaves out. One without is reported,
//! and the history before it is kept. Where it would cut an answer from its call, the view begins
//! with the call. Asked of events in memory, or of the log's index, which reads
//! a few events however long the session is.

use std::collections::HashSet;
use std::ops::Range;

use crate::bytes::within;
use crate::entry::{Kind, Seq, StoredEntry};
use crate::error::Result;
use crate::event::{Event, Text};
use crate::finding::{Code, Finding};
use crate::format::Format;
use crate::log::{Position, SessionInfo, Snapshot};
use crate::steps;

use super::Map;
use super::view::is_blank;

/// The ids of the records before the view, looked through from the last on, only as far as needed.
pub(super) struct Earlier<I> {
    known: HashSet<Text>,
    rest: I,
}

impl<I: Iterator<Item = Result<Text>>> Earlier<I> {
    pub(super) fn new(ids: I) -> Earlier<I> {
        Earlier { known: HashSet::new(), rest: ids }
    }

    /// Whether one of them has this id.
    pub(super) fn has(&mut self, wanted: &str) -> Result<bool> {
        if self.known.contains(wanted) {
            return Ok(true);
        }
        for id in self.rest.by_ref() {
            let id = id?;
            let found = id == wanted;
            self.known.insert(id);
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Where the view begins.
pub(super) struct Start {
    /// The first event that counts.
    pub(super) from: Seq,
    /// The compaction that is in force.
    pub(super) compaction: Option<Event>,
    /// What is odd about others.
    pub(super) findings: Vec<Finding>,
}

/// What is known of the events behind a boundary, while the next one before it is looked for.
#[derive(Clone, Copy)]
struct Behind {
    /// The boundary.
    seq: Seq,
    /// Whether the first message behind it is a summary.
    is_summary: bool,
}

/// Events that are found by their number.
pub(super) trait Numbered {
    /// The `n`-th checkpoint, counted from the last.
    fn checkpoint_from_last(&mut self, n: u64) -> Result<Option<Event>>;
    /// The first message of these events.
    fn first_message(&mut self, range: Range<Seq>) -> Result<Option<Event>>;
    /// Where the `n`-th message is.
    fn message(&mut self, n: u64) -> Result<Option<Seq>>;
    /// The messages from the event `seq` on, at most [`NEAR`].
    fn messages_from(&mut self, seq: Seq) -> Result<Vec<Event>>;
    /// The messages before the event `seq`, the last first, at most [`NEAR`].
    fn messages_before(&mut self, seq: Seq) -> Result<Vec<Event>>;
}

/// How many messages around a cut are looked at for calls and their answers.
const NEAR: usize = 1024;

impl Start {
    pub(super) fn find(events: &mut dyn Numbered) -> Result<Start> {
        let mut start = Start { from: 0, compaction: None, findings: Vec::new() };
        let mut n = 0;
        let mut behind = Behind { seq: Seq::MAX, is_summary: false };
        while let Some(event) = events.checkpoint_from_last(n)? {
            n += 1;
            let from = match event.payload.get("subtype") {
                Some(_) => start.behind_boundary(events, &event, &mut behind)?,
                None => start.at_retained(events, &event)?,
            };
            if let Some(from) = from {
                (start.from, start.compaction) = (from, Some(event));
                break;
            }
        }
        Ok(start)
    }

    /// The summary of a boundary is the message behind it.
    fn behind_boundary(
        &mut self,
        events: &mut dyn Numbered,
        boundary: &Event,
        behind: &mut Behind,
    ) -> Result<Option<Seq>> {
        let is_summary = |next: Event| {
            matches!(&*next.said().by, "system" | "summary") && !is_blank(&next.said().text())
        };
        // What stands behind the next boundary as well has been looked at.
        let next = events.first_message(boundary.seq + 1..behind.seq)?;
        let is_summary = next.map_or(behind.is_summary, is_summary);
        *behind = Behind { seq: boundary.seq, is_summary };
        if !is_summary {
            self.note_void(boundary);
            return Ok(None);
        }
        let from = boundary.seq + 1;
        Ok(Some(self.with_calls(events, boundary, from)?.unwrap_or(from)))
    }

    /// A checkpoint has its summary with it, and the number of the first message that is kept.
    fn at_retained(
        &mut self,
        events: &mut dyn Numbered,
        checkpoint: &Event,
    ) -> Result<Option<Seq>> {
        let payload = &checkpoint.payload;
        let mut number = |key: &str| {
            let value = payload.get(key).filter(|value| !value.is_null())?;
            let number = value.as_str().parse::<f64>().ok().filter(|number| number.is_finite());
            if number.is_none() {
                let message = format!("{key:?} is no number and counts as not given");
                self.note(Code::SchemaMismatch, checkpoint, &message);
            }
            number
        };
        let compacted = number("messages_compacted").is_some_and(|count| count >= 1.0);
        let retained = number("retain_start_idx").filter(|index| compacted && *index >= 0.0);
        let Some(retained) = retained else { return Ok(None) };
        let retained = retained as u64;
        let summary = payload.get("summary").map(|summary| summary.shown()).unwrap_or_default();
        let mut before = |n: u64| -> Result<Option<Seq>> {
            Ok(events.message(n)?.filter(|message| *message < checkpoint.seq))
        };
        let first = before(retained)?;
        // Keeping none of the messages is a compaction, keeping what is not there is none.
        let exists = first.is_some() || retained == 0 || before(retained - 1)?.is_some();
        if is_blank(&summary) || !exists {
            self.note_void(checkpoint);
            return Ok(None);
        }
        let from = first.unwrap_or(checkpoint.seq);
        Ok(Some(self.with_calls(events, checkpoint, from)?.unwrap_or(from)))
    }

    /// The message with the first call that an answer from the event `from` on belongs to, where
    /// that call stands before it.
    fn with_calls(
        &mut self,
        events: &mut dyn Numbered,
        compaction: &Event,
        from: Seq,
    ) -> Result<Option<Seq>> {
        // Answers behind the cut whose calls are not.
        let (mut made, mut wanted): (HashSet<Text>, HashSet<Text>) = Default::default();
        for message in events.messages_from(from)? {
            let said = message.said();
            made.extend(said.calls.iter().map(|call| call.id.clone()));
            let id = said.metadata.id_of("tool_call_id");
            if said.by == "tool" && !made.contains(&id) {
                wanted.insert(id);
            }
        }
        if wanted.is_empty() {
            return Ok(None);
        }
        let mut from_call = None;
        let mut answered: HashSet<Text> = HashSet::new();
        for message in events.messages_before(from)? {
            let said = message.said();
            if said.by == "tool" {
                answered.insert(said.metadata.id_of("tool_call_id"));
            }
            for call in &said.calls {
                // One that has its answer before the cut wants no other.
                if !answered.remove(&call.id) && wanted.remove(&call.id) {
                    from_call = Some(message.seq);
                } else {
                    wanted.remove(&call.id);
                }
            }
        }
        if from_call.is_some() {
            let message = "a compaction that cuts answers from their calls: both are kept";
            self.note(Code::CompactionSplitsPair, compaction, message);
        }
        Ok(from_call)
    }

    fn note_void(&mut self, event: &Event) {
        let message = "a compaction without its summary: the history before it is kept";
        self.note(Code::CompactionMissingSummary, event, message);
    }

    fn note(&mut self, code: Code, event: &Event, message: &str) {
        self.findings.push(Finding { seq: Some(event.seq), ..Finding::new(code, message) });
    }
}

/// Events in memory.
pub(super) struct InMemory<'e> {
    events: &'e [Event],
    messages: Vec<usize>,
    checkpoints: Vec<usize>,
}

impl<'e> InMemory<'e> {
    pub(super) fn new(events: &'e [Event]) -> InMemory<'e> {
        let (mut messages, mut checkpoints) = (Vec::new(), Vec::new());
        for (n, event) in events.iter().enumerate() {
            match event.kind {
                Kind::Message => messages.push(n),
                Kind::Checkpoint => checkpoints.push(n),
                _ => {}
            }
        }
        InMemory { events, messages, checkpoints }
    }

    /// How many messages stand before the event `seq`.
    fn before(&self, seq: Seq) -> usize {
        let is_before = |n: &usize| self.events.get(*n).is_some_and(|event| event.seq < seq);
        self.messages.partition_point(is_before)
    }

    fn get(&self, index: Option<&usize>) -> Option<Event> {
        let event = self.events.get(*index?)?;
        event.said().calls.iter().for_each(|_| steps::count());
        Some(event.clone())
    }
}

impl Numbered for InMemory<'_> {
    fn checkpoint_from_last(&mut self, n: u64) -> Result<Option<Event>> {
        let mut from_last = self.checkpoints.iter().rev();
        Ok(self.get(usize::try_from(n).ok().and_then(|n| from_last.nth(n))))
    }

    fn first_message(&mut self, range: Range<Seq>) -> Result<Option<Event>> {
        let (first, end) = (self.before(range.start), self.before(range.end));
        Ok(self.get(self.messages.get(first).filter(|_| first < end)))
    }

    fn message(&mut self, n: u64) -> Result<Option<Seq>> {
        let index = usize::try_from(n).ok().and_then(|n| self.messages.get(n));
        Ok(index.and_then(|index| self.events.get(*index)).map(|event| event.seq))
    }

    fn messages_from(&mut self, seq: Seq) -> Result<Vec<Event>> {
        let behind = within(&*self.messages, self.before(seq)..);
        Ok(behind.iter().take(NEAR).filter_map(|index| self.get(Some(index))).collect())
    }

    fn messages_before(&mut self, seq: Seq) -> Result<Vec<Event>> {
        let before = within(&*self.messages, ..self.before(seq));
        Ok(before.iter().rev().take(NEAR).filter_map(|index| self.get(Some(index))).collect())
    }
}

/// Events in the log.
pub(super) struct Indexed<'s> {
    snapshot: &'s Snapshot,
    session: &'s SessionInfo,
    format: &'static dyn Format,
    /// Where messages are, as far as that has been asked.
    messages: Map<u64, Option<Seq>>,
}

impl<'s> Indexed<'s> {
    pub(super) fn new(
        snapshot: &'s Snapshot,
        session: &'s SessionInfo,
        format: &'static dyn Format,
    ) -> Indexed<'s> {
        Indexed { snapshot, session, format, messages: Map::default() }
    }

    fn at(&self, position: Position) -> Result<Option<Event>> {
        let Some(seq) = self.snapshot.find(&self.session.id, position)? else { return Ok(None) };
        let entry = self.snapshot.read(&self.session.id, seq..=seq)?.next().transpose()?;
        Ok(entry.and_then(|entry| Event::from_entry(self.format, &entry)))
    }
}

impl Numbered for Indexed<'_> {
    fn checkpoint_from_last(&mut self, n: u64) -> Result<Option<Event>> {
        let count = self.session.count(Kind::Checkpoint);
        count.checked_sub(n + 1).map_or(Ok(None), |n| self.at(Position::Checkpoint(n)))
    }

    fn first_message(&mut self, range: Range<Seq>) -> Result<Option<Event>> {
        for entry in self.snapshot.read(&self.session.id, range)? {
            let event = Event::from_entry(self.format, &entry?);
            if let Some(event) = event.filter(|event| event.kind == Kind::Message) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    fn message(&mut self, n: u64) -> Result<Option<Seq>> {
        if n >= self.session.count(Kind::Message) {
            return Ok(None);
        }
        if let Some(known) = self.messages.get(&n) {
            return Ok(*known);
        }
        let found = self.at(Position::Message(n))?.map(|message| message.seq);
        self.messages.insert(n, found);
        Ok(found)
    }

    fn messages_from(&mut self, seq: Seq) -> Result<Vec<Event>> {
        self.near(self.snapshot.read(&self.session.id, seq..)?)
    }

    fn messages_before(&mut self, seq: Seq) -> Result<Vec<Event>> {
        self.near(self.snapshot.read(&self.session.id, ..seq)?.rev())
    }
}

impl Indexed<'_> {
    fn near(&self, entries: impl Iterator<Item = Result<StoredEntry>>) -> Result<Vec<Event>> {
        let is_message = |entry: &Result<StoredEntry>| {
            entry.as_ref().map_or(true, |entry| entry.kind() == Kind::Message)
        };
        let events = entries.filter(is_message).map(|e| Ok(Event::from_entry(self.format, &e?)));
        events.filter_map(Result::transpose).take(NEAR).collect()
    }
}
