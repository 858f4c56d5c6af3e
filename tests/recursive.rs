//! recursive-agent's sessions: what its own programs made of them, and what we make of them.
//!
//! The data is our fixtures, and what `EVENTLOG_GOLDEN` names. Where the original loses something (the
//! table of quirks in that data), the test is for the better behaviour.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test"
)]

#[path = "support/data.rs"]
mod data;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data::{Data, json};
use eventlog::format::recursive::place::{self, Lock};
use eventlog::format::recursive::{Meta, MetaError};
use eventlog::format::{Content, Format, Recursive, Usage};
use eventlog::io::StdDir;
use eventlog::jsonl::{self, ExportOptions, FileReport, ImportOptions, Outcome};
use eventlog::{EventLog, Kind};
use serde_json::Value;

fn golden() -> Vec<Data> {
    data::golden("recursive")
}

/// Name and folder of each case.
fn cases(golden: &Data) -> Vec<(String, PathBuf)> {
    let golden = &golden.dir;
    let index = json(&golden.join("index.json"));
    let names = index["cases"].as_array().unwrap().iter();
    names
        .map(|case| {
            let name = case["name"].as_str().unwrap().to_owned();
            (name.clone(), golden.join(name))
        })
        .collect()
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_all(&entry.path(), &target),
            false => _ = std::fs::copy(entry.path(), target).unwrap(),
        }
    }
}

