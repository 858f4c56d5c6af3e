//! The command line: arguments, which command runs, how it ends.
//!
//! stdout is data, stderr everything else. One file per command; [`output`] has the ways to print,
//! [`place`] finds the log and the session that are meant, [`exit`] the exit codes.

mod append;
mod events;
mod exit;
mod export;
mod import;
mod interrupt;
mod manage;
mod manual;
mod memory;
mod migrate;
mod output;
mod place;
mod progress;
mod quarantine;
mod recent;
mod recover;
mod repair;
mod resume;
mod search;
mod sessions;
mod show;
mod stats;
mod tail;
mod time;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};

pub(crate) use exit::{Exit, Failure};
use output::{Colour, Output};

/// What holds for every command.
const AFTER_HELP: &str = "\
A SESSION is a full id, a unique prefix of one, @last, or @N for the N-th newest. An id that begins
with @ is written \\@.

The log is that of --log, else of EVENTLOG_DIR, else the nearest directory .eventlog upwards, else
the one in the user's data directory.

stdout is data: a table on a terminal, tab-separated text in a pipe, JSON lines with --json.

Exit codes: 0 fine, 1 nothing matched, 2 usage, 3 not found, 4 damage found, 5 conflict, refused or
locked by another writer, 6 input/output or no space, 7 done and something was quarantined, 8 newer
format, 130 interrupted.";

/// A durable, crash-safe event log for AI-agent sessions.
///
/// Imports the JSONL transcripts of agent sessions, keeps every byte of them, shows and checks
/// them, and writes them out again byte for byte. Commands that read work while another process
/// writes.
#[derive(Debug, Parser)]
#[command(name = "eventlog", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_long_help = AFTER_HELP)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// The log's directory [default: the nearest .eventlog upwards, else the user's data
    /// directory]
    // An empty one gets an error that says what to do.
    #[arg(long, global = true, value_name = "DIR", env = "EVENTLOG_DIR",
        value_parser = OsStringValueParser::new().map(PathBuf::from))]
    log: Option<PathBuf>,
    /// Print one JSON value per line
    #[arg(long, global = true)]
    json: bool,
    /// When to use colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: Colour,
    /// Print nothing on stderr but errors and warnings
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Say more on stderr: which log is used
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    verbose: bool,
    /// Show times in the local time zone instead of UTC
    #[arg(long, global = true)]
    local: bool,
}

/// What each does stands at its arguments, where the long help is.
#[derive(Debug, Subcommand)]
enum Command {
    Import(import::Import),
    Export(export::Export),
    Sessions(sessions::Sessions),
    Show(show::Show),
    Tail(tail::Tail),
    Resume(resume::Resume),
    Memory(memory::Memory),
    Search(search::Search),
    Recent(recent::Recent),
    Rewind(manage::Rewind),
    Fork(manage::Fork),
    Delete(manage::Delete),
    Quarantine(quarantine::Quarantine),
    Verify(verify::Verify),
    Stats(stats::Stats),
    Append(append::Append),
    Repair(repair::Repair),
    Migrate(migrate::Migrate),
    Recover(recover::Recover),
    Completions(manual::Completions),
    Man(manual::Man),
}

/// Runs the command line.
pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to stdout and are no failure.
            let code = if error.use_stderr() { Exit::Usage } else { Exit::Fine };
            if error.use_stderr() && std::env::args_os().any(|arg| arg == "--json") {
                output::print_usage_error(&error);
            }
            _ = error.print();
            return code.into();
        }
    };
    interrupt::install();
    quiet_caught_panics();
    let mut output = Output::new(&cli.global);
    let result = run(&cli, &mut output).and_then(|exit| {
        output.flush()?;
        Ok(exit)
    });
    match result {
        Ok(exit) => exit.into(),
        Err(failure) => output.fail(&failure).into(),
    }
}

/// Damage in the store can make code below panic; the library catches that and reports it, and
/// nobody needs to read it twice.
fn quiet_caught_panics() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !eventlog::panics_are_caught() {
            default(info);
        }
    }));
}

fn run(cli: &Cli, output: &mut Output) -> Result<Exit, Failure> {
    let global = &cli.global;
    match &cli.command {
        Command::Import(command) => command.run(global, output),
        Command::Export(command) => command.run(global, output),
        Command::Sessions(command) => command.run(global, output),
        Command::Show(command) => command.run(global, output),
        Command::Tail(command) => command.run(global, output),
        Command::Resume(command) => command.run(global, output),
        Command::Memory(command) => command.run(global, output),
        Command::Search(command) => command.run(global, output),
        Command::Recent(command) => command.run(global, output),
        Command::Rewind(command) => command.run(global, output),
        Command::Fork(command) => command.run(global, output),
        Command::Delete(command) => command.run(global, output),
        Command::Quarantine(command) => command.run(global, output),
        Command::Repair(command) => command.run(global, output),
        Command::Migrate(command) => command.run(global, output),
        Command::Verify(command) => command.run(global, output),
        Command::Stats(command) => command.run(global, output),
        Command::Append(command) => command.run(global, output),
        Command::Recover(command) => command.run(global, output),
        Command::Completions(command) => command.run(output),
        Command::Man(command) => command.run(output),
    }
}
