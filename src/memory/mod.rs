//! The session memory: what has been done, decided, tried and left open, in a bounded form that is
//! fed forward to the model.
//!
//! It is derived from the events, one by one, and gives the same as a rebuild from all of them. Of
//! each group the newest items are kept, and the number of those that were dropped. Every item
//! names the events that it comes from.
//!
//! * [`SessionMemory`] has the items; `item` what they are, `calls` the open calls.
//! * [`Deriver`] makes it: all at once, or event by event.
//! * [`Manager`] keeps it in step with a session that is recorded, and keeps it in the log, so that
//!   the next start reads only what came later; `kept` is that form.
//! * `render`: the text for the model.

mod calls;
mod item;
mod kept;
mod manager;
mod render;

use bincode::{Decode, Encode};

use crate::entry::Kind;
use crate::event::{Event, Reading, Text};

use calls::Calls;
use item::Group;

pub use crate::error::HostError;
pub use item::{Dropped, Item, ItemKind, Source};
pub use kept::{kept_up_to, of, verify};
pub use manager::{Manager, Refiner};

/// Makes a session memory of events.
///
/// ```
/// use eventlog::memory::{Deriver, SessionMemory};
/// use eventlog::{EventLog, event::Event, format::{Role, Transcript}, record::Recorder};
///
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-memory-{}", std::process::id()));
/// # let log = EventLog::open(&dir)?;
/// # Recorder::new(log.session("s")?, "run-1")?.message(0, Role::User, "fix it")?;
/// let deriver = Deriver::default();
/// let mut memory = SessionMemory::default();
/// for entry in log.read("s", ..)? {
///     if let Some(event) = Event::from_entry(&Transcript, &entry?) {
///         deriver.update(&mut memory, &event);
///     }
/// }
/// assert!(memory.render(500).contains("fix it"));
/// # log.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deriver {
    limit: usize,
    reading: Reading,
}

/// How many items of each group are kept unless said otherwise.
const ITEMS_MAX: usize = 200;
/// How much of a final answer is kept, in characters.
const FINAL_CHARS: usize = 200;
/// How much of a goal, except in the original's reading.
const GOAL_CHARS: usize = 32_000;
/// How much of an id, a name or a reason.
const NAME_CHARS: usize = 200;

impl Default for Deriver {
    fn default() -> Deriver {
        Deriver::new(ITEMS_MAX)
    }
}

/// The memory of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct SessionMemory {
    goal: Option<Item>,
    completed: Group,
    decisions: Group,
    failed: Group,
    verified: Group,
    calls: Calls,
    events: u64,
    source: Option<Source>,
}

impl Deriver {
    /// Keeps at most `limit` items of each group.
    pub fn new(limit: usize) -> Deriver {
        Deriver { limit: limit.max(1), reading: Reading::Default }
    }

    /// Reads the facts of calls as MyCodeAgent does: a call whose id has ended once is never open
    /// again. Such a memory remembers every id, and goals of any length.
    pub fn reading(self, reading: Reading) -> Deriver {
        Deriver { reading, ..self }
    }

