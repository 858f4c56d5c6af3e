//! What goes to the model after a crash: which answer a call gets, what a compaction leaves, what
//! strict providers are spared. Each story is told event by event.
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
use eventlog::format::{Format, Recursive, Role, Transcript};
use eventlog::resume::{self, MessageOptions, Provider, ResumeOptions, Resumed, ViewEntry};
use eventlog::{Attributes, EventLog};
use serde_json::{Value, json};
use strict::{check_anthropic, check_openai, check_view};

const STARTED: ToolStatus = ToolStatus::Started;
const REQUESTED: ToolStatus = ToolStatus::Requested;
const COMPLETED: ToolStatus = ToolStatus::Completed;
const FAILED: ToolStatus = ToolStatus::Failed;

/// A session in the making.
struct Story {
    log: EventLog,
    run: String,
    lines: Vec<String>,
    _dir: tempfile::TempDir,
}

impl Story {
    fn new(format: &dyn Format) -> Story {
        let dir = tempfile::tempdir().unwrap();
        let log = EventLog::open(dir.path()).unwrap();
        let mut attributes = Attributes::default();
        attributes.format = Some(format.name().to_owned());
        log.session("s").unwrap().describe(&attributes).unwrap();
        Story { log, run: "run-1".to_owned(), lines: Vec::new(), _dir: dir }
    }

    fn transcript() -> Story {
        Story::new(&Transcript)
    }

    /// Lines of recursive-agent.
    fn recursive(lines: &[Value]) -> Story {
        let mut story = Story::new(&Recursive);
        lines.iter().for_each(|line| story.line(&Recursive, line.to_string()));
        story
    }

    fn line(&mut self, format: &dyn Format, line: String) {
        let entry = format.classify(line.as_bytes()).unwrap().into_entry(line.as_bytes());
        self.log.session("s").unwrap().append(entry).unwrap();
        self.lines.push(line);
    }

    fn event(&mut self, event: NewEvent) -> &mut Story {
        let line = event.run(&self.run).line("s").unwrap();
        self.line(&Transcript, line);
        self
    }

    /// The last line once more, byte for byte.
    fn again(&mut self) -> &mut Story {
        let line = self.lines.last().unwrap().clone();
        self.line(&Transcript, line);
        self
    }

    fn run(&mut self, run: &str) -> &mut Story {
        run.clone_into(&mut self.run);
        self
    }

    fn user(&mut self, text: &str) -> &mut Story {
        self.event(NewEvent::message(Role::User, text))
    }

    fn says(&mut self, text: &str) -> &mut Story {
        self.event(NewEvent::message(Role::Assistant, text))
    }

    fn asks(&mut self, ids: &[&str]) -> &mut Story {
        let call = |id: &&str| json!({"id": id, "name": "Edit", "arguments": {}});
        self.asks_raw(json!(ids.iter().map(call).collect::<Vec<_>>()))
    }

    fn asks_raw(&mut self, calls: Value) -> &mut Story {
        let metadata = json!({"action_type": "tool_call", "tool_calls": calls});
        self.event(NewEvent::message_with(Role::Assistant, "", &metadata.into()))
    }

    fn answer(&mut self, id: &str, text: &str) -> &mut Story {
        let metadata = json!({"tool_name": "Edit", "tool_call_id": id});
        self.event(NewEvent::message_with(Role::Tool, text, &metadata.into()))
    }

    fn tool(&mut self, id: &str, status: ToolStatus) -> &mut Story {
        self.tool_with(id, status, json!({}))
    }

    fn tool_with(&mut self, id: &str, status: ToolStatus, extra: Value) -> &mut Story {
        self.event(NewEvent::tool(status, "Edit", id, &extra.into()).unwrap())
    }

    fn checkpoint(&mut self, payload: Value) -> &mut Story {
        self.event(NewEvent::checkpoint(&payload.into()))
    }

    fn compaction(&mut self, retained: u64) -> &mut Story {
        let payload =
            json!({"summary": "sum", "retain_start_idx": retained, "messages_compacted": 1});
        self.checkpoint(payload)
    }

