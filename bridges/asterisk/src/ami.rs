//! Decodes AMI text by splitting a message's bytes into `Key: Value` pairs and turning the pairs
//! into an event. Both the pairs and the event borrow from the message.

use crate::cel_time::CelClock;
use crate::event;
use crate::text::{RawValue as _, same};
use callbridge_call::{Decoded, Mark, PbxEvent, Unreadable};
use memchr::{memchr2, memmem};

/// Decodes a message from the framer, without the empty line at its end.
pub(crate) fn decode<'a>(message: &'a [u8], clock: &mut CelClock) -> Decoded<'a> {
    let mut pairs = Pairs::new(message);
    let mut first = true;
    while let Some((key, value)) = pairs.next() {
        if same(key, b"Event") {
            let Some(rule) = event::rule(value) else {
                return Decoded::Skipped;
            };
            // The event's name usually comes first. If it doesn't, the pairs before it are read as
            // well.
            let pairs = if first { pairs } else { Pairs::new(message) };
            let mut repaired = false;
            let event = event::decode(rule, pairs, clock, &mut repaired).transpose();
            let decoded = event.map_or(Decoded::Skipped, |event| {
                Decoded::from_event(event, repaired)
            });
            return with_server(decoded, message);
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

/// Adds the name of the server that sent the message, which a proxy in front of several PBXs
/// (astmanproxy) includes in each event.
fn with_server<'a>(mut decoded: Decoded<'a>, message: &'a [u8]) -> Decoded<'a> {
    if let Decoded::Event { received, repaired } = &mut decoded
        && let Some(line) = memmem::find(message, b"\nServer:")
        && let Some((_, name)) = Pairs::new(&message[line + 1..]).next()
        && !name.is_empty()
    {
        received.server = Some(name.text(repaired));
    }
    decoded
}

/// Decodes a response. Only an accepted login becomes an event, and other responses are skipped.
fn response<'a>(value: &[u8], pairs: &Pairs<'_>) -> Decoded<'a> {
    if value == b"Success" && pairs.get("Message") == Some(b"Authentication accepted") {
        return Decoded::from_event(Ok(PbxEvent::Mark(Mark::LoggedIn)), false);
    }
    Decoded::Skipped
}

/// Returns `true` for a banner from any vendor, such as `Asterisk Call Manager/11.0.0`, which is a
/// line ending in `Call Manager/x.y.z`.
pub fn is_banner(line: &[u8]) -> bool {
    let line = line.trim_ascii_end();
    let Some(slash) = memchr::memrchr(b'/', line) else {
        return false;
    };
    let version = &line[slash + 1..];
    line[..slash].ends_with(b"Call Manager")
        && version.first().is_some_and(u8::is_ascii_digit)
        && (version.iter()).all(|byte| byte.is_ascii_digit() || *byte == b'.')
}

/// The pairs of one message, in order and including repeated keys. Lines without a colon (such as
/// the banner) are skipped. Keys and values are the original bytes, without the single space after
/// the colon and the newline.
#[derive(Clone, Debug)]
pub struct Pairs<'a> {
    rest: &'a [u8],
}

impl<'a> Pairs<'a> {
    /// Iterates over the pairs of `message`, which may be incomplete.
    pub const fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// Returns the first value of `key`, ignoring case.
    pub fn get(&self, key: &str) -> Option<&'a [u8]> {
        let mut pairs = self.clone();
        let pair = pairs.find(|(name, _)| name.eq_ignore_ascii_case(key.as_bytes()));
        pair.map(|(_, value)| value)
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let found = find(self.rest, b':', b'\n')?;
            if self.rest[found] == b'\n' {
                self.rest = &self.rest[found + 1..];
                continue;
            }
            let mut key = &self.rest[..found];
            let tail = &self.rest[found + 1..];
            let (mut value, rest) = match find(tail, b'\n', b'\n') {
                Some(end) => (&tail[..end], &tail[end + 1..]),
                None => (tail, &tail[tail.len()..]),
            };
            if key.len() > 12 && key[12] == b'(' {
                (key, value) =
                    split_after_parenthesis(&self.rest[..found + 1 + value.len()], found);
            }
            self.rest = rest;
            while let [head @ .., b'\r'] = value {
                value = head;
            }
            if let [b' ', tail @ ..] = value {
                value = tail;
            }
            return Some((key, value));
        }
    }
}

