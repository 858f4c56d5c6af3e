//! The session memory: what has been done, decided, tried and left open, in a bounded form that is
//! fed forward to the model.
//!
//! It is derived from the events, one by one, and gives the same as a rebuild from all of them. Of
//! each group the newest items are kept, and the number of those that were dropped. Every item
//! names the events that it comes from.

mod render;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::entry::Kind;
use crate::event::{Event, Text, ToolFact};

/// Where an item comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
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

/// What an item is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Item {
    /// What it is about.
    pub kind: ItemKind,
    /// A line for the model.
    pub text: String,
    /// Where it comes from.
    pub source: Source,
}

/// The newest items of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Group {
    items: std::collections::VecDeque<Item>,
    dropped: u64,
}

impl Group {
    fn push(&mut self, item: Item, limit: usize) {
        self.items.push_back(item);
        if self.items.len() > limit {
            self.items.pop_front();
            self.dropped += 1;
        }
    }
}

/// What is known of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CallState {
    call_id: Text,
    tool: Text,
    requested: Option<(Text, i64)>,
    started: Option<(Text, i64)>,
    ended: bool,
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
    /// Of the verification.
    pub verification_status: u64,
}

/// The memory of one session.
///
/// ```
/// use eventlog::{Entry, EventLog, Kind, event::Event, format::Transcript, memory::SessionMemory};
///
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-memory-{}", std::process::id()));
/// # let log = EventLog::open(&dir)?;
/// # let line = r#"{"event_id":"e","timestamp":"t","session_id":"s","run_id":"run-1","step":0,"event_type":"message","payload":{"role":"user","content":"fix it"}}"#;
/// # log.session("s")?.append(Entry::new(Kind::Message, line.as_bytes()))?;
/// let mut memory = SessionMemory::default();
/// for entry in log.read("s", ..)? {
///     if let Some(event) = Event::from_entry(&Transcript, &entry?) {
///         memory.ingest(&event);
///     }
/// }
/// assert!(memory.render(500).contains("fix it"));
/// # log.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionMemory {
    limit: usize,
    goal: Option<Item>,
    completed: Group,
    decisions: Group,
    failed: Group,
    verified: Group,
    /// By run and call id.
    calls: BTreeMap<String, CallState>,
    events: u64,
    source: Option<Source>,
}

/// How many items of each group are kept unless said otherwise.
const ITEMS_MAX: usize = 200;
/// How much of a final answer is kept, in characters.
const FINAL_CHARS: usize = 200;

impl Default for SessionMemory {
    fn default() -> SessionMemory {
        SessionMemory::with_limit(ITEMS_MAX)
    }
}

impl SessionMemory {
    /// An empty memory that keeps at most `limit` items of each group.
    pub fn with_limit(limit: usize) -> SessionMemory {
        SessionMemory {
            limit: limit.max(1),
            goal: None,
            completed: Group::default(),
            decisions: Group::default(),
            failed: Group::default(),
            verified: Group::default(),
            calls: BTreeMap::new(),
            events: 0,
            source: None,
        }
    }

