//! See `targets/block_decode.rs`.
#![no_main]

#[path = "../targets/block_decode.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
