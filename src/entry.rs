//! What the engine stores: entries. It knows their kind and their bytes, and no JSON.
//!
//! An [`Entry`] is what a caller appends, a [`StoredEntry`] what a read returns. The bytes of an
//! entry are one line of a JSONL file without its line end, so that a file that came in goes out
//! byte for byte by writing bytes and terminator of each entry in order.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::bytes::within;

/// The number of an event in its session; the first one is 0, and there are no gaps.
pub type Seq = u64;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum Kind {
    /// A message of the conversation.
    Message = 0,
    /// A change of the agent loop's state.
    StateTransition = 1,
    /// A step in the life of a tool call: requested, started, completed, failed.
    ToolLifecycle = 2,
    /// A point from which the context can be rebuilt.
    Checkpoint = 3,
    /// The end of a run.
    Terminal = 4,
    /// A record of a type that the format does not know: kept, and passed over.
    Other = 5,
    /// Bytes that are no whole record: kept, never interpreted. [`StoredEntry::detail`] is the
    /// reason.
    Damaged = 6,
    /// A line without content, or a byte-order mark.
    Blank = 7,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Kind; 8] = [
        Kind::Message,
        Kind::StateTransition,
        Kind::ToolLifecycle,
        Kind::Checkpoint,
        Kind::Terminal,
        Kind::Other,
        Kind::Damaged,
        Kind::Blank,
    ];

    pub(crate) fn from_byte(byte: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(byte)).copied()
    }

    /// The name in `--json` output.
    ///
    /// ```
    /// assert_eq!(eventlog::Kind::ToolLifecycle.name(), "tool_lifecycle");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Kind::Message => "message",
            Kind::StateTransition => "state_transition",
            Kind::ToolLifecycle => "tool_lifecycle",
            Kind::Checkpoint => "checkpoint",
            Kind::Terminal => "terminal",
            Kind::Other => "other",
            Kind::Damaged => "damaged",
            Kind::Blank => "blank",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What stands behind an entry's bytes in a JSONL file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Terminator {
    /// Nothing: the end of the file, or bytes that were set apart from the rest of their line.
    None = 0,
    /// `\n`.
    #[default]
    Lf = 1,
    /// `\r\n`.
    CrLf = 2,
}

impl Terminator {
    pub(crate) fn from_byte(byte: u8) -> Option<Terminator> {
        match byte {
            0 => Some(Terminator::None),
            1 => Some(Terminator::Lf),
            2 => Some(Terminator::CrLf),
            _ => None,
        }
    }

    /// The bytes.
    ///
    /// ```
    /// assert_eq!(eventlog::Terminator::CrLf.as_bytes(), b"\r\n");
    /// ```
    pub fn as_bytes(self) -> &'static [u8] {
        match self {
            Terminator::None => b"",
            Terminator::Lf => b"\n",
            Terminator::CrLf => b"\r\n",
        }
    }
}

/// Facts about an entry that the index is built from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(pub(crate) u8);

impl Flags {
    pub(crate) const USER_TURN: Flags = Flags(1);
    pub(crate) const RUN_START: Flags = Flags(2);
    pub(crate) const REPLACES_TAIL: Flags = Flags(4);
    pub(crate) const IMPORTED: Flags = Flags(8);
    pub(crate) const RECORD: Flags = Flags(16);

    pub(crate) fn has(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// An entry to append.
///
/// ```
/// use eventlog::{Entry, Kind};
///
/// let entry = Entry::new(Kind::Message, br#"{"role":"user","content":"hello"}"#)
///     .user_turn(true)
///     .run("run-1");
/// assert_eq!(entry.kind(), Kind::Message);
/// ```
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    pub(crate) kind: Kind,
    pub(crate) terminator: Terminator,
    pub(crate) user_turn: bool,
    pub(crate) replaces_tail: bool,
    /// It is a line of a file, read as its format says.
    pub(crate) imported: bool,
    /// Its format has found it to be one of its records.
    pub(crate) is_record: bool,
    pub(crate) detail: u8,
    pub(crate) run: Option<Cow<'a, str>>,
    pub(crate) bytes: Cow<'a, [u8]>,
}

impl<'a> Entry<'a> {
    /// An entry with a line's bytes, without its line end; the terminator is `\n`.
    pub fn new(kind: Kind, bytes: impl Into<Cow<'a, [u8]>>) -> Entry<'a> {
        Entry {
            kind,
            terminator: Terminator::Lf,
            user_turn: false,
            replaces_tail: false,
            imported: false,
            is_record: false,
            detail: 0,
            run: None,
            bytes: bytes.into(),
        }
    }

    /// Sets what stands behind the bytes in a file.
    pub fn terminator(mut self, terminator: Terminator) -> Entry<'a> {
        self.terminator = terminator;
        self
    }

