//! Proving that what is stored is whole, and counting it.

use std::collections::{BTreeMap, HashMap};

use crate::entry::{Kind, Seq};
use crate::error::{Error, ErrorKind, Result};
use crate::memtable::Mark;
use crate::store::{BlockRow, MarkKey, SessionRecord, StoreReader};

use super::snapshot::Snapshot;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// Where: file and block, record or mark.
    pub location: String,
    /// The session, if one is concerned.
    pub session: Option<String>,
    /// The event, if one is concerned.
    pub seq: Option<Seq>,
    /// The kind of problem: `corrupt`, `gap`, `count`, `mark`, `id`, `orphan` or
    /// `stranded`.
    pub kind: &'static str,
    /// What is wrong.
    pub message: String,
}

/// What `verify` looked at and found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Sessions looked at.
    pub sessions: u64,
    /// Events read.
    pub events: u64,
    /// Blocks read.
    pub blocks: u64,
    /// Batches that are in the journal and not in the store yet.
    pub journal_batches: u64,
    /// Events that were appended to sessions whose record is damaged: they are kept beside the
    /// record, and are not counted in `events`.
    pub stranded_events: u64,
    /// For every session the bytes of its lines and line ends are what its record says.
    pub bytes_accounted: bool,
    /// Segments that earlier recoveries set aside because of a batch that was left out, relative
    /// to the log's directory. No problem by themselves: they can be looked at, and removed.
    pub set_aside: Vec<String>,
    /// What is wrong, in the order found; at most 10,000.
    pub problems: Vec<Problem>,
}

const PROBLEMS_MAX: usize = 10_000;

struct Walk<'a> {
    snapshot: &'a Snapshot,
    report: VerifyReport,
    marks: HashMap<MarkKey, Seq>,
    /// The seq behind the last event in the memtables looked at so far.
    in_journal: HashMap<u64, Seq>,
}

/// What was counted of the session whose blocks are being read.
struct Counted {
    record: SessionRecord,
    /// Whether a gap or a damaged block makes the counts meaningless.
    broken: bool,
}

/// Reads everything and compares it with what is written about it. `progress` is called with blocks
/// read.
pub(super) fn verify(snapshot: &Snapshot, progress: &mut dyn FnMut(u64)) -> Result<VerifyReport> {
    let mut walk = Walk {
        snapshot,
        report: VerifyReport { bytes_accounted: true, ..VerifyReport::default() },
        marks: HashMap::new(),
        in_journal: HashMap::new(),
    };
    walk.stored(progress)?;
    walk.in_memory();
    Ok(walk.report)
}

