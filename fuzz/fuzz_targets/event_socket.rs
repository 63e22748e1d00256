//! Any bytes as messages of an event socket, in pieces of any size, to `run` and to `check`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| callbridge_fuzz::peer::event_socket(bytes));
