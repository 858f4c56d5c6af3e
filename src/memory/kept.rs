//! The memory as it is kept in the log: derived once, and gone on with from there.
//!
//! It is kept with the seq up to which it was derived, and only when the store holds these events.
//! It is no truth of its own: where it is missing, damaged, of another version or from before a
//! rewind, it is derived again from all events.

use bincode::config;

use super::{Deriver, SessionMemory};
use crate::entry::Seq;
use crate::error::Result;
use crate::event::Event;
use crate::format::Format;
use crate::log::{Problem, Projection, Session, SessionInfo, Snapshot};
use crate::memtable::Rewind;
use crate::store::ProjectionHeader;

/// The version of the kept form and of the rules that it was derived by.
const VERSION: u32 = 1;

/// What a kept memory depends on beside the events before it.
pub(super) fn context(session: &SessionInfo) -> u64 {
    context_of(session.rewinds())
}

pub(super) fn context_of(rewinds: &[Rewind]) -> u64 {
    let rewinds: Vec<(Seq, Seq)> = rewinds.iter().map(|rewind| (rewind.from, rewind.to)).collect();
    let hash = blake3::hash(&crate::frame::encode_header(&rewinds));
    let (bytes, _) = hash.as_bytes().split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
    u64::from_le_bytes(*bytes)
}

/// The memory of the session `id`: the one that was kept, and what came later.
///
/// # Errors
///
/// `NotFound`; `Refused` where it is of no known format; `Corrupt`, `Io`.
///
/// # Example
///
/// ```
/// use eventlog::memory;
/// # use eventlog::{EventLog, format::Role, record::Recorder};
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-kept-{}", std::process::id()));
/// # let log = EventLog::open(&dir)?;
/// # Recorder::new(log.session("s")?, "run-1")?.message(0, Role::User, "fix it")?;
/// let memory = memory::of(&log.snapshot()?, "s")?;
/// assert_eq!(memory.current_goal().unwrap().text, "fix it");
/// # log.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
pub fn of(snapshot: &Snapshot, id: &str) -> Result<SessionMemory> {
    let (session, format) = crate::sessions::with_format(snapshot, id)?;
    Ok(loaded(snapshot, &session, format)?.0)
}

/// The memory, and how many events of it were not in the one that was kept.
pub(super) fn loaded(
    snapshot: &Snapshot,
    session: &SessionInfo,
    format: &dyn Format,
) -> Result<(SessionMemory, u64)> {
    let kept = snapshot.projection(&session.id, Projection::Memory, VERSION, context(session))?;
    let kept = kept.and_then(|(watermark, content)| Some((watermark, decoded(&content)?)));
    let (from, mut memory) = kept.unwrap_or_default();
    let before = memory.event_count();
    derive(snapshot, session, format, from..session.events, &mut memory)?;
    let new = memory.event_count() - before;
    Ok((memory, new))
}

/// The seq behind the last event of the memory that is kept of the session `id`; `None` where none
/// is kept that could be gone on with.
///
/// # Errors
///
/// `NotFound`; `Refused` where it is of no known format; `Corrupt`, `Io`.
pub fn kept_up_to(snapshot: &Snapshot, id: &str) -> Result<Option<Seq>> {
    let (session, _) = crate::sessions::with_format(snapshot, id)?;
    let kept = snapshot.projection(id, Projection::Memory, VERSION, context(&session))?;
    Ok(kept.filter(|(_, content)| decoded(content).is_some()).map(|(watermark, _)| watermark))
}

pub(super) fn derive(
    snapshot: &Snapshot,
    session: &SessionInfo,
    format: &dyn Format,
    range: std::ops::Range<Seq>,
    memory: &mut SessionMemory,
) -> Result<()> {
    let deriver = Deriver::default();
    for kept in session.kept() {
        let part = kept.start.max(range.start)..kept.end.min(range.end);
        if part.is_empty() {
            continue;
        }
        for entry in snapshot.read(&session.id, part)? {
            if let Some(event) = Event::from_entry(format, &entry?) {
                deriver.update(memory, &event);
            }
        }
    }
    Ok(())
}

/// Keeps the memory after the events before `watermark`. Returns whether it was kept.
pub(super) fn keep(
    session: &Session,
    info: &SessionInfo,
    watermark: Seq,
    memory: &SessionMemory,
) -> Result<bool> {
    let header = ProjectionHeader { version: VERSION, watermark, context: context(info) };
    session.keep_projection(Projection::Memory, header, &encoded(memory))
}

/// Compares a memory that was kept with one that is derived anew.
///
/// # Errors
///
/// `Corrupt`, `Io`.
pub fn verify(snapshot: &Snapshot, id: &str) -> Result<Option<Problem>> {
    let Ok((session, format)) = crate::sessions::with_format(snapshot, id) else { return Ok(None) };
    let context = context(&session);
    let kept = snapshot.projection(id, Projection::Memory, VERSION, context)?;
    let Some((watermark, content)) = kept else { return Ok(None) };
    let mut memory = SessionMemory::default();
    derive(snapshot, &session, format, 0..watermark, &mut memory)?;
    if decoded(&content).as_ref() == Some(&memory) {
        return Ok(None);
    }
    Ok(Some(Problem {
        location: "events.redb, projections".to_owned(),
        session: Some(id.to_owned()),
        seq: Some(watermark),
        kind: "projection",
        message: "the session memory that is kept is not that of the events".to_owned(),
    }))
}

fn encoded(memory: &SessionMemory) -> Vec<u8> {
    crate::frame::encode_header(memory)
}

fn decoded(content: &[u8]) -> Option<SessionMemory> {
    let limited = config::standard().with_limit::<{ 64 << 20 }>();
    let (memory, used) = bincode::decode_from_slice(content, limited).ok()?;
    (used == content.len()).then_some(memory)
}
