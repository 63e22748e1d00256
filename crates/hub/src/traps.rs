//! Recognizes bodies that hold calls, but not one per line in UTF-8. Given bytes that can't be
//! read, it returns the mistake and how to avoid it, for use in the error.

use callbridge_call::framing::without_byte_order_mark;
use serde::Deserialize as _;
use serde::de::IgnoredAny;
use serde_json::Deserializer;

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Returns why none of the body's lines can be a call, or `None` if each line must be read.
pub fn body_mistake(body: &[u8]) -> Option<&'static str> {
    if body.starts_with(&GZIP) {
        return Some("the body is compressed with gzip: send it uncompressed");
    }
    if is_utf_16(body) {
        return Some(
            "the body is in UTF-16: convert it to UTF-8, for example with iconv -f UTF-16 -t UTF-8",
        );
    }
    let text = without_byte_order_mark(body).trim_ascii_start();
    if text.starts_with(b"[") {
        return Some(
            "the body is a JSON array: send each call as a line of its own, for example with jq \
             -c '.[]'",
        );
    }
    if first_value_spans_lines(text) {
        return Some(
            "the message is spread over several lines: send each call on one line, for example \
             with jq -c .",
        );
    }
    None
}

/// Returns why this line isn't a call, if it's one of the usual mistakes.
pub fn line_mistake(line: &[u8]) -> Option<&'static str> {
    if std::str::from_utf8(line).is_err() {
        return Some(
            "the message is not UTF-8. If it's in a Windows code page, convert it, for example \
             with iconv -f CP1251 -t UTF-8",
        );
    }
    let mut values = Deserializer::from_slice(line).into_iter::<IgnoredAny>();
    let is_first_read = matches!(values.next(), Some(Ok(_)));
    let rest = line.get(values.byte_offset()..).unwrap_or_default();
    if is_first_read && rest.trim_ascii_start().starts_with(b"{") {
        return Some(
            "there are several messages on this line. curl -d @FILE removes the line ends: use \
             --data-binary @FILE",
        );
    }
    None
}

/// Returns `true` if the bytes start with a UTF-16 byte order mark, or with a NUL before or after a
/// brace, as JSON does in UTF-16.
fn is_utf_16(body: &[u8]) -> bool {
    matches!(
        body,
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, b'{', ..] | [b'{', 0, ..]
    )
}

/// Returns `true` if the body begins with a JSON object that ends on a later line.
fn first_value_spans_lines(text: &[u8]) -> bool {
    if !text.starts_with(b"{") {
        return false;
    }
    let mut reader = Deserializer::from_slice(text);
    let first_line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut line = Deserializer::from_slice(first_line);
    IgnoredAny::deserialize(&mut line).is_err() && IgnoredAny::deserialize(&mut reader).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str = r#"{"pbx":"a","id":"1","phone":"+998901110001"}"#;

    fn utf_16(text: &str, mark: bool) -> Vec<u8> {
        let marks = mark.then_some(0xfeff).into_iter();
        let units = marks.chain(text.encode_utf16());
        units.flat_map(u16::to_le_bytes).collect()
    }

    #[test]
    fn body_that_holds_no_lines_is_named() {
        let pretty = CALL.replace(',', ",\n  ");
        let big_endian: Vec<u8> = CALL.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for (body, mistake) in [
            (vec![0x1f, 0x8b, 8, 0, 1], "gzip"),
            (utf_16(CALL, true), "UTF-16"),
            (utf_16(CALL, false), "UTF-16"),
            (big_endian, "UTF-16"),
            (format!(" [{CALL},{CALL}]").into_bytes(), "array"),
            (pretty.clone().into_bytes(), "several lines"),
            (format!("{pretty}\n{pretty}").into_bytes(), "several lines"),
        ] {
            let named = body_mistake(&body).unwrap_or_default();
            assert!(named.contains(mistake), "{mistake}: {named}");
        }
    }

    #[test]
    fn body_of_lines_is_read_line_by_line() {
        for body in [
            CALL.to_owned(),
            format!("\n{CALL}\r\n{CALL}\n"),
            format!("{CALL}\n{{\"pbx\":"),
            "{\"pbx\":\nnot json".to_owned(),
            "not json".to_owned(),
            String::new(),
        ] {
            assert_eq!(body_mistake(body.as_bytes()), None, "{body}");
        }
    }

    #[test]
    fn line_with_several_messages_or_a_code_page_is_named() {
        let cyrillic = b"{\"name\":\"\xc8\xe2\xe0\xed\"}";
        assert!(line_mistake(cyrillic).is_some_and(|named| named.contains("CP1251")));
        for glued in [format!("{CALL}{CALL}"), format!("{CALL} {CALL}\r")] {
            let named = line_mistake(glued.as_bytes()).unwrap_or_default();
            assert!(named.contains("--data-binary"), "{glued}: {named}");
        }
        for other in [CALL, "not json", "{\"pbx\":", "{} garbage", ""] {
            assert_eq!(line_mistake(other.as_bytes()), None, "{other}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_examined_without_panic(body in proptest::collection::vec(0_u8.., 0..400)) {
            let _ = (body_mistake(&body), line_mistake(&body));
        }
    }
}
