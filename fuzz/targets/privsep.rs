#![no_main]

#[path = "../../crates/privsep/tests/fuzz_targets/mod.rs"]
mod fuzz_targets;

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::privsep(input));