impl Walk<'_> {
    fn problem(&mut self, kind: &'static str, location: String, who: Who, message: String) {
        if self.report.problems.len() < PROBLEMS_MAX {
            let Who(session, seq) = who;
            self.report.problems.push(Problem { location, session, seq, kind, message });
        }
    }

    fn reader(&self) -> &StoreReader {
        &self.snapshot.inner.reader
    }

    /// The store: every block in order, session by session.
    fn stored(&mut self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let snapshot = self.snapshot;
        self.read_marks()?;
        let mut numbers = snapshot.inner.reader.numbers_from(0).peekable();
        let mut current: Option<Counted> = None;
        for row in snapshot.inner.reader.blocks()? {
            let row = match row {
                Ok(row) => row,
                Err(error) => {
                    self.corrupt(Who(None, None), &error);
                    break;
                }
            };
            self.report.blocks += 1;
            progress(self.report.blocks);
            if current.as_ref().is_none_or(|c| c.record.number != row.session) {
                self.finish(current.take());
                // Sessions without a block up to this one.
                while let Some(number) =
                    numbers.next_if(|n| n.as_ref().map_or(true, |number| *number < row.session))
                {
                    match number {
                        Ok(number) => self.finish(Some(fresh(number))),
                        Err(error) => self.corrupt(Who(None, None), &error),
                    }
                }
                _ = numbers.next_if(|n| n.as_ref().is_ok_and(|n| *n == row.session));
                current = Some(fresh(row.session));
            }
            if let Some(counted) = &mut current {
                self.count_block(counted, row);
            }
        }
        self.finish(current.take());
        for number in numbers {
            match number {
                Ok(number) => self.finish(Some(fresh(number))),
                Err(error) => self.corrupt(Who(None, None), &error),
            }
        }
        self.stranded()?;
        let left: Vec<_> = self.marks.drain().collect();
        for (key, seq) in left {
            let location = format!("events.redb, mark {key:?}");
            let message = format!("the mark points at event {seq}, which is no such event");
            self.problem("mark", location, Who(None, Some(seq)), message);
        }
        Ok(())
    }

    /// What was appended to sessions that cannot be added to.
    fn stranded(&mut self) -> Result<()> {
        let mut sessions: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for (number, row) in self.reader().stranded()? {
            let (kept, said) = sessions.entry(number).or_default();
            match row {
                Ok(row) => {
                    *kept += row.events;
                    *said += row.says;
                }
                Err(error) => self.corrupt(self.who(number), &error),
            }
        }
        for (number, (kept, said)) in sessions {
            self.report.stranded_events += kept;
            let location = format!("events.redb, stranded rows of session {number}");
            let message = match kept == said {
                true => format!("{kept} events are kept beside the session, which is damaged"),
                false => format!(
                    "{kept} events are kept beside the session, which is damaged; there were {said}"
                ),
            };
            self.problem("stranded", location, self.who(number), message);
        }
        Ok(())
    }

    /// The session of a record that does not say its id.
    fn who(&self, number: u64) -> Who {
        Who(self.reader().id_of(number), None)
    }

    /// A search must end at the block that the walk has met: a damaged inner page leads past it.
    fn check_reachable(&mut self, session: u64, first: Seq, end: Seq, name: &str) {
        for seq in [first, end.saturating_sub(1)] {
            match self.reader().locate(session, seq) {
                Ok(Some(found)) if found == first => {}
                Ok(_) => {
                    let message = format!("a search for event {seq} does not lead to this block");
                    self.problem("corrupt", name.to_owned(), Who(None, Some(seq)), message);
                }
                Err(error) => self.corrupt(Who(None, Some(seq)), &error),
            }
        }
    }

    /// Counts what a block holds.
    fn count_block(&mut self, counted: &mut Counted, row: BlockRow) {
        let name = crate::store::block::place(row.session, row.first_seq);
        let who = Who(None, Some(row.first_seq));
        let block = match row.block {
            Ok(block) => block,
            Err(error) => {
                counted.broken = true;
                return self.corrupt(who, &error);
            }
        };
        self.check_reachable(row.session, block.first_seq, block.end_seq(), &name);
        if block.first_seq != counted.record.next_seq && !counted.broken {
            let expected = counted.record.next_seq;
            let message = format!("the block should begin with event {expected}");
            self.problem("gap", name, who, message);
            counted.broken = true;
        }
        counted.record.blocks += 1;
        counted.record.stored_bytes += row.stored_len;
        for entry in block.entries() {
            self.check_mark(&counted.record, entry.kind, entry.flags, entry.seq);
            counted.record.count(entry.kind, entry.flags, entry.line_len());
            self.report.events += 1;
        }
    }

    fn corrupt(&mut self, who: Who, error: &Error) {
        self.report.bytes_accounted = false;
        let location = error.place().map_or_else(String::new, |place| place.file.clone());
        self.problem("corrupt", location, who, error.to_string());
    }

    fn read_marks(&mut self) -> Result<()> {
        let snapshot = self.snapshot;
        for mark in snapshot.inner.reader.marks()? {
            let mark = match mark {
                Ok(mark) => mark,
                Err(error) => {
                    self.corrupt(Who(None, None), &error);
                    break;
                }
            };
            if mark.whole {
                self.marks.insert(mark.key, mark.seq);
            } else {
                let location = format!("events.redb, mark {:?}", mark.key);
                let message = "the mark does not match its checksum".to_owned();
                self.problem("mark", location, Who(None, None), message);
            }
        }
        Ok(())
    }

    fn check_mark(
        &mut self,
        before: &SessionRecord,
        kind: crate::entry::Kind,
        flags: crate::entry::Flags,
        seq: Seq,
    ) {
        for mark in Mark::ALL {
            if mark.is_on(kind, flags) {
                let key = (before.number, mark as u8, before.marked(mark));
                if self.marks.get(&key) == Some(&seq) {
                    self.marks.remove(&key);
                }
            }
        }
    }

    /// Compares what was counted with the session's record.
    fn finish(&mut self, counted: Option<Counted>) {
        let Some(Counted { record: counted, broken }) = counted else { return };
        self.report.sessions += 1;
        let number = counted.number;
        if broken {
            // Without all events nobody knows which of them the marks mean.
            self.marks.retain(|key, _| key.0 != number);
        }
        let location = format!("events.redb, record of session {number}");
        let record = match self.reader().record(number) {
            Ok(Some(record)) => record,
            Ok(None) => {
                let message = "there are events of a session that has no record".to_owned();
                self.report.bytes_accounted = false;
                return self.problem("orphan", location, self.who(number), message);
            }
            Err(error) => return self.corrupt(self.who(number), &error),
        };
        let who = || Who(Some(record.id.clone()), None);
        match self.reader().number(&record.id) {
            Ok(Some(found)) if found == number => {}
            Ok(found) => {
                let message = format!("the id leads to session {found:?}, not {number}");
                self.problem("id", location.clone(), who(), message);
            }
            Err(error) => self.corrupt(who(), &error),
        }
        // After a gap the counts would only repeat what has been said.
        if broken {
            self.report.bytes_accounted = false;
            return;
        }
        self.report.bytes_accounted &= record.bytes == counted.bytes;
        let pairs = [
            ("events", record.next_seq, counted.next_seq),
            ("bytes", record.bytes, counted.bytes),
            ("user turns", record.user_turns, counted.user_turns),
            ("runs", record.runs, counted.runs),
            ("blocks", record.blocks, counted.blocks),
            ("stored bytes", record.stored_bytes, counted.stored_bytes),
        ];
        let kinds = Kind::ALL.into_iter().zip(record.counts.into_iter().zip(counted.counts));
        let kinds = kinds.map(|(kind, (says, is))| (kind.name(), says, is));
        let pairs = pairs.into_iter().chain(kinds);
        for (what, says, is) in pairs {
            if says != is {
                let message = format!("the record says {says} {what}, there are {is}");
                self.problem("count", location.clone(), who(), message);
            }
        }
    }

    /// What the journal holds beyond the store; its CRCs were checked when it was read.
    fn in_memory(&mut self) {
        let snapshot = self.snapshot;
        let applied = self.reader().applied().end;
        for table in &snapshot.inner.memtables {
            // Looked up without holding the memtable: appends go on.
            let sessions: Vec<(u64, bool, Option<Seq>, u64)> = {
                let table = table.read();
                let batches = table.end.batch.min(snapshot.inner.end.batch);
                let batches = batches.saturating_sub(applied.batch);
                self.report.journal_batches = self.report.journal_batches.max(batches);
                let views = table.views(snapshot.inner.end).map(|(number, view)| {
                    let first = view.entries().next().map(|(seq, _)| seq);
                    (number, view.declared().is_some(), first, view.entries().count() as u64)
                });
                views.collect()
            };
            for (number, declared, first, count) in sessions {
                // A damaged record has been reported.
                let Ok(stored) = self.reader().record(number) else { continue };
                self.report.sessions += u64::from(stored.is_none() && declared);
                let next = stored.map_or(0, |record| record.next_seq);
                let Some(first) = first else { continue };
                let before = self.in_journal.get(&number).copied().unwrap_or(next);
                if first > before {
                    let location = format!("journal, session {number}");
                    let message = format!("event {before} is missing, the next one is {first}");
                    self.problem("gap", location, Who(None, Some(before)), message);
                }
                let end = first + count;
                self.report.events += end.saturating_sub(first.max(next));
                self.in_journal.insert(number, end.max(next));
            }
        }
    }
}

