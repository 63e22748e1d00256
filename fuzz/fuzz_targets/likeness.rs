//! Any bytes as the beginning of a source: they look like a format, like something known, or
//! neither.
#![no_main]

use callbridge_formats::Likeness;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(likeness) = Likeness::recognize(bytes) {
        assert!(!likeness.with_advice("--format ").is_empty());
    }
});
