//! The live mirror: JSONL files that are kept in step with the log, so that programs that read such
//! files go on working.
//!
//! Files are only ever appended to; a line that is in a file is never written again. What a file
//! holds is compared with the session when the mirror meets it, and from then on when its length,
//! its time of change or the file itself is not what the mirror left. After a kill the file is a beginning of the session, and the mirror
//! goes on there, in the middle of a line if need be. NUL bytes behind that, as a power failure can
//! leave them, are cut off. A file that is no beginning, because somebody else wrote to it, is left
//! alone and reported. A torn end of a session is not written before it is settled.
//!
//! Files are flushed when [`Mirror::flush`] is called; the log is what keeps the events.

use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use crate::entry::Seq;
use crate::error::{Error, ErrorKind, Result};
use crate::format::recursive::place::META;
use crate::format::{Format, Recursive};
use crate::io::{Dir, File, OpenMode, Reader, write_all_at};
use crate::log::{SessionInfo, Snapshot};
use crate::memtable::Attributes;

use super::export::{DerivedLines, own_format, write_meta};
use super::file_events::FileEvents;
use super::layout::Place;
use super::repair::tail;
use super::stamp::Stamp;

/// Keeps files below a directory in step with a log.
///
/// ```
/// use std::sync::Arc;
/// use eventlog::{Entry, EventLog, Kind, io::StdDir, jsonl::Mirror};
///
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-mirror-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// let log = EventLog::open(dir.join("log"))?;
/// let mut mirror = Mirror::new(Arc::new(StdDir::open(&dir).unwrap()));
/// log.session("s")?.append(Entry::new(Kind::Message, br#"{"a": 1}"#))?;
/// mirror.sync(&log.snapshot()?)?;
/// let file = dir.join("transcripts/transcript-s.jsonl");
/// assert_eq!(std::fs::read(file).unwrap(), b"{\"a\": 1}\n");
/// # log.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
#[derive(Debug)]
pub struct Mirror {
    root: Arc<dyn Dir>,
    sessions: HashMap<String, Mirrored>,
}

/// A session in the mirror.
#[derive(Debug)]
struct Mirrored {
    /// How many events the session had when it was looked at last; `None` when it is to be looked
    /// at again.
    seen: Option<Seq>,
    /// When the session was made: one that was purged and made again is another.
    made_unix_micros: u64,
    /// What the session was beside its events.
    attributes: Attributes,
    state: State,
}

#[derive(Debug)]
enum State {
    InStep {
        dir: Arc<dyn Dir>,
        name: String,
        at: At,
        derived: Option<Box<DerivedLines>>,
        unflushed: bool,
        /// As the mirror left the file.
        stamp: Option<Stamp>,
    },
    /// The file is something else; this is what it was.
    Foreign { path: PathBuf, stamp: Option<Stamp> },
}

/// How far a file goes.
#[derive(Clone, Copy, Debug, Default)]
struct At {
    /// The event that goes on.
    next: Seq,
    /// How many bytes of it are in the file.
    part: usize,
    /// The length of the file.
    len: u64,
}

/// What one [`Mirror::sync`] did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Synced {
    /// Files that were appended to.
    pub files: u64,
    /// Bytes that were appended.
    pub bytes: u64,
    /// What could not be brought in step, by session. A file that is not the log's is named once;
    /// everything else is tried again at the next sync.
    pub failed: Vec<(String, Error)>,
}

const BUFFER_BYTES: usize = 1 << 20;

impl Mirror {
    /// A mirror below `root`, in the layouts of [`layout`](super::layout).
    pub fn new(root: Arc<dyn Dir>) -> Mirror {
        Mirror { root, sessions: HashMap::new() }
    }

    /// Brings the files of all sessions that have changed in step with `snapshot`.
    ///
    /// # Errors
    ///
    /// What reading the list of sessions reports; what goes wrong with one session is in the
    /// result.
    pub fn sync(&mut self, snapshot: &Snapshot) -> Result<Synced> {
        let mut synced = Synced::default();
        for session in snapshot.sessions() {
            let session = match session {
                Ok(session) => session,
                Err(error) => {
                    synced.failed.push((String::new(), error));
                    continue;
                }
            };
            let known = self.sessions.get_mut(&session.id);
            if known.as_ref().is_some_and(|known| {
                known.seen == Some(session.events)
                    && known.attributes == session.attributes
                    && known.made_unix_micros == session.created_unix_micros
            }) {
                continue;
            }
            match self.sync_session(snapshot, &session) {
                Ok(0) => {}
                Ok(bytes) => {
                    synced.files += 1;
                    synced.bytes += bytes;
                }
                Err(error) => synced.failed.push((session.id.clone(), error)),
            }
        }
        Ok(synced)
    }

