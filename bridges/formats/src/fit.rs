//! Whether bytes are written in the format that they are said to be in.

use crate::decoder::Decoder;
use crate::format::Format;
use crate::framer::{Frame, Frames};
use crate::likeness::Likeness;
use callbridge_asterisk::DecoderSettings;
use callbridge_call::Decoded;
use callbridge_call::event::ChannelState;
use callbridge_call::{EventTime, Kind, Origin, PbxEvent};
use std::collections::{BTreeMap, BTreeSet};

/// What bytes are to a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatFit {
    /// There is nothing in them.
    Empty,
    /// Something in them tells of calls.
    Reads {
        /// How many events.
        events: u64,
        /// The latest time among them.
        last: Option<EventTime>,
        /// CEL in which both sides of a call answered, and which tells of no bridge at all.
        unbridged: bool,
    },
    /// Messages of the format, none of which tells of a call.
    Quiet,
    /// Another format's, or what is not read here.
    Other(Likeness),
    /// Of no format known here.
    Unknown,
}

impl FormatFit {
    /// What these bytes are to `format`.
    pub fn of(format: Format, settings: DecoderSettings, bytes: &[u8]) -> Self {
        let mut decoder = Decoder::new(format, settings);
        let (mut events, mut skipped, mut last) = (0, 0_u64, None);
        let mut talk = AnsweredChannels::default();
        for frame in Frames::new(format, bytes) {
            let Frame::Message(message) = frame else {
                continue;
            };
            match decoder.decode(message) {
                Decoded::Event { heard, .. } => {
                    events += 1;
                    last = last.max(time_of(&heard.told));
                    talk.hear(&heard.told);
                }
                Decoded::Call(Ok(told)) => {
                    events += 1;
                    last = last.max(Some(told.call.ended));
                }
                Decoded::Skipped => skipped += 1,
                Decoded::Unreadable(_) | Decoded::Call(Err(_)) => {}
            }
        }
        if events > 0 {
            return Self::Reads {
                events,
                last,
                unbridged: talk.is_unreported(),
            };
        }
        if bytes.trim_ascii().is_empty() {
            return Self::Empty;
        }
        match Likeness::of(bytes) {
            Some(like) if like.format != Some(format) => Self::Other(like),
            Some(_) | None if skipped > 0 => Self::Quiet,
            Some(_) | None => Self::Unknown,
        }
    }
}

/// Whether CEL tells who talked with whom.
#[derive(Default)]
struct AnsweredChannels {
    bridges: bool,
    /// Channels that answered, by their linkedid.
    answered: BTreeMap<String, BTreeSet<String>>,
}

impl AnsweredChannels {
    fn hear(&mut self, told: &PbxEvent<'_>) {
        let PbxEvent::Channel(event) = told else {
            return;
        };
        if event.origin != Origin::Cel {
            return;
        }
        self.bridges |= event.kind.is_of_bridge();
        let up = ChannelState::Up;
        if !self.bridges && event.kind == (Kind::State { state: up }) {
            let linkedid = event.channel.linkedid.clone().into_owned();
            let both = self.answered.entry(linkedid).or_default();
            both.insert(event.channel.uniqueid.clone().into_owned());
        }
    }

    fn is_unreported(&self) -> bool {
        !self.bridges && self.answered.values().any(|both| both.len() > 1)
    }
}

fn time_of(told: &PbxEvent<'_>) -> Option<EventTime> {
    match told {
        PbxEvent::Channel(event) => event.at,
        PbxEvent::Cdr(cdr) => cdr.ended_at.or(cdr.at),
        PbxEvent::Mark(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(format: Format, bytes: &[u8]) -> FormatFit {
        FormatFit::of(format, DecoderSettings::default(), bytes)
    }

    #[test]
    fn cel_that_tells_of_answers_and_of_no_bridge_is_known_by_it() {
        let read = |folder: &str| {
            let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/recordings");
            let file = format!("{root}/asterisk-old/{folder}/cel.csv");
            match fit(Format::CelCsv, &std::fs::read(file).expect("rows")) {
                FormatFit::Reads { unbridged, .. } => unbridged,
                other => panic!("{other:?}"),
            }
        };
        assert!(read("11-shipped-cel-conf/inbound_answered"));
        for told in [
            "11/inbound_answered",
            "16/inbound_answered",
            "11/inbound_busy",
        ] {
            assert!(!read(told), "{told}");
        }
    }

    #[test]
    fn bytes_are_known_by_what_they_tell() {
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
