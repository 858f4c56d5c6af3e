//! The last sessions in a few lines, for a system prompt.

use crate::bytes::within;
use crate::error::Result;
use crate::log::Snapshot;

use super::{Summary, list};

/// How much of a goal is shown, in characters.
const GOAL_CHARS: usize = 80;

/// A line for each of the last `count` sessions of a workspace, or of all with `None`: id, messages,
/// how far it is, and what it is for. Empty where there is none.
///
/// # Errors
///
/// `Io`.
///
/// # Example
///
/// ```
/// use eventlog::{EventLog, sessions};
/// # use eventlog::{format::Role, record::Recorder};
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-recent-{}", std::process::id()));
/// # let log = EventLog::open(&dir)?;
/// # Recorder::new(log.session("s-1")?, "run-1")?.message(0, Role::User, "fix the parser")?;
/// let recent = sessions::recent(&log.snapshot()?, 5, None)?;
/// assert!(recent.ends_with("- s-1 (1 message): fix the parser\n"));
/// # log.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
pub fn recent(snapshot: &Snapshot, count: usize, workspace: Option<&str>) -> Result<String> {
    let listing = list(snapshot, false)?;
    let is_here = |session: &&Summary| {
        workspace.is_none_or(|here| session.info.attributes.workspace.as_deref() == Some(here))
    };
    let mut text = String::new();
    for session in listing.sessions.iter().filter(is_here).take(count) {
        if text.is_empty() {
            text.push_str("# Recent sessions, newest first (`eventlog search` looks into all)\n");
        }
        let messages = session.messages;
        let plural = if messages == 1 { "" } else { "s" };
        let status = session.status.as_ref().map(|status| format!(", {status}"));
        let goal = session.goal.as_ref().or(session.first_prompt.as_ref());
        let goal = goal.map(|goal| format!(": {}", in_a_line(goal))).unwrap_or_default();
        let (id, status) = (in_a_line(&session.info.id), status.unwrap_or_default());
        text.push_str(&format!("- {id} ({messages} message{plural}{status}){goal}\n"));
    }
    Ok(text)
}

/// The beginning of a text, on one line.
fn in_a_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(GOAL_CHARS) {
        Some((at, _)) => format!("{}…", within(&*line, ..at)),
        None => line,
    }
}
