//! Checks that any first bytes of a source are recognized as a format, recognized as something
//! else, or not recognized.
#![no_main]

use callbridge_formats::Likeness;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(likeness) = Likeness::recognize(bytes) {
        assert!(!likeness.with_advice("--format ").is_empty());
    }
});
