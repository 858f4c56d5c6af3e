//! What to send to the model: the conversation from the last valid compaction on, as a strict
//! provider accepts it.
//!
//! Every call has exactly one answer, directly behind its message, in the order of the calls. There
//! is no answer without a call, no empty text, and no call apart from its answer. All repairs are
//! in the view alone and are reported; the log is not touched. The same log gives the same view.

use std::collections::{HashMap, HashSet, VecDeque};

use serde::Serialize;

use crate::entry::{Kind, Seq};
use crate::event::{Event, Json};
use crate::finding::{Code, Finding};

use super::lifecycle::{ByCall, Lifecycle, Reading};
use super::observe::observation;

/// A call in the view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ViewCall {
    /// Its id; derived where the message has none.
    pub id: String,
    /// The tool.
    pub name: String,
    /// What it is called with.
    pub arguments: Json,
}

/// A message in the view, or a mark between two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum ViewEntry {
    /// A message.
    Message {
        /// Who speaks.
        role: String,
        /// What.
        content: String,
        /// What the model thought before it answered.
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning: Option<String>,
        /// The calls that it makes.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ViewCall>,
        /// The event.
        seq: Seq,
    },
    /// The answer to a call.
    Answer {
        /// `tool`.
        role: &'static str,
        /// The call.
        tool_call_id: String,
        /// The answer.
        content: String,
        /// What kind of answer stands in for one that was not recorded.
        #[serde(skip_serializing_if = "Option::is_none")]
        synthetic: Option<&'static str>,
        /// The event, unless the answer is synthetic.
        #[serde(skip_serializing_if = "Option::is_none")]
        seq: Option<Seq>,
    },
    /// Records are missing here.
    Gap {
        /// `gap`.
        marker: &'static str,
        /// How many places.
        count: u64,
        /// What is known of it.
        text: String,
    },
    /// The history before is summed up.
    Compaction {
        /// `compaction`.
        marker: &'static str,
        /// The event.
        seq: Seq,
    },
}

/// What to send to the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct View {
    /// The messages and marks, in order.
    pub entries: Vec<ViewEntry>,
    /// The event that it begins with.
    pub from_seq: Seq,
    /// Everything that was repaired or is odd.
    pub findings: Vec<Finding>,
}

/// A message with calls, and the answers found for them.
struct Asking<'e> {
    event: &'e Event,
    calls: Vec<ViewCall>,
    /// The ids as they were recorded.
    ids: Vec<String>,
    answers: Vec<Option<&'e Event>>,
}

enum Item<'e> {
    Said(&'e Event),
    Asking(usize),
    Gap(&'e Event),
}

/// Builds the view.
struct Builder<'e> {
    items: Vec<Item<'e>>,
    asking: Vec<Asking<'e>>,
    /// The open calls of an id, oldest first: which message, which of its calls.
    open: HashMap<String, VecDeque<(usize, usize)>>,
    /// How many calls have had an id.
    used: HashMap<String, usize>,
    /// Answers whose calls have not come.
    early: Vec<&'e Event>,
    findings: Vec<Finding>,
}

impl View {
    /// The view after `events`, with the lifecycle facts that they have.
    pub(super) fn of(events: &[Event], calls: &[Lifecycle]) -> View {
        let mut builder = Builder {
            items: Vec::new(),
            asking: Vec::new(),
            open: HashMap::new(),
            used: HashMap::new(),
            early: Vec::new(),
            findings: Vec::new(),
        };
        let (from, compaction) = builder.start(events);
        let mut entries = Vec::new();
        let mut summary = None;
        let mut kept = 0;
        if let Some(event) = compaction {
            entries.push(ViewEntry::Compaction { marker: "compaction", seq: event.seq });
            let text = builder.safe(event, event.payload.get("summary"));
            summary = (!text.is_empty()).then_some((text, event.seq));
            kept = from;
        }
        let from_seq = compaction.map_or(0, |event| event.seq);
        builder.read(events, kept);
        if let Some((content, seq)) = summary {
            let role = "summary".to_owned();
            let (reasoning, tool_calls) = (None, Vec::new());
            entries.push(ViewEntry::Message { role, content, reasoning, tool_calls, seq });
        }
        builder.write(&ByCall::new(calls), &mut entries);
        View { entries, from_seq, findings: builder.findings }
    }

