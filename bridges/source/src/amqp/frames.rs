//! Removes anything from a broker's frames that callbridge doesn't need and that lapin (the AMQP
//! library) can't survive. Its input is a frame's payload, and its output is the payload for lapin.
//!
//! Any publisher can set a message's properties. Since lapin parses header tables recursively, a
//! deeply nested one would overflow its thread's stack and abort the process, and because the
//! message would stay in the queue, the same would happen at every startup after that. A text that
//! isn't UTF-8 would end the connection in the same way. callbridge only reads the content type, so
//! all other properties are dropped, as is the table in which a broker describes itself.

use std::io;

/// Maximum length of a frame in bytes, which is RabbitMQ's default. callbridge requests it from the
/// broker at login, and lapin reserves 32 times as much for each direction.
pub(super) const FRAME_BYTES_MAX: u32 = 128 << 10;

/// Number of bytes at the start of each frame: type, channel, and length.
pub(super) const HEAD: usize = 7;
/// Number of bytes at the start of a content header: class, weight, and the body's length.
pub(super) const CONTENT: usize = 12;
const FLAGS_END: usize = CONTENT + 2;

pub(super) const METHOD: u8 = 1;
pub(super) const BODY: u8 = 3;
pub(super) const HEARTBEAT: u8 = 8;

/// Flag of a content header that has a content type, which is always the first property.
const HAS_CONTENT_TYPE: u8 = 0x80;
/// Flag of a content header whose flags continue in the next two bytes.
const HAS_MORE_FLAGS: u8 = 1;

const CONNECTION_START: [u8; 4] = [0, 10, 0, 10];
const BASIC_RETURN: [u8; 4] = [0, 60, 0, 50];
const BASIC_DELIVER: [u8; 4] = [0, 60, 0, 60];
/// Methods with a table that only a client sends: start-ok, and those that declare, bind, and
/// consume.
const CLIENT_TABLES: [[u8; 4]; 8] = [
    [0, 10, 0, 11],
    [0, 40, 0, 10],
    [0, 40, 0, 30],
    [0, 40, 0, 40],
    [0, 50, 0, 10],
    [0, 50, 0, 20],
    [0, 50, 0, 50],
    [0, 60, 0, 20],
];

/// Returns an error if a frame of this kind is longer than agreed on at login. Content headers are
/// exempt, since they never reach lapin as a whole, and so are unknown kinds, which lapin rejects
/// itself.
pub(super) fn check_length(kind: u8, length: u32) -> io::Result<()> {
    let is_bounded = [METHOD, BODY, HEARTBEAT].contains(&kind);
    let frame = u64::from(length) + (HEAD + 1) as u64;
    if is_bounded && frame > u64::from(FRAME_BYTES_MAX) {
        return Err(fault(format!(
            "the broker sent a frame of {frame} bytes, but the maximum is {FRAME_BYTES_MAX}"
        )));
    }
    Ok(())
}

/// Returns a content header with the content type as its only property, or `None` if `begun`, which
/// is its start, isn't long enough for that yet. A content type that isn't UTF-8 is dropped too.
///
/// # Errors
/// Returns an error if a header of this length has no room for its own fields.
pub(super) fn keep_content_type(begun: &[u8], length: usize) -> io::Result<Option<Vec<u8>>> {
    if length < FLAGS_END {
        return Err(fault(format!(
            "the broker sent a content header of {length} bytes"
        )));
    }
    let Some((fixed, properties)) = begun.split_at_checked(FLAGS_END) else {
        return Ok(None);
    };
    let has_content_type =
        fixed[CONTENT] & HAS_CONTENT_TYPE != 0 && fixed[CONTENT + 1] & HAS_MORE_FLAGS == 0;
    let mut kept = fixed[..CONTENT].to_vec();
    if !has_content_type || length == FLAGS_END {
        kept.extend([0, 0]);
        return Ok(Some(kept));
    }
    let Some(&text_length) = properties.first() else {
        return Ok(None);
    };
    let end = 1 + usize::from(text_length);
    let is_whole = FLAGS_END + end <= length;
    if is_whole && properties.len() < end {
        return Ok(None);
    }
    if is_whole && std::str::from_utf8(&properties[1..end]).is_ok() {
        kept.extend([HAS_CONTENT_TYPE, 0]);
        kept.extend(&properties[..end]);
    } else {
        kept.extend([0, 0]);
    }
    Ok(Some(kept))
}