    /// The memory after `events`.
    pub fn rebuild<'e>(&self, events: impl IntoIterator<Item = &'e Event>) -> SessionMemory {
        let mut memory = SessionMemory::default();
        events.into_iter().for_each(|event| self.update(&mut memory, event));
        memory
    }

    /// Takes the next event in. What that costs does not depend on how many came before.
    pub fn update(&self, memory: &mut SessionMemory, event: &Event) {
        memory.events += 1;
        match &mut memory.source {
            Some(source) => (source.end_event_id, source.end_step) = (event.id.clone(), event.step),
            None => memory.source = Some(Source::of(event)),
        }
        match event.kind {
            Kind::Message => self.message(memory, event),
            Kind::StateTransition => self.transition(memory, event),
            Kind::ToolLifecycle => self.lifecycle(memory, event),
            Kind::Checkpoint => {
                let text =
                    format!("Checkpoint {} was recorded", known(&event.field("checkpoint_id")));
                memory.decisions.push(ItemKind::Checkpoint, text, event, self.limit);
            }
            Kind::Terminal => {
                let reason = event.field("reason");
                if !reason.is_empty() {
                    let text = format!("A run ended: {}", known(&reason));
                    memory.verified.push(ItemKind::Terminal, text, event, self.limit);
                }
            }
            _ => {}
        }
    }

    fn message(&self, memory: &mut SessionMemory, event: &Event) {
        let said = event.said();
        if self.reading == Reading::Default {
            memory.calls.message(event);
        }
        let of = |key| said.metadata.id_of(key);
        match &*said.by {
            "user" if of("source") != "completion_gate" => {
                let text = said.text();
                let trimmed = crate::format::syntax::trim(text.as_bytes());
                let text = String::from_utf8_lossy(trimmed);
                let text = match self.reading {
                    Reading::Default => beginning(&text, GOAL_CHARS),
                    Reading::Original => text.into_owned(),
                };
                let source = Source::of(event);
                memory.goal = Some(Item { kind: ItemKind::Goal, text, source });
            }
            "assistant" if matches!(&*of("action_type"), "final" | "final_unverified") => {
                let text = said.text();
                if !crate::format::syntax::trim(text.as_bytes()).is_empty() {
                    let text = format!("Answered: {}", beginning(&text, FINAL_CHARS));
                    memory.completed.push(ItemKind::Final, text, event, self.limit);
                }
            }
            _ => {}
        }
    }

    fn transition(&self, memory: &mut SessionMemory, event: &Event) {
        match &*event.field("reason") {
            "context_compacted" => {
                let details = event.payload.get("details");
                let id = details.map(|details| details.id_of("checkpoint_id")).unwrap_or_default();
                let text = format!("The context was compacted at checkpoint {}", known(&id));
                memory.decisions.push(ItemKind::Compacted, text, event, self.limit);
            }
            "model_recovery_failed" => {
                let text = "The model could not be brought back".to_owned();
                memory.failed.push(ItemKind::RecoveryFailed, text, event, self.limit);
            }
            "stop_hook_blocking" => {
                let text = "A final answer was held back until it is verified".to_owned();
                memory.verified.push(ItemKind::GateBlocked, text, event, self.limit);
            }
            _ => {}
        }
    }

    fn lifecycle(&self, memory: &mut SessionMemory, event: &Event) {
        let fact = event.tool();
        let name = tool_name(&fact.tool);
        let call = beginning(&fact.call_id, NAME_CHARS);
        match &*fact.status {
            "completed" => {
                let text = format!("{name} was done ({call})");
                memory.completed.push(ItemKind::ToolCompleted, text, event, self.limit);
            }
            "failed" => {
                let text = format!("{name} failed ({call})");
                memory.failed.push(ItemKind::ToolFailed, text, event, self.limit);
            }
            _ => {}
        }
        memory.calls.add(event, self.limit, self.reading);
    }
}

impl SessionMemory {
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
        self.calls.todo().collect()
    }

    /// What is verified, and what is not.
    pub fn verification_status(&self) -> Vec<Item> {
        self.verified.items.iter().cloned().chain(self.calls.unverified()).collect()
    }

    /// How many items have been dropped.
    pub fn dropped(&self) -> Dropped {
        Dropped {
            completed_work: self.completed.dropped,
            key_decisions: self.decisions.dropped,
            failed_attempts: self.failed.dropped,
            todo_items: self.calls.dropped,
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

    /// The memory as text for the model, at most `budget` characters, each item on a line of its own.
    pub fn render(&self, budget: usize) -> String {
        render::render(self, budget, &|item| item.text.clone())
    }
}

fn beginning(text: &str, chars: usize) -> String {
    text.chars().take(chars).collect()
}

fn known(id: &Text) -> String {
    if id.is_empty() { "unknown".to_owned() } else { beginning(id, NAME_CHARS) }
}

fn tool_name(name: &Text) -> String {
    known(name)
}
