//! The decoder for all PBXs' formats, which turns a framed message into a decoded event or call.

use crate::format::{Format, Framing};
use callbridge_asterisk::{AsteriskDecoder, DecoderSettings, WrongZone};
use callbridge_call::Decoded;
use callbridge_call::framing::without_byte_order_mark;

/// Decodes one source's messages, keeping what it needs from earlier ones, such as a CSV header.
#[derive(Debug)]
pub struct Decoder(Reader);

#[derive(Debug)]
enum Reader {
    Asterisk(Box<AsteriskDecoder>),
    Freeswitch(Box<callbridge_freeswitch::Decoder>),
    FreeswitchCdr(Box<callbridge_freeswitch::Decoder>),
    /// Finished calls, where no message depends on an earlier one.
    Calls,
}

impl Decoder {
    /// Creates a decoder that hasn't seen any of its source's messages yet.
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

    /// Returns the offset found in the PBX's unique IDs if it contradicts the configured time zone,
    /// in which case it's used instead.
    pub fn wrong_zone(&self) -> Option<WrongZone> {
        match &self.0 {
            Reader::Asterisk(decoder) => decoder.wrong_zone(),
            Reader::Freeswitch(_) | Reader::FreeswitchCdr(_) | Reader::Calls => None,
        }
    }

    /// Decodes one message from a [`Framer`](crate::Framer), a WebSocket frame, or an AMQP
    /// delivery. Never panics, no matter what the bytes are.
    #[inline]
    pub fn decode<'a>(&'a mut self, message: &'a [u8]) -> Decoded<'a> {
        let message = without_byte_order_mark(message);
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
    // The lines that a database client draws around a table don't contain any names.
    let has_names = record.iter().any(u8::is_ascii_alphabetic);
    let is_csv = format.framing() == Framing::CsvRecord;
    is_csv && has_names && decoder.decode(record) == Decoded::Skipped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Broker messages and WebSocket frames are decoded without a framer.
    #[test]
    fn byte_order_mark_before_a_body_is_skipped() {
        let event = br#"{"Event":"Hangup","Channel":"a-1","Uniqueid":"1.1","Linkedid":"1.1"}"#;
        let body = [b"\xef\xbb\xbf".as_slice(), event].concat();
        let mut decoder = Decoder::new(Format::AmiJson, DecoderSettings::default());
        let plain = decoder.decode(event);
        assert!(
            matches!(
                &plain,
                Decoded::Event {
                    repaired: false,
                    ..
                }
            ),
            "{plain:?}"
        );
        let mut decoder = Decoder::new(Format::AmiJson, DecoderSettings::default());
        assert_eq!(decoder.decode(&body), plain);
        let call = br#"{"pbx":"a","id":"1","direction":"INTERNAL","startedAt":1795151317,
            "durationSec":20,"answered":false}"#;
        let body = [b"\xef\xbb\xbf".as_slice(), call].concat();
        let mut calls = Decoder::new(Format::Call, DecoderSettings::default());
        assert!(matches!(calls.decode(&body), Decoded::Call(Ok(_))));
    }
}