    /// Looks whether files are still as the mirror left them: those that are not are compared, made
    /// again or reported at the next [`Mirror::sync`]. Returns whether there are any.
    pub fn check(&mut self) -> bool {
        let mut any = false;
        for mirrored in self.sessions.values_mut() {
            let as_left = match &mirrored.state {
                State::InStep { dir, name, stamp, derived, .. } => {
                    let dir = dir.path();
                    *stamp == Stamp::of(&dir.join(name))
                        && (derived.is_none() || dir.join(META).exists())
                }
                State::Foreign { path, stamp } => *stamp == Stamp::of(path),
            };
            if !as_left {
                mirrored.seen = None;
                any = true;
            }
        }
        any
    }

    /// Flushes the files that were appended to since the last time.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn flush(&mut self) -> Result<()> {
        for mirrored in self.sessions.values_mut() {
            if let State::InStep { dir, name, unflushed, .. } = &mut mirrored.state
                && *unflushed
            {
                // DURABILITY: the content of the file, and, if it is new, its name.
                let flushed = dir.open(name, OpenMode::Write).and_then(|file| file.sync_data());
                let flushed = flushed.and_then(|()| dir.sync());
                // One that is gone is made again, and flushed then.
                let flushed = match flushed {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                    other => other,
                };
                flushed.map_err(|e| Error::from_io("cannot flush", dir.path().join(name), e))?;
                *unflushed = false;
            }
        }
        Ok(())
    }

    /// Appends what the file of a session is behind; returns how many bytes.
    fn sync_session(&mut self, snapshot: &Snapshot, session: &SessionInfo) -> Result<u64> {
        let known = self.sessions.remove(&session.id);
        let is_same = |known: &Mirrored| known.made_unix_micros == session.created_unix_micros;
        let known = known.filter(is_same);
        if let Some(Mirrored { state: State::Foreign { path, stamp }, .. }) = known {
            if stamp == Stamp::of(&path) {
                self.put(session, State::Foreign { path, stamp });
                return Ok(0);
            }
            return self.sync_session(snapshot, session);
        }
        let format = own_format(snapshot, &session.id)?;
        let place = Place::of(session, format);
        let path = self.root.path().join(place.path());
        let failed = |error| Error::from_io("cannot write", &path, error);
        let created = place.create(&self.root).map_err(failed)?;
        let as_left = |stamp: &Option<Stamp>| *stamp == Stamp::of(&path);
        let (was_seen, was) = match known {
            Some(known) => (known.attributes == session.attributes, Some(known.state)),
            None => (false, None),
        };
        let was_unflushed = matches!(&was, Some(State::InStep { unflushed: true, .. }));
        let (dir, mut at, mut derived) = match was {
            Some(State::InStep { dir, at, derived, stamp, .. }) if as_left(&stamp) => {
                (dir, at, derived)
            }
            _ => {
                let is_recursive = format.is_some_and(|format| format.name() == Recursive.name());
                (created, At::default(), is_recursive.then(Box::default))
            }
        };
        let file = dir.open(&place.file, OpenMode::Create).map_err(failed)?;
        if at.len == 0 || file.len().map_err(failed)? != at.len {
            // Met for the first time, or changed by somebody else.
            match compare(snapshot, &session.id, &file, &mut derived)? {
                Some(found) => at = found,
                None => {
                    let message = format!(
                        "{} is not what the log holds; it is left as it is",
                        path.display()
                    );
                    let stamp = Stamp::of(&path);
                    let state = State::Foreign { path: path.clone(), stamp };
                    self.put(session, state);
                    return Err(Error::new(ErrorKind::Conflict, message).with_hint(
                        "move the file away, or replace it with `eventlog export --force`",
                    ));
                }
            }
        }
        let before = at.len;
        let mut out = Appended { file: &*file, buffer: Vec::new(), len: at.len };
        let mut events = FileEvents::new(snapshot.read(&session.id, at.next..)?);
        while let Some(event) = events.next_settled() {
            let event = event?;
            let mut bytes = [event.bytes(), event.terminator().as_bytes()].concat();
            bytes.drain(..std::mem::take(&mut at.part).min(bytes.len()));
            if let Some(derived) = &mut derived {
                derived.add(&bytes);
            }
            out.put(&bytes).map_err(failed)?;
            at.next = event.seq() + 1;
        }
        at.len = out.finish().map_err(failed)?;
        let is_described = was_seen && at.len == before && dir.path().join(META).exists();
        if let Some(derived) = derived.as_ref().filter(|_| !is_described) {
            write_meta(&dir, session, derived.so_far())?;
        }
        let unflushed = was_unflushed || at.len != before;
        let stamp = Stamp::of(&path);
        let state = State::InStep { dir, name: place.file, at, derived, unflushed, stamp };
        self.put(session, state);
        Ok(at.len - before)
    }

    fn put(&mut self, session: &SessionInfo, state: State) {
        let (seen, attributes) = (Some(session.events), session.attributes.clone());
        let made_unix_micros = session.created_unix_micros;
        let mirrored = Mirrored { seen, made_unix_micros, attributes, state };
        self.sessions.insert(session.id.clone(), mirrored);
    }
}

