//! Repairs broken JSON. amiws passes on invalid bytes, writes `\v`, removes a quote after an
//! incomplete character, and cuts off a frame if a value ends in the middle of a character.

use callbridge_call::json::{Json, Members};

/// Containers nested more deeply than this are cut off. No PBX nests more than three.
const DEPTH_MAX: usize = 32;

/// Buffer for the repaired copy of a message.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    bytes: Vec<u8>,
}

impl Scratch {
    /// Returns the members of the object in `message`, repaired if necessary, and whether the
    /// message had to be repaired, or `None` if there is no object.
    pub(crate) fn object<'a>(&'a mut self, message: &'a [u8]) -> Option<(Members<'a>, bool)> {
        if let Some(members) = Json::object(message) {
            return Some((members, false));
        }
        Json::object(self.repair(message).as_bytes()).map(|members| (members, true))
    }

    /// Returns the complete part of the object in `message` as JSON text, or an empty text if there
    /// is none.
    pub(crate) fn repair(&mut self, message: &[u8]) -> &str {
        self.bytes.clear();
        Repairer {
            bytes: message,
            next: 0,
            out: &mut self.bytes,
        }
        .run();
        std::str::from_utf8(&self.bytes).unwrap_or_default()
    }
}

/// What must come next in the JSON.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Key,
    Colon,
    Value,
    After,
}

struct Repairer<'m> {
    bytes: &'m [u8],
    next: usize,
    out: &'m mut Vec<u8>,
}

impl Repairer<'_> {
    /// Writes the complete part of the object and closes it.
    fn run(mut self) {
        let Some(start) = memchr::memchr(b'{', self.bytes) else {
            return;
        };
        self.next = start;
        let mut closers: Vec<u8> = Vec::new();
        // Up to this point, the output is complete except that its containers still need to be
        // closed.
        let mut whole = 0;
        let mut at = At::Value;
        while let Some(byte) = self.peek() {
            at = match (at, byte) {
                (At::Key, b'"') if self.string(true).is_some() => At::Colon,
                (At::Colon, b':') => self.copy(At::Value),
                (At::Value, b'{' | b'[') if closers.len() < DEPTH_MAX => {
                    closers.push(if byte == b'{' { b'}' } else { b']' });
                    self.copy(if byte == b'{' { At::Key } else { At::Value })
                }
                (At::Value, b'"') if self.string(false).is_some() => At::After,
                (At::Value, b'0'..=b'9' | b'-' | b't' | b'f' | b'n') => match self.scalar() {
                    Some(()) => At::After,
                    None => break,
                },
                (At::After, b',') => match closers.last() {
                    Some(b'}') => self.copy(At::Key),
                    _ => self.copy(At::Value),
                },
                (_, b'}' | b']') if closers.last() == Some(&byte) => {
                    self.out.truncate(whole);
                    closers.pop();
                    self.copy(At::After)
                }
                _ => break,
            };
            let opened = matches!(byte, b'{' | b'[') && at != At::After;
            if at == At::After || opened {
                whole = self.out.len();
            }
            if closers.is_empty() {
                break;
            }
        }
        self.out.truncate(whole);
        self.out.extend(closers.iter().rev());
    }

    /// Returns the next byte that isn't whitespace.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.bytes[self.next..];
        self.next += rest
            .iter()
            .take_while(|byte| byte.is_ascii_whitespace())
            .count();
        self.bytes.get(self.next).copied()
    }

    fn copy(&mut self, then: At) -> At {
        self.out.push(self.bytes[self.next]);
        self.next += 1;
        then
    }

    /// Writes a number, `true`, `false`, or `null`, returning `None` for anything else or if the
    /// message may have been cut off inside it.
    fn scalar(&mut self) -> Option<()> {
        let rest = &self.bytes[self.next..];
        let end = rest
            .iter()
            .position(|byte| matches!(byte, b',' | b'}' | b']' | b' '))?;
        serde_json::from_slice::<serde::de::IgnoredAny>(&rest[..end]).ok()?;
        self.out.extend_from_slice(&rest[..end]);
        self.next += end;
        Some(())
    }

    /// Writes a text including its quotes, returning `None` if the message ends inside the text.
    fn string(&mut self, is_key: bool) -> Option<()> {
        self.out.push(b'"');
        self.next += 1;
        loop {
            let rest = &self.bytes[self.next..];
            self.next += match *rest.first()? {
                b'"' if ends_text(&rest[1..], is_key) => {
                    self.out.push(b'"');
                    self.next += 1;
                    return Some(());
                }
                b'"' => {
                    self.out.extend_from_slice(b"\\\"");
                    1
                }
                b'\\' => escape(&rest[1..], self.out)? + 1,
                byte @ ..0x20 => {
                    self.out.extend(format!("\\u{byte:04x}").bytes());
                    1
                }
                0x80.. => {
                    let length = rest.iter().take_while(|byte| **byte >= 0x80).count();
                    let text = String::from_utf8_lossy(&rest[..length]);
                    self.out.extend_from_slice(text.as_bytes());
                    length
                }
                _ => {
                    let length = rest.iter().take_while(|byte| is_plain(**byte)).count();
                    self.out.extend_from_slice(&rest[..length]);
                    length
                }
            };
        }
    }
}

