//! What is known of each session, newest first.
//!
//! The times are those of the lines, which tell more than when they were imported. The order is the
//! same wherever sessions are counted from the newest on.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;

use crate::entry::{Kind, StoredEntry};
use crate::error::{Error, Result};
use crate::format::recursive::Meta;
use crate::format::{self, Content, Format, Usage};
use crate::log::{Position, SessionInfo, Snapshot};
use crate::parallel;

use super::format_of;

/// What is known of a session.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// What the log knows of it.
    pub info: SessionInfo,
    /// The time of its first record, or when that was written.
    pub created: Option<Timestamp>,
    /// The time of its last record, or when that was written.
    pub updated: Option<Timestamp>,
    /// How far it is: why its last run ended, or what stood beside its transcript.
    pub status: Option<String>,
    /// How many messages count: all but those that were taken back.
    pub messages: u64,
    /// What the user said first, of what counts.
    pub first_prompt: Option<String>,
    /// What the user said last, of what counts.
    pub last_prompt: Option<String>,
    /// What it is for, where that is written down.
    pub goal: Option<String>,
    /// Tokens, where they are counted.
    pub usage: Option<Usage>,
}

/// The sessions of a log.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Listing {
    /// Newest first.
    pub sessions: Vec<Summary>,
    /// What cannot be read: one damaged session hides no other.
    pub damaged: Vec<Error>,
}

impl Listing {
    /// The sessions, newest first, each followed by those that it has started, with their depth.
    pub fn tree(&self) -> Vec<(usize, &Summary)> {
        let ids: HashSet<&str> = self.sessions.iter().map(|s| s.info.id.as_str()).collect();
        let mut children: HashMap<&str, Vec<&Summary>> = HashMap::new();
        let mut roots = Vec::new();
        for session in &self.sessions {
            let parent = session.info.attributes.parent.as_deref();
            match parent.filter(|parent| ids.contains(parent) && *parent != session.info.id) {
                Some(parent) => children.entry(parent).or_default().push(session),
                None => roots.push(session),
            }
        }
        let (mut rows, mut placed) = (Vec::new(), HashSet::new());
        // Where parents go round in a circle, one of them comes first.
        for root in roots.into_iter().chain(&self.sessions) {
            let mut open = vec![(0, root)];
            while let Some((depth, session)) = open.pop() {
                let id = session.info.id.as_str();
                if placed.insert(id) {
                    rows.push((depth, session));
                    let below = children.remove(id).unwrap_or_default();
                    open.extend(below.into_iter().rev().map(|child| (depth + 1, child)));
                }
            }
        }
        rows
    }
}

/// The sessions that are not deleted, or the deleted ones, newest first.
///
/// # Errors
///
/// `Io`; damage is in the listing.
///
/// # Example
///
/// ```
/// use eventlog::{EventLog, sessions};
/// # use eventlog::{format::Role, record::Recorder};
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-list-{}", std::process::id()));
/// # let log = EventLog::open(&dir)?;
/// # Recorder::new(log.session("s")?, "run-1")?.message(0, Role::User, "hello")?;
/// let listing = sessions::list(&log.snapshot()?, false)?;
/// assert_eq!(listing.sessions[0].first_prompt.as_deref(), Some("hello"));
/// # log.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
pub fn list(snapshot: &Snapshot, deleted: bool) -> Result<Listing> {
    let mut listing = Listing::default();
    let (sessions, damaged) = infos(snapshot, deleted);
    listing.damaged = damaged;
    for summary in parallel::map(&sessions, |session| summary(snapshot, session)) {
        match summary {
            Ok(summary) => listing.sessions.push(summary),
            Err(error) => listing.damaged.push(error),
        }
    }
    let newest = |s: &Summary| std::cmp::Reverse((s.updated, s.info.id.clone()));
    listing.sessions.sort_by_cached_key(newest);
    Ok(listing)
}

/// The sessions that are not deleted in the order of [`list`], without their summaries. What cannot
/// be read is left out.
///
/// # Errors
///
/// `Io`.
pub fn newest_first(snapshot: &Snapshot) -> Result<Vec<SessionInfo>> {
    let (sessions, _) = infos(snapshot, false);
    let times = parallel::map(&sessions, |session| {
        let updated = updated(snapshot, session).ok().and_then(|(updated, _)| updated);
        std::cmp::Reverse((updated, session.id.clone()))
    });
    let mut sessions: Vec<_> = times.into_iter().zip(sessions).collect();
    sessions.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(sessions.into_iter().map(|(_, session)| session).collect())
}

