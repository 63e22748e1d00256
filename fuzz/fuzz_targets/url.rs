//! Parses any text as a `--source` URL and as the URL of a queue.
#![no_main]

use callbridge_source::{BrokerUrl, SourceUrl};

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(url) = SourceUrl::parse(text) {
        // The key that names a source in state and metrics is stable, and never empty.
        assert!(!url.key().is_empty());
        assert_eq!(
            SourceUrl::parse(text).expect("the same text").key(),
            url.key()
        );
    }
    let _ = BrokerUrl::queue(text);
});
