//! Order and descent of the records in a file: ids that stand twice, parents that are missing,
//! clocks that went backwards.
//!
//! Nothing here changes the order or the identity of an event: order is that of the file.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use jiff::Timestamp;

use crate::entry::Kind;
use crate::finding::Code;
use crate::format::{Notes, Record};

/// How many ids are remembered at least. A file with more of them is compared within that distance.
const IDS_MIN: usize = 400_000;

/// The latest ids, by hash, with a checksum over the record of each.
#[derive(Clone, Debug, Default)]
struct Ids {
    hasher: RandomState,
    recent: HashMap<u64, u32>,
    older: HashMap<u64, u32>,
    /// Some have been forgotten.
    forgot: bool,
}

impl Ids {
    fn get(&self, id: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(id);
        self.recent.get(&hash).or_else(|| self.older.get(&hash)).copied()
    }

    fn insert(&mut self, id: &str, checksum: u32) {
        if self.recent.len() >= IDS_MIN {
            self.forgot |= !self.older.is_empty();
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(self.hasher.hash_one(id), checksum);
    }
}

/// What is known of the records so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Lineage {
    ids: Ids,
    last_id: Option<String>,
    has_root: bool,
    has_parents: bool,
    /// The largest number so far.
    number: Option<u64>,
    /// The latest time so far, as text and as what it means.
    time_text: String,
    time: Option<Timestamp>,
}

type Note<'n> = &'n mut dyn FnMut(Code, String);

impl Lineage {
    /// Takes the next record, and notes what is odd about it.
    pub(super) fn add(&mut self, record: &Record<'_>, bytes: &[u8], note: Note<'_>) {
        self.text(record.notes, note);
        if let Some(version) = record.newer_schema {
            note(Code::NewerSchema, format!("the record is of schema version {version}"));
        }
        const ROLES: [&str; 5] = ["user", "assistant", "tool", "system", "summary"];
        if let Some(role) = record.role.as_deref().filter(|role| !ROLES.contains(role)) {
            note(Code::UnknownRole, format!("no role is called {role:?}"));
        }
        if let Some(time) = record.time.as_deref() {
            self.time(time, note);
        }
        let same = self.id(record, bytes, note);
        self.number(record, same, note);
    }

    fn text(&self, notes: Notes, note: Note<'_>) {
        for (holds, code, message) in [
            (notes.duplicate_key, Code::DuplicateKey, "a key stands twice; the last value counts"),
            (notes.lone_surrogate, Code::LoneSurrogate, "text with half a surrogate pair"),
            (notes.nul_in_string, Code::NulInString, "text with a NUL"),
        ] {
            if holds {
                note(code, message.to_owned());
            }
        }
    }

    fn time(&mut self, text: &str, note: Note<'_>) {
        // Times of one writer have one shape, and then text order is time order.
        let later = text.len() == self.time_text.len()
            && text.ends_with('Z')
            && self.time_text.ends_with('Z')
            && text >= self.time_text.as_str();
        if !later {
            let Ok(time) = text.parse::<Timestamp>() else { return };
            let latest = self.time.or_else(|| self.time_text.parse().ok());
            if latest.is_some_and(|latest| time < latest) {
                self.time = latest;
                let latest = &self.time_text;
                note(Code::TimestampRegression, format!("{text} comes behind {latest}"));
                return;
            }
        }
        self.time = None;
        self.time_text.clear();
        self.time_text.push_str(text);
    }

