//! Ways to print: JSON lines, a table for people on a terminal, tab-separated text for pipes.

use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::Serialize;

use super::{Exit, Failure, Global};

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Colour {
    Auto,
    Always,
    Never,
}

/// Where a command prints to.
pub(crate) struct Output {
    stdout: io::BufWriter<io::Stdout>,
    /// stdout shows colour.
    colour: bool,
    stderr: anstream::AutoStream<io::Stderr>,
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) local: bool,
    /// stdout is a terminal: people read it.
    pub(crate) people: bool,
}

const BOLD: Style = Style::new().bold();
const RED: Style = AnsiColor::Red.on_default().bold();
const YELLOW: Style = AnsiColor::Yellow.on_default();

impl Output {
    pub(crate) fn new(global: &Global) -> Output {
        let choice = match global.color {
            Colour::Auto => anstream::ColorChoice::Auto,
            Colour::Always => anstream::ColorChoice::Always,
            Colour::Never => anstream::ColorChoice::Never,
        };
        choice.write_global();
        Output {
            // Data goes out as it is; colour is added by us alone.
            stdout: io::BufWriter::with_capacity(64 << 10, io::stdout()),
            colour: shows_colour(choice),
            stderr: anstream::AutoStream::new(io::stderr(), choice),
            json: global.json,
            quiet: global.quiet,
            local: global.local,
            people: io::stdout().is_terminal(),
        }
    }

