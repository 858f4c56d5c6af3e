//! The `eventlog` command: parse, dispatch, exit code.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
