//! Checks whether bytes are in the configured format and, if they aren't, determines what format
//! they look like and how to fix the configuration.

use crate::decoder::Decoder;
use crate::format::{Format, Framing};
use crate::framer::{Frame, Frames};
use callbridge_asterisk::{DecoderSettings, WrongZone, is_banner};
use callbridge_call::{ChannelState, Decoded, EventTime, Kind, Origin, PbxEvent};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Maximum number of bytes to check.
pub const SAMPLE_BYTES_MAX: usize = 256 << 10;

/// Number of lines at the start that are searched for a banner or a typical row.
const BANNER_LINES: usize = 50;

/// The format that some bytes are most likely in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Likeness {
    /// The format that can read the bytes, or `None` if the kind of data is known but callbridge
    /// can't read it.
    pub format: Option<Format>,
    /// A description, such as `AMI 1.1 of Asterisk 1.8`.
    what: String,
}

impl fmt::Display for Likeness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Likeness {
    /// Returns the description, followed by the advice `use {flag}{format}` if callbridge can read
    /// the bytes.
    pub fn with_advice(&self, flag: &str) -> String {
        match self.format {
            Some(format) => format!("{self}; use {flag}{format}"),
            None => self.what.clone(),
        }
    }

    /// Recognizes the format of a source by its first bytes, trying each format, and returns `None`
    /// if none is recognized.
    pub fn recognize(bytes: &[u8]) -> Option<Self> {
        let bytes = &bytes[..bytes.len().min(SAMPLE_BYTES_MAX)];
        let counted = Format::ALL.iter().map(|&format| {
            let reading = Reading::decode(format, DecoderSettings::default(), bytes);
            (reading.events, format)
        });
        // If two formats read the same number of messages, the one later in the list wins, because
        // it's stricter.
        let (count, format) = counted.max_by_key(|&(count, _)| count)?;
        if count == 0 {
            return recognize_unsupported(bytes);
        }
        let what = match format {
            Format::Ami => describe_ami(bytes),
            Format::AmiJson => "AMI as JSON, as amiws sends it".to_owned(),
            Format::CelCsv => "CEL rows of cel_custom".to_owned(),
            Format::CelAmqp => "messages of asterisk-cel-amqp".to_owned(),
            Format::CdrAmqp => "messages of asterisk-cdr-amqp".to_owned(),
            Format::CdrCsv => "CDR rows of cdr_csv".to_owned(),
            Format::Wazo => "messages of Wazo's bus".to_owned(),
            Format::Freeswitch => "events of FreeSWITCH".to_owned(),
            Format::FreeswitchCdr => "CDRs of FreeSWITCH's mod_json_cdr".to_owned(),
            Format::Call => "finished calls as messages".to_owned(),
        };
        let format = Some(format);
        Some(Self { format, what })
    }
}

/// Describes the version of AMI based on its banner or, if there is none, on the events.
fn describe_ami(bytes: &[u8]) -> String {
    let mut lines = bytes.split(|&byte| byte == b'\n').take(BANNER_LINES);
    let version = lines.find(|line| is_banner(line)).and_then(|line| {
        let line = std::str::from_utf8(line.trim_ascii_end()).ok()?;
        line.rsplit_once('/').map(|(_, version)| version)
    });
    if let Some(version) = version {
        return match release_of_asterisk(version) {
            Some(asterisk) => format!("AMI {version} of Asterisk {asterisk}"),
            None => format!("AMI {version}"),
        };
    }
    if has_any(bytes, &["Linkedid:", "LinkedID:", "Event: BridgeEnter"]) {
        "AMI of Asterisk 12 or later".to_owned()
    } else if has_any(bytes, &["SrcUniqueID:", "Event: Link\r", "Event: Link\n"]) {
        "AMI 1.0 of Asterisk 1.4".to_owned()
    } else {
        "AMI 1.x of Asterisk 1.8 to 11".to_owned()
    }
}

/// Returns the Asterisk release that has this version of AMI. From Asterisk 14 on, each release has
/// a different major version.
fn release_of_asterisk(version: &str) -> Option<String> {
    let mut numbers = (version.split('.')).map_while(|number| number.parse::<u32>().ok());
    let major = numbers.next()?;
    let minor = numbers.next().unwrap_or(0);
    Some(match (major, minor) {
        (1, 0) => "1.4".to_owned(),
        (1, 1) => "1.8 or 1.6".to_owned(),
        (1, 2) => "10".to_owned(),
        (1, _) => "11".to_owned(),
        (2, 0..=4) => "12".to_owned(),
        (2, _) => "13".to_owned(),
        (3..=20, _) => (major + 11).to_string(),
        _ => return None,
    })
}

