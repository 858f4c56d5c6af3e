//! The former one-file formats, as the lines that the programs themselves make of them.
//!
//! * recursive-agent's `sessions/NAME.json`: a description with all messages. Each becomes a line;
//!   the session counts as interrupted.
//! * MyCodeAgent's `NAME.legacy.json`: messages become events of run `legacy-1`, its step the place
//!   in the list, and a checkpoint `legacy-snapshot-import` keeps the read cache.
//!
//! Ids are derived from the document, and the time is that of the file, so that the same document
//! always gives the same lines.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::{Error, ErrorKind, Result};
use crate::format::recursive::{Meta, Status};
use crate::format::write::{Object, Spacing};
use crate::io::{File, Reader};

/// A document as lines.
#[derive(Debug)]
pub(super) struct Converted {
    pub(super) lines: Vec<u8>,
    pub(super) session: Option<String>,
    pub(super) meta: Option<Meta>,
}

const DOCUMENT_BYTES_MAX: u64 = 256 << 20;

#[derive(Deserialize)]
struct Document<'d> {
    #[serde(borrow)]
    transcript: Option<Vec<&'d RawValue>>,
    #[serde(borrow)]
    history_messages: Option<Vec<&'d RawValue>>,
    session_id: Option<String>,
    goal: Option<String>,
    model: Option<String>,
    provider: Option<String>,
    tool_registry_hash: Option<String>,
    preset: Option<String>,
    #[serde(borrow)]
    read_cache: Option<&'d RawValue>,
}

#[derive(Deserialize)]
struct Message<'d> {
    role: Option<String>,
    #[serde(borrow)]
    content: Option<&'d RawValue>,
    #[serde(borrow)]
    metadata: Option<&'d RawValue>,
    #[serde(borrow)]
    tool_calls: Option<&'d RawValue>,
    tool_call_id: Option<String>,
    reasoning_content: Option<String>,
}

/// The lines of the document at `path`; `None` when it is none of these formats.
///
/// # Errors
///
/// `Io`; `Refused` for a document that begins like one of them and is broken.
pub(super) fn convert(path: &Path, file: &Arc<dyn File>) -> Result<Option<Converted>> {
    let failed = |error| Error::from_io("cannot read", path, error);
    let mut text = Vec::new();
    Reader::new(file.clone()).take(DOCUMENT_BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
    // A JSONL file with the ending of a document is none of ours.
    let document: Document<'_> = match serde_json::from_slice(&text) {
        Ok(document) => document,
        Err(error) if error.is_eof() || error.is_syntax() && error.line() <= 1 => {
            return Err(Error::new(ErrorKind::Refused, format!("the document is broken: {error}"))
                .with_hint("restore it from a copy; nothing of it was imported"));
        }
        Err(_) => return Ok(None),
    };
    let maker = Maker { digest: blake3::hash(&text), time: time_of(path) };
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(match (&document.transcript, &document.history_messages) {
        (Some(messages), _) => Some(maker.one_file(messages, &document, stem)),
        (None, Some(messages)) => Some(maker.snapshot(messages, &document, stem)),
        (None, None) => None,
    })
}

/// The time in the file's name, or when it was last changed.
fn time_of(path: &Path) -> Timestamp {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let named = stem.get(..20).and_then(|name| {
        let (date, time) = name.split_once('T')?;
        format!("{date}T{}", time.replace('-', ":")).parse().ok()
    });
    let changed = || {
        let time = std::fs::metadata(path).and_then(|meta| meta.modified()).ok()?;
        let seconds = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
        Timestamp::from_second(i64::try_from(seconds).ok()?).ok()
    };
    named.or_else(changed).unwrap_or_default()
}

/// Makes lines whose ids come from the document.
struct Maker {
    digest: blake3::Hash,
    time: Timestamp,
}

