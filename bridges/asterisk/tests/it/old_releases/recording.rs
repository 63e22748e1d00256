//! Reads the recordings, and passes their messages to an assembler.

use callbridge_call::{
    Assembler, Endpoints, EventTime, FinishedCall, Mark, PbxEvent, Settings, TrunkEndpoint,
};
use callbridge_formats::{Decoded, Decoder, DecoderSettings, Format, Frame, Frames};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

const RELEASES: [&str; 6] = [
    "1.8",
    "1.8-cel-on-ami",
    "11",
    "11-shipped-cel-conf",
    "13",
    "16",
];

/// Recordings in which talk time isn't reported, given by parts of their release, scenario, and
/// file names.
const WITHOUT_TALK: [(&str, &str, &str); 3] = [
    ("1.8", "conference", ""),
    ("11", "conference", "cel"),
    ("11-shipped-cel-conf", "", "cel"),
];
/// Two messages that are further apart than this have a pause between them.
const LONG: Duration = Duration::from_millis(500);

/// A message, along with the time of its event.
pub type Message = (EventTime, Vec<u8>);

/// A recording of one source, which has its messages in their original order, along with their
/// times.
pub struct Recording {
    pub name: String,
    folder: PathBuf,
    format: Format,
    pub messages: Vec<Message>,
}

fn sorted_entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut all: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    all.sort();
    all
}

/// Returns all recordings of channel events and CEL.
pub fn all() -> Vec<Recording> {
    let root = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/recordings/asterisk-old"
    );
    let mut all = Vec::new();
    for release in RELEASES {
        for folder in sorted_entries(&Path::new(root).join(release)) {
            for (file, format) in [("ami.raw", Format::Ami), ("cel.csv", Format::CelCsv)] {
                if folder.join(file).is_file() {
                    all.push(Recording::read(release, &folder, (file, format)));
                }
            }
        }
    }
    assert!(all.len() > 200, "only {} recordings", all.len());
    all
}

fn decoder(format: Format) -> Decoder {
    Decoder::new(format, DecoderSettings::default())
}

impl Recording {
    fn read(release: &str, folder: &Path, (file, format): (&str, Format)) -> Self {
        let bytes = std::fs::read(folder.join(file)).expect("a recording");
        let mut decoder = decoder(format);
        let mut messages = Vec::new();
        for frame in Frames::new(format, &bytes) {
            let Frame::Message(message) = frame else {
                panic!("a recorded message is too long");
            };
            if let Decoded::Event { received, .. } = decoder.decode(message)
                && let PbxEvent::Channel(event) = &received.event
            {
                messages.push((event.at.expect("a time"), message.to_vec()));
            }
        }
        let scene = folder.file_name().expect("a name").to_string_lossy();
        Self {
            name: format!("{release} {scene} {file}"),
            folder: folder.to_owned(),
            format,
            messages,
        }
    }

    pub fn send_message(&self, assembler: &mut Assembler, (at, message): &Message) {
        let mut decoder = decoder(self.format);
        if let Decoded::Event { received, .. } = decoder.decode(message) {
            assembler.on_event(&received.event, *at);
        }
    }

    /// Returns the calls that result from these messages.
    pub fn calls(&self, messages: &[Message]) -> Vec<FinishedCall> {
        self.calls_with_next_assembler(messages, |assembler| assembler)
    }

    /// Returns the calls that result from these messages. `next` returns the assembler to use for
    /// the next message.
    pub fn calls_with_next_assembler(
        &self,
        messages: &[Message],
        mut next: impl FnMut(Assembler) -> Assembler,
    ) -> Vec<FinishedCall> {
        let (mut assembler, mut calls) = (assembler(), Vec::new());
        for message in messages {
            self.send_message(&mut assembler, message);
            calls.append(&mut assembler.take_finished());
            assembler = next(assembler);
        }
        assembler.finish_all(EventTime::from_seconds(2_000_000_000));
        calls.append(&mut assembler.take_finished());
        calls.sort_by(|a, b| a.linkedid.cmp(&b.linkedid));
        calls
    }

