//! One entry for the formats of all PBXs: a framed message in, what it tells out.

use crate::format::Format;
use callbridge_asterisk::{AsteriskDecoder, DecoderSettings};
use callbridge_call::Decoded;

/// Decodes the messages of one source. It keeps what later messages need.
#[derive(Debug)]
pub struct Decoder(Box<AsteriskDecoder>);

impl Decoder {
    /// A decoder at the beginning of a source.
    pub fn new(format: Format, settings: DecoderSettings) -> Self {
        Self(Box::new(AsteriskDecoder::new(
            format.of_asterisk(),
            settings,
        )))
    }

    /// Decodes one message, as [`Framer`](crate::Framer), a WebSocket frame or an AMQP delivery
    /// gives it. Never panics, whatever the bytes.
    #[inline]
    pub fn decode<'a>(&'a mut self, message: &'a [u8]) -> Decoded<'a> {
        self.0.decode(message)
    }
}
