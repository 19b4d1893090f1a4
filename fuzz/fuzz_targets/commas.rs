#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| whatwhere_fuzz::read("commas", bytes));