/// Modifies a method so that lapin can parse it. The table in Connection.Start is removed, and any
/// non-ASCII bytes in a delivery's exchange and routing key are replaced with question marks.
///
/// # Errors
/// Returns an error for a Connection.Start whose table is longer than the method itself, and for a
/// method with a table that no broker sends.
pub(super) fn clean_method(payload: &mut Vec<u8>) -> io::Result<()> {
    let Some(&method) = payload.first_chunk::<4>() else {
        return Ok(());
    };
    match method {
        CONNECTION_START => empty_server_properties(payload)?,
        // The consumer tag comes first, followed by the delivery tag and a flag.
        BASIC_DELIVER => replace_non_ascii(payload, |payload| 4 + short_text(payload, 4) + 9),
        // The reply code comes first, followed by its text.
        BASIC_RETURN => replace_non_ascii(payload, |payload| 6 + short_text(payload, 6)),
        _ if CLIENT_TABLES.contains(&method) => {
            return Err(fault(
                "the broker sent a method that only clients send".to_owned(),
            ));
        }
        _ => {}
    }
    Ok(())
}

/// Empties the table of Connection.Start, which follows the two bytes of the protocol version.
fn empty_server_properties(payload: &mut Vec<u8>) -> io::Result<()> {
    const LENGTH: usize = 6;
    let table = payload.get(LENGTH..).and_then(|rest| {
        let length = u32::from_be_bytes(*rest.first_chunk()?) as usize;
        (length <= rest.len() - 4).then_some(length)
    });
    let table = table.ok_or_else(|| fault("the broker's greeting is incomplete".to_owned()))?;
    payload.splice(LENGTH..LENGTH + 4 + table, [0; 4]);
    Ok(())
}

/// Returns how many bytes a short text takes up at this position, including its length.
fn short_text(payload: &[u8], at: usize) -> usize {
    1 + payload.get(at).copied().map_or(0, usize::from)
}

/// Replaces all non-ASCII bytes in the exchange and the routing key. The exchange starts at
/// `start`.
fn replace_non_ascii(payload: &mut [u8], start: impl Fn(&[u8]) -> usize) {
    let mut at = start(payload);
    for _ in 0..2 {
        let end = (at + short_text(payload, at)).min(payload.len());
        for byte in payload.get_mut(at + 1..end).unwrap_or_default() {
            if !byte.is_ascii() {
                *byte = b'?';
            }
        }
        at = end;
    }
}