    /// Returns when the connection is lost, and the calls with customers, if it's lost halfway
    /// between message `last` and the next one.
    pub fn calls_until(&self, last: usize) -> (EventTime, Vec<FinishedCall>) {
        let mut assembler = assembler();
        for message in &self.messages[..=last] {
            self.send_message(&mut assembler, message);
        }
        let (at, next) = (self.messages[last].0, self.messages.get(last + 1));
        let cut = next.map_or(at, |next| at.plus(next.0.since(at) / 2));
        let back = cut.plus(Duration::from_secs(60));
        assembler.begin_gap(cut);
        assembler.end_gap(back);
        if self.format == Format::Ami {
            assembler.on_event(&PbxEvent::Mark(Mark::ListEnd { channels: None }), back);
        }
        assembler.tick(back.plus(Duration::from_secs(1)));
        assembler.tick(back.plus(Duration::from_secs(1000)));
        let calls = assembler.take_finished().into_iter();
        (cut, calls.filter(|call| call.trunk.is_some()).collect())
    }

    /// Returns the index of each message that's followed by a long pause, during which people talk
    /// or wait.
    pub fn pauses(&self) -> Vec<usize> {
        let pairs = self.messages.windows(2).enumerate();
        let long = pairs.filter(|(_, pair)| pair[1].0.since(pair[0].0) > LONG);
        long.map(|(last, _)| last).collect()
    }

    fn expected_calls(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.join("expected.json"));
        let expected: Value = serde_json::from_str(&text.expect("what is expected")).expect("JSON");
        expected["calls"].as_array().expect("calls").clone()
    }

    /// Returns the numbers that customers dialed to call in, in sorted order.
    pub fn dids(&self) -> Vec<Option<String>> {
        let calls = self.expected_calls().into_iter();
        let inbound = calls.filter(|call| call["direction"] == "INBOUND");
        let dids = inbound.map(|call| call["did"].as_str().map(str::to_owned));
        let mut dids: Vec<Option<String>> = dids.collect();
        dids.sort();
        dids
    }

    /// Returns when customers and employees talked in each call, according to the phones, or `None`
    /// if the source doesn't report all talk time or if dialing a feature code counts as talk time.
    pub fn talks_of_calls(&self) -> Option<Vec<Vec<(EventTime, EventTime)>>> {
        let calls = self.expected_calls();
        let counts_feature_codes = calls
            .iter()
            .any(|call| call.get("talkTimeSecByBridgeRule").is_some());
        if counts_feature_codes || self.is_without_talk() {
            return None;
        }
        let mut talks_of_calls = Vec::new();
        for call in &calls {
            let started = call["startedAtExact"].as_f64().expect("a start");
            let mut talks = Vec::new();
            for talk in call["talks"].as_array().expect("talks") {
                let from = talk[1].as_f64().expect("a moment");
                let to = talk[2].as_f64().expect("a moment");
                talks.push((moment(started + from), moment(started + to)));
            }
            talks_of_calls.push(talks);
        }
        Some(talks_of_calls)
    }

    /// Returns `true` if the recording is listed in [`WITHOUT_TALK`].
    fn is_without_talk(&self) -> bool {
        WITHOUT_TALK.iter().any(|(release, scene, file)| {
            let parts = [release, scene, file];
            let mut words = self.name.split(' ');
            parts
                .iter()
                .all(|part| words.next().unwrap_or_default().contains(**part))
        })
    }
}

/// Rounds a time to hundredths of a second.
fn moment(seconds: f64) -> EventTime {
    let text = format!("{seconds:.2}0000");
    let micros = text.replace('.', "").parse().expect("a moment");
    EventTime::from_micros(micros)
}

pub fn assembler() -> Assembler {
    let trunks = [("city", "SIP/city"), ("gsm", "SIP/gsm")];
    let endpoints = trunks.map(|(trunk, endpoint)| TrunkEndpoint::new(trunk, endpoint));
    let endpoints = Endpoints::new(endpoints.to_vec()).expect("no conflict");
    Assembler::new(Settings::new(endpoints))
}
