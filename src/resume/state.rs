//! The state of a session as its host resumes it.

use serde::Serialize;

use crate::entry::{Kind, Seq};
use crate::event::{Call, Event, Json, Members, Reading, Text};
use crate::steps;

use super::lifecycle::{Attached, Lifecycle, Stage};
use super::observe::{Synthetic, observation};
use super::policy::ReplayPolicy;
use super::{Map, Set};

/// A message of the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Message {
    /// Who speaks.
    pub role: Json,
    /// What.
    pub content: Json,
    /// What is known beside it.
    pub metadata: Json,
}

/// Why the agent loop is where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Transition {
    /// One of the reasons that the loop knows.
    pub reason: Text,
    /// What is known of it.
    pub details: Json,
}

/// Where the agent loop is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LoopState {
    /// The largest step.
    pub step: i64,
    /// User messages, those that were put in on the user's behalf too.
    pub turn_count: u64,
    /// `auto`.
    pub tool_choice: &'static str,
    /// The last transition.
    pub transition: Option<Transition>,
}

/// A call that was asked for and never begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PendingCall {
    /// Its id.
    pub tool_call_id: Text,
    /// The tool.
    pub tool_name: Text,
    /// Of its last fact.
    pub step: i64,
    /// Of its last fact.
    pub payload: Json,
    /// Whether it waits for somebody's approval: it is not to be planned again.
    pub awaiting_approval: bool,
}

/// A call that was begun, and nobody knows how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UncertainAction {
    /// The tool.
    pub tool_name: Text,
    /// Its id.
    pub tool_call_id: Text,
    /// Of its last fact.
    pub step: i64,
    /// Of its last fact.
    pub payload: Json,
    /// Whether the caller's policy lets it be done again.
    pub replay_allowed: bool,
    /// Its last fact.
    pub seq: Seq,
}

/// Everything that a host needs to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct State {
    /// The whole history, with an answer for every call that has none.
    pub history_messages: Vec<Message>,
    /// Where the loop is.
    pub loop_state: LoopState,
    /// The last checkpoint that is no import of a former snapshot.
    pub checkpoint: Option<Json>,
    /// The last end of a run.
    pub terminal: Option<Json>,
    /// The end of each run, in the order of the runs.
    #[serde(serialize_with = "as_map")]
    pub terminal_by_run: Vec<(Text, Option<Json>)>,
    /// Calls that were never begun.
    pub pending_tool_calls: Vec<PendingCall>,
    /// Calls that were begun, and nobody knows how they ended.
    pub uncertain_actions: Vec<UncertainAction>,
    /// By call id; a later one replaces an earlier one.
    #[serde(serialize_with = "as_map")]
    pub completed_tool_results: Vec<(Text, Json)>,
    /// By call id; a later one replaces an earlier one.
    #[serde(serialize_with = "as_map")]
    pub failed_tool_results: Vec<(Text, Json)>,
    /// What checkpoints have kept, merged at the top level.
    pub runtime_state: Json,
}

fn as_map<V: Serialize, S: serde::Serializer>(
    pairs: &[(Text, V)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(key, value)| (key, value)))
}

/// The reasons that the agent loop knows.
const REASONS: [&str; 13] = [
    "user_input",
    "context_compacted",
    "model_empty_retry",
    "model_empty_failed",
    "model_recovery_retry",
    "model_recovery_failed",
    "model_returned_tool_calls",
    "tools_executed",
    "model_returned_final",
    "stop_hook_blocking",
    "max_steps_exceeded",
    "token_budget_exceeded",
    "unrecoverable_error",
];

impl State {
    /// The state after `events`.
    pub(super) fn of(
        events: &[Event],
        calls: &[Lifecycle],
        reading: Reading,
        policy: &dyn ReplayPolicy,
    ) -> State {
        let of_kind = |kind: Kind| events.iter().filter(move |event| event.kind == kind);
        let mut state = State {
            history_messages: history(events, calls, reading),
            loop_state: LoopState {
                step: events.iter().map(|event| event.step).max().unwrap_or(0).max(0),
                turn_count: of_kind(Kind::Message).filter(|e| e.said().by == "user").count() as u64,
                tool_choice: "auto",
                transition: of_kind(Kind::StateTransition).next_back().map(transition),
            },
            checkpoint: of_kind(Kind::Checkpoint)
                .rfind(|event| !is_legacy(event))
                .map(|event| event.payload.clone()),
            terminal: of_kind(Kind::Terminal).next_back().map(|event| event.payload.clone()),
            terminal_by_run: terminal_by_run(events),
            pending_tool_calls: Vec::new(),
            uncertain_actions: Vec::new(),
            completed_tool_results: Vec::new(),
            failed_tool_results: Vec::new(),
            runtime_state: runtime_state(of_kind(Kind::Checkpoint)),
        };
        let (mut completed, mut failed) = (Members::default(), Members::default());
        for call in calls {
            state.add_call(call, policy, &mut completed, &mut failed);
        }
        (state.completed_tool_results, state.failed_tool_results) = (completed.pairs, failed.pairs);
        state
    }

    fn add_call(
        &mut self,
        call: &Lifecycle,
        policy: &dyn ReplayPolicy,
        completed: &mut Members,
        failed: &mut Members,
    ) {
        let (tool_call_id, tool_name) = (call.call_id.clone(), call.tool.clone());
        let (step, payload) = (call.step, call.payload.clone());
        let result = || match payload.get("tool_name") {
            Some(_) => payload.clone(),
            None => payload.with("tool_name", &Json::string(&call.tool)),
        };
        match call.stage {
            Stage::Completed => completed.put(tool_call_id, result()),
            Stage::Failed => failed.put(tool_call_id, result()),
            Stage::Started => self.uncertain_actions.push(UncertainAction {
                replay_allowed: policy.may_replay(&call.tool, &payload),
                tool_name,
                tool_call_id,
                step,
                payload,
                seq: call.seqs.1,
            }),
            Stage::Requested | Stage::Waiting => self.pending_tool_calls.push(PendingCall {
                tool_call_id,
                tool_name,
                step,
                payload,
                awaiting_approval: call.stage == Stage::Waiting,
            }),
            Stage::Unknown => {}
        }
    }
}

