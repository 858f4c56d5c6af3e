//! The memory of a session that is being recorded.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Deriver, Item, ItemKind, SessionMemory, kept, render};
use crate::entry::Seq;
use crate::error::{Error, ErrorKind, HostError, Result};
use crate::event::{Event, Text};
use crate::log::Session;
use crate::record::Recorder;

/// Says the same in better words: a model, for example. The derived memory stays as it is.
pub trait Refiner {
    /// Other words for an item; `None` to leave it as it is.
    ///
    /// # Errors
    ///
    /// Why there are none. Then nothing is changed.
    fn refine(&mut self, item: &Item) -> std::result::Result<Option<String>, HostError>;
}

/// Keeps the memory of a session in step with what is recorded.
///
/// ```
/// use eventlog::{EventLog, format::Role, memory::Manager, record::Recorder};
///
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-manager-{}", std::process::id()));
/// # let log = EventLog::open(&dir)?;
/// let recorder = Recorder::new(log.session("s")?, "run-1")?;
/// let manager = Manager::follow(&recorder)?;
/// recorder.message(0, Role::User, "fix it")?;
/// assert!(manager.lock().render(500).contains("fix it"));
/// manager.lock().keep()?; // the next start goes on from here
/// # log.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
#[derive(Debug)]
pub struct Manager {
    session: Session,
    deriver: Deriver,
    memory: SessionMemory,
    /// Everything before it is in the memory.
    next: Seq,
    /// What it was derived under; `None` where something is missing in it.
    context: Option<u64>,
    /// Other words, by what the item is about and where it comes from.
    refined: HashMap<(ItemKind, Text), String>,
}

/// From so many events on that were not in the kept memory, it is kept anew.
const MANY_EVENTS: u64 = 1000;

impl Manager {
    fn empty(session: Session) -> Manager {
        let (memory, refined) = (SessionMemory::default(), HashMap::new());
        let context = None;
        Manager { session, deriver: Deriver::default(), memory, next: 0, context, refined }
    }

    /// The memory of a session as it is now: the one that was kept, and what came later. A session
    /// without an event has an empty one.
    ///
    /// # Errors
    ///
    /// Those of [`of`](super::of).
    pub fn open(session: Session) -> Result<Manager> {
        let snapshot = session.snapshot()?;
        let there = snapshot.session(session.id())?;
        let format = there.as_ref().and_then(|info| info.attributes.format.as_deref());
        let mut manager = Manager::empty(session);
        manager.context = there.is_none().then(|| kept::context_of(&[]));
        if let (Some(info), Some(format)) = (&there, format.and_then(crate::format::by_name)) {
            let new;
            (manager.memory, new) = kept::loaded(&snapshot, info, format)?;
            manager.next = info.events;
            manager.context = Some(kept::context(info));
            if new >= MANY_EVENTS {
                // It can be derived again; that it could not be kept is no reason to stop.
                _ = kept::keep(&manager.session, info, info.events, &manager.memory);
            }
        }
        Ok(manager)
    }

    /// [`Manager::open`], and from then on every event of the recorder.
    ///
    /// # Errors
    ///
    /// Those of [`Manager::open`].
    pub fn follow(recorder: &Recorder) -> Result<Arc<Mutex<Manager>>> {
        let session = recorder.session().clone();
        let manager = Arc::new(Mutex::new(Manager::empty(session.clone())));
        // What is recorded meanwhile waits, and is then either read or told of.
        let mut opening = manager.lock();
        let listener = manager.clone();
        recorder.on_recorded(move |event| listener.lock().ingest_event(event));
        *opening = Manager::open(session)?;
        drop(opening);
        Ok(manager)
    }

    /// Takes an event in that has become durable; one that is in the memory already is passed over.
    /// What others have recorded in between is read. After a rewind open a new manager, or
    /// [`keep`](Manager::keep) this one.
    pub fn ingest_event(&mut self, event: &Event) {
        if event.seq < self.next {
            return;
        }
        if event.seq > self.next && self.catch_up(event.seq).is_err() {
            self.context = None;
        }
        self.next = event.seq + 1;
        self.deriver.update(&mut self.memory, event);
    }

    /// Takes the events before `to` in.
    fn catch_up(&mut self, to: Seq) -> Result<()> {
        let snapshot = self.session.snapshot()?;
        let (info, format) = crate::sessions::with_format(&snapshot, self.session.id())?;
        kept::derive(&snapshot, &info, format, self.next..to, &mut self.memory)
    }

    /// The memory.
    pub fn memory(&self) -> &SessionMemory {
        &self.memory
    }

    /// Keeps the memory in the log, for the next start. Writes everything durable to the store
    /// first. Where turns have been taken back since, the memory is derived anew.
    ///
    /// # Errors
    ///
    /// `Full`, `Io`: the memory is then derived from the events at the next start.
    pub fn keep(&mut self) -> Result<()> {
        self.session.checkpoint()?;
        let Some(info) = self.session.snapshot()?.session(self.session.id())? else {
            return Ok(());
        };
        if self.context != Some(kept::context(&info)) {
            // Turns have been taken back, or something is missing: what counts is derived again.
            let refined = std::mem::take(&mut self.refined);
            *self = Manager { refined, ..Manager::open(self.session.clone())? };
        }
        kept::keep(&self.session, &info, self.next, &self.memory).map(drop)
    }

    /// Has all items that are not refined yet refined. All are, or nothing is changed.
    ///
    /// # Errors
    ///
    /// `Refused` with the refiner's error as the source, also when it panics.
    pub fn refine(&mut self, refiner: &mut dyn Refiner) -> Result<()> {
        let items = self.memory.current_goal().into_iter();
        let items = items.chain(self.memory.completed_work()).chain(self.memory.key_decisions());
        let items = items.chain(self.memory.failed_attempts()).filter(|i| !self.is_refined(i));
        let mut refined = HashMap::new();
        for item in items {
            let words = catch_unwind(AssertUnwindSafe(|| refiner.refine(item)));
            match words.unwrap_or_else(|_| Err("the refiner panicked".into())) {
                Ok(None) => {}
                Ok(Some(words)) => _ = refined.insert(key(item), words),
                Err(error) => {
                    let message = format!("the session memory could not be refined: {error}");
                    return Err(
                        Error::new(ErrorKind::Refused, message).with_hint("it is as it was")
                    );
                }
            }
        }
        self.refined.extend(refined);
        // What was dropped needs no other words any more.
        let memory = &self.memory;
        let items = memory.completed_work().chain(memory.key_decisions());
        let items = items.chain(memory.failed_attempts()).chain(memory.current_goal());
        let keys: std::collections::HashSet<_> = items.map(key).collect();
        self.refined.retain(|known, _| keys.contains(known));
        Ok(())
    }

    fn is_refined(&self, item: &Item) -> bool {
        self.refined.contains_key(&key(item))
    }

    /// The memory as text for the model, in the refiner's words where there are some; at most `budget`
    /// characters.
    pub fn render(&self, budget: usize) -> String {
        render::render(&self.memory, budget, &|item| {
            self.refined.get(&key(item)).unwrap_or(&item.text).clone()
        })
    }
}

fn key(item: &Item) -> (ItemKind, Text) {
    (item.kind, item.source.end_event_id.clone())
}
