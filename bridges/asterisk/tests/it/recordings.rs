//! Tests with the recorded calls in `tests/recordings`, both as text and as JSON.

use callbridge_call::{ChannelEvent, EventTime, Origin, PbxEvent};
use callbridge_formats::{Decoded, Decoder, DecoderSettings, Format, Frame, Frames};
use std::path::{Path, PathBuf};

/// Returns the directory of each recording.
fn recordings() -> Vec<PathBuf> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/recordings");
    let mut all: Vec<PathBuf> = std::fs::read_dir(root)
        .expect("the recordings are there")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.join("ami.raw").is_file() && path.join("amiws.jsonl").is_file())
        .collect();
    all.sort();
    assert!(all.len() >= 16);
    all
}

/// Returns `true` for a recording in which amiws cut off frames.
fn is_cut(folder: &Path) -> bool {
    ["hostile_name_cp1251", "hostile_name_cut_utf8"]
        .iter()
        .any(|name| folder.ends_with(name))
}

/// Passes each message's [`PbxEvent`] to `on_event`, and returns how many messages had to be
/// repaired. Panics if a message is unreadable.
fn decode(format: Format, bytes: &[u8], mut on_event: impl FnMut(&PbxEvent<'_>)) -> usize {
    let mut decoder = Decoder::new(format, DecoderSettings::default());
    let mut repairs = 0;
    for frame in Frames::new(format, bytes) {
        let Frame::Message(message) = frame else {
            panic!("a recorded message is too long")
        };
        match decoder.decode(message) {
            Decoded::Event { received, repaired } => {
                repairs += usize::from(repaired);
                on_event(&received.event);
            }
            Decoded::Skipped | Decoded::Call(_) => {}
            Decoded::Unreadable(why) => panic!("{why}: {}", String::from_utf8_lossy(message)),
        }
    }
    repairs
}

/// Returns a recording's events as text, without marks. The two formats have different marks,
/// because amiws was already logged in when the recording started, whereas AMI logs in for each
/// recording.
fn events_of_file(format: Format, file: &Path) -> Vec<String> {
    let bytes = std::fs::read(file).expect("a recording");
    let mut all = Vec::new();
    decode(format, &bytes, |event| match event {
        PbxEvent::Mark(_) => {}
        PbxEvent::Channel(_) | PbxEvent::Cdr(_) => all.push(format!("{event:?}")),
    });
    all
}

#[test]
fn text_and_json_of_one_recording_decode_alike() {
    for folder in recordings().iter().filter(|folder| !is_cut(folder)) {
        let json = events_of_file(Format::AmiJson, &folder.join("amiws.jsonl"));
        assert!(json.len() > 5, "{}", folder.display());
        let text = events_of_file(Format::Ami, &folder.join("ami.raw"));
        assert_eq!(text, json, "{}", folder.display());
    }
}

/// An event's time, its channel's name and ID, its linkedid, and its kind.
type DescribedEvent = (Option<EventTime>, (String, String), String, String);

/// Returns those of a recording's channel events that are also in truncated frames, along with the
/// number of repaired messages.
fn channels_of_file(format: Format, file: &Path) -> (Vec<DescribedEvent>, usize) {
    let bytes = std::fs::read(file).expect("a recording");
    let mut all = Vec::new();
    let repairs = decode(format, &bytes, |event| match event {
        PbxEvent::Channel(ChannelEvent {
            at,
            origin: Origin::Channel,
            channel,
            kind,
        }) => {
            // A dial event is cut off before the dialed channel.
            let kind = format!("{kind:?}");
            if kind.starts_with("Dial") || kind == "Seen" {
                return;
            }
            let kind = kind.replace("Some(16)", "None");
            let ids = (channel.name.to_string(), channel.uniqueid.to_string());
            all.push((*at, ids, channel.linkedid.to_string(), kind));
        }
        PbxEvent::Channel(_) | PbxEvent::Cdr(_) | PbxEvent::Mark(_) => {}
    });
    (all, repairs)
}

#[test]
fn frames_cut_after_a_name_keep_the_same_channels() {
    let mut folders = recordings();
    folders.retain(|folder| is_cut(folder));
    assert_eq!(folders.len(), 2, "{folders:?}");
    for folder in &folders {
        let (text, _) = channels_of_file(Format::Ami, &folder.join("ami.raw"));
        let (json, repairs) = channels_of_file(Format::AmiJson, &folder.join("amiws.jsonl"));
        assert!(repairs > 5, "{}", folder.display());
        assert_eq!(text, json, "{}", folder.display());
    }
}
