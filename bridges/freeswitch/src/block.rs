//! Reads blocks of `Key: Value` lines, which the event socket uses for headers and plain events.
//!
//! It can also find a single header in a block or in a JSON event without reading the whole text.

use callbridge_call::Text;
use memchr::{memchr, memmem};
use std::borrow::Cow;

/// An iterator over a block's keys and values, up to the empty line that ends it. Lines without a
/// colon are skipped.
#[derive(Clone, Debug)]
pub(crate) struct Pairs<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.0.is_empty() {
                return None;
            }
            let (line, rest) = match memchr(b'\n', self.0) {
                Some(end) => (&self.0[..end], &self.0[end + 1..]),
                None => (self.0, &self.0[self.0.len()..]),
            };
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            self.0 = rest;
            if line.is_empty() {
                self.0 = &[];
                return None;
            }
            let Some(colon) = memchr(b':', line) else {
                continue;
            };
            let value = &line[colon + 1..];
            return Some((&line[..colon], value.strip_prefix(b" ").unwrap_or(value)));
        }
    }
}

/// Returns the value of the first pair whose key is `key`, ignoring ASCII case.
pub(crate) fn value_of<'a>(block: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let found = Pairs(block).find(|(name, _)| name.eq_ignore_ascii_case(key));
    found.map(|(_, value)| value)
}

/// Returns where the block's last line ends and the index just past the empty line, or `None` if
/// there's no empty line.
pub(crate) fn end_of_block(bytes: &[u8]) -> Option<(usize, usize)> {
    memmem::find(bytes, b"\n\n").map(|end| (end, end + 2))
}

/// Decodes a percent-encoded value, also returning whether the bytes weren't valid UTF-8 and had to
/// be repaired.
///
/// If the original value contains `%hh`, the switch sends it unchanged, so that is decoded as well.
pub(crate) fn decode(value: &[u8]) -> (Text<'_>, bool) {
    if memchr(b'%', value).is_none()
        && let Ok(text) = str::from_utf8(value)
    {
        return (Cow::Borrowed(text), false);
    }
    let mut plain = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = memchr(b'%', rest) {
        plain.extend_from_slice(&rest[..at]);
        if let Some(byte) = escaped_byte(&rest[at..]) {
            plain.push(byte);
            rest = &rest[at + 3..];
        } else {
            plain.push(b'%');
            rest = &rest[at + 1..];
        }
    }
    plain.extend_from_slice(rest);
    match String::from_utf8(plain) {
        Ok(text) => (Cow::Owned(text), false),
        Err(bad) => (
            String::from_utf8_lossy(bad.as_bytes()).into_owned().into(),
            true,
        ),
    }
}

/// Decodes the escape at the start of `text`, such as `%2B`.
fn escaped_byte(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = text else {
        return None;
    };
    let high = char::from(*high).to_digit(16)?;
    let low = char::from(*low).to_digit(16)?;
    u8::try_from(high * 16 + low).ok()
}

/// Decodes a percent-encoded text.
pub(crate) fn decoded_text(value: Text<'_>) -> Text<'_> {
    if value.contains('%') {
        Cow::Owned(decode(value.as_bytes()).0.into_owned())
    } else {
        value
    }
}

/// Returns the value of a header in a block, without decoding its percent-encoding.
pub(crate) fn header<'a>(block: &'a [u8], key: &str) -> Option<&'a [u8]> {
    value_of(block, key.as_bytes()).map(<[u8]>::trim_ascii)
}

/// Returns the value of a header in an event, which may be a block or a JSON object. This only
/// works for values without escapes, such as names, IDs, and counts.
pub(crate) fn header_of_event<'a>(event: &'a [u8], key: &str) -> Option<&'a [u8]> {
    if !event.starts_with(b"{") {
        return header(event, key);
    }
    // A quote inside a value would be escaped, so the quoted text must be a key. The quote in front
    // of it distinguishes `Event-Name` from `variable_Event-Name`.
    let quoted = format!("\"{key}\":");
    let at = memmem::find(event, quoted.as_bytes())? + quoted.len();
    let value = event[at..].trim_ascii_start().strip_prefix(b"\"")?;
    let end = memchr::memchr2(b'"', b'\\', value)?;
    if value[end] == b'"' {
        Some(&value[..end])
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(text: &str) -> Cow<'_, str> {
        decode(text.as_bytes()).0
    }

    #[test]
    fn values_are_percent_decoded_and_plain_text_is_kept() {
        assert!(matches!(plain("127.0.0.1"), Cow::Borrowed("127.0.0.1")));
        assert_eq!(
            plain("sofia/external/%2B998%40127.0.0.1"),
            "sofia/external/+998@127.0.0.1"
        );
        assert_eq!(plain("100%"), "100%");
        assert_eq!(plain("a%zz%4"), "a%zz%4");
        assert_eq!(plain("a%%41%"), "a%A%");
        assert_eq!(plain("%D0%90"), "А");
        assert_eq!(decode(b"%FF"), ("\u{fffd}".into(), true));
    }

    #[test]
    fn block_ends_at_its_empty_line() {
        let block = b"Content-Length: 12\nContent-Type: text/event-plain\n\nEvent-Name: X\n";
        assert_eq!(value_of(block, b"content-length"), Some(b"12".as_slice()));
        assert_eq!(value_of(block, b"Event-Name"), None);
        assert_eq!(Pairs(block).count(), 2);
    }

    proptest! {
        #[test]
        fn block_parser_never_panics_on_any_bytes(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let _ = decode(&bytes);
            prop_assert!(Pairs(&bytes).count() <= bytes.len());
        }
    }

    #[test]
    fn header_is_found_in_both_shapes_and_never_inside_another() {
        let plain = b"variable_Event-Name: A\nEvent-Name: HEARTBEAT\nSession-Count: 2\n";
        let json = br#"{"variable_Event-Name":"A","x":"\"Event-Name\":\"B\"",
            "Event-Name":"HEARTBEAT","Session-Count": "2"}"#;
        for event in [&plain[..], json] {
            assert_eq!(
                header_of_event(event, "Event-Name"),
                Some(&b"HEARTBEAT"[..])
            );
            assert_eq!(header_of_event(event, "Session-Count"), Some(&b"2"[..]));
            assert_eq!(header_of_event(event, "Unique-ID"), None);
        }
        assert_eq!(
            header_of_event(br#"{"Unique-ID":"a\"b"}"#, "Unique-ID"),
            None
        );
        assert_eq!(
            header(b"content-type: x/y\r\n", "Content-Type"),
            Some(&b"x/y"[..])
        );
    }
}
