//! Any bytes as what became of calls: read with its limits, and written back the same.
#![no_main]

use callbridge_formats::message::Outcomes;
use callbridge_formats::message::outcomes::CALLS_MAX;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(outcomes) = Outcomes::read(bytes) else {
        return;
    };
    assert!(outcomes.calls() <= CALLS_MAX);
    let again = Outcomes::read(outcomes.write().as_bytes());
    assert_eq!(again.as_ref(), Ok(&outcomes));
});