/// Appends to a file, a buffer at a time.
struct Appended<'f> {
    file: &'f dyn File,
    buffer: Vec<u8>,
    len: u64,
}

impl Appended<'_> {
    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> std::io::Result<()> {
        write_all_at(self.file, &self.buffer, self.len)?;
        self.len += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn finish(mut self) -> std::io::Result<u64> {
        self.write()?;
        Ok(self.len)
    }
}

/// Where the session goes on behind what the file holds; `None` when the file is not a beginning of
/// it. NUL bytes at its end are cut off when all the rest is a beginning.
fn compare(
    snapshot: &Snapshot,
    id: &str,
    file: &Arc<dyn File>,
    derived: &mut Option<Box<DerivedLines>>,
) -> Result<Option<At>> {
    let cannot_read = |error| Error::io("cannot read the mirror's file", error);
    let size = file.len().map_err(cannot_read)?;
    if let Some(at) = beginning(snapshot, id, file, size, derived)? {
        return Ok(Some(at));
    }
    // A power failure can leave NUL bytes behind what was written.
    let end = tail(&**file, size)?;
    let padding = end.iter().rev().take_while(|b| **b == 0).count() as u64;
    if padding == 0 {
        return Ok(None);
    }
    let at = beginning(snapshot, id, file, size - padding, derived)?;
    if at.is_some() {
        file.set_len(size - padding).map_err(cannot_read)?;
    }
    Ok(at)
}

/// Compares the first `size` bytes of the file with the session.
fn beginning(
    snapshot: &Snapshot,
    id: &str,
    file: &Arc<dyn File>,
    size: u64,
    derived: &mut Option<Box<DerivedLines>>,
) -> Result<Option<At>> {
    let cannot_read = |error| Error::io("cannot read the mirror's file", error);
    if let Some(derived) = derived {
        **derived = DerivedLines::default();
    }
    let reader = Reader::new(file.clone()).take(size);
    let mut reader = std::io::BufReader::with_capacity(BUFFER_BYTES, reader);
    let mut at = At::default();
    let mut events = FileEvents::new(snapshot.read(id, ..)?);
    let mut found = Vec::new();
    while at.len < size
        && let Some(event) = events.next_settled()
    {
        let event = event?;
        let expected = [event.bytes(), event.terminator().as_bytes()].concat();
        found.clear();
        reader.by_ref().take(expected.len() as u64).read_to_end(&mut found).map_err(cannot_read)?;
        if !expected.starts_with(&found) {
            return Ok(None);
        }
        if let Some(derived) = derived {
            derived.add(&found);
        }
        at.len += found.len() as u64;
        match found.len() == expected.len() {
            true => at.next = event.seq() + 1,
            false => at = At { next: event.seq(), part: found.len(), ..at },
        }
    }
    Ok((at.len == size).then_some(at))
}