/// Recognizes unsupported formats by typical strings. Also recognizes FreeSWITCH events if none of
/// them is about a call.
fn recognize_unsupported(bytes: &[u8]) -> Option<Likeness> {
    let mut format = None;
    let what = if matches!(bytes, [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..]) {
        "a file in UTF-16, which only explain and audit read: convert it with iconv -f UTF-16 -t \
         UTF-8"
    } else if has(bytes, "<cdr") && has(bytes, "<variables>") || bytes.starts_with(b"cdr=%3C") {
        "an XML CDR of FreeSWITCH's mod_xml_cdr, as FusionPBX keeps it in xml_cdr, which \
         callbridge does not read: use mod_json_cdr (freeswitch-cdr) or the event socket (esl://)"
    } else if has(bytes, "xml_cdr_uuid") || is_switch_csv(bytes) {
        "CSV CDRs of FreeSWITCH or FusionPBX (cdr_csv), which callbridge does not read: use \
         mod_json_cdr (freeswitch-cdr) or the event socket (esl://)"
    } else if has(bytes, "Event-Name") && has(bytes, "FreeSWITCH-") {
        // Most FreeSWITCH events aren't about calls.
        format = Some(Format::Freeswitch);
        "events of FreeSWITCH, none of which callbridge reads"
    } else if has_any(
        bytes,
        &["FreeSWITCH", "variable_uuid", "Caller-Channel-Name"],
    ) {
        "data from FreeSWITCH, without an event that callbridge reads"
    } else if has_any(
        bytes,
        &[
            "\"StasisStart\"",
            "\"ChannelCreated\"",
            "\"ChannelDestroyed\"",
        ],
    ) {
        "events of Asterisk's REST interface (ARI), which callbridge does not read"
    } else if has_any(bytes, &["|ENTERQUEUE|", "|QUEUESTART|", "|CONFIGRELOAD|"]) {
        "a queue_log, which callbridge does not read"
    } else {
        return None;
    };
    let what = what.to_owned();
    Some(Likeness { format, what })
}

/// Returns `true` if the bytes are CSV with a FreeSWITCH hangup cause in one of the first lines.
fn is_switch_csv(bytes: &[u8]) -> bool {
    const CAUSES: [&str; 5] = [
        "NORMAL_CLEARING",
        "ORIGINATOR_CANCEL",
        "USER_BUSY",
        "NO_ANSWER",
        "NO_USER_RESPONSE",
    ];
    let is_json = bytes.trim_ascii_start().starts_with(b"{");
    let mut lines = bytes.split(|&byte| byte == b'\n').take(BANNER_LINES);
    !is_json
        && lines.any(|line| {
            let delimiters = line
                .iter()
                .filter(|byte| matches!(byte, b',' | b';' | b'|'));
            delimiters.count() >= 8 && has_any(line, &CAUSES)
        })
}

fn has_any(bytes: &[u8], texts: &[&str]) -> bool {
    texts.iter().any(|text| has(bytes, text))
}

fn has(bytes: &[u8], text: &str) -> bool {
    memchr::memmem::find(bytes, text.as_bytes()).is_some()
}

/// The result of reading bytes in the configured format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatFit {
    /// There are no bytes, or only whitespace.
    Empty,
    /// Some messages report calls.
    Reads {
        /// Number of events and finished calls.
        events: u64,
        /// The latest time of these events and calls, or `None` if they have no timestamps.
        last: Option<EventTime>,
        /// Whether the bytes are CEL in which both sides of a call answered without any bridge
        /// being reported.
        unbridged: bool,
        /// The offset found in the unique IDs, if it contradicts the configured time zone.
        wrong_zone: Option<WrongZone>,
    },
    /// There are messages in the format, but none of them reports a call.
    Quiet,
    /// The bytes are in a different format, which may be an unsupported one.
    Other(Likeness),
    /// No format was recognized.
    Unknown,
}

impl FormatFit {
    /// Decodes the bytes as `format`, trying all other formats if no event or call can be read.
    pub fn check(format: Format, settings: DecoderSettings, bytes: &[u8]) -> Self {
        let reading = Reading::decode(format, settings, bytes);
        if reading.events > 0 {
            let mut answered = reading.answered.values();
            return Self::Reads {
                events: reading.events,
                last: reading.last,
                unbridged: !reading.bridges && answered.any(|both| both.len() > 1),
                wrong_zone: reading.wrong_zone,
            };
        }
        if bytes.trim_ascii().is_empty() {
            return Self::Empty;
        }
        match Likeness::recognize(bytes) {
            Some(like) if like.format != Some(format) => Self::Other(like),
            // A CSV header with unreadable rows isn't quiet, since those rows would report calls if
            // they could be read.
            Some(_) | None if reading.skipped && !reading.has_bad_rows => Self::Quiet,
            Some(_) | None => Self::Unknown,
        }
    }
}