fn is_legacy(event: &Event) -> bool {
    event.payload.get("legacy_snapshot_import").is_some_and(|flag| flag.as_str() == "true")
}

fn transition(event: &Event) -> Transition {
    let reason = event.field("reason");
    let reason = match &*reason {
        "" => "user_input".into(),
        known if REASONS.contains(&known) => reason,
        _ => "unrecoverable_error".into(),
    };
    let details = event.payload.get("details").filter(Json::is_object);
    Transition { reason, details: details.unwrap_or_else(Json::object) }
}

fn terminal_by_run(events: &[Event]) -> Vec<(Text, Option<Json>)> {
    let mut runs: Vec<(Text, Option<Json>)> = Vec::new();
    let mut places: Map<&str, usize> = Map::default();
    let mut latest: Option<(&Text, usize)> = None;
    for event in events {
        let place = match latest.filter(|(run, _)| **run == event.run) {
            Some((_, place)) => place,
            None => *places.entry(&event.run).or_insert_with(|| {
                runs.push((event.run.clone(), None));
                runs.len() - 1
            }),
        };
        latest = Some((&event.run, place));
        if event.kind == Kind::Terminal
            && let Some((_, end)) = runs.get_mut(place)
        {
            *end = Some(event.payload.clone());
        }
    }
    runs
}

fn runtime_state<'e>(checkpoints: impl Iterator<Item = &'e Event>) -> Json {
    let mut merged = Members::default();
    for event in checkpoints {
        let kept = event.payload.get("runtime_state").filter(Json::is_object);
        for (key, value) in kept.map(|kept| kept.members()).unwrap_or_default() {
            merged.put(key, value);
        }
    }
    Json::from_members(&merged.pairs)
}

/// The messages, and behind the answers that directly follow a message with calls one for each call
/// that has none there.
fn history(events: &[Event], calls: &[Lifecycle], reading: Reading) -> Vec<Message> {
    let messages: Vec<&Event> = events.iter().filter(|event| event.kind == Kind::Message).collect();
    let made = messages.iter().flat_map(|message| {
        asked(message).iter().map(|call| (&*message.run, &*call.id, message.seq))
    });
    let known_calls = Attached::new(calls, made);
    let mut history = History { messages: Vec::with_capacity(messages.len()), bare: None };
    let mut rest = messages.as_slice();
    while let Some((message, after)) = rest.split_first() {
        history.push(message);
        rest = after;
        let made_calls = asked(message);
        if made_calls.is_empty() {
            continue;
        }
        let row = rest.iter().take_while(|event| event.said().by == "tool").count();
        let (answers, after) = rest.split_at(row);
        rest = after;
        answers.iter().for_each(|answer| history.push(answer));
        let id_of = |answer: &&Event| answer.said().metadata.id_of("tool_call_id");
        let answered: Set<Text> = answers.iter().map(id_of).collect();
        let mut made: Map<&str, usize> = Map::default();
        for call in made_calls {
            steps::count();
            if call.id.is_empty() || answered.contains(&call.id) {
                continue;
            }
            let made = made.entry(&call.id).or_default();
            let before = std::mem::replace(made, *made + 1);
            let known = match reading {
                Reading::Original => known_calls.first(&message.run, &call.id),
                Reading::Default => known_calls.of(&message.run, &call.id, message.seq, before),
            };
            history.messages.push(recovered(call, known, reading));
        }
    }
    history.messages
}

/// The calls that a message of the model makes.
fn asked(event: &Event) -> &[Call] {
    if event.said().by == "assistant" { &event.said().calls } else { &[] }
}

/// The answer in place of one that is not there.
fn recovered(call: &Call, known: Option<&Lifecycle>, reading: Reading) -> Message {
    let (content, _): (String, Synthetic) = observation(known, reading);
    let tool = known.map(|call| &call.tool).filter(|tool| !tool.is_empty()).unwrap_or(&call.name);
    let tool = if tool.is_empty() { "unknown_tool" } else { &**tool };
    let metadata = Json::object()
        .with("tool_name", &Json::string(tool))
        .with("tool_call_id", &Json::string(&call.id))
        .with("recovered", &Json::raw("true"));
    Message { role: Json::string("tool"), content: Json::string(&content), metadata }
}

/// Messages, with their run in the metadata.
struct History {
    messages: Vec<Message>,
    /// Metadata that has nothing but the run, for the run of the message before.
    bare: Option<(Text, Json, Json)>,
}

impl History {
    fn push(&mut self, event: &Event) {
        let said = event.said();
        let (run, bare) = match &self.bare {
            Some((run, name, bare)) if *run == event.run => (name.clone(), bare.clone()),
            _ => {
                let name = Json::string(&event.run);
                let bare = Json::object().with("_transcript_run_id", &name);
                self.bare = Some((event.run.clone(), name.clone(), bare.clone()));
                (name, bare)
            }
        };
        self.messages.push(Message {
            role: said.role.clone().unwrap_or_else(|| Json::string("assistant")),
            content: said.content.clone().unwrap_or_else(|| Json::string("")),
            metadata: match said.metadata.as_str() {
                "{}" => bare,
                _ => said.metadata.with("_transcript_run_id", &run),
            },
        });
    }
}
