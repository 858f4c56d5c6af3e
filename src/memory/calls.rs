//! The calls that are open, as far as the memory has to know: never more than its limit.

use std::collections::{BTreeMap, BTreeSet};

use bincode::{Decode, Encode};

use super::{Item, ItemKind, Source};
use crate::event::{Event, Reading, Text, ToolFact};

/// A call that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
struct Open {
    call_id: Text,
    tool: Text,
    requested: Option<(Text, i64)>,
    started: Option<(Text, i64)>,
    /// The count of calls at its beginning.
    number: u64,
}

/// The facts of a call that has ended: one that stands there twice begins no new call.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
struct Ended {
    facts: Vec<Text>,
    number: u64,
}

/// The open calls, and the last that have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(super) struct Calls {
    /// By run and call id, in the order of the text `run U+001F id`.
    open: BTreeMap<String, Open>,
    ended: BTreeMap<String, Ended>,
    /// In the original's reading all keys that have ended.
    closed: BTreeSet<String>,
    count: u64,
    pub(super) dropped: u64,
}

/// How many calls that have ended are remembered.
const ENDED_MAX: usize = 64;

impl Calls {
    pub(super) fn add(&mut self, event: &Event, limit: usize, reading: Reading) {
        let ToolFact { call_id, status, tool } = event.tool();
        let is_end = matches!(&**status, "completed" | "failed");
        let begins = matches!(&**status, "requested" | "started");
        if call_id.is_empty() || !(is_end || begins) {
            return;
        }
        let key = format!("{}\u{1f}{call_id}", event.run);
        if is_end {
            if reading == Reading::Original {
                self.closed.insert(key.clone());
            }
            if let Some(open) = self.open.remove(&key) {
                let facts = [open.requested, open.started].into_iter().flatten();
                let facts = facts.map(|(id, _)| id).collect();
                self.ended.insert(key, Ended { facts, number: open.number });
                if self.ended.len() > ENDED_MAX {
                    forget_oldest(&mut self.ended, |ended| ended.number);
                }
            }
            return;
        }
        let again = |ended: &Ended| !event.id.is_empty() && ended.facts.contains(&event.id);
        if self.closed.contains(&key) || self.ended.get(&key).is_some_and(again) {
            return;
        }
        let number = self.count;
        let open = self.open.entry(key).or_insert_with(|| Open {
            call_id: Text::default(),
            tool: Text::default(),
            requested: None,
            started: None,
            number,
        });
        self.count += u64::from(open.number == number);
        (open.call_id, open.tool) = (call_id.alone(), tool.alone());
        let at = Some((event.id.alone(), event.step));
        match &**status {
            "requested" => open.requested = at,
            _ => open.started = at,
        }
        if self.open.len() > limit {
            forget_oldest(&mut self.open, |open| open.number);
            self.dropped += 1;
        }
    }

    /// What is left to do: to find out what uncertain calls did, to plan the others again.
    pub(super) fn todo(&self) -> impl Iterator<Item = Item> {
        self.open.values().filter_map(|open| {
            let name = format!("{} ({})", super::tool_name(&open.tool), open.call_id);
            Some(match open.started {
                Some(_) => {
                    let text = format!("Find out what {name} did, before claiming anything");
                    Item { kind: ItemKind::Uncertain, text, source: open.source()? }
                }
                None => {
                    let text = format!("Plan {name} again");
                    Item { kind: ItemKind::Pending, text, source: open.source()? }
                }
            })
        })
    }

    /// That it is not known how uncertain calls ended.
    pub(super) fn unverified(&self) -> impl Iterator<Item = Item> {
        self.open.values().filter(|open| open.started.is_some()).filter_map(|open| {
            let tool = super::tool_name(&open.tool);
            let text = format!("Not known how {tool} ({}) ended", open.call_id);
            Some(Item { kind: ItemKind::Uncertain, text, source: open.source()? })
        })
    }
}

fn forget_oldest<T>(calls: &mut BTreeMap<String, T>, number: impl Fn(&T) -> u64) {
    let oldest = calls.iter().min_by_key(|(_, call)| number(call));
    if let Some(key) = oldest.map(|(key, _)| key.clone()) {
        calls.remove(&key);
    }
}

impl Open {
    fn source(&self) -> Option<Source> {
        let start = self.requested.as_ref().or(self.started.as_ref())?;
        let end = self.started.as_ref().unwrap_or(start);
        Some(Source {
            start_event_id: start.0.clone(),
            end_event_id: end.0.clone(),
            start_step: start.1,
            end_step: end.1,
        })
    }
}
