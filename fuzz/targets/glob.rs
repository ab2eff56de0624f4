#![no_main]

#[path = "../../crates/ftp/tests/fuzz_targets/mod.rs"]
mod fuzz_targets;
#[path = "../../crates/ftp/tests/memory/mod.rs"]
mod memory;

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::glob(input));
