//! What to send to the model: the conversation from the last valid compaction on, as a strict
//! provider accepts it.
//!
//! Every call has exactly one answer, directly behind its message, in the order of the calls. There
//! is no answer without a call, no empty text, and no call apart from its answer. All repairs are
//! in the view alone and are reported; the log is not touched. The same log gives the same view.

use std::collections::{HashMap, HashSet, VecDeque};

use serde::Serialize;

use crate::entry::{Kind, Seq};
use crate::error::Result;
use crate::event::{Event, Json, Text};
use crate::finding::{Code, Finding};

use super::approval;
use super::lifecycle::{ByCall, Lifecycle, Reading, Stage};
use super::observe::{Synthetic, observation};
use super::start::{Earlier, Start};

/// A call in the view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ViewCall {
    /// Its id; derived where the message has none.
    pub id: Text,
    /// The tool.
    pub name: Text,
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
        role: Text,
        /// What.
        content: Text,
        /// What the model thought before it answered.
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning: Option<Text>,
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
        tool_call_id: Text,
        /// The answer.
        content: Text,
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
    /// In the place of an answer: the call waits for somebody's approval, and stays open.
    Pending {
        /// `pending`.
        marker: &'static str,
        /// The call.
        tool_call_id: Text,
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
    calls: Vec<Asked<'e>>,
}

/// A call of a message.
struct Asked<'e> {
    call: ViewCall,
    /// The id as it was recorded.
    id: Text,
    /// The call itself says that it waits for approval.
    waits: bool,
    answer: Option<&'e Event>,
}

enum Item<'e> {
    Said(&'e Event),
    Asking(usize),
    Gap(&'e Event),
}

/// Builds the view.
#[derive(Default)]
struct Builder<'e> {
    items: Vec<Item<'e>>,
    asking: Vec<Asking<'e>>,
    /// The open calls of an id, oldest first: which message, which of its calls.
    open: HashMap<Text, VecDeque<(usize, usize)>>,
    /// How many calls have had an id.
    used: HashMap<Text, usize>,
    /// Ids of calls that have had an answer.
    answered: HashSet<Text>,
    /// Answers whose calls have not come.
    early: Vec<(&'e Event, Text)>,
    findings: Vec<Finding>,
}

/// Records by id, to tell one that is there twice.
#[derive(Default)]
struct Seen<'e> {
    first: HashMap<&'e str, &'e Event>,
    others: HashMap<&'e str, Vec<&'e Event>>,
}

impl<'e> Seen<'e> {
    /// Takes a record in, and returns whether an equal one was there.
    fn add(&mut self, event: &'e Event) -> bool {
        if event.id.is_empty() {
            return false;
        }
        let first = *self.first.entry(&event.id).or_insert(event);
        if first.seq == event.seq {
            return false;
        }
        let others = self.others.entry(&event.id).or_default();
        let known = first == event || others.contains(&event);
        others.push(event);
        known
    }
}

