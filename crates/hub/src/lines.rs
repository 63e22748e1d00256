//! Reads the body of `POST /v1/calls`, which has one call message per line, returning the calls and
//! the lines that can't be read.

use crate::protocol::{LINES_MAX, RefusedLine};
use crate::traps::{body_mistake, line_mistake};
use callbridge_call::ReportedCall;
use callbridge_call::framing::without_byte_order_mark;
use callbridge_formats::message::{VERSION, read, version_problem};
use serde::Deserialize;

/// Maximum number of characters in a line's error, which doesn't repeat the message.
const ERROR_CHARS: usize = 1000;

/// The lines of a body.
#[derive(Debug, Default)]
pub struct Lines {
    pub calls: Vec<CallLine>,
    pub refused: Vec<RefusedLine>,
    /// Whether the body can't be split into lines, in which case it's refused as a whole.
    pub is_one: bool,
}

/// A line that holds a call.
#[derive(Debug)]
pub struct CallLine {
    /// The line number, starting at 1.
    pub line: usize,
    /// The line's length in bytes.
    pub bytes: usize,
    pub call: ReportedCall,
}

/// Why a body is refused as a whole, so that nothing in it is stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyRefusal {
    #[error("the body has more than {LINES_MAX} lines; send them in several requests")]
    TooManyLines,
    #[error("{0}")]
    UnknownVersion(String),
}

/// Reads all lines, counting but skipping empty ones.
///
/// # Errors
/// Returns an error if the body has too many lines, or if a message has a version unknown to this
/// hub.
pub fn read_lines(body: &[u8], content_type: Option<&str>) -> Result<Lines, BodyRefusal> {
    if let Some(problem) = content_type.and_then(version_problem) {
        return Err(BodyRefusal::UnknownVersion(problem));
    }
    let mut lines = Lines::default();
    if let Some(mistake) = body_mistake(body) {
        lines.refused.push(refuse_line(1, None, mistake));
        lines.is_one = true;
        return Ok(lines);
    }
    let mut messages = 0;
    for (at, bytes) in body.split(|byte| *byte == b'\n').enumerate() {
        let bytes = without_byte_order_mark(bytes);
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        messages += 1;
        if messages > LINES_MAX {
            return Err(BodyRefusal::TooManyLines);
        }
        let line = at + 1;
        match read(bytes, None) {
            Ok(call) => lines.calls.push(CallLine {
                line,
                bytes: bytes.len(),
                call,
            }),
            Err(wrong) if has_newer_version(bytes) => {
                return Err(BodyRefusal::UnknownVersion(wrong.message));
            }
            Err(wrong) => {
                let message = line_mistake(bytes).unwrap_or(&wrong.message);
                lines.refused.push(refuse_line(line, wrong.id, message));
            }
        }
    }
    Ok(lines)
}

/// Creates a line's refusal, cutting the error off at 1000 characters.
pub(crate) fn refuse_line(line: usize, id: Option<String>, error: &str) -> RefusedLine {
    RefusedLine {
        line,
        id,
        error: error.chars().take(ERROR_CHARS).collect(),
    }
}

/// Returns the bytes of the lines with these numbers, which must be in ascending order.
pub(crate) fn bytes_of_lines<'a>(body: &'a [u8], numbers: &[usize]) -> Vec<&'a [u8]> {
    let mut found = Vec::with_capacity(numbers.len());
    let mut numbers = numbers.iter().peekable();
    for (at, bytes) in body.split(|byte| *byte == b'\n').enumerate() {
        if numbers.next_if_eq(&&(at + 1)).is_some() {
            found.push(without_byte_order_mark(bytes).trim_ascii());
        }
    }
    found
}

#[derive(Deserialize)]
struct Versioned {
    version: Option<u64>,
}

fn has_newer_version(message: &[u8]) -> bool {
    let read = serde_json::from_slice::<Versioned>(message);
    read.is_ok_and(|message| message.version.is_some_and(|version| version > VERSION))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str = r#"{"pbx":"a","id":"1","direction":"INBOUND","phone":"+998901110001",
        "startedAt":1795151317,"durationSec":20,"answered":false}"#;

    fn call() -> String {
        CALL.replace("\n        ", "")
    }

    #[test]
    fn invalid_line_is_refused_with_its_number() {
        let body = format!("\u{feff}{}\n\nnot json\r\n{{\"id\":\"7\"}}\n", call());
        let lines = read_lines(body.as_bytes(), None).expect("read");
        assert_eq!(lines.calls.len(), 1);
        assert_eq!(lines.calls[0].line, 1);
        let refused: Vec<_> = (lines.refused.iter())
            .map(|refused| (refused.line, &refused.id))
            .collect();
        assert_eq!(refused, [(3, &None), (4, &Some("7".to_owned()))]);
    }

    #[test]
    fn body_that_is_no_list_of_lines_is_one_refusal() {
        let array = format!("[\n{},\n{}\n]", call(), call());
        let lines = read_lines(array.as_bytes(), None).expect("read");
        assert!(lines.is_one && lines.calls.is_empty());
        let [refused] = &lines.refused[..] else {
            panic!("{:?}", lines.refused);
        };
        assert!(refused.error.contains("array"), "{refused:?}");
        assert!(
            read_lines(CALL.as_bytes(), None).expect("read").is_one,
            "spread over lines"
        );
        let glued = format!("{}{}\n{}", call(), call(), call());
        let lines = read_lines(glued.as_bytes(), None).expect("read");
        assert_eq!((lines.calls.len(), lines.refused[0].line), (1, 1));
        assert!(lines.refused[0].error.contains("--data-binary"));
    }

    #[test]
    fn bytes_of_refused_lines_are_found_by_their_numbers() {
        let body = b"\xef\xbb\xbfone\r\n\ntwo\n three";
        let found = bytes_of_lines(body, &[1, 3, 4]);
        assert_eq!(found, [&b"one"[..], b"two", b"three"]);
        assert_eq!(bytes_of_lines(body, &[]), [] as [&[u8]; 0]);
    }

    #[test]
    fn body_with_a_line_of_unknown_version_is_refused() {
        let newer = call().replace("{\"pbx\"", "{\"version\":2,\"pbx\"");
        let body = format!("{}\n{newer}", call());
        let refusal = read_lines(body.as_bytes(), None).expect_err("a newer version");
        assert!(
            refusal.to_string().starts_with("version: it is 2"),
            "{refusal}"
        );
        let by_type = "application/vnd.callbridge.call+json; version=2";
        assert!(matches!(
            read_lines(call().as_bytes(), Some(by_type)),
            Err(BodyRefusal::UnknownVersion(_))
        ));
    }

    #[test]
    fn body_over_500_lines_is_refused() {
        let body = format!("{}\n", call()).repeat(LINES_MAX);
        assert_eq!(
            read_lines(body.as_bytes(), None).expect("read").calls.len(),
            LINES_MAX
        );
        let more = format!("{body}{}", call());
        let refusal = read_lines(more.as_bytes(), None).expect_err("too many");
        assert_eq!(refusal, BodyRefusal::TooManyLines);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(body in proptest::collection::vec(0_u8.., 0..400)) {
            let _ = read_lines(&body, None);
        }
    }
}
