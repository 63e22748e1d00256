//! Converts bytes to text, which borrows from the bytes if possible. Bytes that aren't valid UTF-8
//! are replaced.

use callbridge_call::{EventTime, Text};
use std::borrow::Cow;

/// A value as represented in its format, i.e., bytes in AMI text and text in JSON.
pub(crate) trait RawValue<'a>: AsRef<[u8]> {
    /// Returns the value as text. Sets `repaired` if the bytes weren't valid UTF-8.
    fn text(self, repaired: &mut bool) -> Text<'a>;
}

/// A message's pairs, as represented in its format.
pub(crate) trait RawPairs<'a>:
    Iterator<Item = (<Self as RawPairs<'a>>::Key, <Self as RawPairs<'a>>::Value)>
{
    type Key: AsRef<[u8]>;
    type Value: RawValue<'a>;
}

impl<'a, K: AsRef<[u8]>, V: RawValue<'a>, I: Iterator<Item = (K, V)>> RawPairs<'a> for I {
    type Key = K;
    type Value = V;
}

impl<'a> RawValue<'a> for &'a [u8] {
    fn text(self, repaired: &mut bool) -> Text<'a> {
        match std::str::from_utf8(self) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => {
                *repaired = true;
                String::from_utf8_lossy(self)
            }
        }
    }
}

/// A value in a JSON message.
pub(crate) struct JsonText<'a>(pub Text<'a>);

impl AsRef<[u8]> for JsonText<'_> {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl<'a> RawValue<'a> for JsonText<'a> {
    fn text(self, _mended: &mut bool) -> Text<'a> {
        self.0
    }
}

/// Compares keys, ignoring case, because what's `Uniqueid` in one event is `UniqueID` in the next.
#[inline]
pub(crate) fn same(key: &[u8], name: &[u8]) -> bool {
    key == name || key.eq_ignore_ascii_case(name)
}

/// Strips `prefix` from `key`, ignoring case, or returns `None` if the key doesn't start with it.
#[inline]
pub(crate) fn strip<'k>(key: &'k [u8], prefix: &[u8]) -> Option<&'k [u8]> {
    let (head, tail) = key.split_at_checked(prefix.len())?;
    // Most keys can be ruled out by their first letter.
    let may_be = prefix.first().map(|b| b | 0x20) == head.first().map(|b| b | 0x20);
    if may_be && same(head, prefix) {
        Some(tail)
    } else {
        None
    }
}

/// Returns the value without surrounding spaces, or an empty one if it's `<unknown>`, which is how
/// Asterisk marks missing values.
#[inline]
pub(crate) fn text_or_empty<'a>(value: impl RawValue<'a>, repaired: &mut bool) -> Text<'a> {
    match value.as_ref().trim_ascii() {
        b"" | b"<unknown>" => Cow::Borrowed(""),
        plain if plain.len() == value.as_ref().len() => value.text(repaired),
        _ => match value.text(repaired) {
            Cow::Borrowed(text) => Cow::Borrowed(text.trim_ascii()),
            Cow::Owned(text) => Cow::Owned(text.trim_ascii().to_owned()),
        },
    }
}

