//! Passes any bytes as messages of a manager to the login and to `check`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| callbridge_fuzz::peer::run_manager(bytes));
