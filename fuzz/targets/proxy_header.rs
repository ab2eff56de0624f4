#![no_main]

#[path = "../../crates/net/tests/fuzz_targets/mod.rs"]
mod fuzz_targets;

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::proxy_header(input));
