//! Any text as a `--source` URL and as a queue's.
#![no_main]

use callbridge_source::{BrokerUrl, SourceUrl};

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(url) = SourceUrl::parse(text) {
        // What names a source in state and metrics stays the same, and is never empty.
        assert!(!url.key().is_empty());
        assert_eq!(
            SourceUrl::parse(text).expect("the same text").key(),
            url.key()
        );
    }
    let _ = BrokerUrl::queue(text);
});
