//! Parses any text as a `--trunk` flag.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let defaults = callbridge_mapping::Trunk::default();
    if let Ok(trunk) = callbridge_mapping::trunk::parse(text, &defaults) {
        assert!(!trunk.name.is_empty());
    }
});
