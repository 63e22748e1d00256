//! Any bytes as `call`: messages that say a whole call, or what is wrong.
#![no_main]

use callbridge_formats::Format;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| callbridge_fuzz::decoded(Format::Call, bytes));