    /// A digest of the view: the same log gives the same, on any machine.
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for entry in &self.entries {
            // Nothing in an entry can fail to be written.
            hasher.update(&serde_json::to_vec(entry).unwrap_or_default());
            hasher.update(b"\n");
        }
        format!("blake3:{}", hasher.finalize().to_hex())
    }
}

impl<'e> Builder<'e> {
    fn find(&mut self, code: Code, event: &Event, message: impl Into<String>) {
        self.findings.push(Finding { seq: Some(event.seq), ..Finding::new(code, message) });
    }

    /// Where the view begins: the index of the first event, and the compaction that is in force.
    fn start(&mut self, events: &'e [Event]) -> (usize, Option<&'e Event>) {
        let is_message = |event: &&Event| event.kind == Kind::Message;
        for (index, event) in events.iter().enumerate().rev() {
            if event.kind != Kind::Checkpoint {
                continue;
            }
            let is_boundary = event.payload.get("subtype").is_some();
            if is_boundary {
                // Its summary is the message behind it.
                let next = events.get(index + 1..).unwrap_or_default().iter().find(is_message);
                if next.is_some_and(|next| matches!(next.role().as_str(), "system" | "summary")) {
                    return (index + 1, Some(event));
                }
                let message = "a compaction without its summary: the history before it is kept";
                self.find(Code::CompactionMissingSummary, event, message);
                continue;
            }
            let number = |key| event.payload.get(key).and_then(|n| n.as_str().parse::<f64>().ok());
            let summary = event.payload.get("summary");
            let summary = summary.as_ref().and_then(Json::text).unwrap_or_default();
            let retained = number("retain_start_idx");
            let compacted = number("messages_compacted").is_some_and(|count| count >= 1.0);
            let Some(retained) = retained.filter(|index| compacted && *index >= 0.0) else {
                continue;
            };
            let before = events.get(..index).unwrap_or_default();
            let messages: Vec<usize> =
                before.iter().enumerate().filter(|(_, e)| is_message(e)).map(|(n, _)| n).collect();
            if summary.trim().is_empty() || retained as usize > messages.len() {
                let message = "a compaction without its summary: the history before it is kept";
                self.find(Code::CompactionMissingSummary, event, message);
                continue;
            }
            let mut start = retained as usize;
            // An answer is not cut from its call.
            let answers = |n: &usize| events.get(*n).is_some_and(|event| event.role() == "tool");
            if messages.get(start).is_some_and(answers) {
                let message = "a compaction that cuts answers from their calls: both are kept";
                self.find(Code::CompactionSplitsPair, event, message);
                while start > 0 && messages.get(start).is_some_and(answers) {
                    start -= 1;
                }
            }
            return (messages.get(start).copied().unwrap_or(index), Some(event));
        }
        (0, None)
    }

    /// Takes the messages from index `from` on in, and finds the answers of calls.
    fn read(&mut self, events: &'e [Event], from: usize) {
        let mut seen: HashSet<&Event> = HashSet::new();
        let mut ids: HashSet<&str> = HashSet::new();
        let mut answered: HashSet<String> = HashSet::new();
        for (index, event) in events.iter().enumerate() {
            let missing = event.parent.as_deref().is_some_and(|parent| !ids.contains(parent));
            ids.insert(&event.id);
            if index < from || event.kind != Kind::Message {
                continue;
            }
            // The same record twice is one record.
            if !event.id.is_empty() && !seen.insert(event) {
                continue;
            }
            if missing {
                self.items.push(Item::Gap(event));
            }
            match event.role().as_str() {
                "tool" => self.take_answer(event, &mut answered),
                "system" | "user" | "assistant" | "summary" => self.take_message(event),
                // Never taken for another role.
                role => {
                    let message = format!("a message of {role:?} is not sent");
                    self.find(Code::UnknownRole, event, message);
                }
            }
        }
        for event in std::mem::take(&mut self.early) {
            self.find(Code::OrphanResult, event, "an answer to no call is not sent");
        }
    }

