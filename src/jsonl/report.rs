//! What an import found: the account of a file's bytes, and the findings.

use std::collections::BTreeMap;

use crate::entry::{Kind, StoredEntry, Terminator};
use crate::finding::{Code, Finding};
use crate::format::Damage;
use crate::format::recursive::{Derived, Meta};

use super::lineage::Lineage;
use super::lines::is_bom;
use super::scan::{Span, What};

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// A new session.
    Imported,
    /// The session holds all of it already.
    Unchanged,
    /// The session got what the file has more.
    Grown,
    /// The session holds something else, or more; nothing was changed.
    Conflict,
    /// The file is not lines of JSON, or it is damaged and `strict` was asked for; nothing was changed.
    Refused,
}

impl Outcome {
    /// The name in `--json` output.
    ///
    /// ```
    /// assert_eq!(eventlog::jsonl::Outcome::Grown.name(), "grown");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Imported => "imported",
            Outcome::Unchanged => "unchanged",
            Outcome::Grown => "grown",
            Outcome::Conflict => "conflict",
            Outcome::Refused => "refused",
        }
    }
}

/// A span that is kept, and is no record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quarantined {
    /// The line, from 1.
    pub line: u64,
    /// Where the span begins in the file.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// What is wrong with it.
    pub reason: Damage,
    /// The first event that holds it.
    pub seq: u64,
}

/// What was found in a file, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileReport {
    /// What became of it.
    pub outcome: Outcome,
    /// The format's name; `unknown` for JSONL of no known format, `None` where it is not lines of JSON.
    pub format: Option<&'static str>,
    /// The session.
    pub session: Option<String>,
    /// The bytes that were counted: the file's size, less a torn end that is held back.
    pub bytes: u64,
    /// Records in it.
    pub records: u64,
    /// Records that were appended.
    pub new_records: u64,
    /// Bytes of all records.
    pub record_bytes: u64,
    /// Bytes of line ends, blank lines and a byte-order mark.
    pub separator_bytes: u64,
    /// Bytes of quarantined spans.
    pub quarantined_bytes: u64,
    /// How many spans are quarantined.
    pub quarantined_spans: u64,
    /// The quarantined spans; at most the first 10,000.
    pub quarantined: Vec<Quarantined>,
    /// Lines with nothing but white space.
    pub blank_lines: u64,
    /// Lines that end in `\r\n`.
    pub crlf_lines: u64,
    /// The file begins with a byte-order mark.
    pub bom: bool,
    /// The last line has no line end.
    pub unterminated: bool,
    /// What is worth knowing; of each code at most the first 1,000.
    pub findings: Vec<Finding>,
    /// How often each code was found.
    pub finding_counts: BTreeMap<Code, u64>,
    /// Why the outcome is a conflict or a refusal.
    pub message: Option<String>,
}

const QUARANTINED_MAX: usize = 10_000;
const FINDINGS_MAX: u64 = 1_000;

impl FileReport {
    pub(super) fn new(bytes: u64) -> FileReport {
        FileReport {
            outcome: Outcome::Refused,
            format: None,
            session: None,
            bytes,
            records: 0,
            new_records: 0,
            record_bytes: 0,
            separator_bytes: 0,
            quarantined_bytes: 0,
            quarantined_spans: 0,
            quarantined: Vec::new(),
            blank_lines: 0,
            crlf_lines: 0,
            bom: false,
            unterminated: false,
            findings: Vec::new(),
            finding_counts: BTreeMap::new(),
            message: None,
        }
    }

    pub(super) fn refused(mut self, why: &str) -> FileReport {
        self.outcome = Outcome::Refused;
        self.message = Some(why.to_owned());
        self
    }

    /// Adds a finding.
    pub(super) fn note(&mut self, finding: Finding) {
        let count = self.finding_counts.entry(finding.code).or_default();
        *count += 1;
        if *count <= FINDINGS_MAX {
            self.findings.push(finding);
        }
    }

