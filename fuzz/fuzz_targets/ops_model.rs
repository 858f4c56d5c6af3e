//! See `targets/ops_model.rs`.
#![no_main]

#[path = "../targets/ops_model.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
