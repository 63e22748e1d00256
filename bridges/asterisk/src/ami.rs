//! AMI text: a message's bytes to what it tells.

use crate::cel_time::CelClock;
use crate::event;
use crate::pairs::Pairs;
use crate::text::same;
use callbridge_call::{Decoded, Mark, PbxEvent, Unreadable};

/// Decodes a message as the framer gives it: without its closing empty line.
pub(crate) fn decode<'a>(message: &'a [u8], clock: &mut CelClock) -> Decoded<'a> {
    let mut pairs = Pairs::new(message);
    let mut first = true;
    while let Some((key, value)) = pairs.next() {
        if same(key, b"Event") {
            let Some(rule) = event::rule(value) else {
                return Decoded::Skipped;
            };
            // The name stands first; where it does not, the pairs before it are read as well.
            let pairs = if first { pairs } else { Pairs::new(message) };
            let mut repaired = false;
            let event = event::decode(rule, pairs, clock, &mut repaired).transpose();
            return event.map_or(Decoded::Skipped, |event| Decoded::of(event, repaired));
        }
        if same(key, b"Response") {
            return response(value, &Pairs::new(message));
        }
        first = false;
    }
    if is_banner(message) {
        Decoded::Skipped
    } else {
        Decoded::Unreadable(Unreadable::NoEvent)
    }
}

/// Decodes a response: an accepted login is the only one that says something about the stream.
fn response<'a>(value: &[u8], pairs: &Pairs<'_>) -> Decoded<'a> {
    if value == b"Success" && pairs.get("Message") == Some(b"Authentication accepted") {
        return Decoded::of(Ok(PbxEvent::Mark(Mark::LoggedIn)), false);
    }
    Decoded::Skipped
}

/// `Asterisk Call Manager/11.0.0` by whatever vendor: a line that ends in `Call Manager/x.y.z`.
pub fn is_banner(line: &[u8]) -> bool {
    let line = line.trim_ascii_end();
    let Some(slash) = memchr::memrchr(b'/', line) else {
        return false;
    };
    let version = &line[slash + 1..];
    line[..slash].ends_with(b"Call Manager")
        && version.first().is_some_and(u8::is_ascii_digit)
        && version
            .iter()
            .all(|byte| byte.is_ascii_digit() || *byte == b'.')
}