/// All files below a directory, with their content.
fn tree(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().to_owned();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn import(log: &EventLog, path: &Path) -> FileReport {
    let found = jsonl::discover(path).files;
    found[0].import(Some(log), &ImportOptions::default(), &mut |_| {}).unwrap()
}

/// Where a session of a case stands on this disk.
fn dir_of(case: &Path, session: &Value) -> PathBuf {
    let dir = session["dir"].as_str().unwrap();
    case.join(dir.strip_prefix("<case>/").unwrap().replace("<ws-hash>", "WS-HASH"))
}

#[test]
fn every_session_is_read_with_every_line_accounted_for() {
    for golden in golden() {
        let mut sessions = 0;
        for (name, case) in cases(&golden) {
            let expected = json(&case.join("expected.json"));
            for session in expected["sessions"].as_array().unwrap_or(&Vec::new()) {
                let path = dir_of(&case, session).join("transcript.jsonl");
                let Ok(bytes) = std::fs::read(&path) else { continue };
                sessions += 1;
                let what = path.display();
                let scratch = tempfile::tempdir().unwrap();
                let log = EventLog::open(scratch.path().join("log")).unwrap();
                let report = import(&log, &path);
                let sum = report.record_bytes + report.separator_bytes + report.quarantined_bytes;
                if bytes.trim_ascii().is_empty() {
                    // A session that has just begun.
                    assert_eq!((report.outcome, report.records), (Outcome::Unchanged, 0), "{what}");
                    continue;
                }
                assert_eq!(
                    (report.outcome, sum),
                    (Outcome::Imported, bytes.len() as u64),
                    "{what}"
                );
                let id = report.session.unwrap();
                let mut out = Vec::new();
                jsonl::export(&log.snapshot().unwrap(), &id, .., &mut out, &mut |_| {}).unwrap();
                assert!(out == bytes, "{what}");
                // The original reads lines; we keep at least what it read, and in its order. Lines
                // that it cannot read and we can are what the table of quirks calls better.
                let Some(history) = session["load_full_history"].as_array() else { continue };
                let is_message = |item: &&Value| item.get("message").is_some();
                let messages: Vec<&str> = history
                    .iter()
                    .filter(is_message)
                    .map(|item| item["message"].as_str().unwrap())
                    .collect();
                let boundaries = (history.len() - messages.len()) as u64;
                let info = log.snapshot().unwrap().session(&id).unwrap().unwrap();
                assert_eq!(info.count(Kind::Checkpoint), boundaries, "{what}");
                let ours: Vec<String> = log
                    .read(&id, ..)
                    .unwrap()
                    .map(|event| event.unwrap())
                    .filter(|event| event.kind() == Kind::Message)
                    .map(|event| {
                        serde_json::from_slice::<Value>(event.bytes()).map_or_else(
                            |_| "unreadable by other readers".to_owned(),
                            |line| line["id"].as_str().unwrap().to_owned(),
                        )
                    })
                    .collect();
                let mut rest = ours.iter();
                for message in &messages {
                    assert!(rest.any(|id| id == message), "{what}: {message} in {ours:?}");
                }
                let more = ours.len() - messages.len();
                let allowed = match name.as_str() {
                    "damage" | "rewind" => 4,
                    _ => 0,
                };
                assert!(more <= allowed, "{what}: {ours:?}, the original has {messages:?}");
            }
            println!("ok   {name}");
        }
        println!("{sessions} sessions");
        assert!(sessions >= golden.at_least(14, 91), "{sessions}");
    }
}

#[test]
fn descriptions_are_read_and_refused_like_the_original() {
    for golden in golden() {
        let (mut read, mut refused) = (0, 0);
        for (_, case) in cases(&golden) {
            let expected = json(&case.join("expected.json"));
            for session in expected["sessions"].as_array().unwrap_or(&Vec::new()) {
                let path = dir_of(&case, session).join(".meta.json");
                let Ok(bytes) = std::fs::read(&path) else { continue };
                let expected = &session["load_meta"];
                let what = path.display();
                match Meta::parse(&bytes) {
                    Ok(meta) => {
                        let mut found: Value = serde_json::from_str(&meta.to_text()).unwrap();
                        // Unknown fields are kept here, and dropped by the original.
                        let known = expected.as_object().unwrap();
                        found.as_object_mut().unwrap().retain(|key, _| known.contains_key(key));
                        assert_eq!(&found, expected, "{what}");
                        read += 1;
                    }
                    Err(error) => {
                        assert!(expected.get("error").is_some(), "{what}: {error}");
                        let newer = expected["error"].as_str().unwrap().contains("schema_version=");
                        assert_eq!(matches!(error, MetaError::NewerSchema(_)), newer, "{what}");
                        refused += 1;
                    }
                }
            }
        }
        println!("{read} descriptions, {refused} refused");
        assert!(
            read >= golden.at_least(14, 91) && refused >= golden.at_least(1, 2),
            "{read}, {refused}"
        );
    }
}

/// Everything out of a home, into a log, and out again: the transcripts are the same bytes; the
/// descriptions are the same, as far as they were true.
#[test]
fn a_home_goes_out_as_it_came_in() {
    for golden in golden() {
        let (mut homes, mut descriptions, mut whole_descriptions) = (0, 0, 0);
        for (name, case) in cases(&golden) {
            let home = case.join("home");
            if !home.exists() || name.starts_with("legacy") {
                continue;
            }
            let scratch = tempfile::tempdir().unwrap();
            let log = EventLog::open(scratch.path().join("log")).unwrap();
            for found in jsonl::discover(&home).files {
                // One broken file never stops the others.
                _ = found.import(Some(&log), &ImportOptions::default(), &mut |_| {});
            }
            let out = scratch.path().join("out");
            let root: Arc<dyn eventlog::io::Dir> = Arc::new(StdDir::create(&out).unwrap());
            let snapshot = log.snapshot().unwrap();
            for session in snapshot.sessions() {
                let id = session.unwrap().id;
                let options = ExportOptions::default();
                jsonl::export_into(&snapshot, &id, options, &root, false, &mut |_| {}).unwrap();
            }
            let (before, after) = (tree(&home), tree(&out));
            let mut compared = 0;
            for (path, bytes) in &after {
                let Some(original) = before.get(path) else {
                    // A session whose id is not its directory's name, or without a description.
                    assert!(
                        ["layout_oddities", "meta_variants", "damage"].contains(&name.as_str()),
                        "{name}: {path:?}"
                    );
                    continue;
                };
                compared += 1;
                if !path.ends_with(".meta.json") {
                    assert!(bytes == original, "{name}: {path:?}");
                    continue;
                }
                let (Ok(ours), Ok(theirs)) = (Meta::parse(bytes), Meta::parse(original)) else {
                    continue;
                };
                let same = |meta: &Meta| {
                    let Meta {
                        session_id,
                        goal,
                        model,
                        provider,
                        created_at,
                        status,
                        preset,
                        name,
                        ..
                    } = meta.clone();
                    (session_id, goal, model, provider, created_at, status, preset, name)
                };
                if theirs.name.is_some() {
                    assert_eq!(same(&ours), same(&theirs), "{name}: {path:?}");
                    descriptions += 1;
                }
                // The original's count is stale after a crash and after a second session in the same
                // second, and hand-written descriptions count nothing.
                let honest = [
                    "simple_completed",
                    "statuses",
                    "audit",
                    "unicode_and_names",
                    "reasoning_content",
                ];
                if honest.contains(&name.as_str()) {
                    whole_descriptions += 1;
                    assert_eq!(
                        String::from_utf8_lossy(bytes),
                        String::from_utf8_lossy(original),
                        "{name}: {path:?}"
                    );
                }
            }
            assert!(compared > 0 || name == "layout_oddities", "{name}");
            println!("ok   {name}: {compared} files");
            homes += 1;
        }
        println!("{homes} homes, {descriptions} descriptions, {whole_descriptions} to the byte");
        assert!(homes >= golden.at_least(7, 10) && descriptions >= golden.at_least(10, 20));
        assert!(whole_descriptions >= golden.at_least(5, 5));
    }
}

/// The original adds up costs when a session is finished: twice when that happens twice, and not at
/// all after a crash. The lines tell.
#[test]
fn costs_are_derived_from_the_lines() {
    for golden in golden() {
        let case = golden.dir.join("usage_and_cost");
        let expected = json(&case.join("expected.json"));
        let (mut with_usage, mut finished_once) = (0, 0);
        for session in expected["sessions"].as_array().unwrap() {
            let dir = dir_of(&case, session);
            let text = std::fs::read_to_string(dir.join("transcript.jsonl")).unwrap();
            let mut sum = Usage::default();
            for line in text.lines() {
                for fact in Recursive.facts(line.as_bytes()) {
                    if let Content::Usage(usage) = fact.content {
                        sum += usage;
                    }
                }
            }
            let entries = session["load_transcript"].as_array().unwrap();
            let total = |key: &str| -> u64 {
                entries.iter().filter_map(|entry| entry["usage"][key].as_u64()).sum()
            };
            assert_eq!(
                (sum.input, sum.output, sum.cache_creation, sum.cache_read, sum.reasoning),
                (
                    total("input_tokens"),
                    total("output_tokens"),
                    total("cache_creation_tokens"),
                    total("cache_read_tokens"),
                    total("reasoning_tokens")
                )
            );
            with_usage += usize::from(sum != Usage::default());
            let goal = session["load_meta"]["goal"].as_str().unwrap();
            let meta = Meta::parse(&std::fs::read(dir.join(".meta.json")).unwrap()).unwrap();
            if goal == "finished once" {
                assert_eq!(meta.usage(), Some(sum));
                finished_once += 1;
            }
        }
        assert!(with_usage >= 2 && finished_once >= 1, "{with_usage}, {finished_once}");
    }
}

#[test]
fn workspaces_and_sessions_are_named_like_the_original_names_them() {
    for golden in golden() {
        let rows = json(&golden.dir.join("paths.json"));
        let rows = rows["rows"].as_array().unwrap();
        for row in rows {
            let workspace = row["workspace"].as_str().unwrap();
            assert_eq!(place::workspace_hash(Path::new(workspace)), row["hash"].as_str().unwrap());
            assert_eq!(place::slug(workspace), row["slug"].as_str().unwrap());
        }
        assert!(rows.len() >= golden.at_least(7, 11));
    }
}

#[test]
fn locks_are_understood_like_the_original_understands_them() {
    for golden in golden() {
        let rows = json(&golden.dir.join("locks.json"));
        let mut seen = [0, 0];
        for row in rows["rows"].as_array().unwrap() {
            let lock = row["lock_file"].as_str().and_then(Lock::parse);
            let acquired = !lock.is_some_and(|lock| lock.is_held("golden-host"));
            assert_eq!(acquired, row["acquired"].as_bool().unwrap(), "{row}");
            seen[usize::from(acquired)] += 1;
        }
        assert!(seen.iter().all(|rows| *rows >= 1), "held and not: {seen:?}");
    }
}

/// At every cut: what is before the cut line is there, the cut line is set aside or whole, and the
/// message that is appended next is found, which the original loses.
#[test]
fn a_transcript_cut_at_any_byte_is_read_and_goes_on() {
    for golden in golden() {
        let whole = std::fs::read(golden.dir.join("torn.transcript.jsonl")).unwrap();
        let table = json(&golden.dir.join("torn.json"));
        let next = r#"{"uuid":"00000000-0000-4000-8000-0000000000ff","id":"msg_099","role":"user","content":"next","timestamp":"2026-01-02T03:04:05Z"}"#;
        let rows = table["rows"].as_array().unwrap();
        for row in rows {
            let cut = row[0].as_u64().unwrap() as usize;
            let mut records = 0;
            let mut glued = false;
            let bytes = [&whole[..cut], next.as_bytes(), b"\n"].concat();
            jsonl::scan(&bytes[..], 1 << 20, &Recursive, "", &mut |span| {
                records += u64::from(matches!(span.what, jsonl::What::Record { .. }));
                glued |= span.entry.bytes() == next.as_bytes();
                Ok(())
            })
            .unwrap();
            if let Some(read) = row[2].as_u64() {
                let torn_in_a_value = !glued;
                assert!(records + u64::from(torn_in_a_value) > read, "cut at {cut}: {records}");
            }
            // Written by us, the message is found at every cut.
            let scratch = tempfile::tempdir().unwrap();
            let path = scratch.path().join("t.jsonl");
            std::fs::write(&path, &whole[..cut]).unwrap();
            let dir = StdDir::open(scratch.path()).unwrap();
            let file =
                eventlog::io::Dir::open(&dir, "t.jsonl", eventlog::io::OpenMode::Write).unwrap();
            let (_, len) = jsonl::repair_tail(&*file).unwrap();
            file.write_at(format!("{next}\n").as_bytes(), len).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            assert!(bytes.ends_with(format!("{next}\n").as_bytes()));
            let lines = bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty());
            assert!(lines.clone().all(|line| Recursive.classify(line).is_ok()), "cut at {cut}");
        }
        println!("{} cuts", rows.len());
        assert!(rows.len() >= golden.at_least(200, 1001), "{}", rows.len());
    }
}

