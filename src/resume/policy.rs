//! Which calls may be made again when nobody knows how they ended. That is the caller's to say.

use crate::event::Json;

/// Says which calls may be made again.
pub trait ReplayPolicy: Send + Sync {
    /// Whether a call of `tool`, of which `payload` is known, may be made again.
    fn may_replay(&self, tool: &str, payload: &Json) -> bool;
}

/// Trusts tools that are known to read only, by name, and what recursive-agent's audit calls
/// read-only; nothing else.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOnlyTools;

/// Tools that change nothing, by the names that agents give them.
const READ_ONLY: [&str; 12] = [
    "Read",
    "Grep",
    "Glob",
    "LS",
    "List",
    "Search",
    "read_file",
    "list_dir",
    "list_files",
    "grep",
    "glob",
    "search_files",
];

impl ReplayPolicy for ReadOnlyTools {
    fn may_replay(&self, tool: &str, payload: &Json) -> bool {
        let side_effect = payload.get("audit").and_then(|audit| audit.get("side_effect"));
        match side_effect {
            Some(class) => matches!(&*class.id(), "none" | "read_only" | "readonly"),
            None => READ_ONLY.contains(&tool),
        }
    }
}

/// MyCodeAgent's own: everything but `Edit`, `Bash` and `Task`, unknown tools too.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllButWriters;

impl ReplayPolicy for AllButWriters {
    fn may_replay(&self, tool: &str, _: &Json) -> bool {
        !matches!(tool, "Edit" | "Bash" | "Task")
    }
}
