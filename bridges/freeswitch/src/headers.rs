//! Looks single headers of an event up without reading all of it, in both of the socket's shapes:
//! `Key: Value` lines, and a JSON object.

use crate::block::value_of;
use memchr::memmem;

/// The value of a block's header, as it stands there.
pub(crate) fn header<'a>(block: &'a [u8], key: &str) -> Option<&'a [u8]> {
    value_of(block, key.as_bytes()).map(<[u8]>::trim_ascii)
}

/// The value of an event's header: text without escapes, as names, ids and counts are.
pub(crate) fn of_event<'a>(event: &'a [u8], key: &str) -> Option<&'a [u8]> {
    if !event.starts_with(b"{") {
        return header(event, key);
    }
    // A quote inside a value is escaped, so this is a key and nothing else; and the quote before
    // it tells `Event-Name` from `variable_Event-Name`.
    let quoted = format!("\"{key}\":");
    let at = memmem::find(event, quoted.as_bytes())? + quoted.len();
    let value = event[at..].trim_ascii_start().strip_prefix(b"\"")?;
    let end = memchr::memchr2(b'"', b'\\', value)?;
    (value[end] == b'"').then_some(&value[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_found_in_both_shapes_and_never_inside_another() {
        let plain = b"variable_Event-Name: A\nEvent-Name: HEARTBEAT\nSession-Count: 2\n";
        let json = br#"{"variable_Event-Name":"A","x":"\"Event-Name\":\"B\"",
            "Event-Name":"HEARTBEAT","Session-Count": "2"}"#;
        for event in [&plain[..], json] {
            assert_eq!(of_event(event, "Event-Name"), Some(&b"HEARTBEAT"[..]));
            assert_eq!(of_event(event, "Session-Count"), Some(&b"2"[..]));
            assert_eq!(of_event(event, "Unique-ID"), None);
        }
        assert_eq!(of_event(br#"{"Unique-ID":"a\"b"}"#, "Unique-ID"), None);
        assert_eq!(
            header(b"content-type: x/y\r\n", "Content-Type"),
            Some(&b"x/y"[..])
        );
    }
}
