//! JSONL files in and out.
//!
//! * `recognise`: what format a file is of.
//! * `lines`, `scan`: a file as a row of spans: records, separators, damage; every byte is in one.
//! * `report`, `lineage`: the account of a file, and what is odd about its records.
//! * `import`: a file into a session; repeating it adds nothing, and nothing is ever shortened.
//! * `discover`, `beside`, `legacy`: which files are sessions, what stands beside them, and the
//!   former one-file formats.
//! * `export`, `convert`, `layout`: a session as the bytes it came from, or in another format;
//!   where the files of an export stand.
//! * `repair`, `listing`: files and directories by themselves, without a log.
//! * `follow`, `mirror`: files that are being written, in and out.
//! * `migrate`: recursive-agent's former layout.
//! * `verify`: imported lines against what the log says of them.

mod beside;
mod convert;
mod discover;
mod export;
mod file_events;
mod follow;
mod import;
pub mod layout;
mod legacy;
mod lineage;
mod lines;
mod listing;
mod migrate;
mod mirror;
mod recognise;
mod repair;
mod report;
mod scan;
mod stamp;
mod verify;

pub use beside::Beside;
pub use discover::{Discovery, Found, discover, is_candidate};
pub use export::{ExportOptions, Exported, export, export_as, export_into, write_file};
pub use file_events::is_torn_end;
pub use follow::Follower;
pub use import::{ImportOptions, examine, examine_bytes, import, import_bytes};
pub use listing::{Listed, Listing, list_recursive, list_transcripts};
pub use migrate::{Migration, migrate};
pub use mirror::{Mirror, Synced};
pub use recognise::recognise_bytes;
pub use repair::{Part, TailRepair, repair, repair_tail};
pub use report::{FileReport, Outcome, Quarantined};
pub use scan::{Span, What, scan};
pub use verify::verify;
