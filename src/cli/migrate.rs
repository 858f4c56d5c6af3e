//! `eventlog migrate`: recursive-agent's sessions from a project to its home.

use std::path::PathBuf;

use clap::Args;
use etcetera::BaseStrategy;
use eventlog::jsonl;
use serde::Serialize;

use super::output::Output;
use super::{Exit, Failure, Global, place};

/// Move recursive-agent's sessions out of a project, to where it keeps them now
///
/// From WORKSPACE/.recursive to HOME/workspaces/HASH. What is there already is kept; an item that
/// has a file which is there with another content stays where it is. No log is needed.
#[derive(Debug, Args)]
pub(crate) struct Migrate {
    /// The project
    #[arg(default_value = ".")]
    workspace: PathBuf,
    /// recursive-agent's home [default: ~/.recursive]
    #[arg(long, value_name = "DIR", env = "RECURSIVE_HOME")]
    home: Option<PathBuf>,
    /// Say what would be moved, and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Serialize)]
struct Report {
    already_clean: bool,
    moved: Vec<(String, String)>,
    skipped: Vec<Skipped>,
    removed_empty_dotrecursive: bool,
}

#[derive(Serialize)]
struct Skipped {
    path: String,
    reason: String,
}

impl Migrate {
    pub(crate) fn run(&self, _: &Global, output: &mut Output) -> Result<Exit, Failure> {
        if !self.workspace.is_dir() {
            let message = format!("{} is no directory", self.workspace.display());
            let hint = Some("name the project whose sessions are to be moved".to_owned());
            return Err(Failure::Own(Exit::NotFound, "not_found", message, hint));
        }
        let home = match &self.home {
            Some(home) => home.clone(),
            None => match etcetera::choose_base_strategy() {
                Ok(strategy) => strategy.home_dir().join(".recursive"),
                Err(_) => {
                    let hint = "say where recursive-agent keeps its sessions with --home DIR";
                    return Err(Failure::usage("there is no home directory", hint));
                }
            },
        };
        let done = jsonl::migrate(&self.workspace, &home, self.dry_run)?;
        let exit = match (done.moved.is_empty(), done.skipped.is_empty()) {
            (_, false) => Exit::Conflict,
            (true, true) => Exit::Nothing,
            (false, true) => Exit::Fine,
        };
        if output.json {
            let text = |path: &PathBuf| place::display(path);
            output.json(&Report {
                already_clean: done.is_clean(),
                moved: done.moved.iter().map(|(from, to)| (text(from), text(to))).collect(),
                skipped: done
                    .skipped
                    .iter()
                    .map(|(path, reason)| Skipped { path: text(path), reason: reason.clone() })
                    .collect(),
                removed_empty_dotrecursive: done.removed_empty,
            })?;
            return Ok(exit);
        }
        let moved = if self.dry_run { "would move" } else { "moved" };
        for (from, to) in &done.moved {
            output.line(&format!("{moved}\t{}\t{}", from.display(), to.display()))?;
        }
        for (path, reason) in &done.skipped {
            output.line(&format!("skipped\t{}\t{reason}", path.display()))?;
        }
        if done.is_clean() {
            output.note("there is nothing to move");
        } else if !done.skipped.is_empty() {
            output.note(
                "what was skipped stays where it is, whole; do it again when nothing is in the way",
            );
        }
        Ok(exit)
    }
}
