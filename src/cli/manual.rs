//! `eventlog completions` and `eventlog man`: what the shell and the manual know of the command line.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::output::Output;
use super::{Cli, Exit, Failure};

/// Print the completions for a shell
///
/// For bash: eventlog completions bash > ~/.local/share/bash-completion/completions/eventlog
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self, output: &mut Output) -> Result<Exit, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "eventlog", &mut script);
        output.raw(&script)?;
        Ok(Exit::Fine)
    }
}

/// Print the manual page, or write the pages of all commands
///
/// To read them: eventlog man --dir ~/.local/share/man/man1, then man eventlog-import
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Write eventlog.1 and a page per command into this directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(&self, output: &mut Output) -> Result<Exit, Failure> {
        match &self.dir {
            Some(dir) => write_pages(dir, output)?,
            None => {
                let mut page = Vec::new();
                clap_mangen::Man::new(Cli::command().disable_help_subcommand(true))
                    .render(&mut page)?;
                output.raw(&page)?;
            }
        }
        Ok(Exit::Fine)
    }
}

fn write_pages(dir: &Path, output: &mut Output) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        let message = format!("cannot write the manual to {}: {error}", dir.display());
        Failure::Own(Exit::InputOutput, "io", message, None)
    };
    fs::create_dir_all(dir).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), dir).map_err(failed)?;
    output.note(&format!("wrote the manual to {}", dir.display()));
    Ok(())
}