/// The migration of the original, with the better behaviour: what does not collide is merged, an
/// empty target does not block, and a dry run changes nothing.
#[test]
fn migration_moves_everything_that_does_not_collide() {
    for golden in golden() {
        let (mut migrated, mut moved_paths) = (0, 0);
        for (name, case) in cases(&golden) {
            if !name.starts_with("legacy_in_tree") {
                continue;
            }
            let expected = json(&case.join("expected.json"));
            let scratch = tempfile::tempdir().unwrap();
            copy_all(&case, scratch.path());
            let (ws, home) = (scratch.path().join("ws"), scratch.path().join("home"));
            let hash = place::workspace_hash(&ws);
            if home.join("workspaces/WS-HASH").exists() {
                std::fs::rename(
                    home.join("workspaces/WS-HASH"),
                    home.join("workspaces").join(&hash),
                )
                .unwrap();
            }
            if name == "legacy_in_tree_listed_first" {
                std::fs::create_dir_all(home.join("workspaces").join(&hash).join("sessions"))
                    .unwrap();
            }
            let before = tree(scratch.path());
            let dry = jsonl::migrate(&ws, &home, true).unwrap();
            assert_eq!(tree(scratch.path()), before, "{name}: a dry run changes nothing");
            let done = jsonl::migrate(&ws, &home, false).unwrap();
            assert_eq!((&dry.moved, &dry.skipped), (&done.moved, &done.skipped), "{name}");
            assert!(done.skipped.is_empty(), "{name}: {:?}", done.skipped);
            // The original's list, with what it skipped.
            let steps = expected["migrate_steps"].as_array().unwrap();
            let legacy = steps.iter().find(|step| step["step"] == "legacy_paths");
            if let Some(legacy) = legacy {
                assert_eq!(done.moved.len(), legacy["result"].as_array().unwrap().len(), "{name}");
            }
            let after = tree(scratch.path());
            let moved = |path: &PathBuf| {
                let rest = path.strip_prefix("ws/.recursive").ok()?;
                let first = rest.iter().next()?.to_str()?;
                let moves = ["sessions", "shadow-git", "scratchpad.json"].contains(&first);
                moves.then(|| Path::new("home/workspaces").join(&hash).join(rest))
            };
            for (path, bytes) in &before {
                let now = moved(path).unwrap_or(path.clone());
                assert_eq!(after.get(&now), Some(bytes), "{name}: {path:?} is {now:?}");
            }
            let left: Vec<_> = after.keys().filter(|path| moved(path).is_some()).collect();
            assert!(left.is_empty(), "{name}: {left:?}");
            assert_eq!(done.removed_empty, !ws.join(".recursive").exists(), "{name}");
            let path_txt = home.join("workspaces").join(&hash).join("path.txt");
            assert!(path_txt.exists(), "{name}");
            let again = jsonl::migrate(&ws, &home, false).unwrap();
            assert!(again.is_clean(), "{name}");
            // In tree or at home, the sessions are found.
            assert!(
                jsonl::discover(scratch.path()).files.len() >= 2
                    || name.contains("only")
                    || name.contains("listed"),
                "{name}"
            );
            println!("ok   {name}: {} moved", done.moved.len());
            migrated += 1;
            moved_paths += done.moved.len();
        }
        assert!(migrated >= 2 && moved_paths >= 2, "{migrated} cases, {moved_paths} moved");
    }
}

