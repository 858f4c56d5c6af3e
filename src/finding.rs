//! What is worth knowing about a session beside its events: damage, disorder, surprises.
//!
//! A finding never changes anything: it says what was found and where. [`Code`] has them all.

use std::fmt;

use crate::entry::Seq;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// What was found. The names are those of `--json` output.
        ///
        /// ```
        /// assert_eq!(eventlog::Code::TornTail.name(), "torn_tail");
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Code { $($(#[$doc])* $variant,)* }

        impl Code {
            /// The name in reports and in `--json` output.
            pub fn name(self) -> &'static str {
                match self { $(Code::$variant => $name,)* }
            }
        }
    };
}

codes! {
    /// The last line was cut off in the middle of a record.
    TornTail = "torn_tail",
    /// A record stands on the line of one that was cut off.
    TornPrefixWelded = "torn_prefix_welded",
    /// Several whole records stand on one line.
    WeldedRecords = "welded_records",
    /// A record that was cut off was written again behind it.
    RetryDuplicate = "retry_duplicate",
    /// The last line is a whole record without a line end.
    MissingFinalNewline = "missing_final_newline",
    /// A run of NUL bytes.
    NulPadding = "nul_padding",
    /// Bytes that are not JSON.
    BadJson = "bad_json",
    /// Bytes that are not UTF-8.
    InvalidUtf8 = "invalid_utf8",
    /// JSON that is not an object.
    NotAnObject = "not_an_object",
    /// An object without the fields that the format requires.
    SchemaMismatch = "schema_mismatch",
    /// Values are nested too deep.
    TooDeep = "too_deep",
    /// A line is longer than the log takes.
    OversizeLine = "oversize_line",
    /// The file begins with a byte-order mark.
    Utf8Bom = "utf8_bom",
    /// Lines end in CRLF.
    Crlf = "crlf",
    /// Lines are blank.
    BlankLine = "blank_line",
    /// A string has half a surrogate pair.
    LoneSurrogate = "lone_surrogate",
    /// A string has a NUL.
    NulInString = "nul_in_string",
    /// A key stands twice in one object.
    DuplicateKey = "duplicate_key",
    /// The same record stands there twice.
    DuplicateIdSame = "duplicate_id_same",
    /// Different records have the same id.
    DuplicateIdConflict = "duplicate_id_conflict",
    /// A record is older than one before it.
    TimestampRegression = "timestamp_regression",
    /// A number in the numbering of the records is missing.
    SeqGap = "seq_gap",
    /// A number in the numbering of the records stands twice.
    SeqDuplicate = "seq_duplicate",
    /// A record is of a type that is not known.
    UnknownType = "unknown_type",
    /// A message is of a role that is not known.
    UnknownRole = "unknown_role",
    /// A record is of a newer schema.
    NewerSchema = "newer_schema",
    /// A record names a parent that is not there.
    DanglingParent = "dangling_parent",
    /// Several records continue the same one.
    ConcurrentBranches = "concurrent_branches",
    /// More than one record has no parent.
    MultipleRoots = "multiple_roots",
    /// A call without an answer.
    OrphanCall = "orphan_call",
    /// An answer to no call.
    OrphanResult = "orphan_result",
    /// A call with several answers.
    DuplicateResult = "duplicate_result",
    /// Several calls with one id.
    ReusedCallId = "reused_call_id",
    /// A call without an id.
    EmptyCallId = "empty_call_id",
    /// An answer that stands before its call.
    ResultBeforeCall = "result_before_call",
    /// Answers that are not in the order of their calls, or not behind them.
    ResultsOutOfCallOrder = "results_out_of_call_order",
    /// An answer whose link does not name the message with the call.
    WrongSourceLink = "wrong_source_link",
    /// The answer was not recorded, the end of the call was.
    ResultRecoveredFromLifecycle = "result_recovered_from_lifecycle",
    /// A call that waits for approval.
    PendingCall = "pending_call",
    /// A call that ended in one way and then in another.
    StatusConflict = "status_conflict",
    /// A message without text.
    EmptyContent = "empty_content",
    /// A compaction without its summary is not in force.
    CompactionMissingSummary = "compaction_missing_summary",
    /// A compaction that cuts an answer from its call.
    CompactionSplitsPair = "compaction_splits_pair",
    /// A record belongs to another session.
    ForeignSession = "foreign_session",
    /// The file beside the transcript that describes it cannot be read.
    MetaUnreadable = "meta_unreadable",
    /// The file beside the transcript says something else than the transcript.
    MetaStale = "meta_stale",
    /// The directory that the session worked in is not there.
    CwdMissing = "cwd_missing",
    /// A lock file of a process that is gone.
    LockStale = "lock_stale",
    /// A lock file of a process that is running.
    LockHeld = "lock_held",
    /// The session's id cannot be a file name as it is.
    UnsafeSessionId = "unsafe_session_id",
    /// Others than the owner may read the file.
    PermTooOpen = "perm_too_open",
    /// The session holds the torn end that the file had before; the file has lost it since.
    TornTailReplaced = "torn_tail_replaced",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What.
    pub code: Code,
    /// The event that it is about.
    pub seq: Option<Seq>,
    /// The line in the file, from 1.
    pub line: Option<u64>,
    /// Where in the file, in bytes.
    pub offset: Option<u64>,
    /// How many bytes.
    pub length: Option<u64>,
    /// What it means, in a sentence for people.
    pub message: String,
}

impl Finding {
    /// A finding about the whole.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Finding {
        let message = message.into();
        Finding { code, seq: None, line: None, offset: None, length: None, message }
    }
}
