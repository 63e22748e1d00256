//! Decodes any bytes as `call`: messages with a whole call, or an error.
#![no_main]

use callbridge_formats::Format;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| callbridge_fuzz::check_calls(Format::Call, bytes));