#[test]
fn one_file_sessions_become_what_the_original_makes_of_them() {
    for golden in golden() {
        let case = golden.dir.join("legacy_single_file");
        let expected = json(&case.join("expected.json"));
        let scratch = tempfile::tempdir().unwrap();
        let log = EventLog::open(scratch.path().join("log")).unwrap();
        let (mut converted, mut refused) = (0, 0);
        for file in expected["single_files"].as_array().unwrap() {
            let path = case.join(file["file"].as_str().unwrap());
            let found = &jsonl::discover(&path).files[0];
            let report = found.import(Some(&log), &ImportOptions::default(), &mut |_| {});
            let Some(entries) = file["migrated"]["entries_after"].as_array() else {
                assert!(report.is_err(), "{}", path.display());
                refused += 1;
                continue;
            };
            let report = report.unwrap();
            if entries.is_empty() {
                assert_eq!(report.outcome, Outcome::Unchanged);
                continue;
            }
            let id = report.session.unwrap();
            let lines = log.read(&id, ..).unwrap().map(|event| event.unwrap());
            for (line, expected) in lines.zip(entries) {
                let line: Value = serde_json::from_slice(line.bytes()).unwrap();
                for key in
                    ["id", "parent_id", "role", "content", "tool_call_id", "reasoning_content"]
                {
                    assert_eq!(line[key], expected[key], "{key} of {line}");
                }
                let calls = line.get("tool_calls").cloned().unwrap_or(Value::Array(Vec::new()));
                assert_eq!(calls, expected["tool_calls"]);
            }
            let info = log.snapshot().unwrap().session(&id).unwrap().unwrap();
            assert_eq!(info.events, entries.len() as u64);
            let meta: Value = serde_json::from_str(&info.attributes.meta.unwrap()).unwrap();
            for (key, value) in file["migrated"]["meta_after"].as_object().unwrap() {
                assert_eq!(&meta.get(key).cloned().unwrap_or(Value::Null), value, "{key}");
            }
            let again = found.import(Some(&log), &ImportOptions::default(), &mut |_| {}).unwrap();
            assert_eq!(again.outcome, Outcome::Unchanged);
            converted += 1;
        }
        assert!(converted >= 1 && refused >= 1, "{converted} converted, {refused} refused");
    }
}

