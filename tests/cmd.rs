//! What every command prints and how it ends, as it stands in `tests/cmd`.
//!
//! `TRYCMD=overwrite cargo test --test cmd` writes down what they print now.

#[test]
fn every_command_prints_what_is_written_down() {
    trycmd::TestCases::new().env("HOSTNAME", "here").case("tests/cmd/*.trycmd");
}
