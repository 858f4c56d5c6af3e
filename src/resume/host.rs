//! Handing what was resumed to the program that goes on with it.

use std::error::Error as StdError;

use jiff::Timestamp;
use serde::Serialize;

use super::{Message, Resumed};
use crate::error::{Error, ErrorKind, HostError, Result};
use crate::event::{Json, Text, utc};
use crate::memory::SessionMemory;

/// The roles that a host's history has.
const ROLES: [&str; 4] = ["user", "assistant", "tool", "summary"];

/// A checkpoint of the context, as a host has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ActiveCheckpoint {
    /// Its id.
    pub id: String,
    /// What stands for the messages that it replaces; empty by default.
    pub summary: String,
    /// How many messages there were; by default as many as the history has.
    pub source_message_count: i64,
    /// The first message that was kept, 0 by default. Negative ones are handed over as they are.
    pub retain_start_idx: i64,
    /// How many messages the summary stands for, 0 by default.
    pub messages_compacted: i64,
    /// When it was made; by default now.
    pub created_at: String,
    /// An object.
    pub metadata: Json,
}

impl ActiveCheckpoint {
    /// What a checkpoint's payload says; a number that is none counts as not given.
    fn of(payload: &Json, history: usize) -> ActiveCheckpoint {
        let text = |key: &str| payload.id_of(key).to_string();
        let number = |key: &str| payload.get(key).and_then(|value| whole(&value));
        let created_at = text("created_at");
        let now = || utc(Timestamp::now());
        ActiveCheckpoint {
            id: text("checkpoint_id"),
            summary: text("summary"),
            source_message_count: number("source_message_count")
                .unwrap_or_else(|| history.try_into().unwrap_or(i64::MAX)),
            retain_start_idx: number("retain_start_idx").unwrap_or_default(),
            messages_compacted: number("messages_compacted").unwrap_or_default(),
            created_at: if created_at.is_empty() { now() } else { created_at },
            metadata: payload.get("metadata").filter(Json::is_object).unwrap_or_else(Json::object),
        }
    }
}

/// A number without its fraction, also where it stands in a string.
fn whole(value: &Json) -> Option<i64> {
    let text = value.text();
    let text = text.as_deref().unwrap_or(value.as_str()).trim();
    text.parse().ok().or_else(|| {
        let number: f64 = text.parse().ok()?;
        (number.is_finite() && !value.as_str().starts_with('"')).then_some(number as i64)
    })
}

/// A program that runs an agent's loop and takes over a resumed session. What it has no place for
/// it leaves out: all but the history has a default that does nothing.
pub trait Host {
    /// Forget everything; called first, and again when something fails afterwards.
    ///
    /// # Errors
    ///
    /// Why it cannot.
    fn reset(&mut self) -> std::result::Result<(), HostError> {
        Ok(())
    }

    /// Take over the history: user, assistant, tool and summary messages.
    ///
    /// # Errors
    ///
    /// Why it cannot.
    fn load_history(&mut self, messages: &[&Message]) -> std::result::Result<(), HostError>;

    /// Take over the checkpoint that the context begins with.
    ///
    /// # Errors
    ///
    /// Why it cannot.
    fn set_active_checkpoint(
        &mut self,
        _checkpoint: Option<&ActiveCheckpoint>,
    ) -> std::result::Result<(), HostError> {
        Ok(())
    }

    /// Take over the read cache, an object.
    ///
    /// # Errors
    ///
    /// Why it cannot.
    fn restore_read_cache(&mut self, _cache: &Json) -> std::result::Result<(), HostError> {
        Ok(())
    }

    /// Take over the session memory.
    ///
    /// # Errors
    ///
    /// Why it cannot.
    fn restore_session_memory(
        &mut self,
        _memory: &SessionMemory,
    ) -> std::result::Result<(), HostError> {
        Ok(())
    }
}

