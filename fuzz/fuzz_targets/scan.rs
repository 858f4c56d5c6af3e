//! See `targets/scan.rs`.
#![no_main]

#[path = "../targets/scan.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
