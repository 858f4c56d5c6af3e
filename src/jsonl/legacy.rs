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
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use crate::error::{Error, ErrorKind, Result};
use crate::event::Json;
use crate::finding::{Code, Finding};
use crate::format::recursive::{Meta, Status};
use crate::format::write::{Object, Spacing};
use crate::io::{File, Reader};
use jiff::Timestamp;

/// A document as lines.
#[derive(Debug)]
pub(super) struct Converted {
    pub(super) lines: Vec<u8>,
    pub(super) meta: Option<Meta>,
    /// What was left out.
    pub(super) findings: Vec<Finding>,
}

const DOCUMENT_BYTES_MAX: u64 = 256 << 20;

/// A document of one of these formats.
#[derive(Debug)]
pub(super) struct Document {
    root: Json,
    messages: Vec<Json>,
    /// Otherwise it is a snapshot.
    is_one_file: bool,
    digest: blake3::Hash,
    stem: String,
    path: PathBuf,
}

/// The document at `path`; `None` when it is none of these formats.
///
/// # Errors
///
/// `Io`; `TooLarge`; `Refused` for a document that begins like one of them and is broken.
pub(super) fn read(path: &Path, file: &Arc<dyn File>) -> Result<Option<Document>> {
    let failed = |error| Error::from_io("cannot read", path, error);
    if file.len().map_err(failed)? > DOCUMENT_BYTES_MAX {
        let message = format!("the document is larger than {DOCUMENT_BYTES_MAX} bytes");
        return Err(Error::new(ErrorKind::TooLarge, message)
            .with_hint("nothing of it was imported; a JSONL file may have any size"));
    }
    let mut bytes = Vec::new();
    Reader::new(file.clone()).read_to_end(&mut bytes).map_err(failed)?;
    let text = String::from_utf8_lossy(&bytes);
    let Some(root) = Json::parse(&text) else {
        // A JSONL file with the ending of a document is none of ours.
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        if Json::parse(first).is_some() {
            return Ok(None);
        }
        return Err(Error::new(ErrorKind::Refused, "the document is broken: it is no JSON")
            .with_hint("restore it from a copy; nothing of it was imported"));
    };
    let messages = |key| root.get(key).filter(|list| list.as_str().starts_with('['));
    let (list, is_one_file) = match (messages("transcript"), messages("history_messages")) {
        (Some(list), _) => (list, true),
        (None, Some(list)) => (list, false),
        (None, None) => return Ok(None),
    };
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let (messages, digest) = (list.elements(), blake3::hash(&bytes));
    Ok(Some(Document { root, messages, is_one_file, digest, stem, path: path.to_owned() }))
}

impl Document {
    /// The session's id.
    pub(super) fn session(&self) -> String {
        let named = self.field("session_id");
        match self.is_one_file {
            true => self.stem.clone(),
            false => named.unwrap_or_else(|| self.stem.trim_end_matches(".legacy").to_owned()),
        }
    }

    /// The document as lines. `time` is that of an earlier conversion, so that it gives the same.
    pub(super) fn convert(&self, time: Option<Timestamp>) -> Converted {
        let time = time.unwrap_or_else(|| time_of(&self.path));
        let maker = Maker { digest: self.digest, time };
        match self.is_one_file {
            true => maker.one_file(self),
            false => maker.snapshot(self),
        }
    }

    fn field(&self, key: &str) -> Option<String> {
        Some(self.root.id_of(key).to_string()).filter(|text| !text.is_empty())
    }
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

