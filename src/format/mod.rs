//! Formats: what the lines of a session mean.
//!
//! The engine keeps lines as bytes. A [`Format`] tells whether a line is one of its records and
//! what the record is; it never changes a byte. A line may hold no run, no time and no session of
//! its own, a file may hold lines of several sessions, and a record may be of a type that the
//! format does not know.

mod json;
mod transcript;

use std::borrow::Cow;

use crate::entry::{Entry, Kind};

pub use transcript::Transcript;

/// Why bytes are not a record. The numbers are stored with the bytes; they are never given out
/// anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Damage {
    /// Not JSON.
    BadJson = 1,
    /// Not UTF-8.
    InvalidUtf8 = 2,
    /// JSON, but not an object.
    NotAnObject = 3,
    /// An object without the fields that the format requires.
    SchemaMismatch = 4,
    /// The last line, cut off in the middle of a record.
    TornTail = 5,
}

impl Damage {
    /// The name in reports and in `--json` output.
    ///
    /// ```
    /// assert_eq!(eventlog::format::Damage::BadJson.name(), "bad_json");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Damage::BadJson => "bad_json",
            Damage::InvalidUtf8 => "invalid_utf8",
            Damage::NotAnObject => "not_an_object",
            Damage::SchemaMismatch => "schema_mismatch",
            Damage::TornTail => "torn_tail",
        }
    }

    /// The reason in [`StoredEntry::detail`](crate::StoredEntry::detail) of a damaged entry.
    pub fn from_code(code: u8) -> Option<Damage> {
        use Damage::{BadJson, InvalidUtf8, NotAnObject, SchemaMismatch, TornTail};
        let all = [BadJson, InvalidUtf8, NotAnObject, SchemaMismatch, TornTail];
        all.into_iter().find(|damage| *damage as u8 == code)
    }
}

/// What a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record<'l> {
    /// The kind of entry; [`Kind::Other`] for a type that the format does not know.
    pub kind: Kind,
    /// The session that the line says it belongs to.
    pub session: Option<Cow<'l, str>>,
    /// The run that it belongs to.
    pub run: Option<Cow<'l, str>>,
    /// Whether it is a user's turn: a message of the user, not one put in on the user's behalf.
    pub user_turn: bool,
}

/// The longest name of a run that is taken over from a line; a longer one is left in the line.
const RUN_BYTES_MAX: usize = 512;

impl<'l> Record<'l> {
    /// The entry for the line that this is the meaning of.
    ///
    /// ```
    /// use eventlog::format::{Format, Transcript};
    ///
    /// let line = br#"{"event_id":"e","timestamp":"t","session_id":"s","run_id":"r","step":0,"event_type":"message"}"#;
    /// let entry = Transcript.classify(line).unwrap().into_entry(line);
    /// assert_eq!((entry.kind(), entry.bytes()), (eventlog::Kind::Message, &line[..]));
    /// ```
    pub fn into_entry(self, line: &'l [u8]) -> Entry<'l> {
        let entry = Entry::new(self.kind, line).user_turn(self.user_turn);
        match self.run {
            Some(run) if run.len() <= RUN_BYTES_MAX => entry.run(run),
            _ => entry,
        }
    }
}

/// A format of session files.
pub trait Format: std::fmt::Debug + Send + Sync {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// What a line (without its line end) is.
    ///
    /// # Errors
    ///
    /// The reason why it is no record of this format.
    fn classify<'l>(&self, line: &'l [u8]) -> Result<Record<'l>, Damage>;

    /// When the record was made, as the line has it (RFC 3339).
    fn time<'l>(&self, line: &'l [u8]) -> Option<Cow<'l, str>>;

    /// The text of a message.
    fn text<'l>(&self, line: &'l [u8]) -> Option<Cow<'l, str>>;

    /// Why a run ended, in the word of its terminal record.
    fn reason<'l>(&self, line: &'l [u8]) -> Option<Cow<'l, str>>;
}

/// All formats, in the order in which they are tried.
///
/// ```
/// let names: Vec<_> = eventlog::format::all().iter().map(|f| f.name()).collect();
/// assert_eq!(names, ["transcript"]);
/// ```
pub fn all() -> &'static [&'static dyn Format] {
    &[&Transcript]
}

/// The format called `name`.
///
/// ```
/// assert!(eventlog::format::by_name("transcript").is_some());
/// ```
pub fn by_name(name: &str) -> Option<&'static dyn Format> {
    all().iter().copied().find(|format| format.name() == name)
}

/// The first format of which `line` is a record.
///
/// ```
/// assert!(eventlog::format::recognise(b"{}").is_none());
/// ```
pub fn recognise(line: &[u8]) -> Option<&'static dyn Format> {
    all().iter().copied().find(|format| format.classify(line).is_ok())
}
