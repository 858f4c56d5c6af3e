//! A durable, crash-safe event log for AI-agent sessions.

mod entry;
mod error;
pub mod format;
mod frame;
pub mod io;
mod journal;
pub mod jsonl;
mod log;
mod memtable;
mod store;

pub use entry::{Entry, Kind, Seq, StoredEntry, Terminator};
pub use error::{Error, ErrorKind, Owner, Place, Result};
pub use log::{
    Builder, DroppedBatch, EventLog, EventRange, Events, Position, Problem, Recovery, Session,
    SessionInfo, Snapshot, Stats, Sync, Ticket, VerifyReport,
};
pub use memtable::Attributes;