/// Number of eight-byte words that are searched one by one before switching to the vector search in
/// `memchr`. Keys and most values end within these words, and are too short for a vector search.
const WORDS: usize = 4;
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// Sets the highest bit of the first byte in `word` that's zero. The bits of later bytes may be set
/// by mistake.
#[inline]
const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

/// Sets the highest bit of the first byte in `word` that equals `byte`, like [`zeros`].
#[inline]
fn mark_byte(word: u64, byte: u8) -> u64 {
    zeros(word ^ ONES.wrapping_mul(u64::from(byte)))
}

/// Returns the index of the first byte that's `one` or `two`, which may be equal.
#[inline]
fn find(bytes: &[u8], one: u8, two: u8) -> Option<usize> {
    let mut at = 0;
    while let Some(word) = word(bytes, at) {
        let hits = mark_byte(word, one) | mark_byte(word, two);
        if hits != 0 {
            return Some(at + (hits.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    memchr2(one, two, &bytes[at..]).map(|found| at + found)
}

/// Returns the eight bytes at index `at`, or `None` after [`WORDS`] words or if fewer than eight
/// bytes are left.
#[inline]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    if at >= WORDS * 8 {
        return None;
    }
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word))
}

/// Splits `ChanVariable(SIP/10.0.0.1:5060-1): a=b`, where the key ends at the colon after the
/// parenthesis.
#[cold]
fn split_after_parenthesis(line: &[u8], colon: usize) -> (&[u8], &[u8]) {
    let at = memmem::find(line, b"):").map_or(colon, |parenthesis| parenthesis + 1);
    (&line[..at], &line[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(message: &str) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for (key, value) in Pairs::new(message.as_bytes()) {
            let key = String::from_utf8_lossy(key).into_owned();
            pairs.push((key, String::from_utf8_lossy(value).into_owned()));
        }
        pairs
    }

    fn expected(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|&(k, v)| (k.to_owned(), v.to_owned()))
            .collect()
    }

    #[test]
    fn repeated_keys_are_all_kept_in_order() {
        let message =
            "Event: Hangup\r\nChanVariable: LEAD_ID=4001\r\nChanVariable: EMPLOYEE_ID=\r\n";
        let all = [
            ("Event", "Hangup"),
            ("ChanVariable", "LEAD_ID=4001"),
            ("ChanVariable", "EMPLOYEE_ID="),
        ];
        assert_eq!(pairs(message), expected(&all));
    }

    #[test]
    fn lines_without_colon_are_skipped_and_odd_pairs_are_read() {
        let message = "Asterisk Call Manager/11.0.0\r\nEmpty: \r\nBare:\nA: b: c\nSpaced:  x \n\
                       no colon here\nChanVariable(SIP/10.0.0.1:5060-1): a=b\nLast: cut";
        let all = [
            ("Empty", ""),
            ("Bare", ""),
            ("A", "b: c"),
            ("Spaced", " x "),
            ("ChanVariable(SIP/10.0.0.1:5060-1)", "a=b"),
            ("Last", "cut"),
        ];
        assert_eq!(pairs(message), expected(&all));
    }

    #[test]
    fn key_lookup_ignores_case() {
        assert_eq!(
            Pairs::new(b"UniqueID: 1.2\n").get("Uniqueid"),
            Some(&b"1.2"[..])
        );
        assert_eq!(Pairs::new(b"UniqueID: 1.2\n").get("Linkedid"), None);
    }
}
