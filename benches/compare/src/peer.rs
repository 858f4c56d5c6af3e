//! What is compared: stores that take events durably, behind one trait.
//!
//! The trait is as wide as the workloads need and no wider. What a store cannot do it says with
//! `Ok(false)` or `None`, and the table shows a dash.

use std::error::Error;
use std::io::BufRead;
use std::path::Path;
use std::time::Instant;

use crate::peers;
use crate::support::Samples;

pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Memory for pages and blocks, the same for all.
pub const CACHE_BYTES: usize = 64 << 20;

/// An event and where it belongs.
#[derive(Clone, Copy)]
pub struct Event<'a> {
    pub session: u32,
    pub seq: u64,
    pub bytes: &'a [u8],
}

/// The key of an event in a store of keys and values.
pub fn key(session: u32, seq: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&u64::from(session).to_be_bytes());
    key[8..].copy_from_slice(&seq.to_be_bytes());
    key
}

pub trait Peer: Send + Sync {
    /// Appends the events in one commit; they are durable when it returns.
    fn append(&self, events: &[Event<'_>]) -> Result<()>;

    /// Appends a stream durably, the best way that the store has: by default `batch` events a
    /// commit. Takes down how long each commit took.
    fn append_all(
        &self,
        events: &mut dyn Iterator<Item = Event<'_>>,
        batch: usize,
        samples: &mut Samples,
    ) -> Result<()> {
        let mut group = Vec::with_capacity(batch);
        loop {
            group.clear();
            group.extend((0..batch).map_while(|_| events.next()));
            if group.is_empty() {
                return Ok(());
            }
            let start = Instant::now();
            self.append(&group)?;
            samples.push(start.elapsed());
        }
    }

    /// Calls `each` for the events of a session from `from` on. `false`: there is no way.
    fn scan(&self, session: u32, from: u64, each: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Waits until what was put off is done, so that the size on disk can be told.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Brings a JSONL file in: each line is looked at as JSON and appended.
    fn import(&self, path: &Path, session: u32, batch: usize) -> Result<u64> {
        let mut file = std::io::BufReader::with_capacity(1 << 20, std::fs::File::open(path)?);
        let (mut seq, mut lines) = (0, vec![Vec::new(); batch]);
        loop {
            let mut filled = 0;
            for line in &mut lines {
                line.clear();
                if file.read_until(b'\n', line)? == 0 {
                    break;
                }
                line.pop_if(|last| *last == b'\n');
                serde_json::from_slice::<serde::de::IgnoredAny>(line)?;
                filled += 1;
            }
            let events: Vec<Event<'_>> = (seq..)
                .zip(&lines[..filled])
                .map(|(seq, bytes)| Event { session, seq, bytes })
                .collect();
            if events.is_empty() {
                return Ok(seq);
            }
            self.append(&events)?;
            seq += filled as u64;
        }
    }

    /// What a run can go on with: reads and parses all events of a session, and finds the calls
    /// that have no answer. Gives how many events there are.
    fn resume(&self, session: u32) -> Result<Option<u64>> {
        let (mut count, mut open) = (0, std::collections::HashMap::new());
        let mut history = Vec::new();
        let known = self.scan(session, 0, &mut |bytes| {
            let event: serde_json::Value = serde_json::from_slice(bytes).unwrap();
            let payload = &event["payload"];
            if let (Some(id), Some(status)) =
                (payload["tool_call_id"].as_str(), payload["status"].as_str())
            {
                match status {
                    "requested" | "started" => _ = open.insert(id.to_owned(), status.to_owned()),
                    _ => _ = open.remove(id),
                }
            }
            count += 1;
            history.push(event);
        })?;
        Ok(known.then_some(count))
    }
}

/// A rival: its name, its version and setting, and how to open it in an empty or a used directory.
pub struct Entrant {
    pub name: &'static str,
    pub setting: &'static str,
    /// It can find the events of a session without reading everything.
    pub indexed: bool,
    pub open: fn(&Path) -> Result<Box<dyn Peer>>,
}

macro_rules! entrants {
    ($($(#[$meta:meta])* $module:ident::$open:ident $name:literal $setting:literal $indexed:literal;)*) => {
        /// Everyone, in the order of the rounds.
        pub const ENTRANTS: &[Entrant] = &[$($(#[$meta])* Entrant {
            name: $name,
            setting: $setting,
            indexed: $indexed,
            open: |dir| Ok(Box::new(peers::$module::$open(dir)?)),
        },)*];
    };
}

entrants! {
    floor::open "floor" "pwrite + fdatasync into a zero-filled file" false;
    eventlog::open "eventlog" "default durability, its default cache of 16 MiB" true;
    jsonl::open "jsonl" "a file per session, write + fdatasync" false;
    jsonl::open_tail "jsonl-tail" "the originals: the file's end is read before each append, + fdatasync" false;
    jsonl::open_all "jsonl-all" "the originals: the whole file is read before each append, + fdatasync" false;
    okaywal::open "okaywal" "0.3.1, EntryWriter::commit" false;
    fjall::open "fjall" "3.1, batch with SyncData" true;
    sqlite::open "sqlite" "rusqlite 0.43, WAL, synchronous=FULL, rowid and UNIQUE(s, q), prepared" true;
    redb::open "redb" "4.6, Durability::Immediate" true;
    lmdb::open "lmdb" "heed 0.23, default" true;
    canopydb::open "canopydb" "0.2.5, commit_with(true)" true;
    #[cfg(feature = "rocksdb")]
    rocksdb::open "rocksdb" "0.25, set_sync(true), zstd" true;
}

impl Entrant {
    /// Nothing but its appends is measured: what it would read is that of another.
    pub fn only_appends(&self) -> bool {
        matches!(self.name, "floor" | "jsonl-tail" | "jsonl-all")
    }

    /// A process of it that is killed leaves something that has to be recovered.
    pub fn recovers(&self) -> bool {
        self.name != "floor" && !self.name.starts_with("jsonl")
    }
}

pub fn entrant(name: &str) -> Result<&'static Entrant> {
    let found = ENTRANTS.iter().find(|entrant| entrant.name == name);
    found.ok_or_else(|| format!("there is no peer {name}").into())
}