fn set_times(case: &Path, root: &Path) {
    let times = json(&case.join("case.json"));
    let Some(times) = times.get("mtimes").and_then(Value::as_object) else { return };
    for (path, seconds) in times {
        let time =
            std::time::UNIX_EPOCH + std::time::Duration::from_secs_f64(seconds.as_f64().unwrap());
        let file = std::fs::File::options().write(true).open(root.join(path)).unwrap();
        file.set_modified(time).unwrap();
    }
}

#[test]
fn sessions_are_listed_in_the_order_of_the_original() {
    for golden in golden() {
        let mut compared = 0;
        for (name, case) in cases(&golden) {
            let expected = json(&case.join("expected.json"));
            let Some(list) = expected["list_sessions_sorted_by_updated_at"].as_array() else {
                continue;
            };
            let scratch = tempfile::tempdir().unwrap();
            copy_all(&case, scratch.path());
            set_times(&case, scratch.path());
            let workspaces = scratch.path().join("home/workspaces");
            let Ok(mut entries) = std::fs::read_dir(workspaces) else { continue };
            let Some(Ok(workspace)) = entries.next() else { continue };
            if name.starts_with("legacy_in_tree") {
                // What is there after a migration is the migration's test.
                continue;
            }
            let listing = jsonl::list_recursive(&workspace.path().join("sessions")).unwrap();
            let found: Vec<Value> = listing
                .sessions
                .iter()
                .map(|listed| {
                    serde_json::json!({
                        "dir_name": listed.path.file_name().unwrap().to_str().unwrap(),
                        "session_id": listed.session,
                        "updated_at": listed.updated_at,
                        "status": listed.status.unwrap().name(),
                    })
                })
                .collect();
            assert_eq!(&found, list, "{name}");
            let all = expected["list_sessions"].as_array().unwrap();
            assert_eq!(listing.sessions.len() + listing.unreadable.len(), all.len(), "{name}");
            let open =
                list.iter().find(|s| s["status"] == "active" || s["status"] == "interrupted");
            let resumed = listing.resumable().map(|listed| listed.session.as_str());
            assert_eq!(resumed, open.map(|open| open["session_id"].as_str().unwrap()), "{name}");
            compared += 1;
        }
        assert!(compared >= golden.at_least(5, 16), "{compared}");
    }
}