    /// Says that this is a user's turn, to be found by
    /// [`Position::UserTurn`](crate::Position::UserTurn).
    pub fn user_turn(mut self, yes: bool) -> Entry<'a> {
        self.user_turn = yes;
        self
    }

    /// Says which run the entry belongs to. Where it is not the run of the entry before, a new run
    /// begins, to be found by [`Position::Run`](crate::Position::Run). At most 512 bytes.
    pub fn run(mut self, name: impl Into<Cow<'a, str>>) -> Entry<'a> {
        self.run = Some(name.into());
        self
    }

    /// Says that the file has lost the torn end that the damaged events directly before this one
    /// hold, and goes on with this instead: the line was written to its end, or cut off and written
    /// over.
    pub fn replaces_tail(mut self, yes: bool) -> Entry<'a> {
        self.replaces_tail = yes;
        self
    }

    /// A code of the layer above, 0 if it has none: the reason for a damaged entry.
    pub fn detail(mut self, code: u8) -> Entry<'a> {
        self.detail = code;
        self
    }

    pub(crate) fn flags(&self) -> Flags {
        let flags = [
            (self.user_turn, Flags::USER_TURN),
            (self.replaces_tail, Flags::REPLACES_TAIL),
            (self.imported, Flags::IMPORTED),
            (self.is_record, Flags::RECORD),
        ];
        let set = flags.into_iter().filter(|(set, _)| *set);
        set.fold(Flags::default(), |all, (_, flag)| all.with(flag))
    }

    /// The entry with bytes of its own.
    ///
    /// ```
    /// use eventlog::{Entry, Kind};
    ///
    /// let line = String::from("{}");
    /// let entry: Entry<'static> = Entry::new(Kind::Message, line.as_bytes()).into_owned();
    /// assert_eq!(entry.bytes(), b"{}");
    /// ```
    pub fn into_owned(self) -> Entry<'static> {
        let run = self.run.map(|run| run.into_owned().into());
        Entry { run, bytes: self.bytes.into_owned().into(), ..self }
    }

    /// What the entry is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The line's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Bytes inside a shared buffer.
#[derive(Clone)]
pub(crate) struct SharedBytes {
    buffer: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl SharedBytes {
    pub(crate) fn new(buffer: Arc<Vec<u8>>, range: Range<usize>) -> SharedBytes {
        SharedBytes { buffer, range }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        within(&**self.buffer, self.range.clone())
    }
}

/// An entry as it was read. Cheap to clone: the bytes are shared with the block they stand in.
#[derive(Clone)]
pub struct StoredEntry {
    pub(crate) seq: Seq,
    pub(crate) kind: Kind,
    pub(crate) terminator: Terminator,
    pub(crate) flags: Flags,
    pub(crate) detail: u8,
    pub(crate) bytes: SharedBytes,
}

impl StoredEntry {
    /// Its number in the session.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What stands behind the bytes in a file.
    pub fn terminator(&self) -> Terminator {
        self.terminator
    }

    /// Whether it is a user's turn.
    pub fn is_user_turn(&self) -> bool {
        self.flags.has(Flags::USER_TURN)
    }

    /// Whether a run begins with it.
    pub fn starts_run(&self) -> bool {
        self.flags.has(Flags::RUN_START)
    }

    /// Whether it stands in the place of the torn end before it; see [`Entry::replaces_tail`].
    pub fn replaces_tail(&self) -> bool {
        self.flags.has(Flags::REPLACES_TAIL)
    }

    /// Whether an import has read it from a file.
    pub(crate) fn is_imported(&self) -> bool {
        self.flags.has(Flags::IMPORTED)
    }

    /// Whether its format found it to be a record when it was appended. Logs of earlier builds do not
    /// say so of any.
    pub(crate) fn is_record(&self) -> bool {
        self.flags.has(Flags::RECORD)
    }

    /// The code that the layer above gave it.
    pub fn detail(&self) -> u8 {
        self.detail
    }

    /// The line, without its line end.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_slice()
    }

    /// Bytes of the line with its line end.
    pub(crate) fn line_len(&self) -> u64 {
        (self.bytes().len() + self.terminator.as_bytes().len()) as u64
    }
}

impl fmt::Debug for StoredEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredEntry")
            .field("seq", &self.seq)
            .field("kind", &self.kind)
            .field("terminator", &self.terminator)
            .field("bytes", &String::from_utf8_lossy(self.bytes()))
            .finish_non_exhaustive()
    }
}
