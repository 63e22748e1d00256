//! The output of every decoder, regardless of the kind of PBX.

use crate::call::FinishedCall;
use crate::event::{ChannelEvent, PbxEvent, Text};

/// Maximum length of an accepted ID in bytes. Asterisk's channel IDs have at most 150, and its
/// bridge IDs have 36.
const ID_BYTES_MAX: usize = 256;

/// An event, along with the server whose message contained it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerEvent<'a> {
    /// `server_name` of an AMI-JSON frame, `origin_uuid` on Wazo's bus, or `Server` in an AMI event
    /// that came through a proxy, since one connection can serve several PBXs.
    pub server: Option<Text<'a>>,
    /// The parts of the event that matter for calls.
    pub event: PbxEvent<'a>,
}

impl ServerEvent<'_> {
    /// Returns `true` if every ID that identifies a call is valid.
    // `inline`, so that it's optimized for speed along with the decoder that calls it. This crate
    // is also built for size.
    #[inline]
    pub fn has_good_ids(&self) -> bool {
        let has_good_ids = match &self.event {
            PbxEvent::Channel(event) => event.ids().all(is_good_id),
            PbxEvent::Cdr(cdr) => {
                let mut events = cdr.events.iter().flat_map(ChannelEvent::ids);
                is_good_id(&cdr.uniqueid) && is_good_id(&cdr.linkedid) && events.all(is_good_id)
            }
            PbxEvent::Mark(_) => true,
        };
        has_good_ids && self.server.as_deref().is_none_or(is_good_id)
    }
}

/// Returns `true` if an ID or server name has no control characters and is at most `ID_BYTES_MAX`
/// bytes long.
#[inline]
fn is_good_id(id: &str) -> bool {
    let plain = id.bytes().all(|byte| byte.is_ascii_graphic());
    id.len() <= ID_BYTES_MAX && (plain || !id.chars().any(char::is_control))
}

/// A finished call that was reported as a whole in one message.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportedCall {
    /// The call's PBX, as stated in the message.
    pub pbx: String,
    /// The call, whose `given` field holds the IDs that the message contains.
    pub call: FinishedCall,
}

/// Why a message isn't a valid finished call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WrongCall {
    /// The PBX that the message identifies, if its name is valid.
    pub pbx: Option<String>,
    /// The call that the message identifies, if its ID is valid.
    pub id: Option<String>,
    /// Lists each invalid field along with its allowed values. Contains no customer data.
    pub message: String,
}

/// The result of decoding one message.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "made and matched at once; never stored"
)]
pub enum Decoded<'a> {
    /// An event that may matter for a call.
    Event {
        /// The event, along with the server that its message identifies.
        received: ServerEvent<'a>,
        /// Whether invalid bytes, invalid escapes, or a truncated end had to be repaired. Repairs
        /// are counted.
        repaired: bool,
    },
    /// A call that's already over, or why the message isn't a valid call.
    Call(Result<Box<ReportedCall>, Box<WrongCall>>),
    /// A well-formed message that doesn't matter for any call.
    Skipped,
    /// An unreadable message, which may have been about a call.
    Unreadable(Unreadable),
}

impl<'a> Decoded<'a> {
    /// Wraps the event of a message without a server ID. `repaired` is `true` if invalid bytes or
    /// escapes were replaced.
    #[inline]
    pub fn from_event(event: Result<PbxEvent<'a>, Unreadable>, repaired: bool) -> Self {
        match event {
            Ok(event) => Self::Event {
                received: ServerEvent {
                    server: None,
                    event,
                },
                repaired,
            },
            Err(why) => Self::Unreadable(why),
        }
    }
}