fn fault(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(flags: [u8; 2], properties: &[u8]) -> Vec<u8> {
        let mut payload = vec![0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
        payload.extend(flags);
        payload.extend(properties);
        payload
    }

    /// Returns a table nested `depth` levels deep, including its length.
    fn nested_table(depth: usize) -> Vec<u8> {
        let mut table = Vec::new();
        for _ in 0..depth {
            let length = u32::try_from(table.len()).expect("short");
            let mut outer = vec![1, b'a', b'F'];
            outer.extend(length.to_be_bytes());
            outer.extend(table);
            table = outer;
        }
        let length = u32::try_from(table.len()).expect("short");
        let mut whole = length.to_be_bytes().to_vec();
        whole.extend(table);
        whole
    }

    fn kept(header: &[u8]) -> Option<Vec<u8>> {
        keep_content_type(header, header.len()).expect("a header")
    }

    #[test]
    fn content_type_is_the_only_property_that_is_kept() {
        let mut properties = b"\x04text\x04gzip".to_vec();
        properties.extend(nested_table(1_000));
        properties.extend([2, 9]);
        let wanted = header([0x80, 0], b"\x04text");
        assert_eq!(kept(&header([0xf8, 0], &properties)), Some(wanted));
        let wanted = header([0, 0], b"");
        assert_eq!(
            kept(&header([0x20, 0], &nested_table(1_000))),
            Some(wanted.clone())
        );
        assert_eq!(
            kept(&header([0x80, 0], b"\x02\xff\xfe")),
            Some(wanted.clone())
        );
        assert_eq!(kept(&header([0x80, 0], b"\x09text")), Some(wanted.clone()));
        assert_eq!(kept(&header([0x80, 0], b"")), Some(wanted.clone()));
        assert_eq!(kept(&header([0x80, 1], b"\x80\x00\x04text")), Some(wanted));
        assert!(keep_content_type(&[0; 13], 13).is_err());
    }

    #[test]
    fn greeting_loses_only_its_table() {
        let mut greeting = vec![0, 10, 0, 10, 0, 9];
        greeting.extend(nested_table(10_000));
        greeting.extend(b"\0\0\0\x05PLAIN\0\0\0\x05en_US");
        clean_method(&mut greeting).expect("a greeting");
        assert_eq!(
            greeting,
            b"\0\x0a\0\x0a\0\x09\0\0\0\0\0\0\0\x05PLAIN\0\0\0\x05en_US"
        );
        let error = clean_method(&mut vec![0, 10, 0, 10, 0, 9, 0, 0, 0, 1]).expect_err("too short");
        assert_eq!(error.to_string(), "the broker's greeting is incomplete");
    }

    #[test]
    fn delivery_keeps_all_but_bytes_that_are_not_ascii() {
        let mut delivery = b"\0\x3c\0\x3c\x03tag\0\0\0\0\0\0\0\xff\0\x02e\xe9\x03k\xffy".to_vec();
        clean_method(&mut delivery).expect("a delivery");
        assert_eq!(
            delivery,
            b"\0\x3c\0\x3c\x03tag\0\0\0\0\0\0\0\xff\0\x02e?\x03k?y"
        );
        let mut returned = b"\0\x3c\0\x32\x01\x38\x02no\x01e\x01\xff".to_vec();
        clean_method(&mut returned).expect("a return");
        assert_eq!(returned, b"\0\x3c\0\x32\x01\x38\x02no\x01e\x01?");
    }

    #[test]
    fn methods_of_clients_and_long_frames_are_refused() {
        let mut declare = vec![0, 50, 0, 10];
        declare.extend(nested_table(1_000));
        assert!(clean_method(&mut declare).is_err());
        for kind in [METHOD, BODY, HEARTBEAT] {
            assert!(check_length(kind, FRAME_BYTES_MAX - 8).is_ok());
            let error = check_length(kind, FRAME_BYTES_MAX - 7).expect_err("too long");
            let wanted = "the broker sent a frame of 131073 bytes, but the maximum is 131072";
            assert_eq!(error.to_string(), wanted);
        }
        // A content header, and the eight bytes sent by a broker that doesn't support the protocol
        // version.
        assert!(check_length(2, u32::MAX).is_ok());
        assert!(check_length(b'A', u32::MAX).is_ok());
    }

    proptest! {
        #[test]
        fn cleaning_never_panics_on_any_bytes(
            mut bytes in prop::collection::vec(any::<u8>(), 0..60),
            method in prop::sample::select(
                [&CLIENT_TABLES[..], &[CONNECTION_START, BASIC_DELIVER, BASIC_RETURN]].concat(),
            ),
            length in 0_usize..90,
        ) {
            if bytes.len() <= length {
                let _ = keep_content_type(&bytes, length);
            }
            bytes.splice(0..0, method);
            let before = bytes.len();
            let _ = clean_method(&mut bytes);
            prop_assert!(bytes.len() <= before);
        }
    }
}
