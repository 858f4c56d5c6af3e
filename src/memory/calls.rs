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
    /// A message has made a call of the same id since.
    made_again: bool,
    /// The user has spoken before that: later facts are not of this call.
    left: bool,
    /// How many turns of the user came before its last fact.
    turn: u64,
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
    /// By run and call id, in the order of the text `run U+001F id`, and by the count of calls at their
    /// beginning.
    open: BTreeMap<(String, u64), Open>,
    ended: BTreeMap<String, Ended>,
    /// In the original's reading all keys that have ended.
    closed: BTreeSet<String>,
    count: u64,
    turn: u64,
    pub(super) dropped: u64,
}

/// How many calls that have ended are remembered.
const ENDED_MAX: usize = 64;

impl Calls {
    /// The last open call of this run and id.
    fn latest(&mut self, key: &str) -> Option<(u64, &mut Open)> {
        let all = (key.to_owned(), 0)..=(key.to_owned(), u64::MAX);
        let ((_, number), open) = self.open.range_mut(all).next_back()?;
        Some((*number, open))
    }

    /// A message: a call that is made again by it is another one.
    pub(super) fn message(&mut self, event: &Event) {
        let said = event.said();
        self.turn += u64::from(said.by == "user");
        let turn = self.turn;
        for call in &said.calls {
            let key = key(&event.run, &call.id);
            if let Some((_, open)) = self.latest(&key) {
                open.made_again = true;
                open.left |= open.turn != turn;
            }
        }
    }

    /// A lifecycle fact.
    pub(super) fn add(&mut self, event: &Event, limit: usize, reading: Reading) {
        let ToolFact { call_id, status, tool } = event.tool();
        let is_end = matches!(&**status, "completed" | "failed");
        let begins = matches!(&**status, "requested" | "started");
        if call_id.is_empty() || !(is_end || begins) {
            return;
        }
        let key = key(&event.run, call_id);
        let again = |ended: &Ended| !event.id.is_empty() && ended.facts.contains(&event.id);
        if begins && (self.closed.contains(&key) || self.ended.get(&key).is_some_and(again)) {
            return;
        }
        let (turn, number) = (self.turn, self.count);
        let original = reading == Reading::Original;
        let latest = self.latest(&key).filter(|(_, open)| {
            let other = begins && open.made_again && open.started.is_some();
            original || !(open.left || other)
        });
        let at = latest.map(|(number, _)| number);
        if is_end {
            if original {
                self.closed.insert(key.clone());
            }
            if let Some(open) = at.and_then(|number| self.open.remove(&(key.clone(), number))) {
                let facts = [open.requested, open.started].into_iter().flatten();
                let facts = facts.map(|(id, _)| id).collect();
                self.ended.insert(key, Ended { facts, number });
                self.count += 1;
                if self.ended.len() > ENDED_MAX {
                    forget(&mut self.ended, |_, ended| ended.number);
                }
            }
            return;
        }
        let number = at.unwrap_or(number);
        self.count += u64::from(at.is_none());
        let open = self.open.entry((key, number)).or_insert_with(|| Open {
            call_id: Text::default(),
            tool: Text::default(),
            requested: None,
            started: None,
            made_again: false,
            left: false,
            turn,
        });
        (open.call_id, open.tool, open.turn) = (call_id.alone(), tool.alone(), turn);
        let at = Some((event.id.alone(), event.step));
        match &**status {
            "requested" => open.requested = at,
            _ => open.started = at,
        }
        if self.open.len() > limit {
            forget(&mut self.open, |(_, number), _| *number);
            self.dropped += 1;
        }
    }

    /// What is left to do: to find out what uncertain calls did, to plan the others again.
    pub(super) fn todo(&self) -> impl Iterator<Item = Item> {
        self.open.values().filter_map(|open| {
            let name =
                format!("{} ({})", super::tool_name(&open.tool), super::known(&open.call_id));
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
            let text = format!("Not known how {tool} ({}) ended", super::known(&open.call_id));
            Some(Item { kind: ItemKind::Uncertain, text, source: open.source()? })
        })
    }
}

fn key(run: &str, call_id: &str) -> String {
    format!("{run}\u{1f}{call_id}")
}

/// Drops what has the smallest number.
fn forget<K: Ord + Clone, T>(calls: &mut BTreeMap<K, T>, number: impl Fn(&K, &T) -> u64) {
    let oldest = calls.iter().min_by_key(|(key, call)| number(key, call));
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