impl Maker {
    fn id(&self, n: usize) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.digest.as_bytes()).update(&n.to_le_bytes());
        hasher.finalize().to_hex().as_str().chars().take(32).collect()
    }

    fn uuid(&self, n: usize) -> String {
        let id = u128::from_str_radix(&self.id(n), 16).unwrap_or_default();
        uuid::Builder::from_custom_bytes(id.to_be_bytes()).into_uuid().to_string()
    }

    fn one_file(&self, messages: &[&RawValue], document: &Document<'_>, stem: String) -> Converted {
        let mut lines = String::new();
        let mut derived = crate::format::recursive::Derived::default();
        for (n, raw) in messages.iter().enumerate() {
            let Ok(message) = serde_json::from_str::<Message<'_>>(raw.get()) else { continue };
            let content = text(message.content).unwrap_or_default();
            let parent = n.checked_sub(1).map(|parent| self.uuid(parent));
            let is_answer = message.role.as_deref() == Some("tool");
            let mut line = Object::new(Spacing::Compact)
                .text("uuid", &self.uuid(n))
                .text_if("parent_uuid", parent.as_deref())
                .text_if("source_tool_assistant_uuid", parent.as_deref().filter(|_| is_answer))
                .text("id", &format!("msg_{:03}", n + 1))
                .text_if("parent_id", (n > 0).then(|| format!("msg_{n:03}")).as_deref())
                .text("role", message.role.as_deref().unwrap_or("user"))
                .text("content", &content);
            if let Some(calls) = message.tool_calls.filter(|calls| calls.get().starts_with('[')) {
                line = line.raw("tool_calls", calls.get());
            }
            let line = line
                .text_if("tool_call_id", message.tool_call_id.as_deref())
                .text_if("reasoning_content", message.reasoning_content.as_deref())
                .text("timestamp", &self.time.to_string())
                .finish();
            derived.add(crate::entry::Kind::Message, line.as_bytes());
            lines.push_str(&line);
            lines.push('\n');
        }
        let mut meta = derived.meta(&stem, None);
        meta.created_at = self.time.to_string();
        meta.updated_at.clone_from(&meta.created_at);
        meta.goal = document.goal.clone().unwrap_or_default();
        meta.model = document.model.clone().unwrap_or_default();
        meta.provider = document.provider.clone().unwrap_or_default();
        meta.tool_registry_hash.clone_from(&document.tool_registry_hash);
        meta.preset.clone_from(&document.preset);
        meta.status = Status::Interrupted;
        Converted { lines: lines.into_bytes(), session: Some(stem), meta: Some(meta) }
    }

    fn snapshot(&self, messages: &[&RawValue], document: &Document<'_>, stem: String) -> Converted {
        let named = document.session_id.clone().filter(|id| !id.is_empty());
        let session = named.unwrap_or_else(|| stem.trim_end_matches(".legacy").to_owned());
        let mut lines = String::new();
        let mut event = |n: usize, kind: &str, payload: &str| {
            let line = Object::new(Spacing::Spaced)
                .text("event_id", &format!("evt-{}", self.id(n)))
                .text("timestamp", &self.time.to_string())
                .text("session_id", &session)
                .text("run_id", "legacy-1")
                .number("step", n as u64)
                .text("event_type", kind)
                .raw("payload", payload)
                .number("schema_version", 1);
            lines.push_str(&line.finish());
            lines.push('\n');
        };
        for (n, raw) in messages.iter().enumerate() {
            let Ok(message) = serde_json::from_str::<Message<'_>>(raw.get()) else { continue };
            let role = message.role.as_deref().unwrap_or_default();
            if !matches!(role, "user" | "assistant" | "tool" | "summary") {
                continue;
            }
            let metadata = message.metadata.map(RawValue::get).unwrap_or_default();
            let inner = metadata.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
            let inner = inner.map(str::trim).filter(|inner| !inner.is_empty());
            let flag = "\"legacy_snapshot_import\":true";
            let metadata =
                inner.map_or(format!("{{{flag}}}"), |inner| format!("{{{inner},{flag}}}"));
            let payload = Object::new(Spacing::Spaced)
                .text("role", role)
                .text("content", &text(message.content).unwrap_or_default())
                .raw("metadata", &metadata);
            event(n, "message", &payload.finish());
        }
        let cache = document.read_cache.map_or("{}", RawValue::get);
        let payload = Object::new(Spacing::Spaced)
            .raw("runtime_state", &format!("{{\"read_cache\":{cache}}}"))
            .raw("legacy_snapshot_import", "true")
            .text("checkpoint_id", "legacy-snapshot-import")
            .text("created_at", &self.time.to_string());
        event(messages.len(), "checkpoint", &payload.finish());
        Converted { lines: lines.into_bytes(), session: Some(session), meta: None }
    }
}

/// A value as text: that of a string, nothing for null, JSON for anything else.
fn text(raw: Option<&RawValue>) -> Option<String> {
    let raw = raw?.get();
    match raw {
        "null" => None,
        raw if raw.starts_with('"') => serde_json::from_str(raw).ok(),
        raw => Some(raw.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(name: &str, document: &str) -> Converted {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, document).unwrap();
        let file = crate::io::StdDir::open_file(&path).unwrap();
        convert(&path, &file).unwrap().unwrap()
    }

    #[test]
    fn a_snapshot_becomes_a_run_and_a_checkpoint() {
        let document = r#"{"session_id": "old", "history_messages": [
            {"role": "user", "content": "q", "metadata": {"a": [1, 2]}}, "not a message",
            {"role": "system", "content": "dropped"}, {"role": "assistant", "content": null}],
            "read_cache": {"f": {"x": 1.50}}}"#;
        let found = converted("old.legacy.json", document);
        let lines = String::from_utf8(found.lines).unwrap();
        let payloads: Vec<&str> = lines
            .lines()
            .map(|line| {
                line.split_once("\"payload\": ")
                    .unwrap()
                    .1
                    .split_once(", \"created_at\"")
                    .map_or_else(
                        || line.split_once("\"payload\": ").unwrap().1,
                        |(payload, _)| payload,
                    )
            })
            .collect();
        assert_eq!(
            payloads,
            [
                r#"{"role": "user", "content": "q", "metadata": {"a": [1, 2], "legacy_snapshot_import": true}}, "schema_version": 1}"#,
                r#"{"role": "assistant", "content": "", "metadata": {"legacy_snapshot_import": true}}, "schema_version": 1}"#,
                r#"{"runtime_state": {"read_cache": {"f": {"x": 1.50}}}, "legacy_snapshot_import": true, "checkpoint_id": "legacy-snapshot-import""#,
            ]
        );
        assert_eq!(found.session.as_deref(), Some("old"));
    }

    #[test]
    fn the_same_document_gives_the_same_lines() {
        let document = r#"{"goal": "g", "model": "m", "transcript": [{"role": "user", "content": "q"},
            {"role": "tool", "content": "a", "tool_call_id": "c"}]}"#;
        let name = "2026-01-02T03-04-05Z-fix.json";
        let (a, b) = (converted(name, document), converted(name, document));
        assert_eq!(a.lines, b.lines);
        let meta = a.meta.unwrap();
        assert_eq!((meta.status, meta.message_count), (Status::Interrupted, 2));
        assert_eq!(meta.created_at, "2026-01-02T03:04:05Z");
    }
}
