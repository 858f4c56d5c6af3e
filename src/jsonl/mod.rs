//! JSONL files in and out.
//!
//! * `lines`, `scan`: a file as a row of spans: records, separators, damage; every byte is in one.
//! * `report`, `lineage`: the account of a file, and what is odd about its records.
//! * `import`: a file into a session; repeating it adds nothing, and nothing is ever shortened.
//! * `export`: a session as the bytes it came from.

mod beside;
mod discover;
mod export;
mod file_events;
mod import;
pub mod layout;
mod legacy;
mod lineage;
mod lines;
mod report;
mod scan;

pub use beside::Beside;
pub use discover::{Discovery, Found, discover};
pub use export::{Exported, export};
pub use import::{ImportOptions, examine, examine_bytes, import, import_bytes};
pub use report::{FileReport, Outcome, Quarantined};
