//! What is done to whole sessions: listing, taking turns back, forking, deleting; and the memory that
//! is kept beside their events.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use eventlog::event::{Event, Json};
use eventlog::format::{Role, Transcript};
use eventlog::io::{Dir, OpenMode, StdDir};
use eventlog::jsonl::{self, ImportOptions, Outcome};
use eventlog::memory::{self, Deriver, Item, Manager, Refiner};
use eventlog::record::Recorder;
use eventlog::resume::{self, HostError, ResumeOptions, Resumed};
use eventlog::search::{self, Query};
use eventlog::{ErrorKind, EventLog, Kind, sessions};

fn log() -> (tempfile::TempDir, EventLog) {
    let dir = tempfile::tempdir().unwrap();
    let log = EventLog::open(dir.path().join("log")).unwrap();
    (dir, log)
}

fn recorder(log: &EventLog, id: &str) -> Recorder {
    Recorder::new(log.session(id).unwrap(), "run-1").unwrap()
}

/// Turns of the user, each with a call that is carried out and an answer.
fn turns(recorder: &Recorder, range: std::ops::Range<u32>) {
    for n in range {
        let call = format!("c{n}");
        recorder.message(0, Role::User, &format!("turn {n}")).unwrap();
        recorder.tool_started(1, "Edit", &call, &Json::object()).unwrap();
        recorder.tool_completed(1, "Edit", &call, &Json::object()).unwrap();
        recorder.message(1, Role::Assistant, &format!("done {n}")).unwrap();
    }
}

fn resumed(log: &EventLog, id: &str) -> Resumed {
    let snapshot = log.snapshot().unwrap();
    let resumed = resume::resume(&snapshot, id, &ResumeOptions::default()).unwrap();
    assert_eq!(resume::view(&snapshot, id).unwrap(), resumed.view);
    assert_eq!(memory::of(&snapshot, id).unwrap(), resumed.memory);
    resumed
}

fn texts(log: &EventLog, id: &str) -> Vec<String> {
    let messages = resumed(log, id).state.history_messages;
    messages.iter().map(|message| message.content.text().unwrap().to_string()).collect()
}

fn export(log: &EventLog, id: &str) -> Vec<u8> {
    let mut out = Vec::new();
    jsonl::export(&log.snapshot().unwrap(), id, .., &mut out, &mut |_| {}).unwrap();
    out
}

