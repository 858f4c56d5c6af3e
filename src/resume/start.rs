//! Where the view begins: at the last compaction that is valid.
//!
//! A compaction is valid when there is a summary for what it leaves out. One without is reported,
//! and the history before it is kept. Where it would cut an answer from its call, the view begins
//! with the call. Asked of events in memory, or of the log's index, which reads
//! a few events however long the session is.

use std::collections::HashSet;

use crate::entry::{Kind, Seq};
use crate::error::Result;
use crate::event::{Event, Text};
use crate::finding::{Code, Finding};
use crate::log::{Position, SessionInfo, Snapshot};

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

/// Events that are found by their number.
pub(super) trait Numbered {
    /// The `n`-th checkpoint, counted from the last.
    fn checkpoint_from_last(&mut self, n: u64) -> Result<Option<Event>>;
    /// The first message behind the event `seq`.
    fn message_behind(&mut self, seq: Seq) -> Result<Option<Event>>;
    /// The `n`-th message.
    fn message(&mut self, n: u64) -> Result<Option<Event>>;
    /// How many messages stand before the event `seq`.
    fn messages_before(&mut self, seq: Seq) -> Result<u64>;
}

/// How many messages around a cut are looked at for calls and their answers.
const NEAR: u64 = 64;

impl Start {
    pub(super) fn find(events: &mut dyn Numbered) -> Result<Start> {
        let mut start = Start { from: 0, compaction: None, findings: Vec::new() };
        let mut n = 0;
        while let Some(event) = events.checkpoint_from_last(n)? {
            n += 1;
            let from = match event.payload.get("subtype") {
                Some(_) => start.behind_boundary(events, &event)?,
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
    ) -> Result<Option<Seq>> {
        let next = events.message_behind(boundary.seq)?;
        let is_summary = |next: &Event| {
            matches!(&*next.said().by, "system" | "summary") && !is_blank(&next.said().text())
        };
        if !next.is_some_and(|next| is_summary(&next)) {
            self.note_void(boundary);
            return Ok(None);
        }
        let first = events.messages_before(boundary.seq)?;
        let with_calls = self.with_calls(events, boundary, first)?;
        Ok(Some(with_calls.unwrap_or(boundary.seq + 1)))
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
        let there = events.messages_before(checkpoint.seq)?;
        if is_blank(&summary) || retained > there {
            self.note_void(checkpoint);
            return Ok(None);
        }
        if let Some(from) = self.with_calls(events, checkpoint, retained)? {
            return Ok(Some(from));
        }
        let first = if retained < there { events.message(retained)? } else { None };
        Ok(Some(first.map_or(checkpoint.seq, |first| first.seq)))
    }

    /// The message with the first call that an answer from the message number `first` on belongs to,
    /// where that call stands before it.
    fn with_calls(
        &mut self,
        events: &mut dyn Numbered,
        compaction: &Event,
        first: u64,
    ) -> Result<Option<Seq>> {
        // Answers behind the cut whose calls are not.
        let (mut made, mut wanted): (HashSet<Text>, HashSet<Text>) = Default::default();
        for n in first..first.saturating_add(NEAR) {
            let Some(message) = events.message(n)? else { break };
            let said = message.said();
            made.extend(said.calls().into_iter().map(|call| call.id));
            let id = said.metadata.id_of("tool_call_id");
            if said.by == "tool" && !made.contains(&id) {
                wanted.insert(id);
            }
        }
        let mut from = None;
        let mut answered: HashSet<Text> = HashSet::new();
        for n in (first.saturating_sub(NEAR)..first).rev() {
            if wanted.is_empty() {
                break;
            }
            let Some(message) = events.message(n)? else { break };
            let said = message.said();
            if said.by == "tool" {
                answered.insert(said.metadata.id_of("tool_call_id"));
            }
            for call in said.calls() {
                // One that has its answer before the cut wants no other.
                if !answered.remove(&call.id) && wanted.remove(&call.id) {
                    from = Some(message.seq);
                } else {
                    wanted.remove(&call.id);
                }
            }
        }
        if from.is_some() {
            let message = "a compaction that cuts answers from their calls: both are kept";
            self.note(Code::CompactionSplitsPair, compaction, message);
        }
        Ok(from)
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

    fn get(&self, index: Option<&usize>) -> Option<Event> {
        self.events.get(*index?).cloned()
    }
}

impl Numbered for InMemory<'_> {
    fn checkpoint_from_last(&mut self, n: u64) -> Result<Option<Event>> {
        let mut from_last = self.checkpoints.iter().rev();
        Ok(self.get(usize::try_from(n).ok().and_then(|n| from_last.nth(n))))
    }

    fn message_behind(&mut self, seq: Seq) -> Result<Option<Event>> {
        let next = self.events.partition_point(|event| event.seq <= seq);
        let behind = self.events.get(next..).unwrap_or_default();
        Ok(behind.iter().find(|event| event.kind == Kind::Message).cloned())
    }

    fn message(&mut self, n: u64) -> Result<Option<Event>> {
        Ok(self.get(usize::try_from(n).ok().and_then(|n| self.messages.get(n))))
    }

    fn messages_before(&mut self, seq: Seq) -> Result<u64> {
        let before =
            |index: &usize| self.events.get(*index).is_some_and(|message| message.seq < seq);
        Ok(self.messages.partition_point(before) as u64)
    }
}

/// Events in the log.
pub(super) struct Indexed<'s> {
    pub(super) snapshot: &'s Snapshot,
    pub(super) session: &'s SessionInfo,
    pub(super) format: &'static dyn crate::format::Format,
}

impl Indexed<'_> {
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

    fn message_behind(&mut self, seq: Seq) -> Result<Option<Event>> {
        for entry in self.snapshot.read(&self.session.id, seq + 1..)? {
            let event = Event::from_entry(self.format, &entry?);
            if let Some(event) = event.filter(|event| event.kind == Kind::Message) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    fn message(&mut self, n: u64) -> Result<Option<Event>> {
        if n >= self.session.count(Kind::Message) {
            return Ok(None);
        }
        self.at(Position::Message(n))
    }

    fn messages_before(&mut self, seq: Seq) -> Result<u64> {
        // By halves: each question reads an event or two.
        let (mut low, mut high) = (0, self.session.count(Kind::Message));
        while low < high {
            let middle = low + (high - low) / 2;
            match self.snapshot.find(&self.session.id, Position::Message(middle))? {
                Some(at) if at < seq => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }
}
