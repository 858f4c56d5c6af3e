//! How events are printed: by `show`, `tail` and `quarantine`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use eventlog::StoredEntry;
use serde::Serialize;

use super::Failure;
use super::output::Output;

#[derive(Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
    seq: u64,
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line_base64: Option<String>,
}

/// Prints an event, with its session where several are shown.
pub(crate) fn print(
    session: Option<&str>,
    event: &StoredEntry,
    output: &mut Output,
) -> Result<(), Failure> {
    let (seq, kind) = (event.seq(), event.kind().name());
    if output.json {
        let line = std::str::from_utf8(event.bytes()).ok();
        let line_base64 = line.is_none().then(|| base64(event.bytes()));
        return output.json(&Line { session, seq, kind, line, line_base64 });
    }
    let who = session.map(|session| format!("{session}\t")).unwrap_or_default();
    let prefix = match output.people {
        true => format!("{who}{seq:>6}  {kind:<16}  "),
        false => format!("{who}{seq}\t{kind}\t"),
    };
    output.bytes(&prefix, event.bytes())
}

/// Bytes for JSON.
pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}
