//! Bytes to the fields of one object.

use crate::message::field::MessageField;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// The fields of a message that are known here; others are passed over.
pub(crate) type FieldValues = BTreeMap<MessageField, Value>;

/// What is wrong with the bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// They are no JSON object.
    NotAnObject,
    /// They are no JSON, for something in or after this field.
    At(MessageField),
    /// They are no JSON.
    NotJson,
    /// A field stands in it twice, and nobody can know which one counts.
    Twice(MessageField),
}

/// Reads one object.
pub(crate) fn fields(bytes: &[u8]) -> Result<FieldValues, Broken> {
    let object: Object = match serde_json::from_slice(bytes) {
        Ok(object) => object,
        Err(error) if error.is_data() => return Err(Broken::NotAnObject),
        Err(error) => {
            let until = offset(bytes, error.line(), error.column());
            let field = last_key(&bytes[..until]);
            return Err(field.map_or(Broken::NotJson, Broken::At));
        }
    };
    match object.twice {
        Some(field) => Err(Broken::Twice(field)),
        None => Ok(object.fields),
    }
}

#[derive(Default)]
struct Object {
    fields: FieldValues,
    twice: Option<MessageField>,
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Object;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
        let mut object = Object::default();
        while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            let Ok(field) = name.parse() else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = map.next_value::<Value>()?;
            if object.fields.insert(field, value).is_some() {
                object.twice.get_or_insert(field);
            }
        }
        Ok(object)
    }
}

/// Bytes before this place; serde counts lines and columns from 1.
fn offset(bytes: &[u8], line: usize, column: usize) -> usize {
    let before = bytes.split_inclusive(|byte| *byte == b'\n');
    let start: usize = before.take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    (start + column).min(bytes.len())
}

/// The last field of the outermost object whose name stands whole in `bytes`, so that what follows
/// it is what is wrong.
fn last_key(bytes: &[u8]) -> Option<MessageField> {
    let (mut depth, mut at, mut last) = (0_u32, 0, None);
    let mut text: Option<&[u8]> = None;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                let end = end_of_text(bytes, at + 1);
                text = bytes.get(at + 1..end);
                at = end;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b':' if depth == 1 => {
                let name = text.take().and_then(|it| std::str::from_utf8(it).ok());
                last = name.and_then(|name| name.parse().ok());
            }
            _ => {}
        }
        at += 1;
    }
    last
}

/// Where the quote stands that ends the text.
fn end_of_text(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_is_named_at_which_the_json_breaks_off() {
        for (text, wants) in [
            (
                r#"{"pbx":"a","durationSec":NaN}"#,
                Broken::At(MessageField::DurationSec),
            ),
            (
                r#"{"pbx":"a","talkSec":-Infinity,"id":"1"}"#,
                Broken::At(MessageField::TalkSec),
            ),
            (
                r#"{"startedAt":1e999}"#,
                Broken::At(MessageField::StartedAt),
            ),
            (
                "{\n\"pbx\":\"a\",\n \"id\":'1'}",
                Broken::At(MessageField::Id),
            ),
            (
                r#"{"variables":{"id":"x","pbx":"#,
                Broken::At(MessageField::Variables),
            ),
            (r#"{"pbx":"a\":"#, Broken::At(MessageField::Pbx)),
            (r#"{"colour":NaN}"#, Broken::NotJson),
            ("", Broken::NotJson),
            ("{", Broken::NotJson),
            ("[1]", Broken::NotAnObject),
            ("4", Broken::NotAnObject),
            (r#"{"id":"1","id":"2"}"#, Broken::Twice(MessageField::Id)),
        ] {
            assert_eq!(
                fields(text.as_bytes()).expect_err("broken"),
                wants,
                "{text}"
            );
        }
    }

    #[test]
    fn fields_that_nobody_knows_are_passed_over_whatever_they_hold() {
        let text = br#"{"x":[{"id":"no"}],"id":"1","X-Id":null,"x":2}"#;
        let read = fields(text).expect("an object");
        assert_eq!(read.into_keys().collect::<Vec<_>>(), [MessageField::Id]);
    }
}