    /// The memory after `events`.
    pub fn rebuild<'e>(events: impl IntoIterator<Item = &'e Event>) -> SessionMemory {
        let mut memory = SessionMemory::default();
        events.into_iter().for_each(|event| memory.ingest(event));
        memory
    }

    /// Takes the next event in.
    pub fn ingest(&mut self, event: &Event) {
        self.events += 1;
        let here = source(event);
        match &mut self.source {
            Some(source) => {
                (source.end_event_id, source.end_step) = (here.end_event_id.clone(), here.end_step);
            }
            None => self.source = Some(here.clone()),
        }
        match event.kind {
            Kind::Message => self.message(event, here),
            Kind::StateTransition => self.transition(event, here),
            Kind::ToolLifecycle => self.lifecycle(event, here),
            Kind::Checkpoint => {
                let id = known(event.field("checkpoint_id"));
                let text = format!("Checkpoint {id} was recorded");
                self.decisions.push(item(ItemKind::Checkpoint, text, here), self.limit);
            }
            Kind::Terminal => {
                let reason = event.field("reason");
                if !reason.is_empty() {
                    let text = format!("A run ended: {reason}");
                    self.verified.push(item(ItemKind::Terminal, text, here), self.limit);
                }
            }
            _ => {}
        }
    }

    fn message(&mut self, event: &Event, here: Source) {
        let said = event.said();
        let of = |key| said.metadata.id_of(key);
        match &*said.by {
            "user" if of("source") != "completion_gate" => {
                let text = said.text();
                let trimmed = crate::format::syntax::trim(text.as_bytes());
                let text = String::from_utf8_lossy(trimmed).into_owned();
                self.goal = Some(item(ItemKind::Goal, text, here));
            }
            "assistant" if matches!(&*of("action_type"), "final" | "final_unverified") => {
                let text = said.text();
                if !crate::format::syntax::trim(text.as_bytes()).is_empty() {
                    let beginning: String = text.chars().take(FINAL_CHARS).collect();
                    let text = format!("Answered: {beginning}");
                    self.completed.push(item(ItemKind::Final, text, here), self.limit);
                }
            }
            _ => {}
        }
    }

    fn transition(&mut self, event: &Event, here: Source) {
        match &*event.field("reason") {
            "context_compacted" => {
                let details = event.payload.get("details");
                let id = details.and_then(|details| details.get("checkpoint_id"));
                let id = known(id.map(|id| id.id()).unwrap_or_default());
                let text = format!("The context was compacted at checkpoint {id}");
                self.decisions.push(item(ItemKind::Compacted, text, here), self.limit);
            }
            "model_recovery_failed" => {
                let text = "The model could not be brought back".to_owned();
                self.failed.push(item(ItemKind::RecoveryFailed, text, here), self.limit);
            }
            "stop_hook_blocking" => {
                let text = "A final answer was held back until it is verified".to_owned();
                self.verified.push(item(ItemKind::GateBlocked, text, here), self.limit);
            }
            _ => {}
        }
    }

    fn lifecycle(&mut self, event: &Event, here: Source) {
        let ToolFact { call_id, status, tool } = event.tool();
        let name = known_tool(tool);
        match &**status {
            "completed" => {
                let text = format!("{name} was done ({call_id})");
                self.completed.push(item(ItemKind::ToolCompleted, text, here), self.limit);
            }
            "failed" => {
                let text = format!("{name} failed ({call_id})");
                self.failed.push(item(ItemKind::ToolFailed, text, here), self.limit);
            }
            _ => {}
        }
        if call_id.is_empty() {
            return;
        }
        let call = self.calls.entry(format!("{}\u{1f}{call_id}", event.run)).or_default();
        (call.call_id, call.tool) = (call_id.clone(), tool.clone());
        let at = Some((event.id.clone(), event.step));
        match &**status {
            "requested" => call.requested = at,
            "started" => call.started = at,
            "completed" | "failed" => call.ended = true,
            _ => {}
        }
    }

    /// What the user wants.
    pub fn current_goal(&self) -> Option<&Item> {
        self.goal.as_ref()
    }

    /// What has been done, oldest first.
    pub fn completed_work(&self) -> impl Iterator<Item = &Item> {
        self.completed.items.iter()
    }

    /// What has been decided.
    pub fn key_decisions(&self) -> impl Iterator<Item = &Item> {
        self.decisions.items.iter()
    }

    /// What has failed.
    pub fn failed_attempts(&self) -> impl Iterator<Item = &Item> {
        self.failed.items.iter()
    }

    /// What is left to do: calls whose end is not known, and calls that were never begun.
    pub fn todo_items(&self) -> Vec<Item> {
        self.open_calls()
            .map(|(call, source)| match call.started {
                Some(_) => {
                    let name = known_tool(&call.tool);
                    let text = format!(
                        "Find out what {name} ({}) did, before claiming anything",
                        call.call_id
                    );
                    item(ItemKind::Uncertain, text, source)
                }
                None => {
                    let text = format!("Plan {} ({}) again", known_tool(&call.tool), call.call_id);
                    item(ItemKind::Pending, text, source)
                }
            })
            .collect()
    }

    /// What is verified, and what is not.
    pub fn verification_status(&self) -> Vec<Item> {
        let uncertain = self.open_calls().filter(|(call, _)| call.started.is_some());
        let uncertain = uncertain.map(|(call, source)| {
            let text = format!("Not known how {} ({}) ended", known_tool(&call.tool), call.call_id);
            item(ItemKind::Uncertain, text, source)
        });
        self.verified.items.iter().cloned().chain(uncertain).collect()
    }

    fn open_calls(&self) -> impl Iterator<Item = (&CallState, Source)> {
        let open = self.calls.values().filter(|call| !call.ended);
        open.filter_map(|call| {
            let start = call.requested.as_ref().or(call.started.as_ref())?;
            let end = call.started.as_ref().unwrap_or(start);
            let source = Source {
                start_event_id: start.0.clone(),
                end_event_id: end.0.clone(),
                start_step: start.1,
                end_step: end.1,
            };
            Some((call, source))
        })
    }

    /// How many items have been dropped.
    pub fn dropped(&self) -> Dropped {
        Dropped {
            completed_work: self.completed.dropped,
            key_decisions: self.decisions.dropped,
            failed_attempts: self.failed.dropped,
            verification_status: self.verified.dropped,
        }
    }

    /// How many events it was made of.
    pub fn event_count(&self) -> u64 {
        self.events
    }

    /// From the first event to the last.
    pub fn source(&self) -> Option<&Source> {
        self.source.as_ref()
    }

    /// The memory as text for the model, at most `budget` characters.
    pub fn render(&self, budget: usize) -> String {
        render::render(self, budget)
    }
}

fn item(kind: ItemKind, text: String, source: Source) -> Item {
    Item { kind, text, source }
}

fn source(event: &Event) -> Source {
    Source {
        start_event_id: event.id.clone(),
        end_event_id: event.id.clone(),
        start_step: event.step,
        end_step: event.step,
    }
}

fn known(id: Text) -> Text {
    if id.is_empty() { "unknown".into() } else { id }
}

fn known_tool(name: &str) -> &str {
    if name.is_empty() { "unknown" } else { name }
}
