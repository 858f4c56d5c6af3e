//! JSONL files in and out.
//!
//! * `scan`: a file as a row of spans: records, separators, damage; every byte is in one.
//! * `import`: a file into a session; repeating it adds nothing, and nothing is ever shortened.
//! * `export`: a session as the bytes it came from.

mod export;
mod import;
mod scan;

pub use export::{Exported, export};
pub use import::{FileReport, ImportOptions, Outcome, Quarantined, examine, import};
