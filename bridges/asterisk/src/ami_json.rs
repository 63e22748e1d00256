//! Decodes AMI as JSON, which may be in amiws's envelope, one flat object per event, or a message
//! body from Wazo's bus.
//!
//! A frame is turned into pairs in a single pass over its bytes. Values that no rule reads are
//! skipped, and reading stops at the name of an event without a rule.

use crate::cel_time::CelClock;
use crate::event::{self, Rule, rule};
use crate::key::is_needless;
use crate::names::Names;
use crate::repair::Scratch;
use crate::text::{JsonText, same};
use callbridge_call::json::{Json, MemberName, ReadValue, ValueSeed, Whole};
use callbridge_call::{Decoded, Kind, Mark, Origin, PbxEvent, ServerEvent, Text, Unreadable};
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess};
use std::borrow::Cow;

/// What later frames need to know from a connection's earlier ones.
#[derive(Debug, Default)]
pub(crate) struct FrameContext {
    names: Names,
    /// Whether the connection carries AMI's channel events, as opposed to CEL alone.
    channel_events: bool,
}

/// Decodes one frame. With `of_bus`, it must be in an envelope from Wazo's bus.
pub(crate) fn decode<'a>(
    frame: &'a [u8],
    of_bus: bool,
    scratch: &'a mut Scratch,
    memory: &mut FrameContext,
    clock: &mut CelClock,
) -> Decoded<'a> {
    let (collected, mut repaired) = match std::str::from_utf8(frame).ok().and_then(Collected::read)
    {
        Some(whole) => (whole, false),
        None => match Collected::read(scratch.repair(frame)) {
            Some(repaired) => (repaired, true),
            None => return Decoded::Unreadable(Unreadable::NotJson),
        },
    };
    if of_bus && !collected.is_of_bus() {
        return Decoded::Unreadable(Unreadable::NoEvent);
    }
    let Collected {
        server,
        pairs,
        head,
        timestamp,
        ..
    } = collected;
    let cut = repaired;
    clock.set_server(server.as_deref());
    let event = match head {
        Head::Nothing => return Decoded::Unreadable(Unreadable::NoEvent),
        Head::Needless => return Decoded::Skipped,
        Head::Response if is_login(&pairs) => Ok(Some(PbxEvent::Mark(Mark::LoggedIn))),
        Head::Response => return Decoded::Skipped,
        Head::Event(rule) => {
            let pairs = pairs.into_iter().map(|(key, value)| (key, JsonText(value)));
            event::decode(rule, pairs, clock, &mut repaired)
        }
    };
    match event {
        Ok(None) => Decoded::Skipped,
        Ok(Some(mut event)) => {
            if let PbxEvent::Channel(event) = &mut event {
                if event.at.is_none() {
                    let born = matches!(event.kind, Kind::Born { .. });
                    event.at = clock.read_time(&timestamp, &event.channel.uniqueid, born);
                }
                memory.channel_events |= event.origin == Origin::Channel;
                memory.names.note(server.as_deref(), event, cut);
            }
            Decoded::Event {
                received: ServerEvent { server, event },
                repaired,
            }
        }
        // A truncated CEL row is skipped if the connection also carries channel events, because
        // those report the same facts.
        Err(Unreadable::NoChannel)
            if cut && head == Head::Event(Rule::Cel) && memory.channel_events =>
        {
            Decoded::Skipped
        }
        Err(why) => Decoded::Unreadable(why),
    }
}