/// What a host was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Applied {
    /// Messages of the history.
    pub history_loaded: u64,
    /// The roles of the messages that no host's history has, in order.
    pub history_dropped_roles: Vec<Text>,
    /// The checkpoint.
    pub active_checkpoint: Option<ActiveCheckpoint>,
    /// The read cache.
    pub read_cache: Option<Json>,
}

impl Resumed {
    /// Gives a host everything: reset, history, checkpoint, read cache, session memory.
    ///
    /// # Errors
    ///
    /// `Refused` with the step that the host failed in, and its error as the source. The host has
    /// then been reset once more; if that failed too, the message says that it holds a part.
    ///
    /// # Example
    ///
    /// ```
    /// use eventlog::resume::{Host, HostError, Message, ResumeOptions, resume};
    /// # use eventlog::{EventLog, format::Role, record::Recorder};
    ///
    /// #[derive(Default)]
    /// struct Agent {
    ///     history: Vec<Message>,
    /// }
    ///
    /// impl Host for Agent {
    ///     fn load_history(&mut self, messages: &[&Message]) -> Result<(), HostError> {
    ///         self.history = messages.iter().map(|message| (*message).clone()).collect();
    ///         Ok(())
    ///     }
    /// }
    ///
    /// # let dir = std::env::temp_dir().join(format!("eventlog-doc-host-{}", std::process::id()));
    /// # let log = EventLog::open(&dir)?;
    /// # Recorder::new(log.session("s")?, "run-1")?.message(0, Role::User, "hello")?;
    /// let mut agent = Agent::default();
    /// resume(&log.snapshot()?, "s", &ResumeOptions::default())?.apply_to(&mut agent)?;
    /// assert_eq!(agent.history.len(), 1);
    /// # log.close()?;
    /// # std::fs::remove_dir_all(dir).ok();
    /// # Ok::<(), eventlog::Error>(())
    /// ```
    pub fn apply_to(&self, host: &mut dyn Host) -> Result<Applied> {
        host.reset().map_err(|error| failed("be reset", error, None))?;
        self.hand_over(host).map_err(|(step, error)| failed(step, error, host.reset().err()))
    }

    fn hand_over(
        &self,
        host: &mut dyn Host,
    ) -> std::result::Result<Applied, (&'static str, HostError)> {
        let (mut history, mut dropped) = (Vec::new(), Vec::new());
        for message in &self.state.history_messages {
            let role = message.role.id();
            match ROLES.contains(&&*role) {
                true => history.push(message),
                false => dropped.push(role),
            }
        }
        let all = self.state.history_messages.len();
        let checkpoint = self.state.checkpoint.as_ref();
        let checkpoint = checkpoint.map(|payload| ActiveCheckpoint::of(payload, all));
        let cache = self.state.runtime_state.get("read_cache").filter(Json::is_object);
        host.load_history(&history).map_err(|error| ("load the history", error))?;
        host.set_active_checkpoint(checkpoint.as_ref())
            .map_err(|error| ("take over the checkpoint", error))?;
        if let Some(cache) = &cache {
            host.restore_read_cache(cache).map_err(|error| ("take over the read cache", error))?;
        }
        host.restore_session_memory(&self.memory)
            .map_err(|error| ("take over the session memory", error))?;
        Ok(Applied {
            history_loaded: history.len() as u64,
            history_dropped_roles: dropped,
            active_checkpoint: checkpoint,
            read_cache: cache,
        })
    }
}

fn failed(step: &str, error: HostError, reset: Option<HostError>) -> Error {
    let mut message = format!("the host could not {step}: {error}");
    let mut hint = "it has been reset and holds nothing of the session".to_owned();
    if let Some(reset) = reset {
        message.push_str(&format!("; nor could it be reset: {reset}"));
        "it may hold a part of the session: start it anew".clone_into(&mut hint);
    }
    Error::new(ErrorKind::Refused, message).with_hint(hint).with_source(Source(error))
}

/// A boxed error as one that has a size.
#[derive(Debug)]
struct Source(HostError);

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for Source {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source()
    }
}
