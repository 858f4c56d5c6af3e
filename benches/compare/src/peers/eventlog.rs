//! This project's log. Sessions are submitted together and waited for together.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use eventlog::io::{Dir, OpenMode, StdDir};
use eventlog::jsonl::{self, ImportOptions};
use eventlog::resume::{ResumeOptions, resume};
use eventlog::{Entry, EventLog, Kind, Session, Ticket};

use crate::peer::{Event, Peer, Result};
use crate::support::Samples;

/// So many submitted events wait for their flush at most.
const WINDOW: usize = 4096;

pub struct Log {
    log: EventLog,
    sessions: Mutex<HashMap<u32, Session>>,
}

pub fn open(dir: &Path) -> Result<Log> {
    // Its default cache, which is a quarter of what the others have.
    let log = EventLog::open(dir.join("log"))?;
    Ok(Log { log, sessions: Mutex::default() })
}

fn id(session: u32) -> String {
    format!("session-{session:05}")
}

fn entries<'a>(run: &[Event<'a>]) -> Vec<Entry<'a>> {
    run.iter().map(|event| Entry::new(Kind::Message, event.bytes)).collect()
}

impl Log {
    fn session(&self, session: u32) -> Result<Session> {
        let mut sessions = self.sessions.lock().unwrap();
        if let Some(known) = sessions.get(&session) {
            return Ok(known.clone());
        }
        let opened = self.log.session(&id(session))?;
        sessions.insert(session, opened.clone());
        Ok(opened)
    }
}

impl Peer for Log {
    fn append(&self, events: &[Event<'_>]) -> Result<()> {
        let mut runs = events.chunk_by(|a, b| a.session == b.session);
        match (runs.next(), runs.next()) {
            (Some([event]), None) => {
                self.session(event.session)?.append(Entry::new(Kind::Message, event.bytes))?;
            }
            (Some(run), None) => {
                self.session(run[0].session)?.append_batch(&entries(run))?;
            }
            _ => {
                let mut tickets = Vec::new();
                for run in events.chunk_by(|a, b| a.session == b.session) {
                    tickets.push(self.session(run[0].session)?.submit(&entries(run))?);
                }
                for ticket in tickets {
                    ticket.wait()?;
                }
            }
        }
        Ok(())
    }

    fn append_all(
        &self,
        events: &mut dyn Iterator<Item = Event<'_>>,
        _: usize,
        samples: &mut Samples,
    ) -> Result<()> {
        let mut window: VecDeque<(Instant, Ticket)> = VecDeque::with_capacity(WINDOW);
        let mut acknowledge = |(submitted, ticket): (Instant, Ticket)| -> Result<()> {
            ticket.wait()?;
            samples.push(submitted.elapsed());
            Ok(())
        };
        for event in events {
            if window.len() == WINDOW {
                window.pop_front().map(&mut acknowledge).transpose()?;
            }
            let entry = Entry::new(Kind::Message, event.bytes);
            let submitted = Instant::now();
            window.push_back((submitted, self.session(event.session)?.submit(&[entry])?));
        }
        window.into_iter().try_for_each(acknowledge)
    }

    fn scan(&self, session: u32, from: u64, each: &mut dyn FnMut(&[u8])) -> Result<bool> {
        for event in self.log.read(&id(session), from..)? {
            each(event?.bytes());
        }
        Ok(true)
    }

    fn settle(&self) -> Result<()> {
        Ok(self.log.checkpoint()?)
    }

    fn import(&self, path: &Path, session: u32, _: usize) -> Result<u64> {
        let mut options = ImportOptions::default();
        options.session = Some(id(session));
        let (dir, name) = (path.parent().ok_or("no directory")?, path.file_name());
        let name = name.and_then(|name| name.to_str()).ok_or("no name")?;
        let file = StdDir::open(dir)?.open(name, OpenMode::Read)?;
        Ok(jsonl::import(&self.log, file, &options, &mut |_| {})?.records)
    }

    fn resume(&self, session: u32) -> Result<Option<u64>> {
        let snapshot = self.log.snapshot()?;
        let resumed = resume(&snapshot, &id(session), &ResumeOptions::default())?;
        std::hint::black_box(&resumed.state);
        Ok(snapshot.session(&id(session))?.map(|info| info.events))
    }
}
