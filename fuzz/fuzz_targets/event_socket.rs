//! Passes any bytes in pieces of any size to the event socket of `run` and `check`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| callbridge_fuzz::peer::run_event_socket(bytes));
