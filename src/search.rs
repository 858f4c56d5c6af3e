//! Episodic recall: text in the messages, tool names and arguments of all sessions, also before
//! compactions. Newest first, with an exact total.
//!
//! The sessions are cut into pieces that are scanned in parallel. A line is decoded only where its
//! raw bytes may hold a match.

use regex::bytes::{Regex as BytesRegex, RegexBuilder as BytesRegexBuilder};
use regex::{Regex, RegexBuilder};

use crate::entry::{Kind, Seq, StoredEntry};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Call, Event, Json, Text, parse_time};
use crate::format::Format;
use crate::format::write::without_escapes;
use crate::log::{SessionInfo, Snapshot};
use crate::parallel;

/// What to look for.
#[derive(Clone, Debug)]
pub struct Query {
    matcher: Regex,
    /// Finds every raw line that can match, and perhaps others; `None` where none can be told.
    raw: Option<BytesRegex>,
    role: Option<String>,
    tool: Option<String>,
    since: Option<jiff::Timestamp>,
    texts_max: usize,
}

/// A place where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Match {
    /// The session.
    pub session: String,
    /// The event.
    pub seq: Seq,
    /// Who speaks; empty where nobody does.
    pub role: Text,
    /// The kind of event.
    pub kind: Kind,
    /// When, as it was written.
    pub time: Text,
    /// The whole text that was found in.
    pub text: Text,
}

/// What was found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Found {
    /// The places, newest first; as many as the query asks for.
    pub matches: Vec<Match>,
    /// How many places there are.
    pub total: u64,
    /// In how many sessions.
    pub sessions: u64,
    /// Why a session, or a part of one, could not be searched.
    pub damaged: Vec<(String, Error)>,
}

impl Query {
    /// Looks for `text`, upper and lower case alike.
    ///
    /// # Errors
    ///
    /// `Usage` where it is too long to be looked for.
    pub fn literal(text: &str) -> Result<Query> {
        let pattern = regex::escape(text);
        // What JSON writes as an escape does not stand in the raw line as it is.
        let plain = !text.chars().any(|c| c.is_control() || matches!(c, '"' | '\\' | '/'));
        // A call is shown as its tool and its arguments with a space between, which do not stand side
        // by side in the raw line; a word of the text does.
        let word = text.split(' ').max_by_key(|word| word.len()).unwrap_or_default();
        let raw = plain.then(|| format!("{}|\\\\u", regex::escape(word)));
        Query::build(&pattern, raw.as_deref()).map_err(|error| {
            Error::new(ErrorKind::Usage, format!("the text cannot be looked for: {error}"))
                .with_hint("look for a shorter part of it")
        })
    }

    /// Looks for a regular expression, upper and lower case alike.
    ///
    /// # Errors
    ///
    /// `Usage` where it is none.
    ///
    /// # Example
    ///
    /// ```
    /// use eventlog::search::Query;
    ///
    /// assert!(Query::regex("pars(e|ing)").is_ok());
    /// assert!(Query::regex("pars(e").is_err());
    /// ```
    pub fn regex(pattern: &str) -> Result<Query> {
        Query::build(pattern, None).map_err(|error| {
            Error::new(ErrorKind::Usage, format!("no regular expression: {error}"))
                .with_hint("leave out --regex to look for the text as it is")
        })
    }

    fn build(pattern: &str, raw: Option<&str>) -> std::result::Result<Query, regex::Error> {
        let matcher = RegexBuilder::new(pattern).case_insensitive(true).build()?;
        let raw = raw.map(|raw| BytesRegexBuilder::new(raw).case_insensitive(true).build());
        let (role, tool, since) = (None, None, None);
        Ok(Query { matcher, raw: raw.transpose()?, role, tool, since, texts_max: usize::MAX })
    }

    /// Only what this role says.
    pub fn role(mut self, role: Option<String>) -> Query {
        self.role = role;
        self
    }

    /// Only calls and answers of this tool.
    pub fn tool(mut self, tool: Option<String>) -> Query {
        self.tool = tool;
        self
    }