    /// Resumed, with everything checked that holds of any session.
    fn resumed(&self) -> Resumed {
        let snapshot = self.log.snapshot().unwrap();
        let resumed = resume::resume(&snapshot, "s", &ResumeOptions::default()).unwrap();
        check_view(&resumed.view, "view");
        assert_eq!(resume::view(&snapshot, "s").unwrap(), resumed.view, "from the index");
        for chars in [0, 300] {
            check_openai(&resumed.messages(Provider::OpenAi, chars), "openai");
            check_anthropic(&resumed.messages(Provider::Anthropic, chars), "anthropic");
        }
        resumed
    }

    /// The view in short.
    fn view(&self) -> Vec<String> {
        self.resumed().view.entries.iter().map(short).collect()
    }

    fn codes(&self) -> Vec<&'static str> {
        self.resumed().view.findings.iter().map(|finding| finding.code.name()).collect()
    }
}

fn short(entry: &ViewEntry) -> String {
    match entry {
        ViewEntry::Message { role, content, tool_calls, .. } => match tool_calls.as_slice() {
            [] => format!("{role}: {content}"),
            calls => {
                let ids: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
                format!("{role} asks {}", ids.join(","))
            }
        },
        ViewEntry::Answer { tool_call_id, synthetic: Some(kind), content, .. } => match *kind {
            "recovered" => format!("{tool_call_id} recovered: {content}"),
            kind => format!("{tool_call_id} {kind}"),
        },
        ViewEntry::Answer { tool_call_id, content, .. } => format!("{tool_call_id}: {content}"),
        ViewEntry::Pending { tool_call_id, .. } => format!("{tool_call_id} waits"),
        ViewEntry::Gap { .. } => "gap".to_owned(),
        ViewEntry::Compaction { .. } => "compaction".to_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_never_goes_to_an_uncertain_call_of_another_run() {
    let mut story = Story::transcript();
    story.user("q").asks(&["c1"]).tool("c1", STARTED);
    story.run("run-2").asks(&["c1"]).tool("c1", STARTED).tool("c1", COMPLETED);
    story.answer("c1", "second");
    let view = story.view();
    assert_eq!(view[1..], ["assistant asks c1", "c1 uncertain", "assistant asks c1", "c1: second"]);
    assert_eq!(story.resumed().state.uncertain_actions.len(), 1);
}

#[test]
fn an_answer_goes_to_the_message_right_before_it() {
    let mut story = Story::transcript();
    story.user("q").asks(&["c1"]).user("and?").asks(&["c1"]).answer("c1", "second");
    story.asks(&["c1"]).answer("c1", "third");
    let answers: Vec<_> = story.view().into_iter().filter(|e| e.starts_with("c1")).collect();
    assert_eq!(answers, ["c1 unknown", "c1: second", "c1: third"]);
}

#[test]
fn a_link_leads_to_the_call_that_it_names() {
    let message = |n: u64, role: &str, more: Value| {
        let mut line = json!({"uuid": format!("u{n}"), "id": format!("msg_{n:03}"), "role": role,
            "content": format!("text {n}"), "timestamp": "2026-03-01T10:00:00Z"});
        if n > 1 {
            line["parent_uuid"] = json!(format!("u{}", n - 1));
        }
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line
    };
    let calls = json!({"tool_calls": [{"id": "c", "name": "Read", "arguments": {}}]});
    let story = Story::recursive(&[
        message(1, "user", json!({})),
        message(2, "assistant", calls.clone()),
        message(3, "assistant", calls.clone()),
        message(4, "tool", json!({"tool_call_id": "c", "parent_uuid": "u3"})),
        message(5, "assistant", calls),
        message(6, "tool", json!({"tool_call_id": "c", "parent_uuid": "u5"})),
        message(7, "tool", json!({"tool_call_id": "c", "parent_uuid": "u2"})),
    ]);
    let answers: Vec<_> = story.view().into_iter().filter(|e| e.starts_with("c:")).collect();
    assert_eq!(answers, ["c: text 7", "c: text 4", "c: text 6"]);
}

#[test]
fn an_answer_of_an_earlier_run_is_no_answer_to_a_later_call() {
    let mut story = Story::transcript();
    story.user("q").answer("c1", "old: success");
    story.run("run-2").asks(&["c1"]).tool("c1", REQUESTED).tool("c1", STARTED);
    assert_eq!(story.view(), ["user: q", "assistant asks c1", "c1 uncertain"]);
    assert!(story.codes().contains(&"orphan_result"));
}

#[test]
fn an_answer_right_before_its_call_stands_behind_it() {
    let mut story = Story::transcript();
    story.user("q").answer("c1", "early").asks(&["c1"]);
    assert_eq!(story.view(), ["user: q", "assistant asks c1", "c1: early"]);
    assert!(story.codes().contains(&"result_before_call"));
}

#[test]
fn an_answer_that_comes_after_the_user_has_spoken_still_reaches_its_call() {
    let mut story = Story::transcript();
    story.user("q").asks(&["c1"]).user("steer").answer("c1", "late");
    assert_eq!(story.view(), ["user: q", "assistant asks c1", "c1: late", "user: steer"]);
}

#[test]
fn lifecycle_facts_belong_to_the_call_that_stands_before_them() {
    let mut story = Story::transcript();
    story.user("q").asks(&["c1"]).user("again").asks(&["c1"]).tool("c1", STARTED);
    story.tool_with("c1", COMPLETED, json!({"result": "edited b"}));
    let answers: Vec<_> = story.view().into_iter().filter(|e| e.starts_with("c1")).collect();
    assert_eq!(answers, ["c1 unknown", "c1 recovered: edited b"]);

    let mut story = Story::transcript();
    story.user("q").asks(&["c1"]).answer("c1", "fine").asks(&["c1"]);
    story.tool("c1", REQUESTED).tool("c1", STARTED);
    assert_eq!(story.view().last().unwrap(), "c1 uncertain");
}

#[test]
fn a_fact_of_a_call_that_was_made_again_is_not_that_of_the_one_that_had_ended() {
    for (end, expected) in [(FAILED, "c1 failed"), (COMPLETED, "c1 recovered: Y")] {
        let mut story = Story::transcript();
        story.user("q").asks(&["c1"]).tool("c1", REQUESTED).tool("c1", STARTED);
        story.tool_with("c1", COMPLETED, json!({"result": "X"})).answer("c1", "X");
        story.user("again").asks(&["c1"]).tool_with(
            "c1",
            end,
            json!({"result": "Y", "error": "no"}),
        );
        assert_eq!(story.view().last().unwrap(), expected);
    }
}

#[test]
fn a_lifecycle_that_ended_before_a_message_is_not_that_of_its_call() {
    let mut story = Story::transcript();
    story.user("q").tool("c1", STARTED).tool_with("c1", COMPLETED, json!({"result": "X"}));
    story.answer("c1", "X").user("again").asks(&["c1"]);
    assert_eq!(story.view().last().unwrap(), "c1 unknown");
    // Also where the compaction has cut its beginning off.
    let mut story = Story::transcript();
    story.user("q").asks(&["c1"]).tool("c1", STARTED).compaction(2);
    story.tool_with("c1", COMPLETED, json!({"result": "X"})).asks(&["c1"]);
    assert_eq!(story.view().last().unwrap(), "c1 unknown");
}

#[test]
fn a_late_answer_goes_to_the_call_that_has_ended_not_to_the_uncertain_one() {
    let mut story = Story::transcript();
    story.user("q").asks(&["c1"]).tool("c1", REQUESTED).tool("c1", STARTED);
    story.asks(&["c1"]).tool("c1", REQUESTED).tool("c1", STARTED);
    story.tool_with("c1", COMPLETED, json!({"result": "Y"}));
    story.asks(&["c2"]).answer("c2", "z").answer("c1", "Y");
    let answers: Vec<_> = story.view().into_iter().filter(|e| e.starts_with("c1")).collect();
    assert_eq!(answers, ["c1 uncertain", "c1: Y"]);

    let mut story = Story::transcript();
    story.user("q").asks(&["c1", "c1"]);
    story.tool("c1", STARTED).asks(&["x"]).tool("c1", REQUESTED).tool("c1", STARTED);
    story.tool_with("c1", COMPLETED, json!({"result": "Y"}));
    assert_eq!(story.view()[2..4], ["c1 recovered: Y", "c1 unknown"]);
}

#[test]
fn a_late_end_is_that_of_the_call_that_was_begun() {
    let mut story = Story::transcript();
    story.user("q").asks(&["c1"]).tool("c1", STARTED).asks(&["c1"]);
    story.tool_with("c1", COMPLETED, json!({"result": "X"}));
    let answers: Vec<_> = story.view().into_iter().filter(|e| e.starts_with("c1")).collect();
    assert_eq!(answers, ["c1 recovered: X", "c1 unknown"]);
}

#[test]
fn of_several_attempts_at_a_call_the_last_counts() {
    let mut story = Story::transcript();
    story.user("q").asks(&["c1"]).tool("c1", STARTED);
    story.tool_with("c1", FAILED, json!({"error": "timeout"})).tool("c1", STARTED);
    assert_eq!(story.view().last().unwrap(), "c1 uncertain");
    story.tool_with("c1", COMPLETED, json!({"result": "second try"}));
    assert_eq!(story.view().last().unwrap(), "c1 recovered: second try");
    let failed = &story.resumed().state.failed_tool_results;
    assert_eq!(failed.len(), 1);
}

#[test]
fn a_fact_that_stands_there_twice_is_one() {
    let mut story = Story::transcript();
    story.user("q").asks(&["c1"]).tool("c1", STARTED).again();
    story.tool_with("c1", COMPLETED, json!({"result": "fine"})).again();
    assert_eq!(story.view().last().unwrap(), "c1 recovered: fine");
    let started = story.lines[2].clone();
    story.line(&Transcript, started);
    assert!(story.resumed().state.uncertain_actions.is_empty());
}

#[test]
fn a_request_that_is_written_behind_the_beginning_is_of_the_same_call() {
    let mut story = Story::transcript();
    story.user("q").asks(&["c1"]).tool("c1", STARTED).tool("c1", REQUESTED);
    let state = story.resumed().state;
    assert_eq!((state.uncertain_actions.len(), state.pending_tool_calls.len()), (1, 0));
}

#[test]
fn a_call_that_ends_twice_in_different_ways_is_reported() {
    let mut story = Story::transcript();
    story.user("q").asks(&["c1"]).tool("c1", STARTED).tool("c1", COMPLETED);
    assert!(!story.codes().contains(&"status_conflict"));
    story.tool("c1", FAILED);
    assert!(story.codes().contains(&"status_conflict"));
}

#[test]
fn a_call_that_waits_for_approval_stays_open() {
    let mut story = Story::transcript();
    story.user("q").asks(&["c1", "c2"]);
    story.tool_with("c1", REQUESTED, json!({"requires_approval": true})).tool("c2", REQUESTED);
    assert_eq!(story.view()[2..], ["c1 waits", "c2 not_executed"]);
    assert!(story.codes().contains(&"pending_call"));
    let waiting: Vec<bool> =
        story.resumed().state.pending_tool_calls.iter().map(|c| c.awaiting_approval).collect();
    assert_eq!(waiting, [true, false]);
    story.tool_with("c1", REQUESTED, json!({"approval": "approved"}));
    assert_eq!(story.view()[2], "c1 not_executed");
    story.tool_with("c1", REQUESTED, json!({"approval": "pending"}));
    assert_eq!(story.view()[2], "c1 waits");
    let details = Json::object();
    story.event(NewEvent::state_transition(None, "acting", "approval_denied", &details));
    assert_eq!(story.view()[2], "c1 not_executed");
    story.tool("c1", STARTED);
    assert_eq!(story.view()[2], "c1 uncertain");

    let mut story = Story::transcript();
    story.user("q").asks(&["c1"]).tool("c1", REQUESTED);
    let details = Json::object();
    story.event(NewEvent::state_transition(None, "awaiting_approval", "approval", &details));
    assert_eq!(story.view().last().unwrap(), "c1 waits");
}

#[test]
fn a_failure_without_a_message_has_one() {
    let mut story = Story::transcript();
    story.user("q").asks(&["c1"]).tool("c1", STARTED);
    story.tool_with("c1", FAILED, json!({"result": {"error": {"message": ""}}}));
    let resumed = story.resumed();
    let ViewEntry::Answer { content, .. } = resumed.view.entries.last().unwrap() else { panic!() };
    assert!(!content.contains(r#""message": """#), "{content}");
}

fn boundary(summary: &str) -> Story {
    let time = "2026-03-01T10:00:00Z";
    let message = |n: u64, role: &str, text: &str| {
        json!({"uuid": format!("u{n}"),
        "id": format!("msg_{n:03}"), "role": role, "content": text, "timestamp": time})
    };
    Story::recursive(&[
        message(1, "user", "important"),
        message(2, "assistant", "noted"),
        json!({"type": "system", "subtype": "compact_boundary", "turn": 1, "compacted_count": 2,
            "summary_uuid": "u3", "timestamp": time}),
        message(3, "system", summary),
        message(4, "user", "next"),
    ])
}

#[test]
fn a_boundary_with_an_empty_summary_is_void() {
    assert_eq!(boundary("sum").view(), ["compaction", "system: sum", "user: next"]);
    for empty in ["", " \n", "\u{1c}"] {
        assert_eq!(boundary(empty).view()[0], "user: important");
        assert!(boundary(empty).codes().contains(&"compaction_missing_summary"));
    }
}

#[test]
fn a_compaction_keeps_a_call_with_its_answer_wherever_it_cuts() {
    for retained in 2..=4 {
        let mut story = Story::transcript();
        story.user("old").asks(&["c1"]).user("steer").answer("c1", "late").user("q");
        story.compaction(retained);
        let view = story.view();
        assert_eq!(view[..2], ["compaction", "summary: sum"]);
        let split = retained < 4;
        assert_eq!(view.contains(&"c1: late".to_owned()), split, "{retained}: {view:?}");
        assert_eq!(story.codes().contains(&"compaction_splits_pair"), split, "{retained}");
        assert!(!story.codes().contains(&"orphan_result"), "{retained}");
    }
    // The answer stands behind the checkpoint.
    let mut story = Story::transcript();
    story.user("old").asks(&["c1"]).compaction(2).answer("c1", "late");
    assert_eq!(story.view()[2..], ["assistant asks c1", "c1: late"]);
}

#[test]
fn a_number_of_a_checkpoint_that_is_none_counts_as_not_given_and_is_reported() {
    let mut story = Story::transcript();
    story
        .user("q")
        .checkpoint(json!({"summary": "s", "retain_start_idx": "four", "messages_compacted": 1}));
    assert_eq!(story.view(), ["user: q"]);
    assert!(story.codes().contains(&"schema_mismatch"));
}

#[test]
fn calls_get_ids_and_names_that_the_apis_take_each_id_once() {
    let mut story = Story::transcript();
    let long = "x".repeat(60);
    story.user("q").asks_raw(json!([
        {"id": "c1", "name": ""}, {"id": "c1", "name": "mcp.x/y é"}, {"id": "", "name": "a\0b"},
        {"id": long, "name": long.repeat(2)}, {"id": "é\0", "name": "R"},
    ]));
    story.asks_raw(json!([{"id": "", "name": "R"}, {"id": "call-2-0", "name": "R"}]));
    let resumed = story.resumed();
    let messages = check_openai(&resumed.messages(Provider::OpenAi, 0), "ids");
    let name = |n: usize| &messages[1]["tool_calls"][n]["function"]["name"];
    assert_eq!((name(0), name(1)), (&json!("unknown_tool"), &json!("mcp_x_y__")));
    assert_eq!(messages[1]["tool_calls"][1]["id"], "c1-2");
    let ViewEntry::Message { tool_calls, .. } = &resumed.view.entries[7] else { panic!() };
    assert_eq!((&*tool_calls[0].id, &*tool_calls[1].id), ("call-2-0-", "call-2-0"));
}

#[test]
fn arguments_are_an_object_for_anthropic_whatever_the_model_sent() {
    let mut story = Story::transcript();
    story.user("q");
    let arguments = [
        r#"{"path": "x"}"#,
        r#""{\"path\": \"x\"}""#,
        r#""{torn""#,
        r#""""#,
        r#"{"n": 1000000000000000000000000000000}"#,
    ];
    for arguments in arguments {
        let calls = format!(
            r#"{{"tool_calls": [{{"id": "a.1", "name": "R", "arguments": {arguments}}}]}}"#
        );
        let calls = Json::parse(&calls).unwrap();
        story.event(NewEvent::message_with(Role::Assistant, "", &calls));
    }
    let messages = story.resumed().messages(Provider::Anthropic, 0);
    let inputs: Vec<String> = messages
        .iter()
        .filter_map(|message| message.get("content")?.elements().last()?.get("input"))
        .map(|input| input.as_str().to_owned())
        .collect();
    let path = r#"{"path":"x"}"#;
    let torn = r#"{"arguments":"{torn"}"#;
    assert_eq!(inputs, [path, path, torn, "{}", r#"{"n":1000000000000000000000000000000}"#]);
}

#[test]
fn nul_and_half_surrogates_reach_no_provider_and_are_reported() {
    let mut story = Story::transcript();
    story.user("a\0");
    let line = r#"{"event_id": "e", "timestamp": "t", "session_id": "s", "run_id": "run-1", "step": 1, "event_type": "message", "payload": {"role": "assistant", "content": "\ud800", "metadata": {"reasoning_content": "c\u0000", "tool_calls": [{"id": "x", "name": "R", "arguments": {"k\ud800": "v\u0000"}}]}}}"#;
    story.line(&Transcript, line.to_owned());
    story.checkpoint(json!({"summary": "b\0", "retain_start_idx": 0, "messages_compacted": 1}));
    let resumed = story.resumed();
    let text = serde_json::to_string(&resumed.view.entries).unwrap();
    assert!(!text.contains("u0000") && !text.contains("ud800"), "{text}");
    assert!(text.contains("b\u{FFFD}") && text.contains("c\u{FFFD}"), "{text}");
    let codes = story.codes();
    let count = |code| codes.iter().filter(|found| **found == code).count();
    assert_eq!((count("nul_in_string"), count("lone_surrogate")), (4, 2));
}

#[test]
fn content_that_is_no_text_is_sent_as_what_it_says() {
    let mut story = Story::transcript();
    let said = |role: &str, content: Value, metadata: Value| {
        NewEvent::new(
            eventlog::Kind::Message,
            json!({"role": role, "content": content, "metadata": metadata}).into(),
        )
    };
    story.event(said(
        "user",
        json!([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]),
        json!({}),
    ));
    story.asks(&["c1", "c2", "c3"]);
    story.event(said("tool", json!({"rows": [1, 2]}), json!({"tool_call_id": "c1"})));
    story.event(said("tool", json!(42), json!({"tool_call_id": "c2"})));
    story.event(said("tool", json!("  \n"), json!({"tool_call_id": "c3"})));
    assert_eq!(
        story.view(),
        [
            "user: one\ntwo",
            "assistant asks c1,c2,c3",
            "c1: {\"rows\": [1, 2]}",
            "c2: 42",
            "c3: (no output)"
        ]
    );
}

#[test]
fn anthropic_gets_a_user_first_and_no_white_space_last() {
    let mut story = Story::transcript();
    story.says("I begin").user("q").says("half a sen \n");
    let turns = check_anthropic(&story.resumed().messages(Provider::Anthropic, 0), "turns");
    assert_eq!((turns.len(), turns[3]["content"][0]["text"].as_str()), (4, Some("half a sen")));
    story.user("\u{1c}");
    assert!(story.codes().contains(&"empty_content"));
}

#[test]
fn answers_to_parallel_calls_are_one_turn_of_anthropic() {
    let mut story = Story::transcript();
    story.user("go").asks(&["a", "b"]).user("and?");
    let resumed = story.resumed();
    let turns = check_anthropic(&resumed.messages(Provider::Anthropic, 0), "parallel");
    assert_eq!((turns.len(), turns[2]["content"].as_array().unwrap().len()), (3, 3));
    assert_eq!(resumed.messages(Provider::OpenAi, 0).len(), 5);
}

#[test]
fn the_memory_stands_behind_the_system_prompt_and_before_the_history() {
    let mut story = Story::transcript();
    story.event(NewEvent::message(Role::System, "rules")).user("the goal").says("ok");
    let resumed = story.resumed();
    let messages = check_openai(&resumed.messages(Provider::OpenAi, 1000), "memory");
    let roles: Vec<_> = messages.iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "system", "user", "assistant"]);
    assert_eq!(messages[1]["content"], resumed.memory.render(1000));
    assert_eq!(resumed.messages(Provider::OpenAi, 0).len(), 3);
    let turns = check_anthropic(&resumed.messages(Provider::Anthropic, 1000), "memory");
    assert_eq!(turns[0]["content"].as_array().unwrap().len(), 3);
}

#[test]
fn marks_become_text_where_that_is_asked_for() {
    let line = |n: u64, parent: &str| {
        json!({"uuid": format!("u{n}"), "parent_uuid": parent,
        "id": format!("msg_{n:03}"), "role": "user", "content": "x", "timestamp": "t"})
    };
    let story = Story::recursive(&[line(1, "lost")]);
    let view = story.resumed().view;
    let mut options = MessageOptions::default();
    assert_eq!(view.messages(Provider::OpenAi, &options).len(), 1);
    options.marks = true;
    let messages = view.messages(Provider::OpenAi, &options);
    assert!(messages[0].as_str().contains("are missing"), "{messages:?}");
}

#[test]
fn each_of_thousands_of_answers_without_a_call_is_reported_and_none_is_sent() {
    let mut story = Story::transcript();
    story.user("q");
    let session = story.log.session("s").unwrap();
    let mut lines = Vec::new();
    for n in 0..4000 {
        let metadata = json!({"tool_call_id": format!("x{n}")});
        let event = NewEvent::message_with(Role::Tool, "x", &metadata.into()).run("run-1");
        lines.push(event.line("s").unwrap());
        let calls = json!({"tool_calls": [{"id": format!("c{n}"), "name": "R"}]});
        let event = NewEvent::message_with(Role::Assistant, "", &calls.into()).run("run-1");
        lines.push(event.line("s").unwrap());
    }
    let entries: Vec<_> = lines
        .iter()
        .map(|line| Transcript.classify(line.as_bytes()).unwrap().into_entry(line.as_bytes()))
        .collect();
    session.append_batch(&entries).unwrap();
    let view = story.resumed().view;
    let orphans = view.findings.iter().filter(|finding| finding.code.name() == "orphan_result");
    let orphans: Vec<u64> = orphans.map(|finding| finding.seq.unwrap()).collect();
    assert_eq!(orphans, (0..4000).map(|n| 1 + 2 * n).collect::<Vec<u64>>());
    let sent: Vec<String> = view.entries.iter().map(short).collect();
    let calls = (0..4000).flat_map(|n| [format!("assistant asks c{n}"), format!("c{n} unknown")]);
    assert_eq!(sent, std::iter::once("user: q".to_owned()).chain(calls).collect::<Vec<_>>());
}
