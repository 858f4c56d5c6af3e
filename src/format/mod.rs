//! Formats: what the lines of a session mean.
//!
//! The engine keeps lines as bytes. A [`Format`] tells whether a line is one of its records, and
//! which facts are in it; it never changes a byte. Nothing is assumed of a format but that its
//! records are JSON objects: a record may hold several facts or none, may have no id, no time and
//! no session of its own, a file may hold records of several sessions, and a record may be of a
//! type that the format does not know.

mod fact;
mod json;
mod plain;
pub mod recursive;
pub(crate) mod skip;
pub(crate) mod syntax;
mod transcript;
pub(crate) mod write;

use std::borrow::Cow;

use crate::entry::{Entry, Kind};
use crate::finding::Code;

pub use fact::{Content, Fact, Role, Usage, text};
pub use plain::Plain;
pub use recursive::Recursive;
pub use syntax::Notes;
pub use transcript::Transcript;

macro_rules! damages {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal, $code:ident;)*) => {
        /// Why bytes are not a record. The numbers are stored with the bytes; they are never given
        /// out anew.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Damage { $($(#[$doc])* $variant = $number,)* }

        impl Damage {
            /// The name in reports and in `--json` output.
            ///
            /// ```
            /// assert_eq!(eventlog::format::Damage::BadJson.name(), "bad_json");
            /// ```
            pub fn name(self) -> &'static str {
                match self { $(Damage::$variant => $name,)* }
            }

            /// The finding that reports it.
            pub fn code(self) -> Code {
                match self { $(Damage::$variant => Code::$code,)* }
            }

            /// The reason in [`StoredEntry::detail`](crate::StoredEntry::detail) of a damaged
            /// entry.
            pub fn from_code(code: u8) -> Option<Damage> {
                match code { $($number => Some(Damage::$variant),)* _ => None }
            }
        }
    };
}

damages! {
    /// Not JSON.
    BadJson = 1, "bad_json", BadJson;
    /// Not UTF-8.
    InvalidUtf8 = 2, "invalid_utf8", InvalidUtf8;
    /// JSON, but not an object.
    NotAnObject = 3, "not_an_object", NotAnObject;
    /// An object without the fields that the format requires.
    SchemaMismatch = 4, "schema_mismatch", SchemaMismatch;
    /// The last line, cut off in the middle of a record.
    TornTail = 5, "torn_tail", TornTail;
    /// What stands before a whole record on its line.
    TornPrefix = 6, "torn_prefix", TornPrefixWelded;
    /// NUL bytes, as a power failure can leave them.
    NulPadding = 7, "nul_padding", NulPadding;
    /// Values nested deeper than 1024.
    TooDeep = 8, "too_deep", TooDeep;
    /// A line longer than the log takes, or a part of one.
    OversizeLine = 9, "oversize_line", OversizeLine;
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
    /// What tells the record from all others.
    pub id: Option<Cow<'l, str>>,
    /// Its place in a numbering that the format keeps, which need not be unique: `msg_004` is 4.
    pub number: Option<u64>,
    /// The id of the record that it continues.
    pub parent: Option<Cow<'l, str>>,
    /// When it was made, as the line has it: RFC 3339 by the format's rules, anything in practice.
    pub time: Option<Cow<'l, str>>,
    /// The role of a message, as the line has it.
    pub role: Option<Cow<'l, str>>,
    /// The version of its schema, where that is newer than the ones known here.
    pub newer_schema: Option<u64>,
    /// What strict consumers would refuse in it.
    pub notes: Notes,
}

/// The longest name of a run that is taken over from a line; a longer one is left in the line.
const RUN_BYTES_MAX: usize = 512;

impl<'l> Record<'l> {
    pub(crate) fn new(kind: Kind, notes: Notes) -> Record<'l> {
        Record {
            kind,
            session: None,
            run: None,
            user_turn: false,
            id: None,
            number: None,
            parent: None,
            time: None,
            role: None,
            newer_schema: None,
            notes,
        }
    }

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
        let entry = Entry { is_record: true, ..entry };
        match self.run {
            Some(run) if run.len() <= RUN_BYTES_MAX => entry.run(run),
            _ => entry,
        }
    }
}

/// The raw value of a field of a line.
pub(crate) fn raw_field<'l>(line: &'l [u8], key: &str) -> Option<&'l str> {
    let ([found], _) = json::fields(line, [&[key]]).ok()?;
    found
}

/// The members of an object, in order, as they stand there; nothing of anything else.
pub(crate) fn json_members(raw: &str) -> Vec<(Cow<'_, str>, &str)> {
    json::members(raw)
}

/// Calls `each` with the members of an object, in order, as they stand there.
pub(crate) fn json_each_member<'l>(raw: &'l str, each: impl FnMut(&str, &'l str)) {
    json::each_member(raw, each);
}

/// [`json_each_member`], and in the same pass those of the object that is the member `inner`.
pub(crate) fn json_each_member_and<'l>(
    raw: &'l str,
    inner: &str,
    each: impl FnMut(&str, &'l str),
    each_inner: impl FnMut(&str, &'l str),
) {
    json::each_member_and(raw, inner, each, each_inner);
}

/// A scalar as the text that MyCodeAgent makes of it.
pub(crate) fn json_scalar_text(raw: &str) -> Option<Cow<'_, str>> {
    json::scalar_text(raw)
}

/// The value of a member of an object, as it stands there.
pub(crate) fn json_member<'l>(raw: &'l str, key: &str) -> Option<&'l str> {
    json::member(raw, key)
}

/// The elements of an array; nothing of anything else.
pub(crate) fn json_elements(raw: &str) -> Vec<&str> {
    skip::elements(raw)
}

/// The text of a string.
pub(crate) fn json_text(raw: &str) -> Option<Cow<'_, str>> {
    json::string(raw)
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

    /// The facts in a record, in the order in which they are to be read, each with the bytes that
    /// it comes from. Empty for a line that is no record.
    fn facts<'l>(&self, line: &'l [u8]) -> Vec<Fact<'l>>;

    /// Whether its records never name their session: where the file stands tells which it is.
    fn names_no_session(&self) -> bool {
        false
    }

    /// Whether a record shows that a file is of this format. One of a type that the format takes
    /// without knowing it need not.
    fn is_telling(&self, _: &Record<'_>) -> bool {
        true
    }

    /// Whether a line that is whole JSON, and no record, is something that another program wrote,
    /// and not a record of this format with something missing.
    fn is_foreign(&self, _: &[u8]) -> bool {
        false
    }

    /// The fields of a record whose values are text or numbers. An object that stands in the place
    /// of one is a later record, written on behind a cut-off one.
    fn scalar_fields(&self) -> &'static [&'static str];
}

/// The formats that are known.
///
/// ```
/// let names: Vec<_> = eventlog::format::all().iter().map(|f| f.name()).collect();
/// assert_eq!(names, ["transcript", "recursive"]);
/// ```
pub fn all() -> &'static [&'static dyn Format] {
    &[&Transcript, &Recursive]
}

/// The format called `name`.
///
/// ```
/// assert!(eventlog::format::by_name("transcript").is_some());
/// ```
pub fn by_name(name: &str) -> Option<&'static dyn Format> {
    all().iter().copied().find(|format| format.name() == name)
}