    /// Adds the findings about the file as a whole, which are known at its end.
    fn conclude(&mut self) {
        let lines = |n: u64| if n == 1 { "1 line".to_owned() } else { format!("{n} lines") };
        let (crlf, blank) = (self.crlf_lines, self.blank_lines);
        let torn = self
            .quarantined
            .last()
            .is_some_and(|last| self.unterminated && last.offset + last.length == self.bytes);
        let whole_tail = self.unterminated && !torn && self.records > 0;
        for (holds, code, message) in [
            (self.bom, Code::Utf8Bom, "the file begins with a byte-order mark".to_owned()),
            (crlf > 0, Code::Crlf, format!("{} with CRLF at the end", lines(crlf))),
            (blank > 0, Code::BlankLine, format!("{} without content", lines(blank))),
            (
                whole_tail,
                Code::MissingFinalNewline,
                "the last line is whole and has no line end".to_owned(),
            ),
        ] {
            if holds {
                self.note(Finding::new(code, message));
            }
        }
    }
}

/// The first thing in a file that a strict reader does not take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) line: u64,
    pub(super) offset: u64,
    pub(super) code: Code,
}

/// The report as far as the file has been counted.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    pub(super) report: FileReport,
    /// How far in the file.
    pub(super) offset: u64,
    /// From 1.
    pub(super) line: u64,
    pub(super) at_line_start: bool,
    /// The seq of the next event.
    pub(super) seq: u64,
    pub(super) fault: Option<Fault>,
    /// What was counted last is a part of a line over the limit, and the line goes on.
    pub(super) in_oversize: bool,
    /// What was counted last is a record, and the next one stands on its line.
    pub(super) behind_record: bool,
    /// The lines are of an unknown format: no record is of an unknown type.
    is_plain: bool,
    /// What the lines say that the description beside them repeats.
    derived: Option<(Meta, Derived)>,
    lineage: Lineage,
    /// The bytes that were torn directly before what is counted now, as far as they are kept.
    torn: Vec<u8>,
}

/// How much of a torn record is compared with its second attempt.
const TORN_BYTES_MAX: usize = 64 << 10;

impl Tally {
    /// Nothing counted yet. `meta` is the description to compare with.
    pub(super) fn new(report: FileReport, meta: Option<&Meta>) -> Tally {
        Tally {
            report,
            offset: 0,
            line: 1,
            at_line_start: true,
            seq: 0,
            fault: None,
            in_oversize: false,
            behind_record: false,
            is_plain: false,
            derived: meta.map(|meta| (meta.clone(), Derived::default())),
            lineage: Lineage::default(),
            torn: Vec::new(),
        }
    }

    /// The same for lines of an unknown format, if `yes`.
    pub(super) fn plain(self, yes: bool) -> Tally {
        Tally { is_plain: yes, ..self }
    }

