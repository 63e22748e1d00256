//! JSON as a list of pairs, which preserves order and repeated keys and borrows texts without
//! escapes. A struct would reject repeated keys, and a map would keep only the last one.

use crate::event::Text;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// An object's members in order, including repeated keys.
pub type Members<'a> = Vec<(Text<'a>, Json<'a>)>;

/// A JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json<'a> {
    /// A text, a number or Boolean as written in JSON, or an empty text for null.
    Text(Text<'a>),
    /// An array's elements, in order.
    Array(Vec<Json<'a>>),
    /// An object's members, in order.
    Object(Members<'a>),
}

impl<'a> Json<'a> {
    /// Parses a JSON object, or returns `None` if the bytes aren't one.
    pub fn object(bytes: &'a [u8]) -> Option<Members<'a>> {
        match serde_json::from_slice(bytes) {
            Ok(Json::Object(members)) => Some(members),
            Ok(_) | Err(_) => None,
        }
    }

    /// Returns a scalar's text, which is empty for arrays and objects.
    #[inline]
    pub fn into_text(self) -> Text<'a> {
        match self {
            Self::Text(text) => text,
            Self::Array(_) | Self::Object(_) => Cow::Borrowed(""),
        }
    }

    /// Calls `take` with each text that AMI would write under the member's name.
    ///
    /// Each element of an array is a separate text, and each member of an object becomes a text of
    /// the form `name=value`, as in Wazo's `ChanVariable`.
    #[inline]
    pub fn into_texts(self, mut take: impl FnMut(Text<'a>)) {
        match self {
            Self::Text(text) => take(text),
            Self::Array(values) => {
                for value in values {
                    take(value.into_text());
                }
            }
            Self::Object(members) => {
                for (name, value) in members {
                    take(Cow::Owned(format!("{name}={}", value.into_text())));
                }
            }
        }
    }
}

impl<'de> Deserialize<'de> for Json<'de> {
    #[inline]
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueSeed(Whole))
    }
}

/// Builds a value directly from the bytes, without an intermediate representation.
pub trait ReadValue<'de>: Sized {
    /// The type of the result.
    type Value;

    /// Builds a value from a text. Numbers and Booleans are passed as written in JSON, and null as
    /// an empty text.
    fn text(self, text: Text<'de>) -> Self::Value;

    /// Builds a value from an array with these elements.
    fn array(self, elements: Vec<Json<'de>>) -> Self::Value;

    /// Builds a value from an object, reading its members from `map`.
    ///
    /// # Errors
    ///
    /// Returns any error that occurs while reading.
    fn object<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error>;
}

/// Builds a complete value as [`Json`].
pub struct Whole;

impl<'de> ReadValue<'de> for Whole {
    type Value = Json<'de>;

    #[inline]
    fn text(self, text: Text<'de>) -> Json<'de> {
        Json::Text(text)
    }

    fn array(self, elements: Vec<Json<'de>>) -> Json<'de> {
        Json::Array(elements)
    }

    fn object<A: MapAccess<'de>>(self, mut map: A) -> Result<Json<'de>, A::Error> {
        let mut members = Vec::with_capacity(8);
        while let Some(MemberName(key)) = map.next_key()? {
            members.push((key, map.next_value()?));
        }
        Ok(Json::Object(members))
    }
}

/// Deserializes a value using this builder.
pub struct ValueSeed<R>(pub R);

impl<'de, R: ReadValue<'de>> DeserializeSeed<'de> for ValueSeed<R> {
    type Value = R::Value;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<R::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, R: ReadValue<'de>> Visitor<'de> for ValueSeed<R> {
    type Value = R::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    #[inline]
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<R::Value, E> {
        Ok(self.0.text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<R::Value, E> {
        Ok(self.0.text(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<R::Value, E> {
        Ok(self.0.text(Cow::Borrowed("")))
    }

    fn visit_bool<E>(self, value: bool) -> Result<R::Value, E> {
        Ok(self.0.text(Cow::Owned(value.to_string())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<R::Value, E> {
        Ok(self.0.text(Cow::Owned(value.to_string())))
    }

    fn visit_i64<E>(self, value: i64) -> Result<R::Value, E> {
        Ok(self.0.text(Cow::Owned(value.to_string())))
    }

    fn visit_f64<E>(self, value: f64) -> Result<R::Value, E> {
        Ok(self.0.text(Cow::Owned(value.to_string())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<R::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element()? {
            elements.push(element);
        }
        Ok(self.0.array(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<R::Value, A::Error> {
        self.0.object(map)
    }
}

/// A member's name, borrowed if it doesn't contain any escapes.
#[derive(Deserialize)]
pub struct MemberName<'a>(#[serde(borrow)] pub Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_members_are_all_kept_in_order() {
        let members = Json::object(br#"{"A":"1","B":2,"A":"\u0041","C":null}"#).expect("object");
        let names: Vec<&str> = members.iter().map(|(name, _)| name.as_ref()).collect();
        assert_eq!(names, ["A", "B", "A", "C"]);
        assert!(matches!(&members[0].1, Json::Text(Cow::Borrowed("1"))));
        assert_eq!(members[1].1, Json::Text(Cow::Borrowed("2")));
        assert_eq!(members[2].1, Json::Text(Cow::Borrowed("A")));
    }

    #[test]
    fn nested_variables_become_repeated_pairs() {
        let members = Json::object(
            br#"{"Event":"Hangup","ChanVariable":{"LEAD_ID":"4001","N":5},"X":["a","b"]}"#,
        );
        let mut flat = Vec::new();
        for (key, value) in members.expect("object") {
            value.into_texts(|text| flat.push(format!("{key}: {text}")));
        }
        let expected = [
            "Event: Hangup",
            "ChanVariable: LEAD_ID=4001",
            "ChanVariable: N=5",
            "X: a",
            "X: b",
        ];
        assert_eq!(flat, expected);
    }
}
