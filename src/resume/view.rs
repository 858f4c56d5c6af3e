//! What to send to the model: the conversation from the last valid compaction on, as a strict
//! provider accepts it.
//!
//! Every call has exactly one answer, directly behind its message, in the order of the calls. There
//! is no answer without a call, no empty text, and no call apart from its answer. All repairs are
//! in the view alone and are reported; the log is not touched. The same log gives the same view.

use serde::Serialize;

use crate::entry::{Kind, Seq};
use crate::error::Result;
use crate::event::{Event, Json, Reading, Text};
use crate::finding::{Code, Finding};

use super::lifecycle::{Attached, Lifecycle, Seen, Stage};
use super::observe::{Synthetic, observation};
use super::pairs::{Asked, Asking, Pairs};
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

enum Item<'e> {
    Said(&'e Event),
    Asking(usize),
    Gap(&'e Event),
}

/// Builds the view.
#[derive(Default)]
struct Builder {
    entries: Vec<ViewEntry>,
    findings: Vec<Finding>,
}

/// What an answer without text says.
const NO_OUTPUT: &str = "(no output)";

impl View {
    /// The view after `events`, all of them from where it begins, with the lifecycle facts that
    /// they have. `earlier` are the records before them.
    pub(super) fn of(
        events: &[Event],
        start: Start,
        calls: &[Lifecycle],
        earlier: &mut Earlier<impl Iterator<Item = Result<Text>>>,
    ) -> Result<View> {
        let mut builder = Builder { entries: Vec::new(), findings: start.findings };
        let mut from_seq = 0;
        if let Some(event) = &start.compaction {
            from_seq = event.seq;
            builder.entries.push(ViewEntry::Compaction { marker: "compaction", seq: event.seq });
            let content = builder.safe(event, event.payload.get("summary").as_ref());
            if !is_blank(&content) {
                builder.say(event, "summary".into(), content, None);
            }
        }
        let messages = messages(events, earlier)?;
        let made = messages.iter().filter(|(event, _)| asks(event)).flat_map(|(event, _)| {
            event.said().calls.iter().map(|call| (&*event.run, &*call.id, event.seq))
        });
        let attached = Attached::new(calls, made);
        let mut pairs = Pairs::new(&attached);
        let items = builder.read(&messages, &mut pairs);
        builder.write(&items, &pairs.asking);
        builder.report_conflicts(calls);
        Ok(View { entries: builder.entries, from_seq, findings: builder.findings })
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

impl Builder {
    fn find(&mut self, code: Code, event: &Event, message: impl Into<String>) {
        self.findings.push(Finding { seq: Some(event.seq), ..Finding::new(code, message) });
    }

    /// Puts the messages in order, and finds the answers of calls.
    fn read<'e>(
        &mut self,
        messages: &[(&'e Event, bool)],
        pairs: &mut Pairs<'e, '_>,
    ) -> Vec<Item<'e>> {
        let mut items = Vec::with_capacity(messages.len());
        for (event, missing) in messages {
            if *missing {
                items.push(Item::Gap(event));
            }
            match &*event.said().by {
                "tool" => pairs.answers(event),
                _ if asks(event) => items.push(Item::Asking(pairs.asks(event))),
                "system" | "user" | "assistant" | "summary" => {
                    pairs.said(event);
                    items.push(Item::Said(event));
                }
                // Never taken for another role.
                role => {
                    let message = format!("a message of {role:?} is not sent");
                    self.find(Code::UnknownRole, event, message);
                }
            }
        }
        pairs.end();
        self.findings.append(&mut pairs.findings);
        items
    }

    /// Writes the entries.
    fn write(&mut self, items: &[Item<'_>], asking: &[Asking<'_, '_>]) {
        for item in items {
            match item {
                Item::Gap(event) => self.entries.push(ViewEntry::Gap {
                    marker: "gap",
                    count: 1,
                    text: format!(
                        "records before {} are missing",
                        event.parent.as_deref().unwrap_or_default()
                    ),
                }),
                Item::Said(event) => {
                    let content = self.safe(event, event.said().content.as_ref());
                    if is_blank(&content) {
                        self.find(Code::EmptyContent, event, "a message without text is not sent");
                        continue;
                    }
                    let reasoning = self.reasoning(event);
                    self.say(event, event.said().by.clone(), content, reasoning);
                }
                Item::Asking(index) => {
                    if let Some(asking) = asking.get(*index) {
                        self.write_asking(asking);
                    }
                }
            }
        }
    }

    fn say(&mut self, event: &Event, role: Text, content: Text, reasoning: Option<Text>) {
        let (tool_calls, seq) = (Vec::new(), event.seq);
        self.entries.push(ViewEntry::Message { role, content, reasoning, tool_calls, seq });
    }

    fn write_asking(&mut self, asking: &Asking<'_, '_>) {
        let Asking { event, calls, .. } = asking;
        let content = self.safe(event, event.said().content.as_ref());
        let reasoning = self.reasoning(event);
        let tool_calls: Vec<ViewCall> =
            calls.iter().map(|asked| self.safe_call(event, asked)).collect();
        let ids: Vec<Text> = tool_calls.iter().map(|call| call.id.clone()).collect();
        let (role, seq) = (event.said().by.clone(), event.seq);
        self.entries.push(ViewEntry::Message { role, content, reasoning, tool_calls, seq });
        for (asked, id) in calls.iter().zip(ids) {
            if let Some(answer) = asked.answer {
                let mut content = self.safe(answer, answer.said().content.as_ref());
                if is_blank(&content) {
                    self.find(Code::EmptyContent, answer, "an answer without text");
                    content = NO_OUTPUT.into();
                }
                self.answer(id, content, None, Some(answer.seq));
                continue;
            }
            self.stand_in(event, asked, id);
        }
    }

    /// What stands in for an answer that was not recorded.
    fn stand_in(&mut self, event: &Event, asked: &Asked<'_, '_>, id: Text) {
        let known = asked.known;
        let stage = known.map_or(Stage::Unknown, |known| known.stage);
        if stage == Stage::Waiting || (asked.waits && stage < Stage::Started) {
            let message = format!("{id:?}: the call waits for approval and stays open");
            self.find(Code::PendingCall, event, message);
            self.entries.push(ViewEntry::Pending { marker: "pending", tool_call_id: id });
            return;
        }
        let (content, synthetic) = observation(known, Reading::Default);
        let (code, message) = match synthetic {
            Synthetic::Recovered => {
                (Code::ResultRecoveredFromLifecycle, "the result is that of the lifecycle")
            }
            _ => (Code::OrphanCall, "a call without an answer gets one"),
        };
        self.find(code, event, format!("{id:?}: {message}"));
        let content = match is_blank(&content) {
            true => NO_OUTPUT.into(),
            false => content.replace('\0', "\u{FFFD}").into(),
        };
        self.answer(id, content, Some(synthetic.name()), None);
    }

    fn answer(
        &mut self,
        tool_call_id: Text,
        content: Text,
        synthetic: Option<&'static str>,
        seq: Option<Seq>,
    ) {
        let role = "tool";
        self.entries.push(ViewEntry::Answer { role, tool_call_id, content, synthetic, seq });
    }

    /// The text in a value, without what strict consumers refuse. What is no text is its JSON; of a
    /// list of text blocks it is their text.
    fn safe(&mut self, event: &Event, value: Option<&Json>) -> Text {
        let Some(value) = value else { return Text::default() };
        let text = value.shown();
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

    /// A call without what strict consumers refuse.
    fn safe_call(&mut self, event: &Event, asked: &Asked<'_, '_>) -> ViewCall {
        let mut call = asked.call.clone();
        if let Some(arguments) = call.arguments.made_safe() {
            let notes = call.arguments.notes();
            if notes.lone_surrogate {
                self.find(Code::LoneSurrogate, event, "half a surrogate pair is replaced");
            }
            if notes.nul_in_string {
                self.find(Code::NulInString, event, "NUL in arguments is replaced");
            }
            call.arguments = arguments;
        }
        for text in [&mut call.id, &mut call.name] {
            if text.contains('\0') {
                self.find(Code::NulInString, event, "NUL in a call is replaced");
                *text = text.replace('\0', "\u{FFFD}").into();
            }
        }
        call
    }

    /// What the model thought before it answered.
    fn reasoning(&mut self, event: &Event) -> Option<Text> {
        let text = self.safe(event, event.said().metadata.get("reasoning_content").as_ref());
        Some(text).filter(|text| !is_blank(text))
    }

    fn report_conflicts(&mut self, calls: &[Lifecycle]) {
        for call in calls {
            let Some(seq) = call.other_end else { continue };
            let message = format!("{:?}: the call had ended otherwise before", call.call_id);
            let finding = Finding::new(Code::StatusConflict, message);
            self.findings.push(Finding { seq: Some(seq), ..finding });
        }
    }
}

/// The messages, each record once, and whether one is missing before it.
fn messages<'e>(
    events: &'e [Event],
    earlier: &mut Earlier<impl Iterator<Item = Result<Text>>>,
) -> Result<Vec<(&'e Event, bool)>> {
    let (mut messages, mut seen) = (Vec::new(), Seen::default());
    let have_parents = events.iter().any(|event| event.parent.is_some());
    for event in events {
        if event.kind != Kind::Message && !have_parents {
            continue;
        }
        let parent = event.parent.as_deref().filter(|parent| !seen.has(parent));
        let missing = parent.map_or(Ok(false), |parent| earlier.has(parent).map(|has| !has))?;
        if !seen.add(event) && event.kind == Kind::Message {
            messages.push((event, missing));
        }
    }
    Ok(messages)
}

/// Whether a message of the model makes calls.
fn asks(event: &Event) -> bool {
    event.said().by == "assistant" && !event.said().calls.is_empty()
}

/// Whether there is nothing but what the formats take for white space.
pub(super) fn is_blank(text: &str) -> bool {
    crate::format::syntax::trim(text.as_bytes()).is_empty()
}
