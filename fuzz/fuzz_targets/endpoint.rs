//! Checks that at most one of several endpoints without a conflict fits a channel name best.
#![no_main]

libfuzzer_sys::fuzz_target!(|texts: (&str, &str, &str)| callbridge_fuzz::check_endpoints(texts));