    /// Raw bytes: the data of an export.
    pub(crate) fn data(&mut self) -> Result<impl Write, Failure> {
        self.stdout.flush()?;
        Ok(io::stdout().lock())
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.stdout.flush()?)
    }

    /// Text that is printed as it is.
    pub(crate) fn raw(&mut self, text: &[u8]) -> Result<(), Failure> {
        Ok(self.stdout.write_all(text)?)
    }

    /// One JSON value on a line of its own.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.stdout, value).map_err(io::Error::from)?;
        Ok(self.stdout.write_all(b"\n")?)
    }

    /// A line of text.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        Ok(writeln!(self.stdout, "{text}")?)
    }

    /// Lines of bytes that are not ours to interpret.
    pub(crate) fn bytes(&mut self, prefix: &str, bytes: &[u8]) -> Result<(), Failure> {
        self.stdout.write_all(prefix.as_bytes())?;
        if self.people {
            // A terminal obeys what it is sent; bytes from a file must not steer it.
            let text = String::from_utf8_lossy(bytes);
            write!(self.stdout, "{}", Printable(&text))?;
        } else {
            self.stdout.write_all(bytes)?;
        }
        Ok(self.stdout.write_all(b"\n")?)
    }

    /// A row whose width is not known before the next comes: tab-separated for programs.
    pub(crate) fn row(&mut self, cells: &[&str]) -> Result<(), Failure> {
        let cells: Vec<String> =
            cells.iter().map(|cell| Printable(&one_line(cell)).to_string()).collect();
        let separator = if self.people { "  " } else { "\t" };
        Ok(writeln!(self.stdout, "{}", cells.join(separator).trim_end())?)
    }

    /// A table: aligned for people, tab-separated and without a header line for programs.
    pub(crate) fn table(
        &mut self,
        header: &[&str],
        right_aligned: &[usize],
        rows: &[Vec<String>],
    ) -> Result<(), Failure> {
        if !self.people {
            for row in rows {
                let cells: Vec<String> = row.iter().map(|cell| one_line(cell)).collect();
                writeln!(self.stdout, "{}", cells.join("\t"))?;
            }
            return Ok(());
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(header.iter().map(|text| Cell::new(*text)));
        for row in rows {
            table.add_row(row.iter().map(|cell| Printable(&one_line(cell)).to_string()));
        }
        for index in right_aligned {
            if let Some(column) = table.column_mut(*index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        for (index, line) in table.lines().enumerate() {
            let line = line.trim_end();
            match index {
                0 if line.is_empty() => {}
                0 if self.colour => writeln!(self.stdout, "{BOLD}{line}{BOLD:#}")?,
                _ => writeln!(self.stdout, "{line}")?,
            }
        }
        Ok(())
    }

    /// Something worth knowing, on stderr.
    pub(crate) fn note(&mut self, text: &str) {
        if !self.quiet {
            // What was printed before stands before it.
            _ = self.stdout.flush();
            _ = writeln!(self.stderr, "{}", Printable(text));
        }
    }

    /// A question, on stderr.
    pub(crate) fn ask(&mut self, text: &str) {
        _ = write!(self.stderr, "{}", Printable(text));
        _ = self.stderr.flush();
    }

    /// Something that needs attention, on stderr, also with `--quiet`.
    pub(crate) fn warn(&mut self, text: &str) {
        _ = writeln!(self.stderr, "{YELLOW}warning:{YELLOW:#} {}", Printable(text));
    }

    /// Reports a failure and says how the command ends.
    pub(crate) fn fail(&mut self, failure: &Failure) -> Exit {
        // What was printed before belongs before the error.
        _ = self.stdout.flush();
        let (kind, message, hint) = match failure {
            Failure::Log(error) => {
                (error.kind().name(), error.to_string(), error.hint().map(str::to_owned))
            }
            Failure::Own(_, kind, message, hint) => (*kind, message.clone(), hint.clone()),
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return failure.exit();
            }
            Failure::Output(error) => ("io", format!("cannot write the output: {error}"), None),
            Failure::Interrupted => ("interrupted", "interrupted".to_owned(), None),
        };
        self.report(kind, &message, hint.as_deref());
        failure.exit()
    }

    /// Reports an error, on stderr for people and with `--json` on stdout for programs.
    pub(crate) fn report(&mut self, kind: &str, message: &str, hint: Option<&str>) {
        if self.json {
            _ = self.json(&JsonError { r#type: "error", kind, message, hint });
            _ = self.stdout.flush();
        }
        _ = writeln!(self.stderr, "{RED}error:{RED:#} {}", Printable(message));
        if let Some(hint) = hint {
            _ = writeln!(self.stderr, "  {}", Printable(hint));
        }
    }
}

#[derive(Serialize)]
struct JsonError<'a> {
    r#type: &'a str,
    kind: &'a str,
    message: &'a str,
    hint: Option<&'a str>,
}

/// A usage error for programs; clap prints the one for people.
pub(crate) fn print_usage_error(error: &clap::Error) {
    let rendered = error.to_string();
    let lines = rendered.lines().map(str::trim).take_while(|line| !line.is_empty());
    let message = lines.collect::<Vec<_>>().join(" ");
    let message = message.trim_start_matches("error: ");
    let hint = Some("run `eventlog help`");
    let value = JsonError { r#type: "error", kind: "usage", message, hint };
    if let Ok(text) = serde_json::to_string(&value) {
        _ = writeln!(io::stdout(), "{text}");
    }
}

/// Text without characters that steer a terminal: they are shown as escapes.
struct Printable<'a>(&'a str);

impl std::fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                '\t' | '\n' => write!(f, "{c}")?,
                c if c.is_control() || is_invisible(c) => write!(f, "{}", c.escape_default())?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

/// Characters that change the direction or the place of what follows.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

fn shows_colour(choice: anstream::ColorChoice) -> bool {
    match choice {
        anstream::ColorChoice::Auto => {
            anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
        }
        choice => choice != anstream::ColorChoice::Never,
    }
}

/// A cell that stays on its line and in its column.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\t' => "\\t".to_owned(),
            '\n' => "\\n".to_owned(),
            '\r' => "\\r".to_owned(),
            c => c.to_string(),
        })
        .collect()
}

/// A number and what is counted.
pub(crate) fn plural(n: u64, one: &str) -> String {
    match one.strip_suffix('y') {
        _ if n == 1 => format!("1 {one}"),
        Some(stem) => format!("{n} {stem}ies"),
        None if one.ends_with("ch") => format!("{n} {one}es"),
        None => format!("{n} {one}s"),
    }
}

/// A size for people.
pub(crate) fn size(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}
