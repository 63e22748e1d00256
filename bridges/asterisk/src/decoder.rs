//! One entry for all formats: a framed message in, what it tells out.

use crate::cdr_csv::CdrRows;
use crate::cdr_time::CdrClock;
use crate::cel_columns::Columns;
use crate::cel_csv::CsvRows;
use crate::cel_time::CelClock;
use crate::format::Format;
use crate::mend::Scratch;
use crate::{ami, ami_json, cdr, cel_amqp};
use callbridge_call::PbxEvent;
use callbridge_call::event::Text;
use std::collections::BTreeSet;

/// Bytes of a variable's name, as Asterisk has them at most.
pub const VARIABLE_NAME_BYTES_MAX: usize = 80;
/// Bytes of an id. Asterisk's own have at most 150, a bridge's 36.
const ID_BYTES_MAX: usize = 256;

/// What a [`Decoder`] has to know of a source beside its format.
#[derive(Clone, Debug, Default)]
pub struct DecoderSettings {
    /// The zone of times that the PBX writes without one (`--pbx-timezone`). Without it the
    /// distance is learned from the epoch in unique ids.
    pub zone: Option<jiff::tz::TimeZone>,
    /// The columns of `cel-csv` (`--columns`); without them they are recognised. A header row in
    /// the file wins over both.
    pub cel_columns: Option<Columns>,
    /// The channel variables that rules name: others are left out. `None`: all are kept.
    pub variables: Option<BTreeSet<String>>,
}

/// What a message tells, and whose message it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerEvent<'a> {
    /// `server_name` of an AMI-JSON frame, `origin_uuid` on Wazo's bus: one connection may carry
    /// several PBXs.
    pub server: Option<Text<'a>>,
    /// What it tells.
    pub told: PbxEvent<'a>,
}

/// What became of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "made and matched at once; never stored"
)]
pub enum Decoded<'a> {
    /// Something a call can depend on.
    Event {
        /// What was told.
        heard: ServerEvent<'a>,
        /// Bad bytes, escapes or a cut end were set right: to be counted.
        repaired: bool,
    },
    /// Well-formed, and nothing any call depends on.
    Skipped,
    /// Nothing can be made of it, and a call could hide in it.
    Unreadable(Unreadable),
}

impl<'a> Decoded<'a> {
    /// What a message told that names no server.
    #[inline]
    pub(crate) fn of(told: Result<PbxEvent<'a>, Unreadable>, repaired: bool) -> Self {
        match told {
            Ok(told) => Self::Event {
                heard: ServerEvent { server: None, told },
                repaired,
            },
            Err(why) => Self::Unreadable(why),
        }
    }
}

/// Why nothing could be made of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Unreadable {
    /// No `Key: Value` pair names an event or a response.
    #[error("the message names no event")]
    NoEvent,
    /// An event of a channel without the channel's name and unique id.
    #[error("the event names no channel")]
    NoChannel,
    /// Not JSON, and not to be mended into an object with an event.
    #[error("the message is not a JSON object, even when mended")]
    NotJson,
    /// Fewer columns than a CEL row needs.
    #[error("the row has too few columns to be a CEL event")]
    TooFewColumns,
    /// A row of CEL, perhaps, in an order of columns that is none known here.
    #[error("the columns of the row stand in no order known here: name them with --columns")]
    UnknownColumns,
    /// No row of `cdr_csv` or `cdr_custom`: its beginning or its end is missing.
    #[error("the row is no whole CDR: no three times and two counts of seconds stand in it")]
    NotACdr,
    /// An id that no PBX gives: it is the name of a call, in logs and in the CRM.
    #[error("an id in the message has control characters, or more than {ID_BYTES_MAX} bytes")]
    NoId,
}

/// Decodes the messages of one source. It keeps what later messages need: the columns of a CSV
/// file, the PBX's distance from UTC, and which unique id belongs to a channel's name.
#[derive(Debug)]
pub struct Decoder {
    format: Format,
    clock: CelClock,
    rows: CsvRows,
    cdr_clock: CdrClock,
    cdr_rows: CdrRows,
    variables: Option<BTreeSet<String>>,
    scratch: Scratch,
    memory: ami_json::FrameContext,
}

impl Decoder {
    /// A decoder at the beginning of a source.
    pub fn new(format: Format, settings: DecoderSettings) -> Self {
        Self {
            format,
            cdr_clock: CdrClock::new(settings.zone.clone()),
            cdr_rows: CdrRows::new(),
            clock: CelClock::new(settings.zone, format == Format::CelCsv),
            rows: CsvRows::new(settings.cel_columns),
            variables: settings.variables,
            scratch: Scratch::default(),
            memory: ami_json::FrameContext::default(),
        }
    }

    /// The format it was made for.
    pub const fn format(&self) -> Format {
        self.format
    }

    /// Decodes one message, as [`Framer`](crate::Framer), a WebSocket frame or an AMQP delivery
    /// gives it. Never panics, whatever the bytes.
    pub fn decode<'a>(&'a mut self, message: &'a [u8]) -> Decoded<'a> {
        let mut decoded = match self.format {
            Format::Ami => ami::decode(message, &mut self.clock),
            Format::AmiJson | Format::Wazo => ami_json::decode(
                message,
                self.format == Format::Wazo,
                &mut self.scratch,
                &mut self.memory,
                &mut self.clock,
            ),
            Format::CelCsv => self.rows.decode(message, &mut self.clock),
            Format::CelAmqp => cel_amqp::decode(message, &mut self.scratch, &mut self.clock),
            Format::CdrAmqp => cdr::decode_amqp(message, &mut self.scratch),
            Format::CdrCsv => self.cdr_rows.decode(message),
        };
        let Decoded::Event { heard, .. } = &mut decoded else {
            return decoded;
        };
        if !has_good_ids(heard) {
            return Decoded::Unreadable(Unreadable::NoId);
        }
        match &mut heard.told {
            PbxEvent::Channel(event) => {
                let wanted = self.variables.as_ref();
                event.retain_variables(|name| {
                    name.len() <= VARIABLE_NAME_BYTES_MAX
                        && wanted.is_none_or(|wanted| wanted.contains(name))
                });
            }
            PbxEvent::Cdr(cdr) => self.cdr_clock.place(cdr, heard.server.as_deref()),
            PbxEvent::Mark(_) => {}
        }
        decoded
    }
}

/// Whether each id that calls are known by can be one.
fn has_good_ids(heard: &ServerEvent<'_>) -> bool {
    let is_good = |id: &str| {
        let plain = id.bytes().all(|byte| byte.is_ascii_graphic());
        id.len() <= ID_BYTES_MAX && (plain || !id.chars().any(char::is_control))
    };
    let told = match &heard.told {
        PbxEvent::Channel(event) => event.ids().all(is_good),
        PbxEvent::Cdr(cdr) => is_good(&cdr.uniqueid) && is_good(&cdr.linkedid),
        PbxEvent::Mark(_) => true,
    };
    told && heard.server.as_deref().is_none_or(is_good)
}
