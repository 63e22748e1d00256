//! Reads the recordings as messages.

use super::answer::EventKinds;
use callbridge_call::{EventTime, PbxEvent};
use callbridge_formats::{Decoded, Decoder, DecoderSettings, Format, Frame, Frames};
use regex::bytes::{Captures, Regex};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

/// A message from a PBX, along with when it arrives and over which connection.
#[derive(Clone, Debug)]
pub struct Message {
    pub at: EventTime,
    pub bytes: Vec<u8>,
    pub connection: usize,
}

/// A recording in one format.
#[derive(Clone, Debug)]
pub struct Recording {
    pub folder: String,
    pub format: Format,
    pub messages: Vec<Message>,
}

static EVENT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"(?-u)"?Event"?: "?([A-Za-z]+)"#).expect("a pattern"));
static CEL: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"(?-u)"?EventName"?: "?([A-Z_]+)"#).expect("a pattern"));
static NAME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"(?-u)("?CallerIDName"?: "?)([^"\r\n]*)"#).expect("a pattern"));

fn first_group(pattern: &Regex, bytes: &[u8]) -> Option<String> {
    let found = pattern.captures(bytes)?;
    Some(String::from_utf8_lossy(&found[1]).into_owned())
}

impl Message {
    /// Returns the event's name, such as `CEL LINKEDID_END` for a CEL row.
    pub fn event(&self) -> String {
        match (
            first_group(&EVENT, &self.bytes),
            first_group(&CEL, &self.bytes),
        ) {
            (Some(event), Some(row)) if event == "CEL" => format!("CEL {row}"),
            (event, _) => event.unwrap_or_default(),
        }
    }

    /// Returns `true` if the message is about the connection itself, such as a login or a start. A
    /// delay doesn't change the order of such messages.
    pub fn is_mark(&self) -> bool {
        let event = self.event();
        let response = memchr::memmem::find(&self.bytes, b"Response").is_some();
        event == "FullyBooted" || event.is_empty() && response
    }

    /// Changes the caller's name in the event.
    pub fn set_caller_name(&mut self, name: &[u8]) {
        let named = NAME.replace(&self.bytes, |found: &Captures<'_>| {
            [&found[1], name].concat()
        });
        self.bytes = named.into_owned();
    }

    /// Cuts off a channel event's frame after a broken name, as amiws does.
    pub fn cut(&mut self) {
        let event = self.event();
        let uncut_events = ["CEL", "Dial", "Cdr", "Blind", "Attended", "Local", "Pickup"];
        if uncut_events.iter().any(|other| event.starts_with(other)) {
            return;
        }
        if let Some(name) = NAME.find(&self.bytes) {
            let end = name.end();
            self.bytes.truncate(end);
            self.bytes.extend(b"\xd0");
        }
    }
}

impl Recording {
    fn read(folder: &str, file: &Path, format: Format) -> Self {
        let bytes = fs::read(file).expect("the recording");
        let mut decoder = Decoder::new(format, DecoderSettings::default());
        let mut at = EventTime::from_seconds(0);
        let mut messages = Vec::new();
        for frame in Frames::new(format, &bytes) {
            let Frame::Message(message) = frame else {
                panic!("{folder}: a message is too long");
            };
            if let Decoded::Event { received, .. } = decoder.decode(message) {
                at = match received.event {
                    PbxEvent::Channel(event) => event.at,
                    PbxEvent::Cdr(cdr) => cdr.at,
                    PbxEvent::Mark(_) => None,
                }
                .unwrap_or(at);
            }
            let (bytes, connection) = (message.to_vec(), 0);
            messages.push(Message {
                at,
                bytes,
                connection,
            });
        }
        // Messages before the first one with a time arrive together with that one.
        let zero = EventTime::from_seconds(0);
        let first = messages.iter().map(|m| m.at).find(|&at| at > zero);
        for message in messages.iter_mut().filter(|m| m.at == zero) {
            message.at = first.unwrap_or(zero);
        }
        Self {
            folder: folder.to_owned(),
            format,
            messages,
        }
    }

    pub fn is_json(&self) -> bool {
        self.format == Format::AmiJson
    }

    /// Returns `true` if amiws cut off the recording's frames. CEL frames that were cut off lack
    /// the fields that identify them.
    pub fn is_cut(&self) -> bool {
        self.is_json() && self.folder.starts_with("hostile_name_c")
    }

    /// Returns `true` if the recording's times have no time zone, although its unique IDs contain
    /// the time.
    pub fn is_local_time(&self) -> bool {
        self.folder == "cel-custom/local-time.csv"
    }

    /// Returns the first message's time, in seconds since the epoch.
    pub fn first_second(&self) -> i64 {
        self.messages[0].at.floor_seconds().get()
    }

    /// Returns the kinds of events with which the recording can be played.
    pub fn event_kinds(&self) -> Vec<EventKinds> {
        if self.format == Format::CelCsv {
            return vec![EventKinds::Cel];
        }
        // This was recorded with the settings from `deploy/asterisk`, so there's no CEL over AMI.
        if self.folder.starts_with("deployed_") {
            return vec![EventKinds::Both];
        }
        if self.is_cut() {
            return vec![EventKinds::Both, EventKinds::Channel];
        }
        vec![EventKinds::Both, EventKinds::Channel, EventKinds::Cel]
    }

    pub fn name(&self, kinds: EventKinds) -> String {
        format!("{} {:?} {kinds:?}", self.folder, self.format)
    }
}

/// Returns every recording in every format.
pub fn all() -> &'static [Recording] {
    static ALL: LazyLock<Vec<Recording>> = LazyLock::new(read_all);
    &ALL
}

fn read_all() -> Vec<Recording> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let mut all = Vec::new();
    for entry in fs::read_dir(&root).expect("the recordings") {
        let path = entry.expect("an entry").path();
        let folder = path.file_name().and_then(|name| name.to_str());
        let folder = folder.expect("UTF-8");
        for (file, format) in [("ami.raw", Format::Ami), ("amiws.jsonl", Format::AmiJson)] {
            let file = path.join(file);
            if file.exists() {
                all.push(Recording::read(folder, &file, format));
            }
        }
    }
    for file in ["cel-custom/epoch.csv", "cel-custom/local-time.csv"] {
        all.push(Recording::read(file, &root.join(file), Format::CelCsv));
    }
    all.sort_by(|a, b| (a.format as u8, &a.folder).cmp(&(b.format as u8, &b.folder)));
    assert!(all.len() > 100, "only {} recordings", all.len());
    all
}
