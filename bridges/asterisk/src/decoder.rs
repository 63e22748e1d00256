//! The decoder for all Asterisk formats, which turns a framed message into its event.

use crate::cdr_csv::CdrRows;
use crate::cdr_time::CdrClock;
use crate::cel_csv::CsvRows;
use crate::cel_time::CelClock;
use crate::columns::CsvColumns;
use crate::repair::Scratch;
use crate::wall_clock::WrongZone;
use crate::{ami, ami_json, cdr, cel};
use callbridge_call::{Decoded, PbxEvent, Unreadable};
use std::collections::BTreeSet;

/// Formats used by Asterisk or by a gateway next to it. The names and properties of all formats are
/// in `callbridge-formats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AsteriskFormat {
    /// Asterisk's AMI on TCP port 5038.
    Ami,
    /// AMI as JSON, either in amiws's envelope or as one flat object per event.
    AmiJson,
    /// CSV rows of channel event logging, from `cel_custom` or a database export.
    CelCsv,
    /// asterisk-cel-amqp messages, which are JSON objects.
    CelAmqp,
    /// asterisk-cdr-amqp messages, which are JSON objects.
    CdrAmqp,
    /// Rows from `cdr_csv`, from `cdr_custom`'s sample, or from a table with a header.
    CdrCsv,
    /// Messages from Wazo's bus, each of which is an AMI event in an envelope.
    Wazo,
}

/// Maximum length of an Asterisk variable name in bytes.
pub const VARIABLE_NAME_BYTES_MAX: usize = 80;

/// What an [`AsteriskDecoder`] needs to know about a source besides its format.
#[derive(Clone, Debug, Default)]
pub struct DecoderSettings {
    /// The time zone of times that the PBX writes without one (`--pbx-timezone`). If this isn't
    /// set, the offset is learned from the epoch in unique IDs.
    pub zone: Option<jiff::tz::TimeZone>,
    /// The columns of a CSV file without a header (`--columns`). If this isn't set, they're
    /// recognized automatically. A header in the file takes precedence.
    pub columns: Option<CsvColumns>,
    /// Names of the channel variables used in rules, or `None` to keep all variables. Others are
    /// dropped.
    pub variables: Option<BTreeSet<String>>,
}

/// Decodes one source's messages, keeping the state that later messages need, i.e., a CSV file's
/// columns, the PBX's offset from UTC, and the unique IDs for channel names.
#[derive(Debug)]
pub struct AsteriskDecoder {
    format: AsteriskFormat,
    clock: CelClock,
    rows: CsvRows,
    cdr_clock: CdrClock,
    cdr_rows: CdrRows,
    variables: Option<BTreeSet<String>>,
    scratch: Scratch,
    memory: ami_json::FrameContext,
}

impl AsteriskDecoder {
    /// Creates a decoder for one source, before its first message.
    pub fn new(format: AsteriskFormat, settings: DecoderSettings) -> Self {
        let columns = settings.columns;
        let cel = columns.as_ref().and_then(|columns| columns.cel.clone());
        let cdr = columns.and_then(|columns| columns.cdr);
        Self {
            format,
            cdr_clock: CdrClock::new(settings.zone.clone()),
            cdr_rows: CdrRows::new(cdr),
            clock: CelClock::new(settings.zone, format == AsteriskFormat::CelCsv),
            rows: CsvRows::new(cel),
            variables: settings.variables,
            scratch: Scratch::default(),
            memory: ami_json::FrameContext::default(),
        }
    }

    /// Returns the offset found in the unique IDs of several channels if it contradicts the
    /// configured time zone, in which case it's used instead.
    pub fn wrong_zone(&self) -> Option<WrongZone> {
        self.clock
            .wrong_zone()
            .or_else(|| self.cdr_clock.wrong_zone())
    }

    /// Decodes one message, which is a complete AMI message, JSON object, or CSV record. Never
    /// panics, no matter what the bytes are.
    pub fn decode<'a>(&'a mut self, message: &'a [u8]) -> Decoded<'a> {
        let mut decoded = match self.format {
            AsteriskFormat::Ami => ami::decode(message, &mut self.clock),
            AsteriskFormat::AmiJson | AsteriskFormat::Wazo => ami_json::decode(
                message,
                self.format == AsteriskFormat::Wazo,
                &mut self.scratch,
                &mut self.memory,
                &mut self.clock,
            ),
            AsteriskFormat::CelCsv => self.rows.decode(message, &mut self.clock),
            AsteriskFormat::CelAmqp => {
                cel::decode_amqp(message, &mut self.scratch, &mut self.clock)
            }
            AsteriskFormat::CdrAmqp => cdr::decode_amqp(message, &mut self.scratch),
            AsteriskFormat::CdrCsv => self.cdr_rows.decode(message),
        };
        let Decoded::Event { received, .. } = &mut decoded else {
            return decoded;
        };
        if !received.has_good_ids() {
            return Decoded::Unreadable(Unreadable::NoId);
        }
        match &mut received.event {
            PbxEvent::Channel(event) => {
                let wanted = self.variables.as_ref();
                event.retain_variables(|name| {
                    name.len() <= VARIABLE_NAME_BYTES_MAX
                        && wanted.is_none_or(|wanted| wanted.contains(name))
                });
            }
            PbxEvent::Cdr(cdr) => self.cdr_clock.place(cdr, received.server.as_deref()),
            PbxEvent::Mark(_) => {}
        }
        decoded
    }
}
