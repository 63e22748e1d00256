//! One AMI-JSON frame to its pairs, with one pass over its bytes: values that no rule reads are
//! stepped over, and an event without a rule ends the reading at its name.

use crate::event::{Rule, rule};
use crate::json::{Json, Members, Name};
use crate::key::is_needless;
use crate::text::same;
use callbridge_call::event::Text;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Room for the pairs of a channel event.
const PAIRS: usize = 16;

/// What a frame holds.
#[derive(Debug, Default)]
pub(crate) struct Collected<'a> {
    pub server: Option<Text<'a>>,
    pub pairs: Members<'a>,
    pub head: Head,
    /// The message stands in `data`; what stands beside it is the envelope's.
    enveloped: bool,
}

/// What the message is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Head {
    /// It names neither an event nor a response.
    #[default]
    Nothing,
    Event(Rule),
    /// An event that no rule reads: its other pairs were not looked at.
    Needless,
    Response,
}

impl<'a> Collected<'a> {
    /// Reads a frame; `None` if it is no JSON object.
    pub(crate) fn read(text: &'a str) -> Option<Self> {
        let mut collected = Self::default();
        let mut json = serde_json::Deserializer::from_str(text);
        let whole = Level {
            to: &mut collected,
            is_data: false,
        }
        .deserialize(&mut json)
        .and_then(|()| json.end());
        (whole.is_ok() || collected.head == Head::Needless).then_some(collected)
    }

    fn take(&mut self, key: Text<'a>, value: Json<'a>) {
        let name = key.as_bytes();
        if self.head == Head::Nothing {
            if same(name, b"Event") {
                let event = match &value {
                    Json::Text(text) => text.as_bytes(),
                    Json::Null | Json::Scalar(_) | Json::Array(_) | Json::Object(_) => b"",
                };
                self.head = rule(event).map_or(Head::Needless, Head::Event);
                return;
            }
            if same(name, b"Response") {
                self.head = Head::Response;
            }
        }
        if self.pairs.capacity() == 0 {
            self.pairs.reserve(PAIRS);
        }
        self.pairs.push((key, value));
    }
}

/// One object of the frame: the frame itself, or the envelope's `data`.
struct Level<'c, 'a> {
    to: &'c mut Collected<'a>,
    is_data: bool,
}

impl<'de> DeserializeSeed<'de> for Level<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with an AMI message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if self.is_data {
            // What stood beside it is the envelope's.
            self.to.enveloped = true;
            self.to.pairs.clear();
            self.to.head = Head::Nothing;
        }
        while let Some(Name(key)) = map.next_key()? {
            if !self.is_data && key == "data" {
                map.next_value_seed(Level {
                    to: self.to,
                    is_data: true,
                })?;
            } else if !self.is_data && key == "server_name" {
                let name = map.next_value::<Json<'de>>()?.into_text();
                self.to.server = Some(name).filter(|name| !name.is_empty());
            } else if is_needless(key.as_bytes()) || (self.to.enveloped && !self.is_data) {
                map.next_value::<IgnoredAny>()?;
            } else {
                self.to.take(key, map.next_value()?);
            }
            if self.to.head == Head::Needless {
                return Err(A::Error::custom(""));
            }
        }
        Ok(())
    }

    // An envelope whose `data` is no object holds no message.

    fn visit_str<E>(self, _text: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _value: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _value: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _value: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _value: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}