/// The result of decoding bytes in one format.
#[derive(Default)]
struct Reading {
    /// Number of events and finished calls.
    events: u64,
    /// Whether a message was read that doesn't report a call.
    skipped: bool,
    /// Whether any row in a CSV format couldn't be read.
    has_bad_rows: bool,
    /// The latest time among the events and calls.
    last: Option<EventTime>,
    /// Whether CEL reports bridges. Otherwise, there's no telling who talked to whom.
    bridges: bool,
    wrong_zone: Option<WrongZone>,
    /// Channels that answered before CEL reported the first bridge, by linkedid.
    answered: BTreeMap<String, BTreeSet<String>>,
}

impl Reading {
    fn decode(format: Format, settings: DecoderSettings, bytes: &[u8]) -> Self {
        let mut decoder = Decoder::new(format, settings);
        let mut reading = Self::default();
        for frame in Frames::new(format, bytes) {
            let Frame::Message(message) = frame else {
                continue;
            };
            match decoder.decode(message) {
                Decoded::Event { received, .. } => reading.on_event(&received.event),
                Decoded::Call(Ok(reported)) => {
                    reading.events += 1;
                    reading.last = reading.last.max(Some(reported.call.ended));
                }
                Decoded::Skipped => reading.skipped = true,
                Decoded::Unreadable(_) => {
                    reading.has_bad_rows |= format.framing() == Framing::CsvRecord;
                }
                Decoded::Call(Err(_)) => {}
            }
        }
        reading.wrong_zone = decoder.wrong_zone();
        reading
    }

    fn on_event(&mut self, event: &PbxEvent<'_>) {
        self.events += 1;
        self.last = self.last.max(time_of(event));
        if let PbxEvent::Channel(event) = event
            && event.origin == Origin::Cel
        {
            self.bridges |= event.kind.is_of_bridge();
            let up = ChannelState::Up;
            if !self.bridges && event.kind == (Kind::State { state: up }) {
                let linkedid = event.channel.linkedid.clone().into_owned();
                let both = self.answered.entry(linkedid).or_default();
                both.insert(event.channel.uniqueid.clone().into_owned());
            }
        }
    }
}

