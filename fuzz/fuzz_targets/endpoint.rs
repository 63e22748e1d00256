//! Any endpoints and channel names: of endpoints that do not conflict, at most one fits best.
#![no_main]

libfuzzer_sys::fuzz_target!(|texts: (&str, &str, &str)| callbridge_fuzz::endpoints(texts));
