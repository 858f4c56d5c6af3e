//! Whatever was written, and whatever of it was lost: the view is one that a provider accepts, and it
//! is always the same.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

#[path = "support/strict.rs"]
mod strict;

use eventlog::event::{Json, NewEvent, ToolStatus};
use eventlog::format::Role;
use eventlog::io::{Dir, OpenMode, StdDir};
use eventlog::jsonl::{self, ImportOptions};
use eventlog::resume::{Provider, ResumeOptions, Resumed, resume, view};
use eventlog::{EventLog, Kind};
use proptest::prelude::*;
use strict::{check_anthropic, check_openai, check_view};

/// Few ids, so that they collide.
fn id() -> impl Strategy<Value = String> {
    prop_oneof![8 => "[abc]", 1 => Just(String::new()), 1 => "\\PC{1,3}"]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), Just(" \n".to_owned()), "\\PC{1,12}", Just("a\0b".to_owned())]
}

fn event() -> impl Strategy<Value = NewEvent> {
    let role = prop_oneof![
        Just(Role::User),
        Just(Role::System),
        Just(Role::Summary),
        Just(Role::Assistant),
        Just(Role::Other("developer".into())),
    ];
    let said = (role, text()).prop_map(|(role, text)| NewEvent::message(role, &text));
    let asked = (text(), prop::collection::vec(id(), 1..4)).prop_map(|(text, ids)| {
        let call = |id| serde_json::json!({"id": id, "name": "Edit", "arguments": {}});
        let calls: Vec<_> = ids.into_iter().map(call).collect();
        let metadata = serde_json::json!({"action_type": "tool_call", "tool_calls": calls});
        NewEvent::message_with(Role::Assistant, &text, &metadata.into())
    });
    let answered = (id(), text()).prop_map(|(id, text)| {
        let metadata = serde_json::json!({"tool_name": "Edit", "tool_call_id": id});
        NewEvent::message_with(Role::Tool, &text, &metadata.into())
    });
    let status = prop_oneof![
        Just(ToolStatus::Requested),
        Just(ToolStatus::Started),
        Just(ToolStatus::Completed),
        Just(ToolStatus::Failed),
    ];
    let tool = (status, id(), text()).prop_map(|(status, id, text)| {
        let extra = Json::from(serde_json::json!({"result_text": text, "error": text}));
        NewEvent::tool(status, "Edit", &id, &extra).unwrap()
    });
    let checkpoint = (text(), -2i64..6, 0u64..3).prop_map(|(summary, retained, compacted)| {
        let payload = serde_json::json!({"summary": summary, "retain_start_idx": retained,
            "messages_compacted": compacted});
        NewEvent::checkpoint(&payload.into())
    });
    let ended = Just(()).prop_map(|()| NewEvent::terminal("completed", &Json::object()));
    let of_run =
        prop_oneof![3 => said, 4 => asked, 4 => answered, 5 => tool, 1 => checkpoint, 1 => ended];
    (of_run, 1..3u8).prop_map(|(event, run)| event.run(&format!("run-{run}")))
}

fn check(resumed: &Resumed) {
    check_view(&resumed.view, "random");
    check_openai(&resumed.messages(Provider::OpenAi, 100), "random");
    check_anthropic(&resumed.messages(Provider::Anthropic, 0), "random");
}

fn resumed(log: &EventLog) -> Resumed {
    resume(&log.snapshot().unwrap(), "s", &ResumeOptions::default()).unwrap()
}

fn import(log: &EventLog, dir: &std::path::Path, bytes: &[u8]) {
    std::fs::write(dir.join("transcript-s.jsonl"), bytes).unwrap();
    let file = StdDir::open(dir).unwrap().open("transcript-s.jsonl", OpenMode::Read).unwrap();
    jsonl::import(log, file, &ImportOptions::default(), &mut |_| {}).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_with_any_loss_gives_a_valid_view_that_is_the_same_everywhere(
        events in prop::collection::vec((event(), prop::bool::weighted(0.15)), 1..40),
        cut in 0usize..60,
    ) {
        let lines: Vec<String> = events.iter().filter(|(_, lost)| !lost)
            .map(|(event, _)| event.line("s").unwrap()).collect();
        prop_assume!(!lines.is_empty());
        let mut bytes = lines.join("\n").into_bytes();
        // The last line may be torn, unless it is the only one.
        if lines.len() > 1 && cut < lines[lines.len() - 1].len() {
            bytes.truncate(bytes.len() - cut);
        }
        let dir = tempfile::tempdir().unwrap();
        let log = EventLog::open(dir.path().join("log")).unwrap();
        import(&log, dir.path(), &bytes);
        let head = log.session("s").unwrap().head();
        let first = resumed(&log);
        check(&first);
        prop_assert_eq!(&view(&log.snapshot().unwrap(), "s").unwrap(), &first.view);
        // The log is as it was, and so is what comes out of it.
        prop_assert_eq!(log.session("s").unwrap().head(), head);
        let mut exported = Vec::new();
        jsonl::export(&log.snapshot().unwrap(), "s", .., &mut exported, &mut |_| {}).unwrap();
        prop_assert_eq!(&exported, &bytes);
        prop_assert_eq!(&resumed(&log), &first);
        // From a reader, after a checkpoint and a reopen, and after an export and an import.
        let reader = EventLog::open_read_only(dir.path().join("log")).unwrap();
        prop_assert_eq!(resumed(&reader).view.digest(), first.view.digest());
        log.checkpoint().unwrap();
        log.close().unwrap();
        let log = EventLog::open(dir.path().join("log")).unwrap();
        prop_assert_eq!(resumed(&log).view.digest(), first.view.digest());
        let other = EventLog::open(dir.path().join("other")).unwrap();
        import(&other, dir.path(), &exported);
        prop_assert_eq!(resumed(&other), first);
    }
}

#[test]
fn the_random_events_are_of_every_kind_but_state_transitions() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut lines = String::new();
    for _ in 0..200 {
        lines += &event().new_tree(&mut runner).unwrap().current().line("s").unwrap();
    }
    for kind in Kind::ALL.into_iter().take(5).filter(|kind| *kind != Kind::StateTransition) {
        assert!(lines.contains(&format!("\"event_type\": \"{kind}\"")), "{kind}");
    }
}