    fn take_message(&mut self, event: &'e Event) {
        let calls = if event.role() == "assistant" { event.calls() } else { Vec::new() };
        if calls.is_empty() {
            return self.items.push(Item::Said(event));
        }
        let index = self.asking.len();
        let mut asking =
            Asking { event, calls: Vec::new(), ids: Vec::new(), answers: vec![None; calls.len()] };
        for (n, call) in calls.into_iter().enumerate() {
            let id = match call.id.as_str() {
                "" => {
                    self.find(Code::EmptyCallId, event, "a call without an id gets a derived one");
                    format!("call-{}-{n}", event.seq)
                }
                id => id.to_owned(),
            };
            let used = self.used.entry(id.clone()).or_default();
            *used += 1;
            if *used == 2 {
                let message = format!("several calls have the id {id:?}");
                self.find(Code::ReusedCallId, event, message);
            }
            let id_of = |answer: &&Event| answer.meta("tool_call_id");
            let early = self.early.iter().position(|answer| id_of(answer) == call.id);
            if let Some(answer) = early.map(|at| self.early.remove(at)) {
                let message = "an answer that stands before its call stands behind it";
                self.find(Code::ResultBeforeCall, answer, message);
                if let Some(slot) = asking.answers.get_mut(n) {
                    *slot = Some(answer);
                }
            } else {
                self.open.entry(call.id.clone()).or_default().push_back((index, n));
            }
            asking.ids.push(call.id);
            asking.calls.push(ViewCall { id, name: call.name, arguments: call.arguments });
        }
        self.asking.push(asking);
        self.items.push(Item::Asking(index));
    }

    fn take_answer(&mut self, event: &'e Event, answered: &mut HashSet<String>) {
        let id = event.meta("tool_call_id");
        let open = self.open.get_mut(&id).and_then(VecDeque::pop_front);
        let Some((index, n)) = open else {
            if answered.contains(&id) {
                let message =
                    format!("the call {id:?} has an answer already; this one is not sent");
                self.find(Code::DuplicateResult, event, message);
            } else {
                self.early.push(event);
            }
            return;
        };
        answered.insert(id);
        let Some(asking) = self.asking.get_mut(index) else { return };
        let asked_by = asking.event.id.as_str();
        let linked = event.parent.as_deref().is_none_or(|parent| parent == asked_by);
        let behind = asking.answers.iter().skip(n + 1).any(Option::is_some);
        if let Some(slot) = asking.answers.get_mut(n) {
            *slot = Some(event);
        }
        if !linked && !asked_by.is_empty() {
            let message = "an answer whose link names another message than the one with the call";
            self.find(Code::WrongSourceLink, event, message);
        }
        let is_last = matches!(self.items.last(), Some(Item::Asking(last)) if *last == index);
        if behind || !is_last {
            let message = "an answer stands in its place behind its call";
            self.find(Code::ResultsOutOfCallOrder, event, message);
        }
    }