/// The session and the event a problem is about.
struct Who(Option<String>, Option<Seq>);

fn fresh(number: u64) -> Counted {
    Counted { record: SessionRecord { number, ..SessionRecord::default() }, broken: false }
}

/// The log in numbers.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Sessions.
    pub sessions: u64,
    /// Events of all sessions.
    pub events: u64,
    /// Bytes of all lines with their line ends.
    pub bytes: u64,
    /// Bytes that the store's file occupies on the device.
    pub stored_bytes: u64,
    /// Bytes of the journal's segments.
    pub journal_bytes: u64,
    /// The number of the last event that the store holds.
    pub applied_lsn: u64,
    /// The number of the last durable event.
    pub durable_lsn: u64,
    /// Since when the store has had no space, in microseconds since the Unix epoch; `None` while it
    /// has, and for a log opened read-only. Events then stay in the journal and in memory, and appends fail with `Full` once memory
    /// is full.
    pub store_full_since_unix_micros: Option<u64>,
    /// The version of the format on disk.
    pub format_version: u32,
    /// The id that ties journal and store together.
    pub store_id: String,
}

impl Snapshot {
    pub(super) fn totals(&self, stats: &mut Stats) -> Result<()> {
        for session in self.all_sessions() {
            match session {
                Ok(session) => {
                    stats.sessions += 1;
                    stats.events += session.events;
                    stats.bytes += session.bytes;
                }
                // Damage is `verify`'s to report; here it is only not counted.
                Err(error) if error.kind() == ErrorKind::Corrupt => {}
                Err(error) => return Err(error),
            }
        }
        stats.applied_lsn = self.inner.reader.applied().end.lsn.0;
        stats.durable_lsn = self.inner.end.lsn.0;
        Ok(())
    }
}
