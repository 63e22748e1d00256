//! Decodes any bytes as `cel-csv`, from the framer to finished calls.
#![no_main]

use callbridge_formats::Format;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| callbridge_fuzz::check_calls(Format::CelCsv, bytes));
