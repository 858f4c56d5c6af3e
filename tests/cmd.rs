//! What every command prints and how it ends, as it stands in `tests/cmd`.
//!
//! `TRYCMD=overwrite cargo test --test cmd` writes down what they print now.

#[test]
fn every_command_prints_what_is_written_down() {
    let files = std::fs::read_dir("tests/cmd").into_iter().flatten().flatten();
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    assert!(names.filter(|name| name.ends_with(".trycmd")).count() >= 3, "they are there");
    trycmd::TestCases::new().env("HOSTNAME", "here").case("tests/cmd/*.trycmd");
}
