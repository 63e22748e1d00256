//! The recordings by source, and their calls if some messages are lost.

use callbridge_call::{
    Assembler, Direction, Endpoints, EventTime, FinishedCall, Origin, PbxEvent, Settings,
    TrunkEndpoint,
};
use callbridge_formats::{Decoded, Decoder, DecoderSettings, Format, Frame, Frames};
use regex::bytes::Regex;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

/// What a recording is played as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    AmiWithCel,
    Ami,
    Ami1,
    Cel,
    OldCel,
    Freeswitch,
}

impl Source {
    pub const ALL: [Self; 6] = [
        Self::AmiWithCel,
        Self::Ami,
        Self::Ami1,
        Self::Cel,
        Self::OldCel,
        Self::Freeswitch,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::AmiWithCel => "AMI and CEL",
            Self::Ami => "AMI",
            Self::Ami1 => "AMI 1.x",
            Self::Cel => "CEL",
            Self::OldCel => "CEL before Asterisk 12",
            Self::Freeswitch => "FreeSWITCH",
        }
    }

    /// Returns `true` if the source reports this event.
    fn reports(self, event: &PbxEvent<'_>) -> bool {
        let PbxEvent::Channel(event) = event else {
            return true;
        };
        match self {
            Self::Ami => event.origin == Origin::Channel,
            Self::Cel => event.origin == Origin::Cel,
            Self::AmiWithCel | Self::Ami1 | Self::OldCel | Self::Freeswitch => true,
        }
    }
}

/// Time between two messages that have no timestamps.
const UNTIMED_STEP: Duration = Duration::from_secs(1);

/// A message that matters for calls, when it arrives, and the name of its event.
#[derive(Debug)]
pub struct Message {
    at: EventTime,
    bytes: Vec<u8>,
    pub event: String,
}

/// A recording of one source.
#[derive(Debug)]
pub struct Recording {
    pub name: String,
    pub source: Source,
    format: Format,
    pub messages: Vec<Message>,
}

/// Finds an event's name in AMI, in a CEL row, or in a FreeSWITCH event.
static EVENT: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r#"(?-u)(?:\AEvent: |\nEvent: |"Event-Name":")([A-Za-z_]+)|\A"?([A-Z_]+)"?,"#;
    Regex::new(pattern).expect("a pattern")
});
static ROW: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?-u)\nEventName: ([A-Z_]+)").expect("a pattern"));

fn event_name(bytes: &[u8]) -> String {
    let first = |pattern: &Regex| {
        let found = pattern.captures(bytes)?;
        let name = found.get(1).or(found.get(2))?;
        Some(String::from_utf8_lossy(name.as_bytes()).into_owned())
    };
    match (first(&EVENT), first(&ROW)) {
        (Some(event), Some(row)) if event == "CEL" => row,
        (event, _) => event.unwrap_or_default(),
    }
}

impl Recording {
    /// Reads a file, keeping the messages that the source reports, or returns `None` if there are
    /// none.
    fn read(name: &str, file: &Path, source: Source, format: Format) -> Option<Self> {
        let bytes = fs::read(file).ok()?;
        let mut decoder = Decoder::new(format, DecoderSettings::default());
        let mut messages: Vec<Message> = Vec::new();
        for frame in Frames::new(format, &bytes) {
            let Frame::Message(message) = frame else {
                continue;
            };
            let Decoded::Event { received, .. } = decoder.decode(message) else {
                continue;
            };
            if source.reports(&received.event) {
                // Events without a timestamp arrive one after the other.
                let last = messages.last().map_or(EventTime::default(), |last| last.at);
                messages.push(Message {
                    at: time_of(&received.event).unwrap_or(last.plus(UNTIMED_STEP)),
                    bytes: message.to_vec(),
                    event: event_name(message),
                });
            }
        }
        if messages.is_empty() {
            return None;
        }
        Some(Self {
            name: format!("{}: {name}", source.name()),
            source,
            format,
            messages,
        })
    }

    /// Returns the distinct names of the recording's events.
    pub fn events(&self) -> BTreeSet<&str> {
        self.messages.iter().map(|m| m.event.as_str()).collect()
    }

