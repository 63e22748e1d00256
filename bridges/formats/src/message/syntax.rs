//! Bytes to the fields of one object.

use crate::message::field::MessageField;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// The fields of a message that are known here; others are passed over.
pub(crate) type FieldValues = BTreeMap<MessageField, Value>;

/// A fault of the bytes, before any field's value is read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The bytes are no JSON object.
    NotAnObject,
    /// The bytes are no JSON, for something in or after this field.
    At(MessageField),
    /// The bytes are no JSON, and no field is known to stand before the fault.
    NotJson,
    /// A field stands in it twice, and nobody can know which one counts.
    Twice(MessageField),
}

/// Reads one object, and keeps the fields that are known.
pub(crate) fn fields(bytes: &[u8]) -> Result<FieldValues, Broken> {
    let mut object = Object::default();
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let read = json.deserialize_map(&mut object);
    match (read.and_then(|()| json.end()), object.twice) {
        (Ok(()), None) => Ok(object.fields),
        (Ok(()), Some(field)) => Err(Broken::Twice(field)),
        (Err(error), _) if error.is_data() => Err(Broken::NotAnObject),
        (Err(_), _) => Err(object.last.map_or(Broken::NotJson, Broken::At)),
    }
}

#[derive(Default)]
struct Object {
    fields: FieldValues,
    twice: Option<MessageField>,
    /// The field whose name was read last, so that what follows it is what is wrong; `None` of a
    /// name that is no field's.
    last: Option<MessageField>,
}

impl<'de> Visitor<'de> for &mut Object {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            self.last = name.parse().ok();
            let Some(field) = self.last else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = map.next_value::<Value>()?;
            if self.fields.insert(field, value).is_some() {
                self.twice.get_or_insert(field);
            }
        }
        Ok(())
    }
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
