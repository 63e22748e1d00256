//! The recorded calls of `tests/recordings`, as text and as JSON.

use callbridge_asterisk::{Decoded, Decoder, DecoderSettings, Format, Frame, Frames};
use std::path::PathBuf;

/// Each recording's folder.
fn recordings() -> Vec<PathBuf> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/recordings");
    let mut all: Vec<PathBuf> = std::fs::read_dir(root)
        .expect("the recordings are there")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.join("ami.raw").is_file())
        .collect();
    all.sort();
    assert!(all.len() >= 16);
    all
}

/// What each message tells, in words; the skipped ones are left out.
fn told(format: Format, bytes: &[u8]) -> Vec<String> {
    let mut decoder = Decoder::new(format, DecoderSettings::default());
    let mut all = Vec::new();
    for frame in Frames::new(format, bytes) {
        let Frame::Message(message) = frame else {
            panic!("a recorded message is too long")
        };
        match decoder.decode(message) {
            Decoded::Event { heard, repaired } => {
                assert!(!repaired, "{heard:?}");
                all.push(format!("{:?}", heard.told));
            }
            Decoded::Skipped => {}
            Decoded::Unreadable(why) => panic!("{why}: {}", String::from_utf8_lossy(message)),
        }
    }
    all
}

#[test]
fn text_and_json_of_one_recording_tell_the_same() {
    for folder in recordings() {
        let read = |name: &str| std::fs::read(folder.join(name)).expect("a recording");
        let mut text = told(Format::Ami, &read("ami.raw"));
        // amiws was logged in already when the recording began, and AMI logs in for each.
        text.retain(|told| !told.starts_with("Mark("));
        let json = told(Format::AmiJson, &read("amiws.jsonl"));
        assert!(json.len() > 5, "{}", folder.display());
        assert_eq!(text, json, "{}", folder.display());
    }
}