/// Undoes Asterisk's `ast_escape_c` (`\a \b \f \n \r \t \v \0 \\ \' \" \?`). A backslash before any
/// other character is kept.
pub(crate) fn unescape(text: Text<'_>) -> Text<'_> {
    if memchr::memchr(b'\\', text.as_bytes()).is_none() {
        return text;
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let next = chars.as_str().chars().next();
        if c == '\\'
            && let Some(escaped) = next.and_then(unescaped_char)
        {
            plain.push(escaped);
            chars.next();
        } else {
            plain.push(c);
        }
    }
    Cow::Owned(plain)
}

/// Decodes the escape consisting of a backslash and `escaped`, or returns `None` if that's not an
/// escape.
const fn unescaped_char(escaped: char) -> Option<char> {
    Some(match escaped {
        'a' => '\x07',
        'b' => '\x08',
        'f' => '\x0C',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0B',
        '0' => '\0',
        '\\' | '\'' | '"' | '?' => escaped,
        _ => return None,
    })
}

/// Parses a time such as `1795151005.623766`, in seconds since the epoch or a smaller unit.
/// Anything beyond six decimals is dropped.
pub(crate) fn epoch(text: &[u8]) -> Option<EventTime> {
    let mut whole = 0_i64;
    let mut micros = 0_i64;
    let mut decimals = 0_u32;
    let mut point = false;
    let text = text.trim_ascii();
    if !text.first()?.is_ascii_digit() {
        return None;
    }
    for &byte in text {
        match byte {
            b'0'..=b'9' if !point => {
                whole = (whole.checked_mul(10)?).checked_add(i64::from(byte - b'0'))?;
            }
            b'0'..=b'9' if decimals < 6 => {
                micros = micros * 10 + i64::from(byte - b'0');
                decimals += 1;
            }
            b'0'..=b'9' => {}
            b'.' if !point => point = true,
            _ => return None,
        }
    }
    micros *= 10_i64.pow(6 - decimals);
    Some(EventTime::from_epoch(whole, micros))
}

/// Parses a whole number, if the value is one.
pub(crate) fn number<N: std::str::FromStr>(value: &[u8]) -> Option<N> {
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

/// Adds a variable given as `LEAD_ID=4001`. Empty values are skipped.
pub(crate) fn add_variable<'a>(variables: &mut Vec<(Text<'a>, Text<'a>)>, pair: Text<'a>) {
    let bytes = pair.as_bytes();
    let Some(equals) = memchr::memchr(b'=', bytes) else {
        return;
    };
    if equals == 0 || equals + 1 == bytes.len() {
        return;
    }
    let (name, value) = match pair {
        Cow::Borrowed(text) => (Cow::from(&text[..equals]), Cow::from(&text[equals + 1..])),
        Cow::Owned(mut text) => {
            let value = text.split_off(equals + 1);
            text.pop();
            (Cow::Owned(text), Cow::Owned(value))
        }
    };
    variables.push((name, unescape(value)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(text: &str) -> Option<i64> {
        epoch(text.as_bytes()).map(EventTime::micros)
    }

    #[test]
    fn timestamp_keeps_every_microsecond() {
        assert_eq!(micros("1795151317.831530"), Some(1_795_151_317_831_530));
        assert_eq!(micros("1795151317.000001"), Some(1_795_151_317_000_001));
        assert_eq!(micros("1795151317"), Some(1_795_151_317_000_000));
        assert_eq!(micros("1795151317.5"), Some(1_795_151_317_500_000));
        assert_eq!(micros("1795151317.1234567"), Some(1_795_151_317_123_456));
        assert_eq!(micros(" 1795151317.5 "), Some(1_795_151_317_500_000));
        for none in [
            "",
            ".5",
            "-1",
            "1.2.3",
            "2026-11-20",
            "99999999999999999999",
        ] {
            assert_eq!(micros(none), None, "{none}");
        }
    }

    #[test]
    fn epoch_in_a_smaller_unit_is_recognized_by_its_size() {
        for text in [
            "1795151317.831",
            "1795151317831",
            "1795151317831.0",
            "1795151317831000",
            "1795151317831000000",
        ] {
            assert_eq!(micros(text), Some(1_795_151_317_831_000), "{text}");
        }
    }

    #[test]
    fn c_escapes_are_decoded_and_other_backslashes_kept() {
        assert_eq!(
            unescape(Cow::Borrowed(r"O\'Neil \\ a\nb\v\?")),
            "O'Neil \\ a\nb\x0B?"
        );
        assert_eq!(unescape(Cow::Borrowed(r"C:\dir\")), r"C:\dir\");
        assert!(matches!(
            unescape(Cow::Borrowed("plain")),
            Cow::Borrowed("plain")
        ));
    }

    #[test]
    fn windows_1251_is_read_lossily_and_marked_as_repaired() {
        let mut repaired = false;
        assert_eq!(
            text_or_empty(&b"\xc0\xe7\xe8\xe7\xe0"[..], &mut repaired),
            "\u{fffd}".repeat(5)
        );
        assert!(repaired);
        repaired = false;
        assert_eq!(text_or_empty(&b"<unknown>"[..], &mut repaired), "");
        assert_eq!(text_or_empty(&b" <unknown> "[..], &mut repaired), "");
        assert_eq!(
            text_or_empty(&b"  ANSWERED "[..], &mut repaired),
            "ANSWERED"
        );
        assert!(!repaired);
    }
}
