#![no_main]

#[path = "../../crates/http/tests/fuzz_targets/mod.rs"]
mod fuzz_targets;

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::fastcgi_records(input));
