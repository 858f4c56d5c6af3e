//! See `targets/import_export.rs`.
#![no_main]

#[path = "../targets/import_export.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
