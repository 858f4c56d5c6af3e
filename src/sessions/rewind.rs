//! Taking turns back.

use crate::error::{Error, ErrorKind, Result};
use crate::log::{EventLog, Position};
use crate::memtable::{Attributes, Rewind};

use super::known;

/// How often a session may be rewound.
const REWINDS_MAX: usize = 1000;

/// Takes everything of the session `id` from its user turn number `turn` on back, counted from 0
/// among the turns that still count: as if it had not happened, for resuming, for the memory and for
/// what is recorded next. The events stay in the log and in its exports. Durable when this returns.
///
/// # Errors
///
/// `NotFound` for a session or a turn that is not there; `Refused` when it was rewound too often;
/// those of [`Session::append`].
///
/// # Example
///
/// ```
/// use eventlog::resume::{self, ResumeOptions};
/// use eventlog::{EventLog, format::Role, record::Recorder, sessions};
///
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-rewind-{}", std::process::id()));
/// # let log = EventLog::open(&dir)?;
/// let recorder = Recorder::new(log.session("s")?, "run-1")?;
/// for text in ["first", "second"] {
///     recorder.message(0, Role::User, text)?;
/// }
/// let messages = || -> eventlog::Result<usize> {
///     let resumed = resume::resume(&log.snapshot()?, "s", &ResumeOptions::default())?;
///     Ok(resumed.state.history_messages.len())
/// };
/// sessions::rewind(&log, "s", 1)?;
/// assert_eq!(messages()?, 1);
/// sessions::undo_rewind(&log, "s")?;
/// assert_eq!(messages()?, 2);
/// # log.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
///
/// [`Session::append`]: crate::Session::append
pub fn rewind(log: &EventLog, id: &str, turn: u64) -> Result<Rewind> {
    let snapshot = log.snapshot()?;
    let session = known(&snapshot, id)?;
    let mut rewinds = session.rewinds().to_vec();
    if rewinds.len() >= REWINDS_MAX {
        let message = format!("the session {id:?} has been rewound {REWINDS_MAX} times");
        return Err(Error::new(ErrorKind::Refused, message)
            .with_hint("`eventlog fork` goes on in a session of its own"));
    }
    let kept = session.kept();
    let mut left = turn;
    for n in 0..session.user_turns {
        let Some(seq) = snapshot.find(id, Position::UserTurn(n))? else { break };
        if !kept.iter().any(|range| range.contains(&seq)) {
            continue;
        }
        if left == 0 {
            let rewind = Rewind { from: seq, to: session.events };
            rewinds.push(rewind);
            set(log, id, rewinds)?;
            return Ok(rewind);
        }
        left -= 1;
    }
    let message = format!("session {id:?} has no user turn {turn}; it has {}", turn - left);
    Err(Error::new(ErrorKind::NotFound, message).with_hint("turns are counted from 0"))
}

/// Undoes the last rewind of the session `id`, and returns it. Durable when this returns.
///
/// # Errors
///
/// `NotFound` where there is none; `Conflict` where something has been recorded since, which would
/// stand behind what it was never said after; those of [`Session::append`].
///
/// [`Session::append`]: crate::Session::append
pub fn undo_rewind(log: &EventLog, id: &str) -> Result<Rewind> {
    let session = known(&log.snapshot()?, id)?;
    let mut rewinds = session.rewinds().to_vec();
    let Some(last) = rewinds.pop() else {
        return Err(Error::new(ErrorKind::NotFound, format!("session {id:?} was not rewound")));
    };
    if session.events > last.to {
        let message = format!("session {id:?} has gone on since it was rewound");
        let hint = format!(
            "`eventlog fork {id} --at {} --as NEW_ID` gives what was taken back as a session of its own",
            last.to.saturating_sub(1)
        );
        return Err(Error::new(ErrorKind::Conflict, message)
            .with_head(session.events)
            .with_hint(hint));
    }
    set(log, id, rewinds)?;
    Ok(last)
}

fn set(log: &EventLog, id: &str, rewinds: Vec<Rewind>) -> Result<()> {
    let attributes = Attributes { rewinds: Some(rewinds), ..Attributes::default() };
    log.session(id)?.describe(&attributes)
}
