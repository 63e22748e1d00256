//! One AMI-JSON frame to its pairs, with one pass over its bytes: values that no rule reads are
//! stepped over, and an event without a rule ends the reading at its name.

use crate::event::{Rule, rule};
use crate::json::{Json, MemberName};
use crate::key::is_needless;
use crate::text::same;
use callbridge_call::event::Text;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// Room for the pairs of a dial event.
const PAIRS: usize = 32;

/// What a frame holds.
#[derive(Debug, Default)]
pub(crate) struct Collected<'a> {
    pub server: Option<Text<'a>>,
    /// As AMI would write them: an array is a repeated key, an object under `ChanVariable`
    /// (Wazo) the variables by name.
    pub pairs: Vec<(&'a str, Text<'a>)>,
    pub head: Head,
    /// The message stands in `data`; what stands beside it is the envelope's.
    enveloped: bool,
    /// The envelope is amiws's: it says which `type` of message stands in it.
    of_gateway: bool,
    /// `name` of the envelope: on Wazo's bus the event's, which `data` may lack.
    pub name: Option<Text<'a>>,
    /// `timestamp` of the envelope.
    pub timestamp: Text<'a>,
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
        let whole = json.deserialize_map(Level {
            to: &mut collected,
            is_data: false,
        });
        let whole = whole.and_then(|()| json.end());
        if collected.head == Head::Nothing && collected.enveloped {
            collected.head = collected.named();
        }
        (whole.is_ok() || collected.head == Head::Needless).then_some(collected)
    }

    /// In the envelope of Wazo's bus.
    pub(crate) fn is_of_bus(&self) -> bool {
        let needless = self.head == Head::Needless && !self.of_gateway;
        self.enveloped && (self.name.is_some() || needless)
    }

    /// What the envelope's name says.
    fn named(&self) -> Head {
        let rule = |name: &Text<'_>| rule(name.as_bytes()).map_or(Head::Needless, Head::Event);
        self.name.as_ref().map_or(Head::Nothing, rule)
    }

    fn of_envelope(&mut self, key: &str) -> bool {
        self.of_gateway |= key == "type";
        matches!(key, "server_name" | "origin_uuid" | "name" | "timestamp")
    }

    fn envelope(&mut self, key: &str, value: Text<'a>) {
        match key {
            "name" => self.name = Some(value),
            "timestamp" => self.timestamp = value,
            _ => self.server = Some(value).filter(|name| !name.is_empty()),
        }
    }

    #[inline]
    fn take(&mut self, key: &'a str, value: Text<'a>) {
        if self.head == Head::Nothing {
            if same(key.as_bytes(), b"Event") {
                self.head = rule(value.as_bytes()).map_or(Head::Needless, Head::Event);
                return;
            }
            if same(key.as_bytes(), b"Response") {
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

impl<'de> Visitor<'de> for Level<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with an AMI message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(MemberName(key)) = map.next_key()? {
            // AMI has no name with an escape in it: such a one is nobody's.
            let Cow::Borrowed(key) = key else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if !self.is_data && self.to.of_envelope(key) {
                let value = map.next_value::<Json<'de>>()?;
                self.to.envelope(key, value.into_text());
            } else if is_needless(key.as_bytes()) || (self.to.enveloped && !self.is_data) {
                map.next_value::<IgnoredAny>()?;
            } else {
                let (to, is_envelope) = (&mut *self.to, !self.is_data && key == "data");
                map.next_value_seed(Value {
                    to,
                    key,
                    is_envelope,
                })?;
            }
            if self.to.head == Head::Needless {
                return Err(A::Error::custom(""));
            }
        }
        Ok(())
    }
}

/// The value of one member.
struct Value<'c, 'a> {
    to: &'c mut Collected<'a>,
    key: &'a str,
    is_envelope: bool,
}

impl Value<'_, '_> {
    fn scalar<E>(self, text: String) -> Result<(), E> {
        self.to.take(self.key, Cow::Owned(text));
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_, 'de> {
    type Value = ();

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of an AMI message")
    }

    #[inline]
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<(), E> {
        self.to.take(self.key, Cow::Borrowed(text));
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.scalar(text.to_owned())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.scalar(String::new())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.scalar(value.to_string())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.scalar(value.to_string())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.scalar(value.to_string())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.scalar(value.to_string())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(value) = seq.next_element::<Json<'de>>()? {
            self.to.take(self.key, value.into_text());
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if self.is_envelope {
            // What stood beside it is the envelope's.
            self.to.enveloped = true;
            self.to.pairs.clear();
            self.to.head = Head::Nothing;
            if self.to.named() == Head::Needless {
                self.to.head = Head::Needless;
                return Ok(());
            }
            let (to, is_data) = (self.to, true);
            return Level { to, is_data }.visit_map(map);
        }
        while let Some((name, value)) = map.next_entry::<Cow<'de, str>, Json<'de>>()? {
            let pair = format!("{name}={}", value.into_text());
            self.to.take(self.key, Cow::Owned(pair));
        }
        Ok(())
    }
}