    /// Returns the calls that result from the messages that aren't lost. Any that never end are
    /// emitted when they've been open for too long.
    pub fn calls(&self, is_lost: impl Fn(usize, &Message) -> bool) -> Vec<FinishedCall> {
        let mut decoder = Decoder::new(self.format, DecoderSettings::default());
        let mut assembler = Assembler::new(Settings::new(endpoints()));
        let mut now = EventTime::default();
        for (i, message) in self.messages.iter().enumerate() {
            if is_lost(i, message) {
                continue;
            }
            now = now.max(message.at);
            if let Decoded::Event { received, .. } = decoder.decode(&message.bytes) {
                assembler.on_event(&received.event, now);
            }
        }
        assembler.tick(now.plus(Duration::from_secs(2)));
        if self.format == Format::CelCsv {
            assembler.finish_all(now);
        }
        assembler.tick(now.plus(Duration::from_secs(60 * 86_400)));
        let mut calls = assembler.take_finished();
        calls.retain(|call| call.direction != Direction::Internal);
        calls
    }
}

fn time_of(event: &PbxEvent<'_>) -> Option<EventTime> {
    match event {
        PbxEvent::Channel(event) => event.at,
        PbxEvent::Cdr(cdr) => cdr.at,
        PbxEvent::Mark(_) => None,
    }
}

fn endpoints() -> Endpoints {
    let city = [
        "PJSIP/city",
        "SIP/city",
        "gateway/city",
        "address/127.0.0.1:16000",
    ];
    let gsm = [
        "PJSIP/gsm",
        "SIP/gsm",
        "Dongle/gsm",
        "gateway/gsm",
        "address/127.0.0.1:16001",
    ];
    let lines = [("span", "DAHDI/i1"), ("zap", "Zap/25")];
    let all = city
        .map(|endpoint| ("city", endpoint))
        .into_iter()
        .chain(gsm.map(|endpoint| ("gsm", endpoint)))
        .chain(lines);
    let endpoints = all.map(|(trunk, endpoint)| TrunkEndpoint::new(trunk, endpoint));
    Endpoints::new(endpoints.collect()).expect("no conflict")
}

/// Returns every recording of every source.
pub fn recordings() -> Vec<Recording> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut all = Vec::new();
    for folder in folders(&root.join("recordings")) {
        let file = folder.join("ami.raw");
        let is_cut = name(&folder).starts_with("hostile_name_c");
        for source in [Source::AmiWithCel, Source::Ami, Source::Cel] {
            // This was recorded with the settings from `deploy/asterisk`, so there's no CEL over
            // AMI.
            let has_cel = !name(&folder).starts_with("deployed_");
            if source != Source::Cel || has_cel && !is_cut {
                all.extend(Recording::read(&name(&folder), &file, source, Format::Ami));
            }
        }
    }
    for release in folders(&root.join("recordings/asterisk-old")) {
        if release.is_file() {
            continue;
        }
        let release_name = name(&release);
        let is_old = release_name.starts_with("1.8") || release_name.starts_with("11");
        let (ami, cel) = if is_old {
            (Source::Ami1, Source::OldCel)
        } else {
            (Source::Ami, Source::Cel)
        };
        for folder in folders(&release) {
            let name = format!("{release_name} {}", name(&folder));
            all.extend(Recording::read(
                &name,
                &folder.join("ami.raw"),
                ami,
                Format::Ami,
            ));
            all.extend(Recording::read(
                &name,
                &folder.join("cel.csv"),
                cel,
                Format::CelCsv,
            ));
        }
    }
    for file in folders(&root.join("ami1")) {
        all.extend(Recording::read(
            &name(&file),
            &file,
            Source::Ami1,
            Format::Ami,
        ));
    }
    for folder in folders(&root.join("recordings/freeswitch")) {
        let (file, format) = (folder.join("esl.jsonl"), Format::Freeswitch);
        all.extend(Recording::read(
            &name(&folder),
            &file,
            Source::Freeswitch,
            format,
        ));
    }
    assert!(all.len() > 500, "only {} recordings", all.len());
    all
}

fn name(path: &Path) -> String {
    let name = path.file_name().expect("a name");
    name.to_string_lossy().into_owned()
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).expect("the recordings");
    let mut all: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    all.sort();
    all
}