    /// Writes the entries.
    fn write(&mut self, calls: &ByCall<'_>, entries: &mut Vec<ViewEntry>) {
        let mut made: HashMap<(String, String), usize> = HashMap::new();
        let items = std::mem::take(&mut self.items);
        for item in items {
            match item {
                Item::Gap(event) => entries.push(ViewEntry::Gap {
                    marker: "gap",
                    count: 1,
                    text: format!(
                        "records before {} are missing",
                        event.parent.as_deref().unwrap_or_default()
                    ),
                }),
                Item::Said(event) => {
                    let content = self.safe(event, event.payload.get("content"));
                    if content.trim().is_empty() {
                        self.find(Code::EmptyContent, event, "a message without text is not sent");
                        continue;
                    }
                    let (role, seq) = (event.role(), event.seq);
                    let reasoning = self.reasoning(event);
                    let tool_calls = Vec::new();
                    entries.push(ViewEntry::Message { role, content, reasoning, tool_calls, seq });
                }
                Item::Asking(index) => self.write_asking(index, calls, &mut made, entries),
            }
        }
    }

    fn write_asking(
        &mut self,
        index: usize,
        calls: &ByCall<'_>,
        made: &mut HashMap<(String, String), usize>,
        entries: &mut Vec<ViewEntry>,
    ) {
        let Some(asking) = self.asking.get(index) else { return };
        let event = asking.event;
        let parts: Vec<(ViewCall, String, Option<&Event>)> = asking
            .calls
            .iter()
            .zip(&asking.ids)
            .zip(&asking.answers)
            .map(|((call, id), answer)| (call.clone(), id.clone(), *answer))
            .collect();
        entries.push(ViewEntry::Message {
            role: event.role(),
            content: self.safe(event, event.payload.get("content")),
            reasoning: self.reasoning(event),
            tool_calls: parts.iter().map(|(call, ..)| call.clone()).collect(),
            seq: event.seq,
        });
        for (call, id, answer) in parts {
            let count = made.entry((event.run.clone(), id.clone())).or_default();
            let nth = std::mem::replace(count, *count + 1);
            if let Some(answer) = answer {
                let content = match self.safe(answer, answer.payload.get("content")) {
                    empty if empty.is_empty() => {
                        self.find(Code::EmptyContent, answer, "an answer without text");
                        "(no output)".to_owned()
                    }
                    content => content,
                };
                entries.push(ViewEntry::Answer {
                    role: "tool",
                    tool_call_id: call.id,
                    content,
                    synthetic: None,
                    seq: Some(answer.seq),
                });
                continue;
            }
            let known = calls.nth(&event.run, &id, nth).filter(|_| !id.is_empty());
            let (content, synthetic) = observation(known, Reading::Default);
            let (code, message) = match synthetic {
                super::Synthetic::Recovered => {
                    (Code::ResultRecoveredFromLifecycle, "the result is that of the lifecycle")
                }
                _ => (Code::OrphanCall, "a call without an answer gets one"),
            };
            self.find(code, event, format!("{:?}: {message}", call.id));
            let content = if content.is_empty() { "(no output)".to_owned() } else { content };
            entries.push(ViewEntry::Answer {
                role: "tool",
                tool_call_id: call.id,
                content: content.replace('\0', "\u{FFFD}"),
                synthetic: Some(synthetic.name()),
                seq: None,
            });
        }
    }

    /// The text in a value, without what strict consumers refuse.
    fn safe(&mut self, event: &Event, value: Option<Json>) -> String {
        let Some(value) = value else { return String::new() };
        let text = value.text().unwrap_or_default();
        // Half a pair is nothing but an escape, and has been replaced in the text.
        if text.contains('\u{FFFD}') && value.notes().lone_surrogate {
            self.find(Code::LoneSurrogate, event, "half a surrogate pair is replaced");
        }
        if text.contains('\0') {
            self.find(Code::NulInString, event, "NUL in text is replaced");
        }
        text.replace('\0', "\u{FFFD}")
    }

    /// What the model thought before it answered.
    fn reasoning(&mut self, event: &Event) -> Option<String> {
        let text = self.safe(event, event.metadata().get("reasoning_content"));
        Some(text).filter(|text| !text.is_empty())
    }
}
