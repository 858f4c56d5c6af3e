//! JSONL of an unknown format: every object is a record, and nothing is known of it.

use super::syntax::Notes;
use super::{Damage, Fact, Format, Record, json};
use crate::entry::Kind;

/// Lines that are objects, whatever is in them: what a file is taken for that is of no known
/// format.
///
/// It is none of [`all`](super::all): it would recognise everything.
///
/// ```
/// use eventlog::format::{Damage, Format, Plain};
///
/// assert!(Plain.classify(br#"{"any": 1}"#).is_ok());
/// assert_eq!(Plain.classify(b"[1]").unwrap_err(), Damage::NotAnObject);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Plain;

impl Format for Plain {
    fn name(&self) -> &'static str {
        "unknown"
    }

    fn classify<'l>(&self, line: &'l [u8]) -> Result<Record<'l>, Damage> {
        let ([], notes): ([Option<&str>; 0], Notes) = json::fields(line, [])?;
        Ok(Record::new(Kind::Other, notes))
    }

    fn facts<'l>(&self, _: &'l [u8]) -> Vec<Fact<'l>> {
        Vec::new()
    }

    fn names_no_session(&self) -> bool {
        true
    }

    fn is_telling(&self, _: &Record<'_>) -> bool {
        false
    }

    /// A line that is JSON, and no object, is as healthy as any other.
    fn is_foreign(&self, _: &[u8]) -> bool {
        true
    }

    fn scalar_fields(&self) -> &'static [&'static str] {
        &[]
    }
}
