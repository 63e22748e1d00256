//! Checks that any bytes give the same messages in pieces of any size as in one piece.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| callbridge_fuzz::check_framing(bytes));
