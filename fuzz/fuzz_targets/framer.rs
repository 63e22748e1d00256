//! Any bytes in pieces of any size give the same messages as the whole.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| callbridge_fuzz::framed(bytes));
