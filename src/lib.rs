//! A durable, crash-safe event log for AI-agent sessions.
//!
//! An agent host writes down every fact of a run as it happens; after a crash it gets all of them
//! back. Each fact is an [`Entry`]: a line of bytes with a [`Kind`]. Entries belong to sessions,
//! are numbered from 0 in each, and are never changed. One process writes a log, any number of
//! others read it meanwhile.
//!
//! ```
//! use eventlog::{Entry, EventLog, EventRange, Kind, Position};
//!
//! # let dir = std::env::temp_dir().join(format!("eventlog-doc-front-{}", std::process::id()));
//! let log = EventLog::open(&dir)?;
//!
//! // Append: when it returns, the event survives a kill, a crash of the system and a power failure.
//! let session = log.session("s-123")?;
//! session.append(Entry::new(Kind::Message, br#"{"role":"user","content":"hello"}"#).user_turn(true))?;
//!
//! // Hand over, and wait later, or `.await`: many events share one flush.
//! let ticket = session.submit(&[Entry::new(Kind::Checkpoint, b"{}"), Entry::new(Kind::Message, b"{}")])?;
//! ticket.wait()?;
//!
//! // Read: a range by number or by mark, forwards or backwards.
//! let since_checkpoint = EventRange::between(Position::LastCheckpoint, Position::End);
//! for event in log.read("s-123", since_checkpoint)? {
//!     let event = event?;
//!     println!("{} {}", event.seq(), event.kind());
//! }
//! log.close()?;
//! # std::fs::remove_dir_all(dir).ok();
//! # Ok::<(), eventlog::Error>(())
//! ```
//!
//! | to | use |
//! | --- | --- |
//! | open a log | [`EventLog::open`], [`EventLog::builder`], [`EventLog::open_read_only`] |
//! | append | [`Session::append`], [`Session::append_batch`], [`Session::append_expecting`], [`Session::submit`] |
//! | read | [`EventLog::read`], [`EventLog::snapshot`], [`EventLog::sessions`] |
//! | record a run, in lines that can be resumed and searched | [`record::Recorder`], [`record::Sinks`] |
//! | go on with one | [`resume`], [`memory`] |
//! | bring files in and out | [`jsonl::import`], [`jsonl::export`] |
//! | check | [`EventLog::verify`], [`EventLog::stats`] |
//!
//! # Durability
//!
//! With [`Sync::Always`], the default, an acknowledged event survives a process kill, a crash of
//! the operating system and a power failure, on a disk that honours flushes. With [`Sync::Os`] it
//! survives a process kill. A batch is in the log whole or not at all. Damaged bytes are detected,
//! never returned, and never repaired by guessing.
//!
//! # Errors
//!
//! [`Error`] has a [`kind`](Error::kind) to branch on, a hint for people, and the place of a
//! damage. After [`ErrorKind::Io`] from an append the log accepts nothing more
//! ([`ErrorKind::Poisoned`]) until it is opened again; reads go on.
//!
//! # Features
//!
//! * `cli` (default): the `eventlog` command. Without it the library has few dependencies.
//! * `watch` (with `cli`): [`io`] can wait for files to change.
//! * `sim`: [`io`] has a simulated disk, for tests that cut the power.

mod bytes;
mod entry;
mod error;
pub mod event;
mod finding;
pub mod format;
mod frame;
pub mod io;
mod journal;
pub mod jsonl;
mod locks;
mod log;
pub mod memory;
mod memtable;
mod parallel;
mod planted;
#[cfg(feature = "sim")]
#[doc(hidden)]
pub mod probe;
pub mod record;
pub mod resume;
pub mod search;
pub mod sessions;
mod steps;
mod store;

pub use entry::{Entry, Kind, Seq, StoredEntry, Terminator};
pub use error::{Error, ErrorKind, Owner, Place, Result};
pub use finding::{Code, Finding};
pub use log::{
    Builder, DroppedBatch, EventLog, EventRange, Events, Position, Problem, Recovery, Session,
    SessionInfo, Snapshot, Stats, Sync, Ticket, VerifyReport,
};
pub use memtable::{Attributes, Fork, Rewind};
pub use store::panics_are_caught;

/// The library example of the README is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
