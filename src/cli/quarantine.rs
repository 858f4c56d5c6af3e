//! `eventlog quarantine`: what was set aside of a session, and why.

use clap::Args;
use eventlog::format::Damage;
use eventlog::{Kind, jsonl};
use serde::Serialize;

use super::output::{Output, plural};
use super::{Exit, Failure, Global, events, place};

/// List the bytes of a session that are no records
///
/// They are part of the session, and of its export. --dump prints the bytes themselves.
#[derive(Debug, Args)]
pub(crate) struct Quarantine {
    /// A session id, a unique prefix of one, @last or @N
    session: String,
    /// Print the bytes themselves, each span on a line
    #[arg(long, conflicts_with = "json")]
    dump: bool,
}

#[derive(Serialize)]
struct Span {
    seq: u64,
    line: u64,
    offset: u64,
    length: u64,
    reason: &'static str,
    bytes_base64: String,
    replaced: bool,
}

impl Quarantine {
    pub(crate) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let log = place::open_to_read(global, output)?;
        let snapshot = log.snapshot()?;
        let id = place::session_id(&snapshot, &self.session)?;
        let (mut line, mut offset) = (1, 0);
        // The torn ends, which the next event may stand in the place of.
        let mut torn: Vec<(Span, Vec<u8>)> = Vec::new();
        let mut spans = 0;
        for event in snapshot.read(&id, ..)? {
            let event = event?;
            if event.replaces_tail() {
                for (span, bytes) in torn.drain(..) {
                    offset -= span.length;
                    self.print(&Span { replaced: true, ..span }, &bytes, output)?;
                }
            }
            let is_open = event.terminator() == eventlog::Terminator::None;
            if event.kind() == Kind::Damaged {
                spans += 1;
                let reason = Damage::from_code(event.detail()).unwrap_or(Damage::BadJson);
                let length = event.bytes().len() as u64;
                let bytes_base64 = match output.json {
                    true => events::base64(event.bytes()),
                    false => String::new(),
                };
                let (seq, reason) = (event.seq(), reason.name());
                let span =
                    Span { seq, line, offset, length, reason, bytes_base64, replaced: false };
                if jsonl::is_torn_end(&event) {
                    torn.push((span, event.bytes().to_vec()));
                } else {
                    self.settle(&mut torn, output)?;
                    self.print(&span, event.bytes(), output)?;
                }
            } else {
                self.settle(&mut torn, output)?;
            }
            offset += event.bytes().len() as u64 + event.terminator().as_bytes().len() as u64;
            line += u64::from(!is_open);
        }
        self.settle(&mut torn, output)?;
        if spans == 0 {
            output.note("nothing of this session was set aside");
            return Ok(Exit::Nothing);
        }
        output.note(&format!("{} of session {id} set aside", plural(spans, "span")));
        Ok(Exit::Fine)
    }

    fn settle(&self, torn: &mut Vec<(Span, Vec<u8>)>, output: &mut Output) -> Result<(), Failure> {
        torn.drain(..).try_for_each(|(span, bytes)| self.print(&span, &bytes, output))
    }

    fn print(&self, span: &Span, bytes: &[u8], output: &mut Output) -> Result<(), Failure> {
        if output.json {
            return output.json(span);
        }
        if self.dump {
            return output.bytes("", bytes);
        }
        let Span { seq, line, offset, length, reason, .. } = span;
        let gone = if span.replaced { "\tno longer in the file" } else { "" };
        let text = match output.people {
            true => {
                format!("line {line}, byte {offset}: {length} bytes, {reason} (event {seq}){gone}")
            }
            false => format!("{seq}\t{line}\t{offset}\t{length}\t{reason}{gone}"),
        };
        output.line(&text)
    }
}