impl View {
    /// The view after `events`, all of them from where it begins, with the lifecycle facts that
    /// they have. `earlier` are the records before them.
    pub(super) fn of(
        events: &[Event],
        start: Start,
        calls: &[Lifecycle],
        earlier: &mut Earlier<impl Iterator<Item = Result<Text>>>,
    ) -> Result<View> {
        let mut builder = Builder { findings: start.findings, ..Builder::default() };
        let mut entries = Vec::new();
        let mut from_seq = 0;
        if let Some(event) = &start.compaction {
            from_seq = event.seq;
            entries.push(ViewEntry::Compaction { marker: "compaction", seq: event.seq });
            let content = builder.safe(event, event.payload.get("summary").as_ref());
            if !content.is_empty() {
                let (role, seq) = ("summary".into(), event.seq);
                let (reasoning, tool_calls) = (None, Vec::new());
                entries.push(ViewEntry::Message { role, content, reasoning, tool_calls, seq });
            }
        }
        builder.read(events, earlier)?;
        builder.write(&ByCall::new(calls), &mut entries);
        Ok(View { entries, from_seq, findings: builder.findings })
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

    /// Takes the messages in, and finds the answers of calls.
    fn read(
        &mut self,
        events: &'e [Event],
        earlier: &mut Earlier<impl Iterator<Item = Result<Text>>>,
    ) -> Result<()> {
        let mut seen = Seen::default();
        for event in events {
            let parent = event.parent.as_deref();
            let missing = match parent.filter(|parent| !seen.first.contains_key(parent)) {
                Some(parent) => !earlier.has(parent)?,
                None => false,
            };
            // The same record twice is one record.
            if seen.add(event) || event.kind != Kind::Message {
                continue;
            }
            if missing {
                self.items.push(Item::Gap(event));
            }
            match &*event.said().by {
                "tool" => self.take_answer(event),
                "system" | "user" | "assistant" | "summary" => self.take_message(event),
                // Never taken for another role.
                role => {
                    let message = format!("a message of {role:?} is not sent");
                    self.find(Code::UnknownRole, event, message);
                }
            }
        }
        for (event, ..) in std::mem::take(&mut self.early) {
            self.find(Code::OrphanResult, event, "an answer to no call is not sent");
        }
        Ok(())
    }

    fn take_message(&mut self, event: &'e Event) {
        let asks = event.said().by == "assistant";
        let calls = if asks { event.said().calls() } else { Vec::new() };
        if calls.is_empty() {
            return self.items.push(Item::Said(event));
        }
        let index = self.asking.len();
        let mut asked = Vec::with_capacity(calls.len());
        for (n, call) in calls.into_iter().enumerate() {
            let id = match &*call.id {
                "" => {
                    self.find(Code::EmptyCallId, event, "a call without an id gets a derived one");
                    format!("call-{}-{n}", event.seq).into()
                }
                _ => call.id.clone(),
            };
            let used = self.used.entry(id.clone()).or_default();
            *used += 1;
            if *used == 2 {
                let message = format!("several calls have the id {id:?}");
                self.find(Code::ReusedCallId, event, message);
            }
            let early = self.early.iter().position(|(.., answers)| *answers == call.id);
            let answer = early.map(|at| self.early.remove(at)).map(|(answer, _)| {
                let message = "an answer that stands before its call stands behind it";
                self.find(Code::ResultBeforeCall, answer, message);
                answer
            });
            if answer.is_none() {
                self.open.entry(call.id.clone()).or_default().push_back((index, n));
            }
            let waits = approval::waits(&call.raw);
            let (name, arguments) = (call.name, call.arguments);
            let call_in_view = ViewCall { id, name, arguments };
            asked.push(Asked { call: call_in_view, id: call.id, waits, answer });
        }
        self.asking.push(Asking { event, calls: asked });
        self.items.push(Item::Asking(index));
    }

    fn take_answer(&mut self, event: &'e Event) {
        let id = event.said().metadata.id_of("tool_call_id");
        let open = self.open.get_mut(&id).and_then(VecDeque::pop_front);
        let Some((index, n)) = open else {
            if self.answered.contains(&id) {
                let message =
                    format!("the call {id:?} has an answer already; this one is not sent");
                self.find(Code::DuplicateResult, event, message);
            } else {
                self.early.push((event, id));
            }
            return;
        };
        self.answered.insert(id);
        let Some(asking) = self.asking.get_mut(index) else { return };
        let asked_by = &*asking.event.id;
        let linked = event.parent.as_deref().is_none_or(|parent| parent == asked_by);
        let links = linked || asked_by.is_empty();
        let behind = asking.calls.iter().skip(n + 1).any(|call| call.answer.is_some());
        if let Some(call) = asking.calls.get_mut(n) {
            call.answer = Some(event);
        }
        if !links {
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
        let mut made: HashMap<(&'e str, Text), usize> = HashMap::new();
        let mut asking = std::mem::take(&mut self.asking).into_iter();
        for item in std::mem::take(&mut self.items) {
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
                    let content = self.safe(event, event.said().content.as_ref());
                    if content.trim().is_empty() {
                        self.find(Code::EmptyContent, event, "a message without text is not sent");
                        continue;
                    }
                    let reasoning = self.reasoning(event);
                    entries.push(ViewEntry::Message {
                        role: event.said().by.clone(),
                        content,
                        reasoning,
                        tool_calls: Vec::new(),
                        seq: event.seq,
                    });
                }
                // They are there in this order.
                Item::Asking(_) => {
                    if let Some(asking) = asking.next() {
                        self.write_asking(asking, calls, &mut made, entries);
                    }
                }
            }
        }
    }

    fn write_asking(
        &mut self,
        asking: Asking<'e>,
        calls: &ByCall<'_>,
        made: &mut HashMap<(&'e str, Text), usize>,
        entries: &mut Vec<ViewEntry>,
    ) {
        let Asking { event, calls: asked } = asking;
        entries.push(ViewEntry::Message {
            role: event.said().by.clone(),
            content: self.safe(event, event.said().content.as_ref()),
            reasoning: self.reasoning(event),
            tool_calls: asked.iter().map(|asked| asked.call.clone()).collect(),
            seq: event.seq,
        });
        for Asked { call, id, waits, answer } in asked {
            let count = made.entry((&event.run, id.clone())).or_default();
            let nth = std::mem::replace(count, *count + 1);
            if let Some(answer) = answer {
                let mut content = self.safe(answer, answer.said().content.as_ref());
                if content.is_empty() {
                    self.find(Code::EmptyContent, answer, "an answer without text");
                    content = "(no output)".into();
                }
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
            let stage = known.map_or(Stage::Unknown, |known| known.stage);
            if stage == Stage::Waiting || (waits && stage < Stage::Started) {
                let message = format!("{:?}: the call waits for approval and stays open", call.id);
                self.find(Code::PendingCall, event, message);
                let (marker, tool_call_id) = ("pending", call.id);
                entries.push(ViewEntry::Pending { marker, tool_call_id });
                continue;
            }
            let (content, synthetic) = observation(known, Reading::Default);
            let (code, message) = match synthetic {
                Synthetic::Recovered => {
                    (Code::ResultRecoveredFromLifecycle, "the result is that of the lifecycle")
                }
                _ => (Code::OrphanCall, "a call without an answer gets one"),
            };
            self.find(code, event, format!("{:?}: {message}", call.id));
            let content = if content.is_empty() { "(no output)".to_owned() } else { content };
            entries.push(ViewEntry::Answer {
                role: "tool",
                tool_call_id: call.id,
                content: content.replace('\0', "\u{FFFD}").into(),
                synthetic: Some(synthetic.name()),
                seq: None,
            });
        }
    }

    /// The text in a value, without what strict consumers refuse.
    fn safe(&mut self, event: &Event, value: Option<&Json>) -> Text {
        let Some(value) = value else { return Text::default() };
        let text = value.text().unwrap_or_default();
        // Half a pair is nothing but an escape, and has been replaced in the text.
        if text.contains('\u{FFFD}') && value.notes().lone_surrogate {
            self.find(Code::LoneSurrogate, event, "half a surrogate pair is replaced");
        }
        if !text.contains('\0') {
            return text;
        }
        self.find(Code::NulInString, event, "NUL in text is replaced");
        text.replace('\0', "\u{FFFD}").into()
    }

    /// What the model thought before it answered.
    fn reasoning(&mut self, event: &Event) -> Option<Text> {
        let text = self.safe(event, event.said().metadata.get("reasoning_content").as_ref());
        Some(text).filter(|text| !text.is_empty())
    }
}