fn infos(snapshot: &Snapshot, deleted: bool) -> (Vec<SessionInfo>, Vec<Error>) {
    if deleted {
        return (snapshot.deleted_sessions().collect(), Vec::new());
    }
    let (mut sessions, mut damaged) = (Vec::new(), Vec::new());
    for session in snapshot.sessions() {
        match session {
            Ok(session) => sessions.push(session),
            Err(error) => damaged.push(error),
        }
    }
    (sessions, damaged)
}

/// Damage at the ends is passed over, but not without limit.
const NEAR: usize = 1000;

fn is_record(entry: &Result<StoredEntry>) -> bool {
    entry.as_ref().map_or(true, |e| !matches!(e.kind(), Kind::Blank | Kind::Damaged))
}

fn time_of(format: Option<&dyn Format>, entry: Option<&StoredEntry>) -> Option<Timestamp> {
    let record = format?.classify(entry?.bytes()).ok()?;
    crate::event::parse_time(&record.time?)
}

/// When the session was last written to, and its last record that counts.
fn updated(
    snapshot: &Snapshot,
    session: &SessionInfo,
) -> Result<(Option<Timestamp>, Option<StoredEntry>)> {
    let mut last = None;
    for kept in session.kept().into_iter().rev() {
        last = snapshot.read(&session.id, kept)?.rev().take(NEAR).find(is_record).transpose()?;
        if last.is_some() {
            break;
        }
    }
    let written = || micros(session.updated_unix_micros);
    Ok((time_of(format_of(session), last.as_ref()).or_else(written), last))
}

/// The text of the first user turn that counts, of `turns`.
fn prompt(
    snapshot: &Snapshot,
    session: &SessionInfo,
    turns: impl Iterator<Item = u64>,
) -> Result<Option<String>> {
    let Some(format) = format_of(session) else { return Ok(None) };
    let (id, kept) = (session.id.as_str(), session.kept());
    for n in turns {
        let Some(seq) = snapshot.find(id, Position::UserTurn(n))? else { break };
        if kept.iter().any(|range| range.contains(&seq)) {
            let entry = snapshot.read(id, seq..=seq)?.next().transpose()?;
            return Ok(entry.and_then(|e| format::text(format, e.bytes()).map(|text| text.into())));
        }
    }
    Ok(None)
}

/// How many messages count.
fn messages(snapshot: &Snapshot, session: &SessionInfo) -> Result<u64> {
    if session.rewinds().is_empty() {
        return Ok(session.count(Kind::Message));
    }
    let mut messages = 0;
    for kept in session.kept() {
        for entry in snapshot.read(&session.id, kept)? {
            messages += u64::from(entry?.kind() == Kind::Message);
        }
    }
    Ok(messages)
}

fn micros(micros: u64) -> Option<Timestamp> {
    Timestamp::from_microsecond(i64::try_from(micros).ok()?).ok()
}

fn summary(snapshot: &Snapshot, session: &SessionInfo) -> Result<Summary> {
    let id = session.id.as_str();
    let format = format_of(session);
    let first = snapshot.read(id, ..)?.take(NEAR).find(is_record).transpose()?;
    let (updated, last) = updated(snapshot, session)?;
    // What a description says is what its program last said.
    let meta = session.attributes.meta.as_deref().map(str::as_bytes);
    let meta = meta.and_then(|meta| Meta::parse(meta).ok());
    let ended = last.filter(|entry| entry.kind() == Kind::Terminal);
    let ended = ended.and_then(|entry| reason(format?, entry.bytes()));
    let said = || meta.as_ref().map(|meta| meta.status.name().to_owned());
    let turns = session.user_turns;
    Ok(Summary {
        created: time_of(format, first.as_ref()).or_else(|| micros(session.created_unix_micros)),
        updated,
        status: ended.or_else(said),
        messages: messages(snapshot, session)?,
        first_prompt: prompt(snapshot, session, 0..turns)?,
        last_prompt: prompt(snapshot, session, (0..turns).rev())?,
        goal: meta.as_ref().map(|meta| meta.goal.clone()).filter(|goal| !goal.is_empty()),
        usage: meta.as_ref().and_then(Meta::usage),
        info: session.clone(),
    })
}

/// Why a run ended, in the word of its last record.
fn reason(format: &dyn Format, line: &[u8]) -> Option<String> {
    format.facts(line).into_iter().find_map(|fact| match fact.content {
        Content::Terminal { reason } => Some(reason.into_owned()),
        _ => None,
    })
}
