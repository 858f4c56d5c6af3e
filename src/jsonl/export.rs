//! A session as the bytes it came from: each line and its line end, in order.

use std::io::Write;

use crate::error::{Error, Result};
use crate::log::{EventRange, Snapshot};

use super::file_events::FileEvents;

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exported {
    /// Events.
    pub events: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Writes events of the session `id` to `out`, calling `progress` with the bytes written so far.
/// Damaged spans and blank lines are written like all others.
///
/// # Errors
///
/// `NotFound`, `Corrupt`, and what `out` reports.
///
/// # Example
///
/// ```
/// use eventlog::{Entry, EventLog, Kind, jsonl};
///
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-export-{}", std::process::id()));
/// # let log = EventLog::open(&dir)?;
/// log.session("s")?.append(Entry::new(Kind::Message, br#"{"a": 1}"#))?;
/// let mut out = Vec::new();
/// jsonl::export(&log.snapshot()?, "s", .., &mut out, &mut |_| {})?;
/// assert_eq!(out, b"{\"a\": 1}\n");
/// # log.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
pub fn export(
    snapshot: &Snapshot,
    id: &str,
    range: impl Into<EventRange>,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> Result<Exported> {
    let mut exported = Exported::default();
    for event in FileEvents::new(snapshot.read(id, range)?) {
        let event = event?;
        let terminator = event.terminator().as_bytes();
        out.write_all(event.bytes())
            .and_then(|()| out.write_all(terminator))
            .map_err(|e| Error::io("cannot write the export", e))?;
        exported.events += 1;
        exported.bytes += (event.bytes().len() + terminator.len()) as u64;
        if exported.events % 1024 == 0 {
            progress(exported.bytes);
        }
    }
    progress(exported.bytes);
    Ok(exported)
}
