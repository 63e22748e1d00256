//! Any endpoints and channel names: of endpoints that do not conflict, one at most fits best.
#![no_main]

libfuzzer_sys::fuzz_target!(|texts: (&str, &str, &str)| callbridge_fuzz::endpoints(texts));