fn time_of(event: &PbxEvent<'_>) -> Option<EventTime> {
    match event {
        PbxEvent::Channel(event) => event.at,
        PbxEvent::Cdr(cdr) => cdr.ended_at.or(cdr.at),
        PbxEvent::Mark(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asterisk_release_is_derived_from_the_ami_version() {
        for (version, release) in [
            ("1.0", Some("1.4")),
            ("1.1", Some("1.8 or 1.6")),
            ("1.2", Some("10")),
            ("1.3", Some("11")),
            ("2.4.0", Some("12")),
            ("2.10.4", Some("13")),
            ("5.0.1", Some("16")),
            ("11.0.0", Some("22")),
            ("99.0.0", None),
            ("x", None),
        ] {
            assert_eq!(
                release_of_asterisk(version).as_deref(),
                release,
                "{version}"
            );
        }
    }

    #[test]
    fn ami_without_a_banner_is_recognized_by_its_events() {
        for (event, release) in [
            (
                "Event: Newchannel\r\nLinkedid: 17.1",
                Some("AMI of Asterisk 12 or later"),
            ),
            (
                "Event: Newchannel\r\nChannelStateDesc: Down",
                Some("AMI 1.x of Asterisk 1.8 to 11"),
            ),
            (
                "Event: Dial\r\nSource: SIP/101-1\r\nSrcUniqueID: 17.1",
                Some("AMI 1.0 of Asterisk 1.4"),
            ),
            ("Event: Hello", None),
        ] {
            let message = format!("{event}\r\nChannel: SIP/101-1\r\nUniqueid: 17.1\r\n\r\n");
            let likeness = Likeness::recognize(message.as_bytes());
            let found = likeness.map(|likeness| likeness.to_string());
            assert_eq!(found.as_deref(), release, "{event}");
        }
    }

    fn recognize_format(bytes: &[u8]) -> Option<(Option<Format>, String)> {
        let likeness = Likeness::recognize(bytes)?;
        Some((likeness.format, likeness.to_string()))
    }

    #[test]
    fn foreign_formats_are_recognized_and_noise_is_not() {
        let (format, message) = recognize_format(b"{\"variable_uuid\":\"1\"}\n").expect("known");
        assert_eq!(format, None);
        assert!(message.contains("FreeSWITCH"), "{message}");
        let quiet = b"{\"Event-Name\":\"RE_SCHEDULE\",\"FreeSWITCH-Hostname\":\"vm\"}\n";
        assert_eq!(
            recognize_format(quiet).expect("known").0,
            Some(Format::Freeswitch)
        );
        assert!(recognize_format(b"{\"type\":\"StasisStart\"}\n").is_some());
        assert!(
            recognize_format(b"1795151318|1795151318.1|q|NONE|ENTERQUEUE||99890|1\n").is_some()
        );
        let xml = b"<?xml version=\"1.0\"?>\n<cdr core-uuid=\"1\"><variables></variables></cdr>";
        assert!(
            recognize_format(xml)
                .expect("known")
                .1
                .contains("mod_xml_cdr")
        );
        let csv = "\"Ann\",\"101\",\"998901110001\",\"default\",\"2026-03-02 15:00:00\",\"\",\
                   \"2026-03-02 15:00:09\",\"9\",\"0\",\"ORIGINATOR_CANCEL\",\"a-1\",\"\",\"\"\n";
        assert!(
            recognize_format(csv.as_bytes())
                .expect("known")
                .1
                .contains("cdr_csv")
        );
        assert!(
            recognize_format(b"\xff\xfec\0a\0l\0l\0")
                .expect("known")
                .1
                .contains("UTF-16")
        );
        assert_eq!(recognize_format(b"<html>403</html>\n"), None);
        assert_eq!(recognize_format(b"\xff\x00\x01"), None);
        assert_eq!(recognize_format(b""), None);
    }

    fn fit(format: Format, bytes: &[u8]) -> FormatFit {
        FormatFit::check(format, DecoderSettings::default(), bytes)
    }

    /// Returns `true` if the CEL file in this directory is read as unbridged.
    fn is_unbridged(folder: &str) -> bool {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/recordings");
        let file = format!("{root}/asterisk-old/{folder}/cel.csv");
        match fit(Format::CelCsv, &std::fs::read(file).expect("rows")) {
            FormatFit::Reads { unbridged, .. } => unbridged,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn cel_with_answers_but_no_bridges_is_reported_as_unbridged() {
        assert!(is_unbridged("11-shipped-cel-conf/inbound_answered"));
        for event in [
            "11/inbound_answered",
            "16/inbound_answered",
            "11/inbound_busy",
        ] {
            assert!(!is_unbridged(event), "{event}");
        }
    }

    #[test]
    fn wrong_zone_is_found_in_files_of_cdrs_and_of_cel() {
        let zone = jiff::tz::TimeZone::get("America/New_York").expect("a zone");
        let settings = DecoderSettings {
            zone: Some(zone),
            ..DecoderSettings::default()
        };
        let cdrs = "calldate,channel,dstchannel,disposition,duration,billsec,uniqueid\n\
                    2026-03-02 10:00:00,SIP/a-1,SIP/b-1,ANSWERED,30,20,1772445600.1\n\
                    2026-03-02 10:01:00,SIP/a-2,SIP/b-2,ANSWERED,30,20,1772445660.3\n";
        let cel = "eventtype,eventtime,channame,uniqueid,linkedid\n\
                   CHAN_START,2026-03-02 10:00:00,SIP/a-1,1772445600.1,1772445600.1\n\
                   CHAN_START,2026-03-02 10:01:00,SIP/a-2,1772445660.3,1772445660.3\n";
        for (format, text) in [(Format::CdrCsv, cdrs), (Format::CelCsv, cel)] {
            let check =
                |text: &str| match FormatFit::check(format, settings.clone(), text.as_bytes()) {
                    FormatFit::Reads { wrong_zone, .. } => wrong_zone,
                    other => panic!("{format}: {other:?}"),
                };
            let message = check(text).map(|wrong| format!("{wrong}; {}", wrong.fix()));
            assert_eq!(
                message.as_deref(),
                Some(
                    "--pbx-timezone contradicts the calls' unique IDs, according to which times \
                     are in UTC+00:00, so callbridge goes by the IDs; set --pbx-timezone=UTC, \
                     since Asterisk writes CDRs in UTC if usegmtime=yes"
                ),
                "{format}"
            );
            assert_eq!(check(&text.replace(" 10:0", " 05:0")), None, "{format}");
        }
    }

    #[test]
    fn bytes_are_classified_by_how_they_fit_the_format() {
        let event = b"Event: Newchannel\r\nChannel: SIP/101-1\r\nUniqueid: 17.1\r\n\r\n";
        assert!(matches!(
            fit(Format::Ami, event),
            FormatFit::Reads { events: 1, .. }
        ));
        assert_eq!(fit(Format::Ami, b" \r\n"), FormatFit::Empty);
        assert_eq!(
            fit(Format::Ami, b"Event: PeerStatus\r\nPeer: SIP/101\r\n\r\n"),
            FormatFit::Quiet
        );
        let FormatFit::Other(like) = fit(Format::CelCsv, event) else {
            panic!("AMI under CEL")
        };
        assert_eq!(like.format, Some(Format::Ami));
        assert_eq!(
            fit(Format::CelCsv, b"<html>403</html>\n"),
            FormatFit::Unknown
        );
    }
}
