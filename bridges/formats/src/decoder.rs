//! The decoder for the formats of all PBXs. A framed message goes in, and the decoded event or call
//! comes out.

use crate::format::{Format, Framing};
use callbridge_asterisk::{AsteriskDecoder, DecoderSettings};
use callbridge_call::Decoded;

/// Decodes the messages of one source. Stores what it needs from earlier messages, such as a CSV
/// header.
#[derive(Debug)]
pub struct Decoder(Reader);

#[derive(Debug)]
enum Reader {
    Asterisk(Box<AsteriskDecoder>),
    Freeswitch(Box<callbridge_freeswitch::Decoder>),
    FreeswitchCdr(Box<callbridge_freeswitch::Decoder>),
    /// Finished calls. No message depends on an earlier one.
    Calls,
}

impl Decoder {
    /// Makes a decoder that has seen no message of its source.
    pub fn new(format: Format, settings: DecoderSettings) -> Self {
        if let Some(format) = format.asterisk_format() {
            let decoder = AsteriskDecoder::new(format, settings);
            return Self(Reader::Asterisk(Box::new(decoder)));
        }
        if format.carries_whole_calls() {
            return Self(Reader::Calls);
        }
        let decoder = Box::new(callbridge_freeswitch::Decoder::new(settings.variables));
        if format.only_cdrs() {
            Self(Reader::FreeswitchCdr(decoder))
        } else {
            Self(Reader::Freeswitch(decoder))
        }
    }

    /// Decodes one message of a [`Framer`](crate::Framer), a WebSocket frame, or an AMQP delivery.
    /// Never panics, whatever the bytes are.
    #[inline]
    pub fn decode<'a>(&'a mut self, message: &'a [u8]) -> Decoded<'a> {
        match &mut self.0 {
            Reader::Asterisk(decoder) => decoder.decode(message),
            Reader::Freeswitch(decoder) => decoder.decode(message),
            Reader::FreeswitchCdr(decoder) => decoder.decode_cdr(message),
            Reader::Calls => {
                let call = crate::message::read(message, None);
                Decoded::Call(call.map(Box::new).map_err(Box::new))
            }
        }
    }
}

/// Returns `true` if `record` is a CSV header of this format.
pub fn is_header(format: Format, record: &[u8]) -> bool {
    let mut decoder = Decoder::new(format, DecoderSettings::default());
    format.framing() == Framing::CsvRecord && decoder.decode(record) == Decoded::Skipped
}