    /// Whether the record has been there before, byte for byte.
    fn id(&mut self, record: &Record<'_>, bytes: &[u8], note: Note<'_>) -> bool {
        let Some(id) = record.id.as_deref() else { return false };
        let checksum = crc32fast::hash(bytes);
        let known = self.ids.get(id);
        match known {
            Some(other) if other == checksum => {
                note(Code::DuplicateIdSame, format!("the record {id:?} stands there twice"));
                return true;
            }
            Some(_) => {
                note(Code::DuplicateIdConflict, format!("several records have the id {id:?}"));
            }
            None => {}
        }
        match record.parent.as_deref() {
            Some(parent) => {
                self.has_parents = true;
                let is_last = self.last_id.as_deref() == Some(parent);
                if !is_last && self.ids.get(parent).is_some() {
                    // The answers to several calls may all name the message with the calls.
                    if record.role.as_deref() != Some("tool") {
                        let message = format!("{parent:?} has been continued before");
                        note(Code::ConcurrentBranches, message);
                    }
                } else if !is_last && !self.ids.forgot {
                    let message = format!("the record continues {parent:?}, which is not there");
                    note(Code::DanglingParent, message);
                }
            }
            None if self.has_root && self.has_parents => {
                note(Code::MultipleRoots, "another record has no parent either".to_owned());
            }
            None => {}
        }
        self.has_root |= record.parent.is_none();
        self.ids.insert(id, checksum);
        let last = self.last_id.get_or_insert_default();
        last.clear();
        last.push_str(id);
        false
    }

    fn number(&mut self, record: &Record<'_>, same: bool, note: Note<'_>) {
        let Some(number) = record.number.filter(|_| record.kind == Kind::Message && !same) else {
            return;
        };
        match self.number {
            Some(last) if number <= last => {
                let message = format!("number {number} comes behind {last}");
                note(Code::SeqDuplicate, message.clone());
                note(Code::DuplicateIdConflict, message);
            }
            Some(last) if number > last + 1 => {
                note(Code::SeqGap, format!("number {number} comes behind {last}"));
            }
            _ => {}
        }
        self.number = self.number.max(Some(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Format, Recursive, Transcript};

    fn codes(format: &dyn Format, lines: &[&str]) -> Vec<Code> {
        let mut lineage = Lineage::default();
        let mut found = Vec::new();
        for line in lines {
            let record = format.classify(line.as_bytes()).unwrap();
            lineage.add(&record, line.as_bytes(), &mut |code, _| found.push(code));
        }
        found
    }

    fn message(uuid: &str, parent: &str, number: u64, role: &str) -> String {
        format!(
            r#"{{"uuid":"{uuid}","parent_uuid":"{parent}","id":"msg_{number:03}","role":"{role}","content":"x","timestamp":"t"}}"#
        )
    }

    fn times(times: &[&str]) -> Vec<Code> {
        let lines: Vec<String> = times.iter().enumerate().map(|(n, time)| format!(
            r#"{{"event_id":"e{n}","timestamp":"{time}","session_id":"s","run_id":"r","step":0,"event_type":"message"}}"#
        )).collect();
        codes(&Transcript, &lines.iter().map(String::as_str).collect::<Vec<_>>())
    }

    #[test]
    fn times_are_compared_as_times_not_as_text() {
        assert_eq!(times(&["2026-01-01T10:00:00Z", "2026-01-01T10:00:00.9Z"]), []);
        assert_eq!(
            times(&["2026-01-01T10:00:00Z", "2026-01-01T11:30:00+02:00"]),
            [Code::TimestampRegression]
        );
        let back = ["2026-01-01T10:00:09Z", "2026-01-01T10:00:02Z", "2026-01-01T10:00:03Z"];
        assert_eq!(times(&back), [Code::TimestampRegression; 2]);
        assert_eq!(times(&["soon", "later", "2026-01-01T10:00:09Z"]), []);
    }

    #[test]
    fn descent_is_followed_and_a_missing_parent_is_named_once() {
        let line = [
            message("b", "a", 2, "user"),
            message("c", "b", 3, "assistant"),
            message("d", "b", 4, "user"),
            message("e", "", 5, "user"),
        ];
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        assert_eq!(codes(&Recursive, &line[..2]), [Code::DanglingParent]);
        assert_eq!(codes(&Recursive, &line[..3]), [Code::DanglingParent, Code::ConcurrentBranches]);
        assert_eq!(
            codes(&Recursive, &[line[3], line[0], line[3]]).last(),
            Some(&Code::DuplicateIdSame)
        );
    }

    #[test]
    fn a_number_that_stands_twice_is_no_identity() {
        let lines = [
            message("a", "", 1, "user"),
            message("b", "a", 1, "user"),
            message("c", "b", 4, "user"),
        ];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_eq!(
            codes(&Recursive, &lines),
            [Code::SeqDuplicate, Code::DuplicateIdConflict, Code::SeqGap]
        );
    }
}