    /// Counts a span, which is the event `self.seq`.
    pub(super) fn count(&mut self, span: &Span<'_>) {
        let (entry, length) = (&span.entry, span.entry.bytes.len() as u64);
        let ends_line = entry.terminator != Terminator::None;
        let bom = entry.kind == Kind::Blank && self.offset == 0 && is_bom(&entry.bytes);
        self.report.separator_bytes += entry.terminator.as_bytes().len() as u64;
        self.report.crlf_lines += u64::from(entry.terminator == Terminator::CrLf);
        self.report.unterminated = !ends_line && !bom;
        match &span.what {
            What::Separator => {
                self.report.separator_bytes += length;
                self.report.bom |= bom;
                self.report.blank_lines += u64::from(self.at_line_start && !bom);
                if bom {
                    self.fault(Code::Utf8Bom);
                }
            }
            What::Damage(reason) => self.count_damage(&entry.bytes, *reason),
            What::Record { record, foreign, welded } => {
                self.report.records += 1;
                self.report.new_records += 1;
                self.report.record_bytes += length;
                if !self.torn.is_empty() && entry.bytes.starts_with(&self.torn) {
                    let message = "the record that was cut off was written again";
                    self.note(Code::RetryDuplicate, length, message);
                }
                self.torn.clear();
                if *welded {
                    let message = "the record stands on the line of the one before it";
                    self.note(Code::WeldedRecords, length, message);
                    self.fault(Code::WeldedRecords);
                }
                if *foreign {
                    let session = record.session.as_deref().unwrap_or_default();
                    let message = format!("the record belongs to session {session:?}");
                    self.note(Code::ForeignSession, length, message);
                } else {
                    if let Some((_, derived)) = &mut self.derived {
                        derived.add(entry.kind, &entry.bytes);
                    }
                    if entry.kind == Kind::Other && !self.is_plain {
                        let message = "the record is of a type that is not known; it is kept";
                        self.note(Code::UnknownType, length, message);
                        self.fault(Code::UnknownType);
                    }
                    let (line, offset, seq) = (self.line, self.offset, self.seq);
                    let report = &mut self.report;
                    self.lineage.add(record, &entry.bytes, &mut |code, message| {
                        report.note(Finding {
                            code,
                            seq: Some(seq),
                            line: Some(line),
                            offset: Some(offset),
                            length: Some(length),
                            message,
                        });
                    });
                }
            }
        }
        self.in_oversize = !ends_line && matches!(span.what, What::Damage(Damage::OversizeLine));
        self.behind_record = !ends_line
            && matches!(span.what, What::Record { .. })
            && entry.bytes.last() != Some(&b'\r');
        self.offset += length + entry.terminator.as_bytes().len() as u64;
        self.line += u64::from(ends_line);
        self.at_line_start = ends_line || bom;
        self.seq += 1;
    }

    /// Notes that the file has lost the torn end that it had.
    pub(super) fn note_replaced(&mut self, torn_end: &[StoredEntry]) {
        let Some(first) = torn_end.first() else { return };
        let length = torn_end.iter().map(StoredEntry::line_len).sum();
        self.report.note(Finding {
            seq: Some(first.seq()),
            line: Some(self.line),
            offset: Some(self.offset),
            length: Some(length),
            ..Finding::new(
                Code::TornTailReplaced,
                "the file goes on otherwise where it was cut off; the session keeps both",
            )
        });
    }

    /// The report of the file as far as it has been counted.
    pub(super) fn report(&self) -> FileReport {
        let mut report = self.report.clone();
        report.conclude();
        if let Some((meta, derived)) = &self.derived {
            for difference in derived.differences(meta) {
                report.note(Finding::new(Code::MetaStale, difference));
            }
        }
        report
    }

    fn count_damage(&mut self, bytes: &[u8], reason: Damage) {
        let length = bytes.len() as u64;
        let report = &mut self.report;
        report.quarantined_bytes += length;
        let (line, offset, seq) = (self.line, self.offset, self.seq);
        // A line over the limit comes in parts, and is one span.
        let before = report.quarantined.last_mut().filter(|last| {
            reason == Damage::OversizeLine
                && (last.line, last.reason) == (line, reason)
                && last.offset + last.length == offset
        });
        if let Some(before) = before {
            before.length += length;
            return;
        }
        report.quarantined_spans += 1;
        if report.quarantined.len() < QUARANTINED_MAX {
            report.quarantined.push(Quarantined { line, offset, length, reason, seq });
        }
        let utf8 = reason == Damage::TornTail && std::str::from_utf8(bytes).is_err();
        let more = if utf8 { ", cut inside of a character" } else { "" };
        let message = format!("{length} bytes are no record; they are kept{more}");
        self.note(reason.code(), length, message);
        self.fault(reason.code());
        if matches!(reason, Damage::BadJson | Damage::InvalidUtf8 | Damage::TornPrefix) {
            self.torn.clear();
            self.torn.extend_from_slice(bytes.get(..TORN_BYTES_MAX).unwrap_or(bytes));
        }
    }

    fn note(&mut self, code: Code, length: u64, message: impl Into<String>) {
        self.report.note(Finding {
            code,
            seq: Some(self.seq),
            line: Some(self.line),
            offset: Some(self.offset),
            length: Some(length),
            message: message.into(),
        });
    }

    fn fault(&mut self, code: Code) {
        let (line, offset) = (self.line, self.offset);
        self.fault.get_or_insert(Fault { line, offset, code });
    }
}