/// Returns `true` for an accepted login, which is the only response that becomes an event.
fn is_login(pairs: &[(&str, Text<'_>)]) -> bool {
    has_pair(pairs, b"Response", "Success")
        && has_pair(pairs, b"Message", "Authentication accepted")
}

fn has_pair(pairs: &[(&str, Text<'_>)], name: &[u8], wanted: &str) -> bool {
    pairs
        .iter()
        .any(|(key, value)| same(key.as_bytes(), name) && value == wanted)
}

/// Initial capacity for a frame's keys and values, which is enough for a dial event.
const PAIRS: usize = 32;

/// The content of a frame that rules read.
#[derive(Debug, Default)]
struct Collected<'a> {
    pub server: Option<Text<'a>>,
    /// Keys and values as in AMI. An array becomes a repeated key. An object under `ChanVariable`
    /// (Wazo) contains the variables by name.
    pub pairs: Vec<(&'a str, Text<'a>)>,
    pub head: Head,
    /// Whether the message is in `data`, in which case the other members belong to the envelope.
    enveloped: bool,
    /// Whether the envelope is that of amiws, which includes the `type` of its message.
    of_gateway: bool,
    /// The envelope's `name`. On Wazo's bus, this is the event's name, which may be missing from
    /// `data`.
    pub name: Option<Text<'a>>,
    /// The envelope's `timestamp` member.
    pub timestamp: Text<'a>,
}

/// The kind of message in a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Head {
    /// The message doesn't specify an event or a response.
    #[default]
    Nothing,
    Event(Rule),
    /// An event that no rule reads. The rest of its pairs weren't read.
    Needless,
    Response,
}

impl Head {
    fn for_event(name: &str) -> Self {
        rule(name.as_bytes()).map_or(Self::Needless, Self::Event)
    }
}

impl<'a> Collected<'a> {
    /// Reads a frame, returning `None` if it isn't a JSON object.
    fn read(text: &'a str) -> Option<Self> {
        let mut collected = Self::default();
        let mut json = serde_json::Deserializer::from_str(text);
        let frame = Reading {
            to: &mut collected,
            key: "",
            part: Part::Frame,
        };
        let end = json
            .deserialize_map(ValueSeed(frame))
            .and_then(|()| json.end());
        if collected.head == Head::Nothing && collected.enveloped {
            collected.head = collected.head_of_name();
        }
        if end.is_ok() || collected.head == Head::Needless {
            Some(collected)
        } else {
            None
        }
    }

    /// Returns `true` for a message in an envelope from Wazo's bus.
    fn is_of_bus(&self) -> bool {
        let needless = self.head == Head::Needless && !self.of_gateway;
        self.enveloped && (self.name.is_some() || needless)
    }

    /// Returns the head for the envelope's `name`.
    fn head_of_name(&self) -> Head {
        match &self.name {
            Some(name) => Head::for_event(name),
            None => Head::Nothing,
        }
    }

    fn note_envelope_key(&mut self, key: &str) -> bool {
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
                self.head = Head::for_event(&value);
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

/// A part of the frame, which may be the whole frame, its `data` member, or another member.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Frame,
    Data,
    Member,
}

/// Reads one part of a frame. Members are read under their own key.
struct Reading<'c, 'a> {
    to: &'c mut Collected<'a>,
    key: &'a str,
    part: Part,
}

impl<'de> ReadValue<'de> for Reading<'_, 'de> {
    type Value = ();

    #[inline]
    fn text(self, text: Text<'de>) {
        self.to.take(self.key, text);
    }

    fn array(self, elements: Vec<Json<'de>>) {
        Json::Array(elements).into_texts(|text| self.to.take(self.key, text));
    }

    fn object<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { to, key, part } = self;
        if part == Part::Member {
            Whole.object(map)?.into_texts(|text| to.take(key, text));
            return Ok(());
        }
        let is_data = part == Part::Data;
        if is_data {
            // The members before `data` belong to the envelope.
            to.enveloped = true;
            to.pairs.clear();
            to.head = Head::Nothing;
            if to.head_of_name() == Head::Needless {
                to.head = Head::Needless;
                return Ok(());
            }
        }
        while let Some(MemberName(key)) = map.next_key()? {
            // AMI has no names with escapes, so such a member is skipped.
            let Cow::Borrowed(key) = key else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if !is_data && to.note_envelope_key(key) {
                to.envelope(key, map.next_value::<Json<'de>>()?.into_text());
            } else if is_needless(key.as_bytes()) || (to.enveloped && !is_data) {
                map.next_value::<IgnoredAny>()?;
            } else {
                let part = if !is_data && key == "data" {
                    Part::Data
                } else {
                    Part::Member
                };
                let to = &mut *to;
                map.next_value_seed(ValueSeed(Reading { to, key, part }))?;
            }
            if to.head == Head::Needless {
                return Err(A::Error::custom(""));
            }
        }
        Ok(())
    }
}
