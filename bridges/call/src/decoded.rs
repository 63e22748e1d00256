//! The output of every decoder, for all kinds of PBX.

use crate::call::FinishedCall;
use crate::event::{ChannelEvent, PbxEvent, Text};

/// Longest accepted id, in bytes. Ids of Asterisk's channels have at most 150, and those of bridges
/// 36.
const ID_BYTES_MAX: usize = 256;

/// An event, and the server whose message contained it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerEvent<'a> {
    /// `server_name` of an AMI-JSON frame, `origin_uuid` on Wazo's bus, or `Server` in an AMI event
    /// that came through a proxy. One connection can carry several PBXs.
    pub server: Option<Text<'a>>,
    /// The event, as far as calls depend on it.
    pub event: PbxEvent<'a>,
}

impl ServerEvent<'_> {
    /// Returns `true` if each id that identifies a call is valid.
    // `inline`, so it is optimized for speed with the decoder that calls it. This crate is also
    // built for size.
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

/// Returns `true` if an id or a server's name has no control characters and at most `ID_BYTES_MAX`
/// bytes.
#[inline]
fn is_good_id(id: &str) -> bool {
    let plain = id.bytes().all(|byte| byte.is_ascii_graphic());
    id.len() <= ID_BYTES_MAX && (plain || !id.chars().any(char::is_control))
}

/// A finished call that one message reports as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportedCall {
    /// The PBX of the call, as its message states.
    pub pbx: String,
    /// The call. Its field `given` has the ids that the message contains.
    pub call: FinishedCall,
}

/// The reason why a message is not a valid finished call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WrongCall {
    /// The PBX that the message names, if that name is valid.
    pub pbx: Option<String>,
    /// The call that the message names, if that id is valid.
    pub id: Option<String>,
    /// Each wrong field, and its allowed values. Contains no data of customers.
    pub message: String,
}

/// Outcome of the decoding of one message.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "made and matched at once; never stored"
)]
pub enum Decoded<'a> {
    /// An event that a call can depend on.
    Event {
        /// The event, and the server that its message names.
        received: ServerEvent<'a>,
        /// Set if invalid bytes, invalid escapes, or a truncated end were repaired. Repairs are
        /// counted.
        repaired: bool,
    },
    /// A call that is already over, or the reason why the message is not a valid call.
    Call(Result<Box<ReportedCall>, Box<WrongCall>>),
    /// A well-formed message that no call depends on.
    Skipped,
    /// An unreadable message, which could have been about a call.
    Unreadable(Unreadable),
}

impl<'a> Decoded<'a> {
    /// Wraps the event of a message without a server id. `repaired` is `true` if invalid bytes or
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

/// The reason why a message is unreadable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Unreadable {
    /// No `Key: Value` pair names an event or a response.
    #[error("the message names no event")]
    NoEvent,
    /// The event of a channel has neither the channel's name nor its unique id.
    #[error("the event names no channel")]
    NoChannel,
    /// The message is not JSON, and cannot be repaired into an object with an event.
    #[error("the message is not a JSON object, even after repair")]
    NotJson,
    /// The row has fewer columns than a CEL row needs.
    #[error("the row has too few columns to be a CEL event")]
    TooFewColumns,
    /// The row may be of CEL, but the order of its columns is unknown.
    #[error("the order of the row's columns is not known: name them with --columns")]
    UnknownColumns,
    /// The row fits neither `cdr_csv` nor `cdr_custom`, and no header names its columns.
    #[error(
        "the row isn't a complete CDR of cdr_csv or cdr_custom, or it's from a table whose header \
         is missing"
    )]
    NotACdr,
    /// The row is of FreeSWITCH's `mod_cdr_csv`, whose outcome is a hangup cause.
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
    /// The column that the header calls the start holds no time.
    #[error("the row's start isn't a date and time")]
    NoStart,
    /// The column named as the event's time in the header doesn't contain a time.
    #[error("the row's time isn't a date and time")]
    NoTime,
    /// A spreadsheet has cut the seconds off the time of an event.
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
    /// This column should hold seconds, but holds something else.
    #[error("the row's {0} isn't a number of seconds")]
    NoCount(&'static str),
    /// The file has no object with the variables of a channel and its call flow.
    #[error(
        "the file is not a CDR of a channel: `variables` with a uuid, or `callflow`, is \
             missing"
    )]
    NoLeg,
    /// An id has control characters or is too long. Ids appear in logs and in the CRM.
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

    /// Returns an event for each place that can have an id, with this id in that place.
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