    fn one_file(&self, document: &Document) -> Converted {
        let mut lines = String::new();
        let mut derived = crate::format::recursive::Derived::default();
        let mut left_out = 0;
        let mut n = 0;
        for message in &document.messages {
            let role = message.id_of("role");
            if role.is_empty() {
                left_out += 1;
                continue;
            }
            let parent = usize::checked_sub(n, 1).map(|parent| self.uuid(parent));
            let is_answer = role == "tool";
            let text =
                |key| message.get(key).map(|value| as_text(&value)).filter(|t| !t.is_empty());
            let mut line = Object::new(Spacing::Compact)
                .text("uuid", &self.uuid(n))
                .text_if("parent_uuid", parent.as_deref())
                .text_if("source_tool_assistant_uuid", parent.as_deref().filter(|_| is_answer))
                .text("id", &format!("msg_{:03}", n + 1))
                .text_if("parent_id", (n > 0).then(|| format!("msg_{n:03}")).as_deref())
                .text("role", &role)
                .text("content", &text("content").unwrap_or_default());
            let calls = message.get("tool_calls").filter(|calls| calls.as_str().starts_with('['));
            if let Some(calls) = calls.filter(|calls| !calls.elements().is_empty()) {
                line = line.raw("tool_calls", calls.as_str());
            }
            line = line
                .text_if("tool_call_id", text("tool_call_id").as_deref())
                .text_if("reasoning_content", text("reasoning_content").as_deref())
                .text("timestamp", &self.time.to_string());
            // What else it has is kept, but for the mark that the program does not store.
            for (key, value) in message.members() {
                if !ONE_FILE_KEYS.contains(&&*key) {
                    line = line.raw(&key, value.as_str());
                }
            }
            let line = line.finish();
            derived.add(crate::entry::Kind::Message, line.as_bytes());
            lines.push_str(&line);
            lines.push('\n');
            n += 1;
        }
        let mut meta = derived.meta(&document.stem, None);
        meta.created_at = self.time.to_string();
        meta.updated_at.clone_from(&meta.created_at);
        meta.goal = document.field("goal").unwrap_or_default();
        meta.model = document.field("model").unwrap_or_default();
        meta.provider = document.field("provider").unwrap_or_default();
        meta.tool_registry_hash = document.field("tool_registry_hash");
        meta.preset = document.field("preset");
        meta.status = Status::Interrupted;
        let findings = left_out_finding(left_out);
        Converted { lines: lines.into_bytes(), meta: Some(meta), findings }
    }

    fn snapshot(&self, document: &Document) -> Converted {
        let session = document.session();
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
        let mut left_out = 0;
        for (n, message) in document.messages.iter().enumerate() {
            let role = message.id_of("role");
            if !matches!(&*role, "user" | "assistant" | "tool" | "summary") {
                left_out += 1;
                continue;
            }
            let metadata = message.get("metadata").filter(Json::is_object);
            let metadata = metadata.unwrap_or_else(Json::object);
            let metadata = metadata.with("legacy_snapshot_import", &Json::raw("true"));
            let content = message.get("content").map(|content| as_text(&content));
            let payload = Object::new(Spacing::Spaced)
                .text("role", &role)
                .text("content", &content.unwrap_or_default())
                .raw("metadata", metadata.as_str());
            event(n, "message", &payload.finish());
        }
        let cache = document.root.get("read_cache").unwrap_or_else(Json::object);
        let payload = Object::new(Spacing::Spaced)
            .raw("runtime_state", &format!("{{\"read_cache\":{cache}}}"))
            .raw("legacy_snapshot_import", "true")
            .text("checkpoint_id", "legacy-snapshot-import")
            .text("created_at", &self.time.to_string());
        event(document.messages.len(), "checkpoint", &payload.finish());
        let findings = left_out_finding(left_out);
        Converted { lines: lines.into_bytes(), meta: None, findings }
    }
}

/// The keys of a message that have a place in a line, and the mark that is not stored.
const ONE_FILE_KEYS: [&str; 6] =
    ["role", "content", "tool_calls", "tool_call_id", "reasoning_content", "is_compaction_summary"];

fn left_out_finding(count: u64) -> Vec<Finding> {
    if count == 0 {
        return Vec::new();
    }
    let message = format!(
        "{count} of the messages in the document have no role that is taken over; they are left out"
    );
    vec![Finding::new(Code::SchemaMismatch, message)]
}

/// A value as text: that of a string, nothing for null, JSON for anything else.
fn as_text(value: &Json) -> String {
    match value.text() {
        Some(text) => text.to_string(),
        None if value.is_null() => String::new(),
        None => value.as_str().to_owned(),
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
        read(&path, &file).unwrap().unwrap().convert(None)
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
        assert_eq!(found.findings.len(), 1, "two of the messages are left out, and that is said");
    }

    #[test]
    fn what_is_odd_in_a_message_is_kept() {
        let document = r#"{"goal": "g", "model": "m", "transcript": [
            {"role": "tool", "content": "important", "tool_call_id": 5, "later": [1]},
            {"role": "user", "content": "half \ud83d"}, 7]}"#;
        let found = converted("x.json", document);
        let lines = String::from_utf8(found.lines).unwrap();
        assert!(lines.contains(r#""content":"important","tool_call_id":"5""#), "{lines}");
        assert!(lines.contains(r#""later":[1]"#) && lines.contains("half \u{FFFD}"), "{lines}");
        assert_eq!((lines.lines().count(), found.findings.len()), (2, 1));
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
