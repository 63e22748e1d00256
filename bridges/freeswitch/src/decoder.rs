//! The decoder for all FreeSWITCH formats, which turns a message into a decoded event.

use crate::block::{end_of_block, value_of};
use crate::fields::{self, Header};
use crate::rule::APPLICATIONS;
use crate::{cdr, event};
use callbridge_call::{Decoded, Mark, PbxEvent, ServerEvent, Unreadable};
use memchr::memmem;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Decodes the messages of one switch.
#[derive(Debug)]
pub struct Decoder {
    variables: Option<BTreeSet<String>>,
    /// Repaired text of the last JSON message that wasn't valid UTF-8, which that message's event
    /// borrows from.
    scratch: String,
}

impl Decoder {
    /// Creates a decoder for one source. `variables` lists the channel variables to keep, or is
    /// `None` to keep all of them.
    pub fn new(variables: Option<BTreeSet<String>>) -> Self {
        Self {
            variables,
            scratch: String::new(),
        }
    }

    /// Decodes one message, which is an event in the form of a header block or a JSON object, with
    /// or without the event socket's outer headers. Never panics, no matter what the bytes are.
    pub fn decode<'a>(&'a mut self, message: &'a [u8]) -> Decoded<'a> {
        let message = match without_frame(message) {
            Ok(message) => message,
            Err(Some(mark)) => return Decoded::from_event(Ok(PbxEvent::Mark(mark)), false),
            Err(None) => return Decoded::Skipped,
        };
        if is_needless_execute(message) {
            return Decoded::Skipped;
        }
        let wanted = self.variables.as_ref();
        let is_json = message.trim_ascii_start().first() == Some(&b'{');
        let (reading, repaired) = if !is_json {
            (fields::read_block(message, wanted), false)
        } else if let Ok(text) = std::str::from_utf8(message) {
            (fields::read_json(text, wanted), false)
        } else {
            self.scratch = String::from_utf8_lossy(message).into_owned();
            (fields::read_json(&self.scratch, wanted), true)
        };
        let mut fields = match reading {
            Ok(Some(fields)) => fields,
            Ok(None) => return Decoded::Skipped,
            Err(why) => return Decoded::Unreadable(why),
        };
        let repaired = repaired || fields.repaired;
        let server = Some(fields.take(Header::Switch)).filter(|name| !name.is_empty());
        match event::decode(*fields) {
            Ok(None) => Decoded::Skipped,
            Ok(Some(event)) => check_ids(Decoded::Event {
                received: ServerEvent { server, event },
                repaired,
            }),
            Err(why) => Decoded::Unreadable(why),
        }
    }
    /// Decodes a file written by `mod_json_cdr`. Never panics, no matter what the bytes are.
    pub fn decode_cdr(&mut self, file: &[u8]) -> Decoded<'static> {
        let text = String::from_utf8_lossy(file);
        let repaired = matches!(text, Cow::Owned(_));
        match cdr::decode(text.as_bytes(), self.variables.as_ref()) {
            Ok(received) => check_ids(Decoded::Event { received, repaired }),
            Err(why) => Decoded::Unreadable(why),
        }
    }
}

/// Returns `decoded` unchanged, or [`Unreadable::NoId`] if any of the event's IDs is implausible.
fn check_ids(decoded: Decoded<'_>) -> Decoded<'_> {
    match &decoded {
        Decoded::Event { received, .. } if !received.has_good_ids() => {
            Decoded::Unreadable(Unreadable::NoId)
        }
        _ => decoded,
    }
}

/// Strips the event socket's outer headers from a message, or returns `Err` if it has nothing to do
/// with a call, with [`Mark::LoggedIn`] if it's the response to a login.
fn without_frame(message: &[u8]) -> Result<&[u8], Option<Mark>> {
    if !message.starts_with(b"Content-") {
        return Ok(message);
    }
    let kind = value_of(message, b"Content-Type").unwrap_or_default();
    let body = end_of_block(message).map_or(message.len(), |(_, body)| body);
    let body = &message[body..];
    if kind.starts_with(b"text/event-") || body.first() == Some(&b'{') {
        return Ok(body);
    }
    let reply = value_of(message, b"Reply-Text").unwrap_or_default();
    if kind == b"command/reply" && reply.starts_with(b"+OK accepted") {
        return Err(Some(Mark::LoggedIn));
    }
    Err(None)
}

/// Returns `true` if the message reports an application that doesn't matter for calls, which means
/// that it contains none of the names in [`APPLICATIONS`].
fn is_needless_execute(message: &[u8]) -> bool {
    let begin = &message[..message.len().min(64)];
    if memmem::find(begin, b"CHANNEL_EXECUTE").is_none() {
        return false;
    }
    APPLICATIONS
        .into_iter()
        .all(|name| memmem::find(message, name.as_bytes()).is_none())
}
