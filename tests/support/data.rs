//! The data that the formats are tested with: the project's own fixtures, always, and the larger data
//! in the folders that `EVENTLOG_GOLDEN` and `EVENTLOG_CASES` name.
#![allow(dead_code, clippy::unwrap_used, reason = "test code; each test uses a part")]

use std::path::{Path, PathBuf};

use serde_json::Value;

/// A folder of data.
pub struct Data {
    pub dir: PathBuf,
    /// The project's own.
    pub is_own: bool,
}

impl Data {
    /// How many of something there must be: in the fixtures, in the larger data.
    pub fn at_least(&self, own: usize, larger: usize) -> usize {
        if self.is_own { own } else { larger }
    }
}

/// The folders called `part` of what the original programs did.
pub fn golden(part: &str) -> Vec<Data> {
    let larger = std::env::var_os("EVENTLOG_GOLDEN");
    all(part, larger.map(|dir| Path::new(&dir).join(part)))
}

/// The folders of cases.
pub fn cases() -> Vec<Data> {
    all("cases", std::env::var_os("EVENTLOG_CASES").map(PathBuf::from))
}

fn all(part: &str, larger: Option<PathBuf>) -> Vec<Data> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(part);
    let own = Data { dir: own, is_own: true };
    let larger = larger.map(|dir| Data { dir, is_own: false });
    std::iter::once(own).chain(larger).collect()
}

pub fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// What a folder of a case is, with its expected outcome, for those with one input.
pub fn cases_in(data: &Data) -> Vec<(PathBuf, Value)> {
    let entries = std::fs::read_dir(&data.dir).unwrap().map(|entry| entry.unwrap().path());
    let mut cases: Vec<PathBuf> =
        entries.filter(|path| path.join("expect.json").exists()).collect();
    cases.sort();
    let with_expectation = cases.into_iter().map(|path| {
        let expect = json(&path.join("expect.json"));
        (path, expect)
    });
    with_expectation.filter(|(path, _)| path.join("input.jsonl").exists()).collect()
}

/// Whether a case is of a format that is understood.
pub fn is_understood(expect: &Value) -> bool {
    ["transcript", "recursive"].iter().any(|format| expect["format"] == *format)
}
