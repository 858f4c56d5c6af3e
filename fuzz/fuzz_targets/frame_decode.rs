//! See `targets/frame_decode.rs`.
#![no_main]

#[path = "../targets/frame_decode.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
