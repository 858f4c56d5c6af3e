//! Exit codes and what leads to them. The numbers are part of the CLI's contract.

use std::io;
use std::process::ExitCode;

use eventlog::{Error, ErrorKind};

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Fine = 0,
    /// Nothing matched.
    Nothing = 1,
    Usage = 2,
    NotFound = 3,
    /// Damage was found.
    Damage = 4,
    /// A conflict, or another process writes.
    Conflict = 5,
    /// Input or output failed, or there is no space.
    InputOutput = 6,
    /// Done, and something was quarantined.
    Partial = 7,
    NewerFormat = 8,
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a command stopped.
#[derive(Debug)]
pub(crate) enum Failure {
    Log(Error),
    /// A message of the command's own: exit, kind in JSON, message, hint.
    Own(Exit, &'static str, String, Option<String>),
    /// Writing to stdout failed.
    Output(io::Error),
    Interrupted,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure::Own(Exit::Usage, "usage", message.into(), Some(hint.into()))
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Failure::Log(error) => exit_of(error.kind()),
            Failure::Own(exit, ..) => *exit,
            // Whoever read our output has seen enough.
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Fine,
            Failure::Output(_) => Exit::InputOutput,
            Failure::Interrupted => Exit::Interrupted,
        }
    }
}

fn exit_of(kind: ErrorKind) -> Exit {
    match kind {
        ErrorKind::Usage | ErrorKind::TooLarge => Exit::Usage,
        ErrorKind::NotFound => Exit::NotFound,
        ErrorKind::Corrupt | ErrorKind::Ambiguous => Exit::Damage,
        ErrorKind::Conflict | ErrorKind::Locked | ErrorKind::Refused => Exit::Conflict,
        ErrorKind::NewerFormat => Exit::NewerFormat,
        _ => Exit::InputOutput,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Log(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Output(error)
    }
}
