//! Which log and which session are meant.

use std::path::{Path, PathBuf};
use std::time::Duration;

use etcetera::BaseStrategy;
use eventlog::{ErrorKind, EventLog, Snapshot, sessions};

use super::output::{Output, plural};
use super::{Exit, Failure, Global};

/// The name of a log's directory beside the work it belongs to.
const NEARBY: &str = ".eventlog";

/// The log's directory: `--log`, else `EVENTLOG_DIR`, else the nearest `.eventlog` upwards, else
/// the user's data directory.
pub(crate) fn log_dir(global: &Global) -> Result<PathBuf, Failure> {
    if let Some(dir) = &global.log {
        if dir.as_os_str().is_empty() {
            let hint = "give a directory, or leave out --log and EVENTLOG_DIR";
            return Err(Failure::usage("the log's directory must not be empty", hint));
        }
        return Ok(dir.clone());
    }
    let here = std::env::current_dir().unwrap_or_default();
    if let Some(found) = here.ancestors().map(|dir| dir.join(NEARBY)).find(|dir| dir.is_dir()) {
        return Ok(found);
    }
    match etcetera::choose_base_strategy() {
        Ok(strategy) => Ok(strategy.data_dir().join("eventlog")),
        Err(_) => Err(Failure::usage(
            "there is no home directory to keep the log in",
            "say where the log is with --log DIR",
        )),
    }
}

/// Warns when others than the owner may read the log: conversations are private.
#[cfg(unix)]
fn check_modes(dir: &Path, output: &mut Output) {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| path.metadata().map_or(0, |meta| meta.permissions().mode() & 0o777);
    // A private directory keeps what is in it private.
    if mode(dir) & 0o077 != 0 && mode(&dir.join("events.redb")) & 0o077 != 0 {
        let dir = dir.display();
        output.warn(&format!("perm_too_open: others may read the log; `chmod -R go= {dir}` helps"));
    }
}

#[cfg(not(unix))]
fn check_modes(_: &Path, _: &mut Output) {}

