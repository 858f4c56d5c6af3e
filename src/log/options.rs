//! How a log is opened.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::io::{Dir, StdDir};

use super::EventLog;

/// When an append is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// After the event has reached the device: it survives a process kill, a crash of the operating
    /// system and a power failure, on a disk that honours flushes.
    #[default]
    Always,
    /// After the operating system has the event: it survives a process kill only. After a power
    /// failure the log may refuse to open, because it cannot tell lost batches from damaged
    /// ones.
    Os,
}

/// Sets up how a log is opened; see [`EventLog::builder`].
///
/// ```
/// use eventlog::{EventLog, Sync};
///
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-builder-{}", std::process::id()));
/// let log = EventLog::builder().sync(Sync::Os).max_entry_bytes(1 << 20).open(&dir)?;
/// log.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    pub(crate) options: Options,
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) sync: Sync,
    pub(crate) create: bool,
    pub(crate) max_entry_bytes: usize,
    pub(crate) segment_bytes: u64,
    pub(crate) checkpoint_bytes: usize,
    pub(crate) pressure_bytes: usize,
    pub(crate) checkpoint_interval: Duration,
    pub(crate) cache_bytes: usize,
    pub(crate) background: bool,
    pub(crate) drop_last_batch: bool,
}

/// No entry may be larger than this, whatever [`Builder::max_entry_bytes`] says.
const ENTRY_BYTES_LIMIT: usize = 1 << 30;
/// No batch may be larger than this.
pub(crate) const BATCH_BYTES_MAX: usize = (1 << 30) + (64 << 20);

impl Options {
    /// How much a memtable of so many sessions holds before it is written to the store. A
    /// checkpoint rewrites the last block of every session in it, so it pays to wait until there is
    /// something to write for each.
    pub(crate) fn due_bytes(&self, sessions: usize) -> usize {
        const BYTES_PER_SESSION: usize = 4 << 10;
        let most = self.checkpoint_bytes.saturating_mul(5);
        sessions.saturating_mul(BYTES_PER_SESSION).clamp(self.checkpoint_bytes, most)
    }
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            options: Options {
                sync: Sync::Always,
                create: true,
                max_entry_bytes: 256 << 20,
                segment_bytes: 16 << 20,
                checkpoint_bytes: 16 << 20,
                pressure_bytes: 48 << 20,
                checkpoint_interval: Duration::from_secs(30),
                cache_bytes: 16 << 20,
                background: true,
                drop_last_batch: false,
            },
        }
    }
}

impl Builder {
    /// When an append is acknowledged. Default: [`Sync::Always`].
    pub fn sync(mut self, sync: Sync) -> Builder {
        self.options.sync = sync;
        self
    }

    /// Whether a log that does not exist is created. Default: yes.
    pub fn create(mut self, yes: bool) -> Builder {
        self.options.create = yes;
        self
    }

    /// The largest entry in bytes; a larger one is refused with [`ErrorKind::TooLarge`]. Default:
    /// 256 MiB; at most 1 GiB.
    pub fn max_entry_bytes(mut self, bytes: usize) -> Builder {
        self.options.max_entry_bytes = bytes.min(ENTRY_BYTES_LIMIT);
        self
    }

    /// How many bytes of events are kept in memory (and in the journal) before they are written to
    /// the store in the background. Default: 16 MiB; up to five times this while thousands of
    /// sessions are live. Appends wait when there is twice this more.
    pub fn checkpoint_bytes(mut self, bytes: usize) -> Builder {
        self.options.checkpoint_bytes = bytes.max(1);
        self.options.pressure_bytes = bytes.saturating_mul(3);
        self
    }

    /// How long an event stays in memory and journal before it is written to the store. Default: 30
    /// s.
    pub fn checkpoint_interval(mut self, interval: Duration) -> Builder {
        self.options.checkpoint_interval = interval.max(Duration::from_millis(10));
        self
    }

    /// The size of a journal segment. Default: 16 MiB; at least 64 KiB, at most 1 GiB.
    pub fn segment_bytes(mut self, bytes: u64) -> Builder {
        self.options.segment_bytes = bytes.clamp(64 << 10, 1 << 30).next_multiple_of(4096);
        self
    }

    /// The store's page cache in bytes. Default: 16 MiB; the operating system caches as well.
    pub fn cache_bytes(mut self, bytes: usize) -> Builder {
        self.options.cache_bytes = bytes;
        self
    }

    /// Whether threads run in the background: one that writes checkpoints, with a second one that
    /// packs and compresses while a large one is written, one that prepares journal segments, one
    /// that flushes what nobody waits for. Default: yes. Without them the
    /// log does all of it in the calls that need it, and [`EventLog::checkpoint`] is the
    /// caller's to call.
    pub fn background(mut self, yes: bool) -> Builder {
        self.options.background = yes;
        self
    }

    /// Whether to leave out the journal's last batch where its bytes are damaged in such a way that
    /// nobody can tell whether it had been acknowledged ([`ErrorKind::Ambiguous`]). The segment
    /// with the damage is kept beside the others
    /// ([`Recovery::dropped`](super::Recovery::dropped)). Default: no.
    pub fn drop_last_batch(mut self, yes: bool) -> Builder {
        self.options.drop_last_batch = yes;
        self
    }

    /// Opens the log in the directory `path` for reading and writing, creating it when absent, and
    /// recovers what a crash left. One process at a time.
    ///
    /// # Errors
    ///
    /// `Locked` with the owner, `Corrupt` or `Ambiguous` with the place, `NewerFormat`, `NotFound`
    /// (without [`Builder::create`]), `Full`, `Io`. An error changes nothing.
    pub fn open(self, path: impl AsRef<Path>) -> Result<EventLog> {
        let path = path.as_ref();
        let dir = if self.options.create { StdDir::create(path) } else { StdDir::open(path) };
        self.open_dir(Arc::new(dir.map_err(|e| cannot_open(path, e))?))
    }

    /// [`Builder::open`] on any implementation of [`Dir`].
    ///
    /// # Errors
    ///
    /// Those of [`Builder::open`].
    pub fn open_dir(self, dir: Arc<dyn Dir>) -> Result<EventLog> {
        EventLog::start(dir, self.options)
    }

    /// Opens the log for reading, beside a process that writes, or without one.
    ///
    /// # Errors
    ///
    /// Those of [`EventLog::open_read_only`].
    pub fn open_read_only(self, path: impl AsRef<Path>) -> Result<EventLog> {
        let path = path.as_ref();
        let dir = StdDir::open(path).map_err(|e| cannot_open(path, e))?;
        self.open_dir_read_only(Arc::new(dir))
    }

    /// [`Builder::open_read_only`] on any implementation of [`Dir`].
    ///
    /// # Errors
    ///
    /// Those of [`EventLog::open_read_only`].
    pub fn open_dir_read_only(self, dir: Arc<dyn Dir>) -> Result<EventLog> {
        EventLog::start_reader(dir, self.options)
    }
}

fn cannot_open(path: &Path, error: std::io::Error) -> Error {
    let error = Error::io(format_args!("cannot open {}", path.display()), error);
    match error.kind() {
        ErrorKind::NotFound => error.with_hint("`eventlog import` or `append` creates a log"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_waits_until_there_is_something_to_write_for_each_session() {
        let options = Builder::default().options;
        assert_eq!(options.due_bytes(1), 16 << 20);
        assert_eq!(options.due_bytes(4_096), 16 << 20);
        assert_eq!(options.due_bytes(10_000), 10_000 << 12);
        assert_eq!(options.due_bytes(1_000_000), 80 << 20);
    }
}
