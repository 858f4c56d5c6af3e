//! What the memory is made of.

use std::collections::VecDeque;

use bincode::{Decode, Encode};
use serde::Serialize;

use crate::event::{Event, Text};

/// Where an item comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[non_exhaustive]
pub struct Source {
    /// The first event.
    pub start_event_id: Text,
    /// The last event.
    pub end_event_id: Text,
    /// The step of the first event.
    pub start_step: i64,
    /// The step of the last event.
    pub end_step: i64,
}

impl Source {
    pub(super) fn of(event: &Event) -> Source {
        let id = event.id.alone();
        let (start_step, end_step) = (event.step, event.step);
        Source { start_event_id: id.clone(), end_event_id: id, start_step, end_step }
    }
}

/// What an item is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Encode, Decode)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ItemKind {
    /// A tool did its work.
    ToolCompleted,
    /// The model gave its final answer.
    Final,
    /// A checkpoint was recorded.
    Checkpoint,
    /// The context was compacted.
    Compacted,
    /// A tool failed.
    ToolFailed,
    /// The model could not be brought back.
    RecoveryFailed,
    /// The completion gate held a final answer back.
    GateBlocked,
    /// A run ended.
    Terminal,
    /// A call was begun, and nobody knows how it ended.
    Uncertain,
    /// A call was never begun.
    Pending,
    /// What the user wants.
    Goal,
}

/// One item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[non_exhaustive]
pub struct Item {
    /// What it is about.
    pub kind: ItemKind,
    /// A line for the model.
    pub text: String,
    /// Where it comes from.
    pub source: Source,
}

/// How many items of a group are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Dropped {
    /// Of the completed work.
    pub completed_work: u64,
    /// Of the decisions.
    pub key_decisions: u64,
    /// Of the failed attempts.
    pub failed_attempts: u64,
    /// Of what is left to do.
    pub todo_items: u64,
    /// Of the verification.
    pub verification_status: u64,
}

/// The newest items of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(super) struct Group {
    pub(super) items: VecDeque<Item>,
    pub(super) dropped: u64,
}

impl Group {
    pub(super) fn push(&mut self, kind: ItemKind, text: String, event: &Event, limit: usize) {
        self.items.push_back(Item { kind, text, source: Source::of(event) });
        if self.items.len() > limit {
            self.items.pop_front();
            self.dropped += 1;
        }
    }
}