    /// Only what was written at this time or later, in microseconds since the Unix epoch.
    pub fn since(mut self, unix_micros: Option<i64>) -> Query {
        self.since = unix_micros.and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok());
        self
    }

    /// Gives at most so many places; all are counted.
    pub fn limit(mut self, texts: usize) -> Query {
        self.texts_max = texts;
        self
    }

    /// A tool and what is known of a call of it, as people read it: without JSON's escapes.
    fn shown(&self, tool: &str, value: &Json) -> Text {
        format!("{tool} {}", without_escapes(value.as_str())).into()
    }

    fn find(&self, session: &str, format: &dyn Format, entry: &StoredEntry) -> Option<Match> {
        if self.raw.as_ref().is_some_and(|raw| !raw.is_match(entry.bytes())) {
            return None;
        }
        let event = Event::from_entry(format, entry)?;
        let (role, texts) = match event.kind {
            Kind::Message => {
                let said = event.said();
                let tool = said.metadata.id_of("tool_name");
                let shown = |call: &Call| self.shown(&call.name, &call.arguments);
                let calls = said.calls.iter().map(|call| (shown(call), call.name.clone()));
                // The text of an answer is its tool's; any other is no tool's.
                let texts = std::iter::once((said.text(), tool)).chain(calls).collect::<Vec<_>>();
                (said.by.clone(), texts)
            }
            Kind::ToolLifecycle => {
                let tool = event.tool().tool.clone();
                (Text::default(), vec![(self.shown(&tool, &event.payload), tool)])
            }
            _ => return None,
        };
        if self.role.as_ref().is_some_and(|wanted| role != *wanted) {
            return None;
        }
        let is_old =
            |since: &jiff::Timestamp| parse_time(&event.time).is_none_or(|time| time < *since);
        if self.since.as_ref().is_some_and(is_old) {
            return None;
        }
        let of_tool = |tool: &Text| self.tool.as_ref().is_none_or(|wanted| tool == wanted);
        let mut texts = texts.into_iter().filter(|(_, tool)| of_tool(tool));
        let (text, _) = texts.find(|(text, _)| self.matcher.is_match(text))?;
        Some(Match {
            session: session.to_owned(),
            seq: event.seq,
            role,
            kind: event.kind,
            time: event.time,
            text,
        })
    }
}

/// How many events are scanned in one piece.
const PIECE_EVENTS: u64 = 16_384;

/// How many places there are in a piece, and the first of them.
type Scanned = (u64, Vec<Match>);

struct Piece<'s> {
    session: &'s SessionInfo,
    format: &'static dyn Format,
    from: Seq,
    to: Seq,
}

/// Searches `sessions`, in their order, each from its end to its start.
///
/// # Errors
///
/// `Corrupt`, `Io`.
///
/// # Example
///
/// ```
/// use eventlog::{Attributes, Entry, EventLog, Kind, search::{self, Query}};
///
/// # let dir = std::env::temp_dir().join(format!("eventlog-doc-search-{}", std::process::id()));
/// # let log = EventLog::open(&dir)?;
/// let session = log.session("s")?;
/// # let mut attributes = Attributes::default();
/// # attributes.format = Some("recursive".to_owned());
/// # session.describe(&attributes)?;
/// session.append(Entry::new(Kind::Message, br#"{"id":"m","role":"user","content":"Fix the parser","timestamp":"t"}"#))?;
/// let snapshot = log.snapshot()?;
/// let sessions: Vec<_> = snapshot.sessions().collect::<Result<_, _>>()?;
/// let found = search::search(&snapshot, &sessions, &Query::literal("PARSER")?)?;
/// assert_eq!((found.total, found.matches[0].seq), (1, 0));
/// # log.close()?;
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok::<(), eventlog::Error>(())
/// ```
pub fn search(snapshot: &Snapshot, sessions: &[SessionInfo], query: &Query) -> Result<Found> {
    let mut pieces = Vec::new();
    for session in sessions {
        let format = crate::sessions::format_of(session);
        let Some(format) = format else { continue };
        let mut to = session.events;
        while to > 0 {
            let from = to.saturating_sub(PIECE_EVENTS);
            pieces.push(Piece { session, format, from, to });
            to = from;
        }
    }
    let results = parallel::map(&pieces, |piece| scan(snapshot, piece, query));
    let mut found = Found::default();
    let mut last = None;
    for (piece, result) in pieces.iter().zip(results) {
        let (count, matches) = match result {
            Ok(scanned) => scanned,
            // One damaged session hides no other.
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                found.damaged.push((piece.session.id.clone(), error));
                continue;
            }
            Err(error) => return Err(error),
        };
        found.total += count;
        let session = Some(&piece.session.id);
        if count > 0 && last != session {
            found.sessions += 1;
            last = session;
        }
        let left = query.texts_max.saturating_sub(found.matches.len());
        found.matches.extend(matches.into_iter().take(left));
    }
    Ok(found)
}

fn scan(snapshot: &Snapshot, piece: &Piece<'_>, query: &Query) -> Result<Scanned> {
    let id = piece.session.id.as_str();
    let (mut count, mut matches) = (0, Vec::new());
    for entry in snapshot.read(id, piece.from..piece.to)?.rev() {
        if let Some(found) = query.find(id, piece.format, &entry?) {
            count += 1;
            if matches.len() < query.texts_max {
                matches.push(found);
            }
        }
    }
    Ok((count, matches))
}