/// Cutting back to a turn keeps the lines before it. The original counts all of them as messages;
/// we count the messages.
#[test]
fn what_stands_before_a_turn_is_what_the_original_keeps_of_it() {
    for golden in golden() {
        let mut cuts = 0;
        for (name, case) in cases(&golden) {
            let expected = json(&case.join("expected.json"));
            for session in expected["sessions"].as_array().unwrap_or(&Vec::new()) {
                let Some(rows) = session["truncate_transcript_to_turn"].as_array() else {
                    continue;
                };
                let path = dir_of(&case, session).join("transcript.jsonl");
                let Ok(bytes) = std::fs::read(&path) else { continue };
                // Where the original reads other lines than we do, it keeps others: its table of
                // quirks.
                if name == "damage" || bytes.trim_ascii().is_empty() {
                    continue;
                }
                let scratch = tempfile::tempdir().unwrap();
                let log = EventLog::open(scratch.path().join("log")).unwrap();
                let report = import(&log, &path);
                let id = report.session.unwrap();
                // A damaged line counts as a turn of the original when it reads like one.
                let counted = report.quarantined.iter().any(|span| {
                    let start = span.offset as usize;
                    let text = String::from_utf8_lossy(&bytes[start..start + span.length as usize]);
                    text.contains("\"role\":\"user\"")
                });
                if counted {
                    continue;
                }
                for row in rows {
                    let turn = row["cutoff_turn"].as_u64().unwrap();
                    let snapshot = log.snapshot().unwrap();
                    let end = snapshot.find(&id, eventlog::Position::UserTurn(turn)).unwrap();
                    let end = end.unwrap_or(snapshot.session(&id).unwrap().unwrap().events);
                    let kept: Vec<_> =
                        snapshot.read(&id, 0..end).unwrap().map(|e| e.unwrap()).collect();
                    let lines = kept.iter().filter(|event| event.kind() != Kind::Blank);
                    assert_eq!(
                        lines.clone().count() as u64,
                        row["kept_lines"].as_u64().unwrap(),
                        "{name}"
                    );
                    let size: u64 = lines.map(|event| event.bytes().len() as u64 + 1).sum();
                    assert_eq!(size, row["file_bytes"].as_u64().unwrap(), "{name}, turn {turn}");
                    cuts += 1;
                }
            }
        }
        println!("{cuts} cuts");
        assert!(cuts >= golden.at_least(20, 101), "{cuts}");
    }
}

