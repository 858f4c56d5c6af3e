//! See `targets/journal_recover.rs`.
#![no_main]

#[path = "../targets/journal_recover.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
