//! See `targets/resume_any.rs`.
#![no_main]

#[path = "../targets/resume_any.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