#[test]
fn a_description_that_somebody_has_changed_is_not_changed_back() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("workspaces/unknown/sessions/slug/one");
    std::fs::create_dir_all(&dir).unwrap();
    let line = r#"{"id":"msg_001","role":"user","content":"x","timestamp":"2026-01-02T03:04:05Z"}"#;
    std::fs::write(dir.join("transcript.jsonl"), format!("{line}\n")).unwrap();
    let log = EventLog::open(scratch.path().join("log")).unwrap();
    import(&log, &dir.join("transcript.jsonl"));
    let root: Arc<dyn eventlog::io::Dir> =
        Arc::new(StdDir::create(scratch.path().join("out")).unwrap());
    let snapshot = log.snapshot().unwrap();
    let options = ExportOptions::default();
    let export = |force| {
        let (path, _) =
            jsonl::export_into(&snapshot, "one", options, &root, force, &mut |_| {}).unwrap();
        path.with_file_name(".meta.json")
    };
    let meta = export(false);
    let edited =
        std::fs::read_to_string(&meta).unwrap().replace("\"name\": \"x\"", "\"name\": \"mine\"");
    assert!(edited.contains("mine"));
    std::fs::write(&meta, &edited).unwrap();
    export(false);
    assert_eq!(std::fs::read_to_string(&meta).unwrap(), edited);
    export(true);
    assert!(!std::fs::read_to_string(&meta).unwrap().contains("mine"));
}

#[test]
fn a_document_with_another_time_is_the_same_document() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("old.legacy.json");
    let document =
        r#"{"session_id": "old", "history_messages": [{"role": "user", "content": "q"}]}"#;
    std::fs::write(&path, document).unwrap();
    let log = EventLog::open(scratch.path().join("log")).unwrap();
    assert_eq!(import(&log, &path).outcome, Outcome::Imported);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1)).unwrap();
    assert_eq!(import(&log, &path).outcome, Outcome::Unchanged);
}

/// A foreign file is data: it never stops an import.
#[test]
fn odd_files_beside_a_transcript_do_not_stop_its_import() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("workspaces/h/sessions/slug/one");
    std::fs::create_dir_all(&dir).unwrap();
    let line = r#"{"id":"msg_001","role":"user","content":"x","timestamp":"t"}"#;
    std::fs::write(dir.join("transcript.jsonl"), format!("{line}\n")).unwrap();
    std::fs::write(scratch.path().join("workspaces/h/path.txt"), "/x".repeat(9000)).unwrap();
    let pid = std::process::id();
    let host = place::host_name();
    std::fs::write(dir.join(".lock"), format!("{pid}\n{host}\n{}\n", u64::MAX)).unwrap();
    let log = EventLog::open(scratch.path().join("log")).unwrap();
    let report = import(&log, &dir.join("transcript.jsonl"));
    assert_eq!(report.outcome, Outcome::Imported);
    assert!(report.finding_counts.keys().any(|code| code.name() == "lock_held"));
}

/// Whatever is left out is named, and ids are different.
#[test]
fn a_conversion_says_what_it_leaves_out() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("t.jsonl");
    let event = |id: &str, payload: &str| {
        format!(
            r#"{{"event_id":"{id}","timestamp":"t","session_id":"s","run_id":"r","step":0,"event_type":"message","payload":{payload}}}"#
        )
    };
    let lines = [
        event("", r#"{"role":"user","content":["parts"]}"#),
        event(
            "",
            r#"{"role":"assistant","content":"a","metadata":{"reasoning_content":"hm","tool_calls":[{"id":"c","name":"R","arguments":{},"extra":1}]}}"#,
        ),
        event(
            "",
            r#"{"role":"tool","content":"r","metadata":{"tool_name":"R","tool_call_id":"c"}}"#,
        ),
    ];
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    let log = EventLog::open(scratch.path().join("log")).unwrap();
    import(&log, &path);
    let mut options = ExportOptions::default();
    options.format = Some(&Recursive);
    let mut out = Vec::new();
    let snapshot = log.snapshot().unwrap();
    let exported = jsonl::export_as(&snapshot, "s", options, &mut out, &mut |_| {}).unwrap();
    let said = exported.not_carried.join("; ");
    for what in ["content that is no text (1)", "field extra of calls (1)", "field tool_name (1)"] {
        assert!(said.contains(what), "{what}: {said}");
    }
    let out: Vec<Value> = String::from_utf8(out)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(out[1]["reasoning_content"], "hm");
    let ids: std::collections::BTreeSet<_> =
        out.iter().map(|line| line["uuid"].to_string()).collect();
    assert_eq!(ids.len(), 3);
}