/// Opens the log for reading. One that a crash left is recovered first.
pub(crate) fn open_to_read(global: &Global, output: &mut Output) -> Result<EventLog, Failure> {
    let dir = log_dir(global)?;
    check_modes(&dir, output);
    if global.verbose {
        output.note(&format!("reading the log in {}", dir.display()));
    }
    let mut patience = 100;
    loop {
        let error = match EventLog::open_read_only(&dir) {
            Ok(log) => return Ok(log),
            Err(error) => error,
        };
        if error.kind() != ErrorKind::NeedsRecovery {
            return Err(error.into());
        }
        match EventLog::builder().create(false).open(&dir) {
            Ok(log) => {
                tell_recovery(&log, output);
                log.close()?;
            }
            Err(error) if is_permission_denied(&error) => {
                let message =
                    "the log was not closed cleanly, and recovering it needs write access";
                let hint = format!("let its owner run `eventlog recover` ({error})");
                return Err(Failure::Own(Exit::InputOutput, "io", message.to_owned(), Some(hint)));
            }
            // Somebody else is just opening it.
            Err(error) if error.kind() == ErrorKind::Locked && patience > 0 => {
                patience -= 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_permission_denied(error: &eventlog::Error) -> bool {
    let source = std::error::Error::source(error);
    source.and_then(|source| source.downcast_ref::<std::io::Error>()).is_some_and(|error| {
        matches!(
            error.kind(),
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem
        )
    })
}

/// Opens the log for writing, creating it when `create`.
pub(crate) fn open_to_write(
    global: &Global,
    create: bool,
    output: &mut Output,
) -> Result<EventLog, Failure> {
    let dir = log_dir(global)?;
    if global.verbose {
        output.note(&format!("writing to the log in {}", dir.display()));
    }
    check_modes(&dir, output);
    let new = !EventLog::exists(&dir);
    let log = EventLog::builder().create(create).open(&dir)?;
    if new {
        output.note(&format!("created a new log in {}", dir.display()));
    }
    tell_recovery(&log, output);
    Ok(log)
}

fn tell_recovery(log: &EventLog, output: &mut Output) {
    let recovery = log.recovery();
    if !recovery.clean {
        output.note(&format!(
            "the log was not closed cleanly: recovered it, {} came from the journal",
            plural(recovery.replayed_events, "event")
        ));
    }
    if let Some(dropped) = &recovery.dropped {
        output.warn(&format!(
            "batch {} in {} at byte {} had been cut off before it was acknowledged; it was left out, and \
             the segment is kept as {}",
            dropped.batch, dropped.segment, dropped.offset, dropped.kept_as
        ));
    }
}

/// The id that `\@x` stands for: `@x`, which would be a name otherwise.
pub(crate) fn literal(argument: &str) -> Option<&str> {
    argument.strip_prefix('\\').filter(|id| id.starts_with('@'))
}

/// The id of a session that may be a new one. One that begins with `@` is written `\@`: by its plain
/// id nothing would find it.
pub(crate) fn new_id(argument: &str) -> Result<&str, Failure> {
    match literal(argument) {
        Some(id) => Ok(id),
        None if argument.starts_with('@') => Err(Failure::usage(
            format!("{argument:?} stands for a session that is there, and is no id"),
            format!("give the full id; for one that begins with @ write \\{argument}"),
        )),
        None => Ok(argument),
    }
}

/// The id of the session that is meant by a full id, a unique prefix, `@last`, or `@N` (the N-th
/// newest, from 1). What begins with `@` is never an id: no file that is imported can take these
/// names. `\@x` is the session `@x`.
pub(crate) fn session_id(snapshot: &Snapshot, argument: &str) -> Result<String, Failure> {
    if argument.is_empty() {
        return Err(Failure::usage(
            "the session is an empty text",
            "give an id, the beginning of one, @last or @N",
        ));
    }
    let literal = literal(argument);
    let id = literal.unwrap_or(argument);
    if literal.is_some() || !id.starts_with('@') {
        match snapshot.session(id)? {
            Some(session) if session.deleted_unix_micros().is_some() => {
                let hint = format!("`eventlog delete --undo {id}` brings it back");
                let message = format!("the session {id:?} is deleted");
                return Err(Failure::Own(Exit::NotFound, "not_found", message, Some(hint)));
            }
            Some(_) => return Ok(id.to_owned()),
            None => {}
        }
    }
    if let Some(which) = argument.strip_prefix('@') {
        let number = if which == "last" { Some(1) } else { which.parse::<usize>().ok() };
        let Some(index) = number.and_then(|n| n.checked_sub(1)) else {
            return Err(Failure::usage(
                format!("{argument:?} is neither @last nor @N with N from 1"),
                "`eventlog sessions` lists the sessions, newest first",
            ));
        };
        let sessions = sessions::newest_first(snapshot)?;
        return sessions
            .into_iter()
            .nth(index)
            .map(|session| session.id)
            .ok_or_else(|| not_found(format!("there is no session {argument}")));
    }
    let mut candidates = Vec::new();
    // A damaged record hides no other session; `sessions` and `verify` report it.
    for session in snapshot.sessions().flatten() {
        if session.id.starts_with(argument) {
            candidates.push(session.id);
        }
    }
    match candidates.as_slice() {
        [id] => Ok(id.clone()),
        [] => Err(not_found(format!("there is no session {argument:?} in this log"))),
        many => {
            const SHOWN: usize = 10;
            let mut list: Vec<String> =
                many.iter().take(SHOWN).map(|id| format!("{id:?}")).collect();
            if many.len() > SHOWN {
                list.push(format!("and {} more", many.len() - SHOWN));
            }
            let message = format!("{argument:?} is the beginning of {} session ids", many.len());
            let hint = format!("give more of the id; candidates: {}", list.join(", "));
            Err(Failure::Own(Exit::Usage, "usage", message, Some(hint)))
        }
    }
}

fn not_found(message: String) -> Failure {
    let hint = "`eventlog sessions` lists them".to_owned();
    Failure::Own(Exit::NotFound, "not_found", message, Some(hint))
}

/// A path as text for reports.
pub(crate) fn display(path: &Path) -> String {
    path.display().to_string()
}
