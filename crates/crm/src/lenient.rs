//! A tolerant JSON parser, for which a broken value that isn't needed doesn't prevent the other
//! values from being read.
//!
//! serde_json rejects the whole body because of a single number that's too large for a float
//! (`1e400`), half a surrogate in a message, or a value nested more than 128 levels deep. However,
//! a call that was accepted mustn't be resent because of a broken field that doesn't matter.

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;

/// The keys of an envelope (§2.1) that may matter, including those used in undocumented forms.
const KEYS: [&str; 11] = [
    "data",
    "message",
    "error",
    "accept",
    "errors",
    "requestId",
    "status",
    "requestStatus",
    "state",
    "currentPage",
    "totalPages",
];

/// Parses an envelope's body.
///
/// # Errors
/// Returns an error if the body isn't JSON from its first byte to its last.
pub(super) fn read(body: &[u8]) -> Result<Value, String> {
    read_keys(body, &KEYS)
}

/// Parses a body. If an object is partly broken, only the values of these keys are read.
///
/// # Errors
/// Returns an error if the body isn't JSON from its first byte to its last.
pub fn read_keys(body: &[u8], keys: &[&'static str]) -> Result<Value, String> {
    // A byte-order mark is removed, and invalid UTF-8 becomes replacement characters.
    let bare = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let text = String::from_utf8_lossy(bare);
    if text.trim().is_empty() {
        return Err("the body is empty".to_owned());
    }
    match serde_json::from_str(&text) {
        Ok(value) => Ok(value),
        Err(error) => match pieces(&text, keys) {
            Some(map) if !map.is_empty() => Ok(Value::Object(map)),
            Some(_) | None => Err(format!("the body is not JSON: {error}")),
        },
    }
}

/// Reads those of `keys` whose values are readable. The result is empty if the text isn't an
/// object, and `None` if it isn't complete JSON.
fn pieces(text: &str, keys: &[&'static str]) -> Option<Map<String, Value>> {
    serde_json::from_str::<IgnoredAny>(text).ok()?;
    let mut found = Map::new();
    for key in keys {
        let read = serde_json::Deserializer::from_str(text).deserialize_map(One(key));
        if let Ok(Some(value)) = read {
            found.insert((*key).to_owned(), value);
        }
    }
    Some(found)
}

/// Reads the value of one key, skipping all other values.
struct One(&'static str);

impl<'de> Visitor<'de> for One {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            if key == self.0 {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn invalid_unused_value_leaves_the_body_readable() {
        let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
        for odd in ["1e400", "-1e999", "\"\\ud800\"", deep.as_str()] {
            let body = format!(r#"{{"debug":{odd},"requestId":"r1","accept":true}}"#);
            assert!(serde_json::from_str::<Value>(&body).is_err(), "{odd:.20}");
            let read = read(body.as_bytes()).expect("readable");
            assert_eq!(
                read,
                json!({"requestId": "r1", "accept": true}),
                "{odd:.20}"
            );
        }
    }

    #[test]
    fn byte_order_mark_and_invalid_utf8_are_tolerated() {
        let marked = b"\xef\xbb\xbf{\"accept\":true}";
        assert_eq!(read(marked), Ok(json!({"accept": true})));
        let foreign = read(b"{\"message\":\"\xcf\xf0\",\"requestId\":\"r\"}");
        assert_eq!(foreign.expect("readable")["requestId"], "r");
    }

    #[test]
    fn empty_or_truncated_body_is_not_json() {
        for body in [
            "",
            " \n",
            "{\"requestId\":\"r1\"",
            "<html>",
            "{\"a\":1e400",
            "nul",
        ] {
            let why = read(body.as_bytes()).expect_err(body);
            let empty = body.trim().is_empty();
            let message = if empty {
                "the body is empty"
            } else {
                "the body is not JSON: "
            };
            assert!(why.starts_with(message), "{body}: {why}");
        }
        assert!(read(b"[1e400]").is_err(), "no object");
    }
}
