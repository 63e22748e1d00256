//! What every decoder gives out, whatever PBX its messages come from.

use crate::call::FinishedCall;
use crate::event::{ChannelEvent, PbxEvent, Text};

/// Bytes of an id. Asterisk's own have at most 150, a bridge's 36.
const ID_BYTES_MAX: usize = 256;

/// An event, with the server whose message it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerEvent<'a> {
    /// `server_name` of an AMI-JSON frame, `origin_uuid` on Wazo's bus: one connection may carry
    /// several PBXs.
    pub server: Option<Text<'a>>,
    /// The event, as far as calls depend on it.
    pub event: PbxEvent<'a>,
}

impl ServerEvent<'_> {
    /// Returns `true` when each id that calls are known by can be one.
    // Built for speed with the decoder that asks it: this crate is built for size as well.
    #[inline]
    pub fn has_good_ids(&self) -> bool {
        let is_good = |id: &str| {
            let plain = id.bytes().all(|byte| byte.is_ascii_graphic());
            id.len() <= ID_BYTES_MAX && (plain || !id.chars().any(char::is_control))
        };
        let has_good_ids = match &self.event {
            PbxEvent::Channel(event) => event.ids().all(is_good),
            PbxEvent::Cdr(cdr) => {
                let mut events = cdr.events.iter().flat_map(ChannelEvent::ids);
                is_good(&cdr.uniqueid) && is_good(&cdr.linkedid) && events.all(is_good)
            }
            PbxEvent::Mark(_) => true,
        };
        has_good_ids && self.server.as_deref().is_none_or(is_good)
    }
}

/// A finished call that a message tells whole.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportedCall {
    /// The PBX that it was made at: its message says that.
    pub pbx: String,
    /// The call, with the ids that its message names in `given`.
    pub call: FinishedCall,
}

/// The reason why a message is no finished call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub struct WrongCall {
    /// The PBX that it names, where it names one that can be.
    pub pbx: Option<String>,
    /// The call that it names, likewise.
    pub id: Option<String>,
    /// Each field that is wrong, and what it may be. Nothing of a customer's stands in it.
    pub words: String,
}

/// Outcome of the decoding of one message.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "made and matched at once; never stored"
)]
pub enum Decoded<'a> {
    /// Something a call can depend on.
    Event {
        /// The event, with the server that its message names.
        received: ServerEvent<'a>,
        /// Bad bytes, escapes or a cut end were set right: to be counted.
        repaired: bool,
    },
    /// A call that is over already, or why the message is none that can be.
    Call(Result<Box<ReportedCall>, Box<WrongCall>>),
    /// Well-formed, and nothing any call depends on.
    Skipped,
    /// Nothing can be made of it, and a call could hide in it.
    Unreadable(Unreadable),
}

impl<'a> Decoded<'a> {
    /// Makes the outcome of a message that names no server.
    #[inline]
    pub fn of(event: Result<PbxEvent<'a>, Unreadable>, repaired: bool) -> Self {
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

/// A reason why nothing could be made of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Unreadable {
    /// No `Key: Value` pair names an event or a response.
    #[error("the message names no event")]
    NoEvent,
    /// An event of a channel without the channel's name and unique id.
    #[error("the event names no channel")]
    NoChannel,
    /// The message is not JSON, and not to be mended into an object with an event.
    #[error("the message is not a JSON object, even after repair")]
    NotJson,
    /// Fewer columns than a CEL row needs.
    #[error("the row has too few columns to be a CEL event")]
    TooFewColumns,
    /// A row of CEL, perhaps, in an order of columns that is none known here.
    #[error("the order of the row's columns is not known: name them with --columns")]
    UnknownColumns,
    /// The row fits neither `cdr_csv` nor `cdr_custom`, and no header names its columns.
    #[error(
        "the row is not a whole CDR of cdr_csv or cdr_custom, or it is from a table whose header \
         is missing"
    )]
    NotACdr,
    /// A row of FreeSWITCH's `mod_cdr_csv`, whose outcome is a hangup cause.
    #[error(
        "the row is of FreeSWITCH's mod_cdr_csv, which is not read: use mod_json_cdr \
         (freeswitch-cdr) or the event socket (esl://)"
    )]
    SwitchCdr,
    /// The header of a CDR table lacks a column without which no call can be read.
    #[error("the file's header has no column {0}: export the table with it")]
    NoColumn(&'static str),
    /// The row has more or fewer fields than its file's header.
    #[error(
        "the row has more or fewer fields than the header: it is torn, or a field with a \
         delimiter in it is not quoted"
    )]
    OtherColumns,
    /// The column that the header calls the start holds no time.
    #[error("the row's start is not a date and a time with seconds")]
    NoStart,
    /// This column should hold seconds, and holds something else.
    #[error("the row's {0} is not a number of seconds")]
    NoCount(&'static str),
    /// No object with the variables of a channel and its call flow.
    #[error(
        "the file is not a CDR of a channel: `variables` with a uuid, or `callflow`, is \
             missing"
    )]
    NoLeg,
    /// An id that no PBX gives: it is the name of a call, in logs and in the CRM.
    #[error("an id in the message has control characters, or more than {ID_BYTES_MAX} bytes")]
    NoId,
}