/// Returns `true` for a byte that doesn't need to be escaped in a JSON text.
const fn is_plain(byte: u8) -> bool {
    matches!(byte, 0x20..0x80) && byte != b'"' && byte != b'\\'
}

/// Returns `true` if a quote ends a text, judging by whether the next bytes can follow a text. Any
/// other quote is an unescaped part of the text after an incomplete character.
fn ends_text(after: &[u8], is_key: bool) -> bool {
    let after = after.trim_ascii_start();
    match after.first() {
        None => true,
        Some(b':') => is_key,
        Some(b'}' | b']') => !is_key,
        Some(b',') => {
            let beyond = after[1..].trim_ascii_start().first();
            !is_key
                && matches!(
                    beyond,
                    None | Some(b'"' | b'{' | b'[' | b'}' | b']' | b'0'..=b'9' | b'-')
                )
        }
        Some(_) => false,
    }
}

/// Writes the escape whose backslash precedes `rest`, and returns how many bytes of `rest` it takes
/// up, or `None` if the message ends inside it.
fn escape(rest: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    match *rest.first()? {
        byte @ (b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
            out.extend_from_slice(&[b'\\', byte]);
        }
        b'v' => out.extend_from_slice(b"\\u000b"),
        b'a' => out.extend_from_slice(b"\\u0007"),
        b'\'' => out.push(b'\''),
        b'u' => {
            let (text, length) = match (unit(rest), rest.get(5..).and_then(low_surrogate)) {
                (Some(0xD800..0xDC00), Some(_)) => (&rest[..11], 11),
                (Some(0xD800..0xE000), _) => (&b"ufffd"[..], 5),
                (Some(_), _) => (&rest[..5], 5),
                (None, _) => (&b"\\u"[..], 1),
            };
            out.push(b'\\');
            out.extend_from_slice(text);
            return Some(length);
        }
        // This isn't an escape, so the backslash is written literally, and the byte is read next.
        _ => {
            out.extend_from_slice(b"\\\\");
            return Some(0);
        }
    }
    Some(1)
}

/// Returns the number in an escape such as `u00e9`, or `None` if it doesn't have four hexadecimal
/// digits.
fn unit(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(b"u")?.get(..4)?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Returns the second half of a surrogate pair, which starts with a backslash.
fn low_surrogate(text: &[u8]) -> Option<u32> {
    unit(text.strip_prefix(b"\\")?).filter(|unit| (0xDC00..0xE000).contains(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repair_text(message: &[u8]) -> String {
        let mut out = Vec::new();
        Repairer {
            bytes: message,
            next: 0,
            out: &mut out,
        }
        .run();
        String::from_utf8(out).expect("mended text is UTF-8")
    }

    #[test]
    fn cut_frame_keeps_its_whole_pairs() {
        let whole = r#"{"type":3,"data":{"Event":"Hangup"}}"#;
        for cut in [
            r#"{"type":3,"data":{"Event":"Hangup""#,
            r#"{"type":3,"data":{"Event":"Hangup","#,
            r#"{"type":3,"data":{"Event":"Hangup","Chan"#,
            r#"{"type":3,"data":{"Event":"Hangup","Channel":"PJSIP/ci"#,
            r#"{"type":3,"data":{"Event":"Hangup","Channel":12"#,
            r#"{"type":3,"data":{"Event":"Hangup"}"#,
            r#"{"type":3,"data":{"Event":"Hangup",}} tail"#,
        ] {
            assert_eq!(repair_text(cut.as_bytes()), whole, "{cut}");
        }
    }

    #[test]
    fn invalid_bytes_and_escapes_are_repaired() {
        assert_eq!(repair_text(b"{\"a\":\"x\\vy\"}"), r#"{"a":"x\u000by"}"#);
        assert_eq!(
            repair_text(b"{\"a\":\"\xc0\xe7\"}"),
            "{\"a\":\"\u{fffd}\u{fffd}\"}"
        );
        assert_eq!(
            repair_text(b"{\"a\":\"\xd0\x90\xd0\"}"),
            "{\"a\":\"А\u{fffd}\"}"
        );
        assert_eq!(
            repair_text(b"{\"a\":\"\xd0\"b\",\"c\":\"d\"}"),
            "{\"a\":\"\u{fffd}\\\"b\",\"c\":\"d\"}"
        );
        assert_eq!(
            repair_text(b"{\"a\":\"\x01\\q\\'\"}"),
            r#"{"a":"\u0001\\q'"}"#
        );
        assert_eq!(
            repair_text(br#"{"a":"\ud83d\ude00\ud83d!"}"#),
            r#"{"a":"\ud83d\ude00\ufffd!"}"#
        );
    }

    #[test]
    fn input_without_a_json_object_is_not_repaired() {
        for none in [&b""[..], b"garbage", b"[1,2]", b"\"text\""] {
            assert!(Scratch::default().object(none).is_none(), "{none:?}");
        }
        assert!(
            Scratch::default()
                .object(b"}{")
                .is_some_and(|(members, _)| members.is_empty())
        );
    }
}
