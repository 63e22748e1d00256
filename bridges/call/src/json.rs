//! JSON as a list of pairs: order and repeated keys survive, texts are borrowed where they hold
//! no escape. A struct would refuse repeated keys, a map would keep only the last.

use crate::event::Text;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// Members of an object, in order, with every repeated key.
pub type Members<'a> = Vec<(Text<'a>, Json<'a>)>;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json<'a> {
    /// A text; a number or a boolean in the words of JSON; nothing of null.
    Text(Text<'a>),
    /// Its elements.
    Array(Vec<Json<'a>>),
    /// Its members.
    Object(Members<'a>),
}

impl<'a> Json<'a> {
    /// An object out of bytes; `None` if they are no JSON object.
    pub fn object(bytes: &'a [u8]) -> Option<Members<'a>> {
        match serde_json::from_slice(bytes) {
            Ok(Json::Object(members)) => Some(members),
            Ok(_) | Err(_) => None,
        }
    }

    /// A scalar's text; empty of arrays and objects.
    pub fn into_text(self) -> Text<'a> {
        match self {
            Self::Text(text) => text,
            Self::Array(_) | Self::Object(_) => Cow::Borrowed(""),
        }
    }

    /// The texts that AMI would write under the member's name: an array is a repeated key, an
    /// object under `ChanVariable` (Wazo) the variables by name.
    #[inline]
    pub fn into_texts(self, mut take: impl FnMut(Text<'a>)) {
        match self {
            Self::Array(values) => values.into_iter().for_each(|it| take(it.into_text())),
            Self::Object(members) => members.into_iter().for_each(|(name, value)| {
                take(Cow::Owned(format!("{name}={}", value.into_text())));
            }),
            plain => take(plain.into_text()),
        }
    }
}

impl<'de> Deserialize<'de> for Json<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor(MembersOf))
    }
}

/// What is made of an object's members.
pub trait OnObject<'de> {
    /// What stands for the object.
    ///
    /// # Errors
    /// Whatever ends the reading.
    fn read<A: MapAccess<'de>>(self, map: A) -> Result<Json<'de>, A::Error>;
}

/// All of them, kept.
struct MembersOf;

impl<'de> OnObject<'de> for MembersOf {
    fn read<A: MapAccess<'de>>(self, mut map: A) -> Result<Json<'de>, A::Error> {
        let mut members = Vec::with_capacity(8);
        while let Some(MemberName(key)) = map.next_key()? {
            members.push((key, map.next_value()?));
        }
        Ok(Json::Object(members))
    }
}

/// Reads a value.
pub struct JsonVisitor<O>(pub O);

impl<'de, O: OnObject<'de>> DeserializeSeed<'de> for JsonVisitor<O> {
    type Value = Json<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, O: OnObject<'de>> Visitor<'de> for JsonVisitor<O> {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    #[inline]
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Borrowed("")))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(value.to_string())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(value.to_string())))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(value.to_string())))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(value.to_string())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json<'de>, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element()? {
            values.push(value);
        }
        Ok(Json::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Json<'de>, A::Error> {
        self.0.read(map)
    }
}

/// A member's name, borrowed where it holds no escape.
#[derive(Deserialize)]
pub struct MemberName<'a>(#[serde(borrow)] pub Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_members_survive_in_order() {
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