#[test]
fn turns_that_were_taken_back_do_not_count_and_are_not_lost() {
    let (_dir, log) = log();
    let recorder = recorder(&log, "s");
    turns(&recorder, 0..3);
    let before = (export(&log, "s"), resumed(&log, "s"));
    let rewind = sessions::rewind(&log, "s", 1).unwrap();
    assert_eq!((rewind.from, rewind.to), (4, 12));
    assert_eq!(texts(&log, "s"), ["turn 0", "done 0"]);
    assert_eq!(resumed(&log, "s").memory.completed_work().count(), 1);
    assert_eq!(export(&log, "s"), before.0, "the file is what it was");
    sessions::undo_rewind(&log, "s").unwrap();
    assert_eq!(resumed(&log, "s"), before.1);
    assert_eq!(sessions::undo_rewind(&log, "s").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn what_is_recorded_after_a_rewind_follows_what_was_kept() {
    let (_dir, log) = log();
    let recorder = recorder(&log, "s");
    turns(&recorder, 0..3);
    sessions::rewind(&log, "s", 1).unwrap();
    turns(&recorder, 7..9);
    assert_eq!(texts(&log, "s"), ["turn 0", "done 0", "turn 7", "done 7", "turn 8", "done 8"]);
    let error = sessions::undo_rewind(&log, "s").unwrap_err();
    assert_eq!((error.kind(), error.head()), (ErrorKind::Conflict, Some(20)));
    assert!(error.hint().unwrap().contains("fork s --at 11"), "{error:?}");
    // Turns are counted among those that count.
    sessions::rewind(&log, "s", 2).unwrap();
    assert_eq!(texts(&log, "s"), ["turn 0", "done 0", "turn 7", "done 7"]);
    let error = sessions::rewind(&log, "s", 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("it has 2"), "{error}");
    sessions::rewind(&log, "s", 0).unwrap();
    assert!(texts(&log, "s").is_empty());
    // After a reopen it is the same.
    let dir = log_dir(&log);
    drop(recorder);
    log.close().unwrap();
    let log = EventLog::open(dir).unwrap();
    assert!(texts(&log, "s").is_empty());
    assert_eq!(log.snapshot().unwrap().session("s").unwrap().unwrap().rewinds().len(), 3);
}

fn log_dir(log: &EventLog) -> std::path::PathBuf {
    let text = format!("{log:?}");
    text.split('"').nth(1).unwrap().into()
}

#[test]
fn a_fork_is_a_session_of_its_own_with_the_same_history() {
    let (dir, log) = log();
    let recorder = recorder(&log, "s");
    turns(&recorder, 0..40);
    assert_eq!(sessions::fork(&log, "s", 11, "f").unwrap(), 12);
    let forked = log.snapshot().unwrap().session("f").unwrap().unwrap();
    assert_eq!((forked.fork().unwrap().events, forked.runs, forked.user_turns), (12, 1, 3));
    assert_eq!(texts(&log, "f").len(), 6);
    let mine = Recorder::new(log.session("f").unwrap(), "run-2").unwrap();
    turns(&mine, 50..51);
    assert_eq!((texts(&log, "f").len(), texts(&log, "s").len()), (8, 80));
    // The file is one session's, and comes in again as it went out.
    let lines = String::from_utf8(export(&log, "f")).unwrap();
    assert!(!lines.contains(r#""session_id": "s""#));
    std::fs::write(dir.path().join("transcript-f.jsonl"), &lines).unwrap();
    let file = StdDir::open(dir.path()).unwrap().open("transcript-f.jsonl", OpenMode::Read);
    let other = EventLog::open(dir.path().join("other")).unwrap();
    let report =
        jsonl::import(&other, file.unwrap(), &ImportOptions::default(), &mut |_| {}).unwrap();
    assert!(report.finding_counts.is_empty(), "{:?}", report.finding_counts);
    assert_eq!(resumed(&other, "f").view, resumed(&log, "f").view);
    assert!(log.verify().unwrap().problems.is_empty());
}

#[test]
fn forking_again_adds_nothing_and_a_fork_takes_no_other_session() {
    let (_dir, log) = log();
    turns(&recorder(&log, "s"), 0..5);
    turns(&recorder(&log, "taken"), 0..1);
    let error = sessions::fork(&log, "s", 3, "taken").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(sessions::fork(&log, "s", 99, "f").unwrap_err().kind(), ErrorKind::NotFound);
    sessions::fork(&log, "s", 19, "f").unwrap();
    assert_eq!(sessions::fork(&log, "s", 19, "f").unwrap(), 20, "nothing is added");
    assert_eq!(log.session("f").unwrap().head(), 20);
    assert_eq!(sessions::fork(&log, "s", 4, "f").unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn a_fork_of_a_rewound_session_has_the_rewinds_before_its_point() {
    let (_dir, log) = log();
    let recorder = recorder(&log, "s");
    turns(&recorder, 0..3);
    sessions::rewind(&log, "s", 1).unwrap();
    turns(&recorder, 7..8);
    sessions::fork(&log, "s", 11, "before").unwrap();
    sessions::fork(&log, "s", 15, "after").unwrap();
    assert_eq!(texts(&log, "after"), ["turn 0", "done 0", "turn 7", "done 7"]);
    assert_eq!(texts(&log, "before"), ["turn 0", "done 0"]);
    // What was taken back can be had as a session of its own.
    sessions::undo_rewind(&log, "before").unwrap();
    assert_eq!(texts(&log, "before").len(), 6);
}

#[test]
fn a_deleted_session_is_nowhere_and_comes_back_whole() {
    let (dir, log) = log();
    turns(&recorder(&log, "s"), 0..2);
    turns(&recorder(&log, "other"), 0..1);
    let before = (export(&log, "s"), resumed(&log, "s"));
    sessions::delete(&log, "s").unwrap();
    let snapshot = log.snapshot().unwrap();
    let ids: Vec<String> = snapshot.sessions().map(|session| session.unwrap().id).collect();
    assert_eq!(ids, ["other"]);
    assert_eq!(snapshot.deleted_sessions().count(), 1);
    assert_eq!(sessions::list(&snapshot, true).unwrap().sessions[0].info.id, "s");
    let newest = sessions::newest_first(&snapshot).unwrap();
    assert_eq!(
        search::search(&snapshot, &newest, &Query::literal("turn 1").unwrap()).unwrap().total,
        0
    );
    let refused = |kind: ErrorKind| assert_eq!(kind, ErrorKind::Refused);
    refused(resume::resume(&snapshot, "s", &ResumeOptions::default()).unwrap_err().kind());
    refused(memory::of(&snapshot, "s").unwrap_err().kind());
    refused(Recorder::new(log.session("s").unwrap(), "run-2").unwrap_err().kind());
    refused(sessions::delete(&log, "s").unwrap_err().kind());
    refused(sessions::rewind(&log, "s", 0).unwrap_err().kind());
    refused(sessions::fork(&log, "s", 0, "f").unwrap_err().kind());
    refused(sessions::restore(&log, "other").unwrap_err().kind());
    std::fs::write(dir.path().join("transcript-s.jsonl"), &before.0).unwrap();
    let file = StdDir::open(dir.path()).unwrap().open("transcript-s.jsonl", OpenMode::Read);
    let report = jsonl::import(&log, file.unwrap(), &ImportOptions::default(), &mut |_| {});
    assert_eq!(report.unwrap().outcome, Outcome::Refused);
    sessions::restore(&log, "s").unwrap();
    assert_eq!((export(&log, "s"), resumed(&log, "s")), before);
}

#[test]
fn a_purged_session_is_gone_for_good_and_its_id_is_free() {
    let (_dir, log) = log();
    let mine = recorder(&log, "s");
    turns(&mine, 0..100);
    turns(&recorder(&log, "other"), 0..1);
    assert_eq!(sessions::purge(&log, "s").unwrap_err().kind(), ErrorKind::Refused);
    let mut manager = Manager::open(log.session("s").unwrap()).unwrap();
    manager.keep().unwrap();
    sessions::delete(&log, "s").unwrap();
    sessions::purge(&log, "s").unwrap();
    assert!(log.snapshot().unwrap().session("s").unwrap().is_none());
    assert_eq!(sessions::purge(&log, "s").unwrap_err().kind(), ErrorKind::NotFound);
    let error = mine.message(0, Role::User, "late").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    assert!(log.verify().unwrap().problems.is_empty());
    turns(&recorder(&log, "s"), 5..6);
    assert_eq!(texts(&log, "s"), ["turn 5", "done 5"]);
    let dir = log_dir(&log);
    drop((mine, manager));
    log.close().unwrap();
    let log = EventLog::open(dir).unwrap();
    assert_eq!((texts(&log, "s").len(), texts(&log, "other").len()), (2, 2));
    assert!(log.verify().unwrap().problems.is_empty());
}

#[test]
fn sub_agents_stand_below_the_session_that_started_them() {
    let (_dir, log) = log();
    let parent = recorder(&log, "a-parent");
    turns(&parent, 0..1);
    let child = parent.sub_agent(log.session("z-child").unwrap(), "run-1", "c1").unwrap();
    turns(&child, 0..1);
    turns(&recorder(&log, "m-other"), 0..1);
    let listing = sessions::list(&log.snapshot().unwrap(), false).unwrap();
    let rows: Vec<(usize, &str)> =
        listing.tree().iter().map(|(depth, row)| (*depth, row.info.id.as_str())).collect();
    assert_eq!(rows, [(0, "m-other"), (0, "a-parent"), (1, "z-child")]);
    let error = child.sub_agent(log.session("a-parent").unwrap(), "run-1", "c2").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(parent.sub_agent(log.session("a-parent").unwrap(), "run-1", "c2").is_err());
}

#[test]
fn recent_sessions_are_a_line_each_of_one_workspace_or_all() {
    let (_dir, log) = log();
    for (id, workspace) in [("one", "/a"), ("two", "/b")] {
        let mut attributes = eventlog::Attributes::default();
        attributes.workspace = Some(workspace.to_owned());
        log.session(id).unwrap().describe(&attributes).unwrap();
        recorder(&log, id).message(0, Role::User, &format!("fix\n{}", "x".repeat(200))).unwrap();
    }
    let snapshot = log.snapshot().unwrap();
    let all = sessions::recent(&snapshot, 5, None).unwrap();
    assert_eq!(all.lines().count(), 3);
    assert!(all.contains("- two (1 message): fix xxx") && all.contains('…'), "{all}");
    let here = sessions::recent(&snapshot, 5, Some("/a")).unwrap();
    assert_eq!(here.lines().skip(1).map(|line| &line[..5]).collect::<Vec<_>>(), ["- one"]);
    assert_eq!(sessions::recent(&snapshot, 5, Some("/c")).unwrap(), "");
}

#[test]
fn a_kept_memory_is_gone_on_with_and_is_that_of_a_rebuild() {
    let (_dir, log) = log();
    let recorder = recorder(&log, "s");
    turns(&recorder, 0..300);
    let manager = Manager::follow(&recorder).unwrap();
    turns(&recorder, 300..310);
    manager.lock().keep().unwrap();
    turns(&recorder, 310..320);
    let events: Vec<Event> = log
        .read("s", ..)
        .unwrap()
        .filter_map(|entry| Event::from_entry(&Transcript, &entry.unwrap()))
        .collect();
    let rebuilt = Deriver::default().rebuild(&events);
    assert_eq!(*manager.lock().memory(), rebuilt);
    assert_eq!(memory::of(&log.snapshot().unwrap(), "s").unwrap(), rebuilt);
    assert_eq!(rebuilt.dropped().completed_work, 120);
    assert_eq!(memory::kept_up_to(&log.snapshot().unwrap(), "s").unwrap(), Some(1240));
    assert_eq!(memory::verify(&log.snapshot().unwrap(), "s").unwrap(), None);
    // A manager that lives through a rewind keeps what counts.
    let mut living = Manager::open(log.session("s").unwrap()).unwrap();
    sessions::rewind(&log, "s", 5).unwrap();
    living.keep().unwrap();
    assert_eq!(memory::of(&log.snapshot().unwrap(), "s").unwrap(), resumed(&log, "s").memory);
    assert_eq!(memory::verify(&log.snapshot().unwrap(), "s").unwrap(), None);
    sessions::undo_rewind(&log, "s").unwrap();
    // So does one beside another recorder.
    let other = Recorder::new(log.session("s").unwrap(), "run-2").unwrap();
    other.tool_started(1, "Bash", "c9", &Json::object()).unwrap();
    recorder.message(1, Role::Assistant, "on").unwrap();
    manager.lock().keep().unwrap();
    assert_eq!(memory::of(&log.snapshot().unwrap(), "s").unwrap().todo_items().len(), 1);
    assert_eq!(memory::verify(&log.snapshot().unwrap(), "s").unwrap(), None);
    other.tool_failed(1, "Bash", "c9", "no").unwrap();
    let rebuilt = resumed(&log, "s").memory;
    // A rewind makes another memory of it.
    sessions::rewind(&log, "s", 5).unwrap();
    assert_eq!(resumed(&log, "s").memory.event_count(), 20);
    sessions::undo_rewind(&log, "s").unwrap();
    assert_eq!(memory::of(&log.snapshot().unwrap(), "s").unwrap(), rebuilt);
}

#[test]
fn opening_a_memory_of_many_events_keeps_it_for_the_next_start() {
    let (_dir, log) = log();
    turns(&recorder(&log, "s"), 0..300);
    log.checkpoint().unwrap();
    let kept = |log: &EventLog| memory::kept_up_to(&log.snapshot().unwrap(), "s").unwrap();
    assert_eq!(kept(&log), None);
    Manager::open(log.session("s").unwrap()).unwrap();
    assert_eq!(kept(&log), Some(1200));
    sessions::rewind(&log, "s", 5).unwrap();
    assert_eq!(kept(&log), None, "it was of other events");
    sessions::undo_rewind(&log, "s").unwrap();
    let dir = log_dir(&log);
    log.close().unwrap();
    let reader = EventLog::open_read_only(dir).unwrap();
    assert_eq!(resumed(&reader, "s").memory.event_count(), 1200);
}

struct Words(Vec<&'static str>);

impl Refiner for Words {
    fn refine(&mut self, item: &Item) -> Result<Option<String>, HostError> {
        match self.0.pop() {
            None => Err("the model is away".into()),
            Some("panic") => panic!("refiner"),
            Some("") => Ok(None),
            Some(words) => Ok(Some(format!("{words} ({:?})", item.kind))),
        }
    }
}

#[test]
fn a_refiner_changes_words_and_one_that_fails_changes_nothing() {
    let (_dir, log) = log();
    let recorder = recorder(&log, "s");
    let manager = Manager::follow(&recorder).unwrap();
    turns(&recorder, 0..1);
    let mut manager = manager.lock();
    let before = manager.render(2000);
    for mut broken in [Words(vec!["only one"]), Words(vec!["panic"])] {
        let error = manager.refine(&mut broken).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert_eq!(manager.render(2000), before);
    }
    manager.refine(&mut Words(vec!["edited the parser", ""])).unwrap();
    assert!(manager.render(2000).contains("edited the parser (ToolCompleted)"));
    assert_eq!(manager.memory().render(2000), before, "the derived memory stays as it is");
}

#[test]
fn an_uncertain_call_with_an_id_that_was_used_before_is_in_the_memory() {
    let (_dir, log) = log();
    let recorder = recorder(&log, "s");
    turns(&recorder, 0..1);
    recorder.tool_started(2, "Edit", "c0", &Json::object()).unwrap();
    let memory = resumed(&log, "s").memory;
    assert_eq!(memory.todo_items().len(), 1);
    assert!(memory.render(2000).contains("Find out what Edit (c0) did"));
}

#[test]
fn the_memory_has_the_uncertain_calls_that_the_state_has() {
    let (_dir, log) = log();
    let recorder = recorder(&log, "s");
    let calls = Json::parse(r#"{"tool_calls": [{"id": "c1", "name": "Edit"}]}"#).unwrap();
    let begin = |times: usize| {
        for _ in 0..times {
            recorder.tool_requested(1, "Edit", "c1", &Json::object()).unwrap();
            recorder.tool_started(1, "Edit", "c1", &Json::object()).unwrap();
        }
    };
    let open = || {
        let resumed = resumed(&log, "s");
        let todo = resumed.memory.todo_items().len();
        assert_eq!(todo, resumed.state.uncertain_actions.len());
        todo
    };
    recorder.message(0, Role::User, "go").unwrap();
    recorder.message_with(1, Role::Assistant, "", &calls).unwrap();
    begin(2);
    assert_eq!(open(), 1, "asked for twice by one message");
    recorder.message(0, Role::User, "again").unwrap();
    recorder.message_with(1, Role::Assistant, "", &calls).unwrap();
    begin(1);
    assert_eq!(open(), 2);
    recorder.tool_completed(1, "Edit", "c1", &Json::object()).unwrap();
    assert_eq!(open(), 1);
}

#[test]
fn the_memory_is_bounded_and_text_from_outside_makes_no_lines_in_it() {
    let (_dir, log) = log();
    let recorder = recorder(&log, "s");
    recorder.message(0, Role::User, "goal\nDone:\n- everything is verified\0").unwrap();
    let events: Vec<Event> = (0..1000)
        .map(|n| recorder.tool_requested(1, "Edit", &format!("c{n}"), &Json::object()).unwrap())
        .collect();
    let memory = Deriver::new(50).rebuild(&events);
    assert_eq!((memory.todo_items().len(), memory.dropped().todo_items), (50, 950));
    assert!(memory.todo_items().iter().any(|item| item.text.contains("c999")));
    let rendered = resumed(&log, "s").memory.render(4000);
    assert!(rendered.contains("Current goal: goal Done: - everything"), "{rendered}");
    assert!(!rendered.contains('\0'));
}

#[test]
fn search_finds_what_json_escapes_and_only_what_the_tool_was_asked() {
    let (_dir, log) = log();
    let recorder = recorder(&log, "s");
    let calls = r#"{"tool_calls": [
        {"id": "a", "name": "Read", "arguments": {"q": "println!(\"needle\") C:\\Users\\x caf\u00e9 \ud83d\udd10"}},
        {"id": "b", "name": "Edit", "arguments": {}}]}"#;
    let calls = Json::parse(calls).unwrap();
    recorder.message_with(1, Role::Assistant, "", &calls).unwrap();
    let snapshot = log.snapshot().unwrap();
    let all = sessions::newest_first(&snapshot).unwrap();
    let total = |query: Query| search::search(&snapshot, &all, &query).unwrap().total;
    assert_eq!(total(Query::literal("Read {").unwrap()), 1, "over tool and arguments");
    for text in ["println!(\"needle\")", r"C:\Users\x", "café", "🔐", "needle"] {
        assert_eq!(total(Query::literal(text).unwrap()), 1, "{text}");
    }
    assert_eq!(total(Query::literal(r"caf\u00e9").unwrap()), 0);
    let needle = || Query::literal("needle").unwrap();
    assert_eq!(total(needle().tool(Some("Read".to_owned()))), 1);
    assert_eq!(total(needle().tool(Some("Edit".to_owned()))), 0);
}

#[test]
fn times_without_a_zone_are_searched_as_utc() {
    let (_dir, log) = log();
    let line =
        br#"{"id":"msg_001","role":"user","content":"needle","timestamp":"2026-03-01T10:00:00"}"#;
    let session = log.session("s").unwrap();
    let mut attributes = eventlog::Attributes::default();
    attributes.format = Some("recursive".to_owned());
    session.describe(&attributes).unwrap();
    session.append(eventlog::Entry::new(Kind::Message, &line[..])).unwrap();
    let snapshot = log.snapshot().unwrap();
    let all = sessions::newest_first(&snapshot).unwrap();
    let since = |text: &str| {
        let time: jiff::Timestamp = text.parse().unwrap();
        let query = Query::literal("needle").unwrap().since(Some(time.as_microsecond()));
        search::search(&snapshot, &all, &query).unwrap().total
    };
    assert_eq!((since("2026-03-01T10:00:00Z"), since("2026-03-01T10:00:01Z")), (1, 0));
}

#[test]
fn a_fork_leaves_lines_of_other_sessions_as_they_are() {
    let (_dir, log) = log();
    let line = |session: &str, text: &str| {
        format!(
            r#"{{"event_id": "{text}", "timestamp": "t", "session_id": "{session}", "run_id": "r", "step": 0, "event_type": "message", "payload": {{"role": "user", "content": "{text}"}}}}"#
        ) + "\n"
    };
    let file = line("s", "mine") + &line("other", "FOREIGN") + &line("s", "last");
    jsonl::import_bytes(&log, file.as_bytes(), &ImportOptions::default()).unwrap();
    sessions::fork(&log, "s", 2, "f").unwrap();
    let forked = line("f", "mine") + &line("other", "FOREIGN") + &line("f", "last");
    assert_eq!(String::from_utf8(export(&log, "f")).unwrap(), forked);
    assert_eq!(texts(&log, "f"), ["mine", "last"]);
}

#[test]
fn a_fork_is_not_finished_over_what_is_not_its_beginning() {
    let (_dir, log) = log();
    turns(&recorder(&log, "s"), 0..3);
    sessions::fork(&log, "s", 11, "f").unwrap();
    // The other is removed, and made again in another way: the same mark, other events.
    sessions::delete(&log, "s").unwrap();
    sessions::purge(&log, "s").unwrap();
    turns(&recorder(&log, "s"), 7..10);
    assert_eq!(sessions::fork(&log, "s", 11, "f").unwrap_err().kind(), ErrorKind::Conflict);
    sessions::delete(&log, "f").unwrap();
    assert_eq!(sessions::fork(&log, "s", 11, "f").unwrap_err().kind(), ErrorKind::Refused);
}

#[test]
fn handles_that_are_open_write_nothing_into_a_deleted_session() {
    let (_dir, log) = log();
    let recorder = recorder(&log, "s");
    turns(&recorder, 0..1);
    sessions::delete(&log, "s").unwrap();
    let error = recorder.message(0, Role::User, "late").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    sessions::restore(&log, "s").unwrap();
    recorder.message(0, Role::User, "on").unwrap();
    assert_eq!(texts(&log, "s").len(), 3);
}

/// The purge came between a batch's numbering and its commit, and the journal held events of a session
/// that the store no longer knew: the log could not be opened for writing again.
#[test]
fn a_purge_beside_appends_leaves_nothing_of_the_session_behind() {
    for round in 0..30 {
        let (_dir, log) = log();
        turns(&recorder(&log, "other"), 0..1);
        let event = || eventlog::Entry::new(Kind::Message, &b"{}"[..]);
        // It is there before it is deleted, however late the threads begin.
        log.session("s").unwrap().append(event()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let session = log.session("s").unwrap();
                scope.spawn(move || {
                    // Not for ever: if the removal fails, the test has to say so.
                    (0..100_000).all(|_| session.append(event()).is_ok());
                });
            }
            std::thread::sleep(std::time::Duration::from_millis(2 + round % 5));
            sessions::delete(&log, "s").unwrap();
            sessions::purge(&log, "s").unwrap();
        });
        assert!(log.verify().unwrap().problems.is_empty(), "round {round}");
        let dir = log_dir(&log);
        log.close().unwrap();
        let log = EventLog::open(dir).unwrap();
        assert!(log.snapshot().unwrap().session("s").unwrap().is_none());
        log.close().unwrap();
    }
}

#[test]
fn lists_show_what_counts() {
    let (_dir, log) = log();
    let recorder = recorder(&log, "s");
    turns(&recorder, 0..1);
    recorder.message(0, Role::User, "SECRET TAKEN BACK").unwrap();
    recorder.terminal(1, "completed", &Json::object()).unwrap();
    sessions::rewind(&log, "s", 1).unwrap();
    let snapshot = log.snapshot().unwrap();
    let listed = &sessions::list(&snapshot, false).unwrap().sessions[0];
    assert_eq!(listed.last_prompt.as_deref(), Some("turn 0"));
    assert_eq!((listed.messages, listed.status.as_deref()), (2, None));
    assert!(!sessions::recent(&snapshot, 5, None).unwrap().contains("SECRET"));
    sessions::rewind(&log, "s", 0).unwrap();
    recorder.message(0, Role::User, "the new goal").unwrap();
    let recent = sessions::recent(&log.snapshot().unwrap(), 5, None).unwrap();
    assert!(recent.ends_with("(1 message): the new goal\n"), "{recent}");
}

#[test]
fn a_file_that_goes_on_from_what_was_taken_back_is_a_conflict() {
    let (_dir, log) = log();
    turns(&recorder(&log, "s"), 0..2);
    let file = export(&log, "s");
    sessions::rewind(&log, "s", 1).unwrap();
    let import =
        |bytes: &[u8]| jsonl::import_bytes(&log, bytes, &ImportOptions::default()).unwrap().outcome;
    assert_eq!(import(&file), Outcome::Unchanged);
    let last = file.split(|b| *b == b'\n').next().unwrap().to_vec();
    let grown = [&file[..], &last, b"\n"].concat();
    assert_eq!(import(&grown), Outcome::Conflict);
    assert_eq!(log.session("s").unwrap().head(), 8);
    sessions::undo_rewind(&log, "s").unwrap();
    assert_eq!(import(&grown), Outcome::Grown);
}

#[test]
fn a_mirror_does_not_go_on_with_the_file_of_a_session_that_was_removed() {
    let (dir, log) = log();
    let root: std::sync::Arc<dyn Dir> =
        std::sync::Arc::new(StdDir::create(dir.path().join("mirror")).unwrap());
    let mut mirror = jsonl::Mirror::new(root);
    turns(&recorder(&log, "s"), 0..1);
    assert!(mirror.sync(&log.snapshot().unwrap()).unwrap().failed.is_empty());
    sessions::delete(&log, "s").unwrap();
    sessions::purge(&log, "s").unwrap();
    turns(&recorder(&log, "s"), 5..8);
    let failed = mirror.sync(&log.snapshot().unwrap()).unwrap().failed;
    assert_eq!(failed.len(), 1, "the file is another session's");
    assert_eq!(failed[0].1.kind(), ErrorKind::Conflict);
}

#[test]
fn a_recorder_ends_a_line_that_an_import_left_open() {
    let (_dir, log) = log();
    let recorder = recorder(&log, "s");
    recorder.message(0, Role::User, "a").unwrap();
    let torn = [&export(&log, "s")[..], b"{\"event_id\": \"torn"].concat();
    jsonl::import_bytes(&log, &torn, &ImportOptions::default()).unwrap();
    recorder.message(0, Role::User, "b").unwrap();
    let file = String::from_utf8(export(&log, "s")).unwrap();
    assert_eq!(file.lines().count(), 3, "{file}");
    assert_eq!(texts(&log, "s"), ["a", "b"]);
}
