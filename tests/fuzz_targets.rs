//! The fuzz targets without a fuzzer: over their corpus, and over inputs made of a seed and of pieces of the corpus. So
//! they run everywhere; `fuzz/` has them for cargo-fuzz.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs,
    reason = "a test"
)]

#[path = "../fuzz/targets/block_decode.rs"]
mod block_decode;
#[path = "../fuzz/targets/frame_decode.rs"]
mod frame_decode;
#[path = "../fuzz/targets/import_export.rs"]
mod import_export;
#[path = "../fuzz/targets/journal_recover.rs"]
mod journal_recover;
#[path = "../fuzz/targets/ops_model.rs"]
mod ops_model;
#[path = "../fuzz/targets/resume_any.rs"]
mod resume_any;
#[path = "../fuzz/targets/scan.rs"]
mod scan;
mod support;

use support::power::{Dice, amount};

/// Inputs of the corpus, and some of a seed.
fn inputs(name: &str) -> Vec<Vec<u8>> {
    let all = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let corpus = all.join(name);
    let files = std::fs::read_dir(corpus).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.collect();
    files.sort();
    // What is published has no corpus at all; the project has one for every target.
    assert!(!all.exists() || !files.is_empty(), "the corpus of {name} is missing");
    let mut inputs: Vec<Vec<u8>> = files.iter().map(|path| std::fs::read(path).unwrap()).collect();
    let whole = inputs.len();
    for seed in 0..amount("EVENTLOG_FUZZ_INPUTS", 200) {
        let mut dice = Dice::new(seed);
        let mut input = match whole {
            0 => Vec::new(),
            _ => inputs[dice.roll(whole as u64) as usize].clone(),
        };
        input.truncate(2000);
        for _ in 0..dice.roll(8) {
            let at = dice.roll(input.len() as u64 + 1) as usize;
            match dice.roll(3) {
                0 => input.truncate(at),
                1 => input
                    .splice(at..at, (0..dice.roll(40)).map(|_| dice.roll(256) as u8))
                    .for_each(drop),
                _ => _ = input.get_mut(at).map(|byte| *byte ^= dice.roll(256) as u8),
            }
        }
        inputs.push(input);
    }
    inputs
}

fn each(name: &str, run: fn(&[u8])) {
    let inputs = inputs(name);
    for (n, input) in inputs.iter().enumerate() {
        let outcome = std::panic::catch_unwind(|| run(input));
        assert!(outcome.is_ok(), "{name}, input {n}: {:?}", String::from_utf8_lossy(input));
    }
    println!("{name}: {} inputs", inputs.len());
}

#[test]
fn block_decode_reads_back_what_was_built_and_nothing_else() {
    each("block_decode", block_decode::run);
}

#[test]
fn frame_decode_passes_only_the_frame_that_was_made() {
    each("frame_decode", frame_decode::run);
}

#[test]
fn import_export_accounts_for_every_byte() {
    each("import_export", import_export::run);
}

#[test]
fn journal_recover_gives_a_prefix_or_an_error() {
    each("journal_recover", journal_recover::run);
}

#[test]
fn ops_model_agrees_with_its_model_through_faults_and_crashes() {
    each("ops_model", ops_model::run);
}

#[test]
fn resume_any_gives_a_valid_view() {
    each("resume_any", resume_any::run);
}

#[test]
fn scan_has_every_byte_in_one_span() {
    each("scan", scan::run);
}