/// Why a message is unreadable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Unreadable {
    /// None of the `Key: Value` pairs specifies an event or a response.
    #[error("the message names no event")]
    NoEvent,
    /// A channel event has neither the channel's name nor its unique ID.
    #[error("the event names no channel")]
    NoChannel,
    /// The message isn't JSON and can't be repaired into an object with an event.
    #[error("the message is not a JSON object, even after repair")]
    NotJson,
    /// The row has fewer columns than a CEL row needs.
    #[error("the row has too few columns to be a CEL event")]
    TooFewColumns,
    /// The row may come from CEL, but the order of its columns is unknown.
    #[error("the order of the row's columns is not known: name them with --columns")]
    UnknownColumns,
    /// The row matches neither `cdr_csv` nor `cdr_custom`, and there's no header that lists its
    /// columns.
    #[error(
        "the row isn't a complete CDR of cdr_csv or cdr_custom, or it's from a table whose header \
         is missing"
    )]
    NotACdr,
    /// The row comes from FreeSWITCH's `mod_cdr_csv`, which reports the outcome as a hangup cause.
    #[error(
        "the row was written by FreeSWITCH's mod_cdr_csv, which callbridge doesn't support: use \
         mod_json_cdr (freeswitch-cdr) or the event socket (esl://)"
    )]
    SwitchCdr,
    /// The header of a CDR table lacks a column that every call needs.
    #[error("the file's header has no column {0}: export the table with it")]
    NoColumn(&'static str),
    /// The row has more or fewer fields than its file's header.
    #[error(
        "the row has more or fewer fields than the header: it's cut off, or a field that contains \
         the delimiter isn't quoted"
    )]
    OtherColumns,
    /// The column named as the start in the header doesn't contain a time.
    #[error("the row's start isn't a date and time")]
    NoStart,
    /// The column named as the event's time in the header doesn't contain a time.
    #[error("the row's time isn't a date and time")]
    NoTime,
    /// A spreadsheet has dropped the seconds from an event's time.
    #[error(
        "the row's time has no seconds, probably because a spreadsheet dropped them: use the PBX's \
         original file, or format the column as yyyy-mm-dd hh:mm:ss before you save it"
    )]
    NoSeconds,
    /// A spreadsheet has rounded an ID (`1.77E+09`).
    #[error(
        "the row's unique ID was rounded by a spreadsheet: use the PBX's original file, or import \
         the ID columns as text"
    )]
    RoundedId,
    /// The event is given as a number whose meaning depends on the Asterisk release.
    #[error(
        "the row's event type is a number whose meaning depends on the Asterisk version: include \
         the column extra in the export, which shows the version, or export the event names"
    )]
    EventNumber,
    /// A column that should contain a number of seconds contains something else.
    #[error("the row's {0} isn't a number of seconds")]
    NoCount(&'static str),
    /// The file doesn't contain an object with a channel's variables and call flow.
    #[error(
        "the file is not a CDR of a channel: `variables` with a uuid, or `callflow`, is \
             missing"
    )]
    NoLeg,
    /// An ID has control characters or is too long. IDs appear in logs and in the CRM.
    #[error("an id in the message has control characters, or more than {ID_BYTES_MAX} bytes")]
    NoId,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Cdr, ChannelRef, ChannelTraits, Kind, Mark, MonitorMode, Origin};
    use crate::units::EventTime;

    const GOOD: &str = "1795151317.146";

    fn has_good_ids(event: PbxEvent<'_>) -> bool {
        let server = Some(Text::Borrowed("pbx-1"));
        ServerEvent { server, event }.has_good_ids()
    }

    fn of_kind(kind: Kind<'_>) -> PbxEvent<'_> {
        let channel = ChannelRef::by_id(GOOD.into());
        PbxEvent::Channel(ChannelEvent::new(None, Origin::Cel, channel, kind))
    }

    /// Returns an event for each place that can contain an ID, with this ID in that place.
    fn with_id_in_each_place(id: &str) -> Vec<PbxEvent<'_>> {
        let other = || Box::new(ChannelRef::by_id(id.into()));
        let of_channel = |channel| ChannelEvent::new(None, Origin::Channel, channel, Kind::Seen);
        let by_linkedid = ChannelRef {
            linkedid: id.into(),
            ..ChannelRef::by_id(GOOD.into())
        };
        let linked = ChannelTraits {
            linked: Some((EventTime::default(), id.into())),
            ..ChannelTraits::default()
        };
        let by_link = ChannelRef {
            traits: Some(Box::new(linked)),
            ..ChannelRef::by_id(GOOD.into())
        };
        let cdr = |uniqueid: &'_ str, linkedid: &'_ str| Cdr {
            uniqueid: uniqueid.to_owned().into(),
            linkedid: linkedid.to_owned().into(),
            ..Cdr::default()
        };
        let cdr_with_event = Cdr {
            events: vec![of_channel(*other())],
            ..cdr(GOOD, GOOD)
        };
        vec![
            PbxEvent::Channel(of_channel(*other())),
            PbxEvent::Channel(of_channel(by_linkedid)),
            PbxEvent::Channel(of_channel(by_link)),
            PbxEvent::Cdr(Box::new(cdr(id, GOOD))),
            PbxEvent::Cdr(Box::new(cdr(GOOD, id))),
            PbxEvent::Cdr(Box::new(cdr_with_event)),
            of_kind(Kind::DialBegin {
                by: Some(other()),
                dial_string: "".into(),
            }),
            of_kind(Kind::DialEnd {
                by: Some(other()),
                status: "".into(),
            }),
            of_kind(Kind::Linked { with: other() }),
            of_kind(Kind::Unlinked { with: other() }),
            of_kind(Kind::Joined {
                with: vec![GOOD.into(), id.into()],
            }),
            of_kind(Kind::Monitors {
                target: id.into(),
                mode: MonitorMode::Listen,
                by_keys: false,
            }),
            of_kind(Kind::Transfers { call: id.into() }),
        ]
    }

    #[test]
    fn id_is_good_without_control_characters_up_to_256_bytes() {
        let longest = "1".repeat(ID_BYTES_MAX);
        for id in [GOOD, "", "zürich-1795151317.146", &longest] {
            for event in with_id_in_each_place(id) {
                assert!(has_good_ids(event.clone()), "{event:?}");
            }
        }
        let too_long = "1".repeat(ID_BYTES_MAX + 1);
        for id in ["1795151317.146\n", "\u{1b}[2J", "\u{85}", &too_long] {
            for event in with_id_in_each_place(id) {
                assert!(!has_good_ids(event.clone()), "{event:?}");
            }
        }
    }

    #[test]
    fn server_name_with_control_character_is_not_a_good_id() {
        let event = PbxEvent::Mark(Mark::LoggedIn);
        assert!(has_good_ids(event.clone()));
        let server = Some(Text::Borrowed("pbx\r1"));
        assert!(!ServerEvent { server, event }.has_good_ids());
    }
}
