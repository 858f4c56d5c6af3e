//! What most programs do: a JSONL file for each session, appended to and flushed. The originals also
//! look at its end, or at all of it, before each append.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::peer::{Event, Peer, Result};

/// What is read of the file before each append.
#[derive(Clone, Copy)]
enum Before {
    Nothing,
    Tail,
    All,
}

pub struct Jsonl {
    dir: PathBuf,
    before: Before,
    /// Kept open, as far as a process may.
    files: Mutex<HashMap<u32, Arc<Mutex<File>>>>,
}

const OPEN_FILES: usize = 500;

pub fn open(dir: &Path) -> Result<Jsonl> {
    open_with(dir, Before::Nothing)
}

pub fn open_tail(dir: &Path) -> Result<Jsonl> {
    open_with(dir, Before::Tail)
}

pub fn open_all(dir: &Path) -> Result<Jsonl> {
    open_with(dir, Before::All)
}

fn open_with(dir: &Path, before: Before) -> Result<Jsonl> {
    Ok(Jsonl { dir: dir.to_owned(), before, files: Mutex::default() })
}

impl Jsonl {
    fn path(&self, session: u32) -> PathBuf {
        self.dir.join(format!("session-{session:05}.jsonl"))
    }

    fn file(&self, session: u32) -> Result<Arc<Mutex<File>>> {
        let mut files = self.files.lock().unwrap();
        if let Some(file) = files.get(&session) {
            return Ok(file.clone());
        }
        let path = self.path(session);
        let file = OpenOptions::new().create(true).append(true).read(true).open(path)?;
        let file = Arc::new(Mutex::new(file));
        if files.len() == OPEN_FILES {
            files.clear();
        }
        files.insert(session, file.clone());
        Ok(file)
    }

    /// Looks whether the last line is whole, as the originals do.
    fn look(&self, file: &mut File) -> Result<()> {
        let length = file.metadata()?.len();
        let from = match self.before {
            Before::Nothing => return Ok(()),
            Before::Tail => length.saturating_sub(64 << 10),
            Before::All => 0,
        };
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::with_capacity((length - from) as usize);
        file.read_to_end(&mut bytes)?;
        if bytes.last().is_some_and(|last| *last != b'\n') {
            return Err("the last line is torn".into());
        }
        Ok(())
    }
}

impl Peer for Jsonl {
    fn append(&self, events: &[Event<'_>]) -> Result<()> {
        for run in events.chunk_by(|a, b| a.session == b.session) {
            let mut lines = Vec::new();
            for event in run {
                lines.extend_from_slice(event.bytes);
                lines.push(b'\n');
            }
            let file = self.file(run[0].session)?;
            let mut file = file.lock().unwrap();
            self.look(&mut file)?;
            file.write_all(&lines)?;
            file.sync_data()?;
        }
        Ok(())
    }

    /// There is no index: the file is read, and the lines before are skipped. Random bytes hold
    /// line ends; the workloads with an order use lines.
    fn scan(&self, session: u32, from: u64, each: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let bytes = std::fs::read(self.path(session))?;
        let lines = bytes.split_inclusive(|byte| *byte == b'\n');
        for line in lines.skip(from as usize) {
            each(line.strip_suffix(b"\n").unwrap_or(line));
        }
        Ok(true)
    }
}
