//! What the README shows is what the commands print.
//!
//! Every line of its `console` blocks that begins with `$` is run by `sh`, in the order of the
//! page, in one directory that holds the project's examples. Times differ; nothing else may.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::path::Path;
use std::process::Command;

use regex::Regex;

/// The commands of the page, each with what is printed below it.
fn commands(page: &str) -> Vec<(&str, String)> {
    let mut commands: Vec<(&str, String)> = Vec::new();
    for block in page.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap();
        for line in block.lines() {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push((command, String::new())),
                (None, Some((_, printed))) => *printed += &format!("{line}\n"),
                (None, None) => panic!("a block begins without a command: {line}"),
            }
        }
    }
    commands
}

#[test]
fn every_command_of_the_readme_prints_what_stands_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("README.md")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("examples")).unwrap();
    let demo = "examples/demo-transcript.jsonl";
    std::fs::copy(root.join(demo), dir.path().join(demo)).unwrap();
    let binary = assert_cmd::cargo::cargo_bin!("eventlog").parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let seconds = Regex::new(r"in \d+\.\d+ s").unwrap();
    let plain = |text: &str| seconds.replace_all(text.trim_end(), "in .. s").into_owned();
    let commands = commands(&page);
    assert!(commands.len() >= 8, "only {} commands", commands.len());
    for (command, expected) in commands {
        let output = Command::new("sh")
            .args(["-c", &format!("{{ {command}; }} 2>&1")])
            .current_dir(dir.path())
            .env("PATH", &path)
            .env("EVENTLOG_DIR", "log")
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(plain(&printed), plain(&expected), "$ {command}");
    }
}
