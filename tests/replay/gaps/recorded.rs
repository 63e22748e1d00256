//! Recordings that an assembler receives with a section missing.

use callbridge_call::{
    Assembler, Endpoints, EventTime, FinishedCall, PbxEvent, Settings, TrunkEndpoint,
};
use callbridge_formats::{Decoded, Decoder, DecoderSettings, Format, Frame, Frames};
use callbridge_testbed::cel_rows;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// A recording, with its messages in their original order, each with its time.
pub struct Recording {
    pub name: String,
    pub messages: Vec<(EventTime, Vec<u8>)>,
}

/// Selects some of a recording's messages.
pub type Wanted = fn(&[u8]) -> bool;

/// Returns `true` for AMI's own channel events.
pub fn is_channel_event(message: &[u8]) -> bool {
    !message.starts_with(b"Event: CEL")
}

/// Returns `true` for CEL rows.
pub fn is_cel(message: &[u8]) -> bool {
    message.starts_with(b"Event: CEL")
}

/// Returns all recordings that have both CEL and channel events.
pub fn all() -> Vec<Recording> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let entries = std::fs::read_dir(folder).expect("the recordings");
    let mut all: Vec<Recording> = entries
        .filter_map(|entry| read(&entry.expect("an entry").path()))
        .filter(|recording| {
            recording
                .messages
                .iter()
                .any(|(_, message)| is_cel(message))
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(all.len() >= 80, "only {} recordings", all.len());
    all
}

fn read(folder: &Path) -> Option<Recording> {
    let bytes = std::fs::read(folder.join("ami.raw")).ok()?;
    let mut decoder = Decoder::new(Format::Ami, DecoderSettings::default());
    let mut messages = Vec::new();
    for frame in Frames::new(Format::Ami, &bytes) {
        let Frame::Message(message) = frame else {
            continue;
        };
        let Decoded::Event { received, .. } = decoder.decode(message) else {
            continue;
        };
        if let PbxEvent::Channel(event) = received.event {
            messages.push((event.at.expect("a time"), message.to_vec()));
        }
    }
    Some(Recording {
        name: folder.file_name()?.to_string_lossy().into_owned(),
        messages,
    })
}

pub fn assembler() -> Assembler {
    let trunks = [("city", "PJSIP/city"), ("gsm", "PJSIP/gsm")];
    let endpoints = trunks.map(|(trunk, endpoint)| TrunkEndpoint::new(trunk, endpoint));
    let endpoints = Endpoints::new(endpoints.to_vec()).expect("no conflict");
    Assembler::new(Settings::new(endpoints))
}

/// Passes one message to the assembler.
pub fn process(assembler: &mut Assembler, at: EventTime, message: &[u8]) {
    let mut decoder = Decoder::new(Format::Ami, DecoderSettings::default());
    if let Decoded::Event { received, .. } = decoder.decode(message) {
        assembler.on_event(&received.event, at);
    }
}

impl Recording {
    /// Returns the finished calls by ID, without the messages from `cut.0` until just before
    /// `cut.1`. If a call is reported again, the later report replaces the earlier one.
    pub fn calls(
        &self,
        wanted: Wanted,
        cut: Option<(EventTime, EventTime)>,
    ) -> BTreeMap<String, FinishedCall> {
        let mut assembler = assembler();
        let mut lost = cut;
        let mut last = self.messages[0].0;
        for (at, message) in &self.messages {
            if let Some((from, until)) = lost.filter(|(_, until)| at >= until) {
                lost = None;
                assembler.begin_gap(from);
                assembler.end_gap(until);
            }
            last = last.max(*at);
            let is_cut = cut.is_some_and(|(from, until)| (from..until).contains(at));
            if !is_cut && wanted(message) {
                assembler.tick(*at);
                process(&mut assembler, *at, message);
            }
        }
        if let Some((from, until)) = lost {
            assembler.begin_gap(from);
            assembler.end_gap(until);
        }
        assembler.tick(last.plus(Duration::from_secs(5)));
        assembler.tick(last.plus(Duration::from_secs(3600)));
        let finished = assembler.take_finished().into_iter();
        finished
            .map(|call| (call.linkedid.as_str().to_owned(), call))
            .collect()
    }

    /// Returns times between two messages at which a recording can be cut.
    pub fn places(&self) -> Vec<EventTime> {
        let mut times: Vec<EventTime> = self.messages.iter().map(|(at, _)| *at).collect();
        times.sort_unstable();
        times.dedup();
        let begin = times[0].minus(Duration::from_secs(1));
        let end = times[times.len() - 1].plus(Duration::from_secs(1));
        let between = times.windows(2).map(|pair| {
            let half = pair[1].since(pair[0]) / 2;
            pair[0].plus(half.max(Duration::from_micros(1)))
        });
        [begin].into_iter().chain(between).chain([end]).collect()
    }
}

impl Recording {
    /// Returns the recording's CEL as `cel_custom` rows, each with its time.
    pub fn rows(&self) -> Vec<(EventTime, Vec<u8>)> {
        let rows = self.messages.iter().filter(|(_, message)| is_cel(message));
        rows.map(|(at, message)| (*at, cel_rows::row(message)))
            .collect()
    }
}
