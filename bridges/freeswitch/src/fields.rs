//! Reads an event from a block or a JSON object, keeping only the headers that a rule needs and the
//! wanted variables.

use crate::block::{self, Pairs};
use crate::rule::{CONFERENCE, EVENTS, EventRule};
use callbridge_call::json::{Json, MemberName, ReadValue, ValueSeed};
use callbridge_call::{Text, Unreadable};
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

/// Prefix of a header that contains a channel variable.
const VARIABLE: &str = "variable_";
/// Maximum length of a variable name in bytes.
const VARIABLE_NAME_BYTES_MAX: usize = 80;

/// A header that's needed by at least one [`EventRule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    EventName,
    Subclass,
    CoreUuid,
    Switch,
    Timestamp,
    Sequence,
    UniqueId,
    ChannelName,
    Direction,
    PresenceId,
    CallUuid,
    Context,
    FirstCaller,
    Ani,
    Caller,
    Destination,
    Created,
    Answered,
    HungUp,
    Bridged,
    OtherType,
    OtherId,
    OtherName,
    BridgeA,
    BridgeB,
    Application,
    ApplicationData,
    Key,
    WhisperA,
    WhisperB,
    KeysCount,
    Cause,
    Action,
    Conference,
    Uptime,
    Sessions,
    GatewayDialed,
    GatewayIn,
    Profile,
    Network,
    NetworkPort,
    ToHost,
    Request,
    FromUser,
    UserName,
    AuthName,
    DialedUser,
    Agent,
    MemberSession,
    Originator,
    EnterpriseCaller,
    FifoCaller,
    OtherHalf,
    Q850,
    BridgeUuid,
    Transfers,
    Originated,
    RunsNow,
    MemberId,
    Recovered,
    Retries,
    RetrySleep,
    RetryPeriod,
}

const KEYS: usize = Header::RetryPeriod as usize + 1;

impl Header {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "Event-Name" => Self::EventName,
            "Event-Subclass" => Self::Subclass,
            "Core-UUID" => Self::CoreUuid,
            "FreeSWITCH-Switchname" => Self::Switch,
            "Event-Date-Timestamp" => Self::Timestamp,
            "Event-Sequence" => Self::Sequence,
            "Unique-ID" => Self::UniqueId,
            "Channel-Name" => Self::ChannelName,
            "Call-Direction" => Self::Direction,
            "Channel-Presence-ID" => Self::PresenceId,
            "Channel-Call-UUID" => Self::CallUuid,
            "Caller-Context" => Self::Context,
            "Caller-Orig-Caller-ID-Number" => Self::FirstCaller,
            "Caller-ANI" => Self::Ani,
            "Caller-Caller-ID-Number" => Self::Caller,
            "Caller-Destination-Number" => Self::Destination,
            "Caller-Channel-Created-Time" => Self::Created,
            "Caller-Channel-Answered-Time" => Self::Answered,
            "Caller-Channel-Hangup-Time" => Self::HungUp,
            "Caller-Channel-Bridged-Time" => Self::Bridged,
            "Other-Type" => Self::OtherType,
            "Other-Leg-Unique-ID" => Self::OtherId,
            "Other-Leg-Channel-Name" => Self::OtherName,
            "Bridge-A-Unique-ID" => Self::BridgeA,
            "Bridge-B-Unique-ID" => Self::BridgeB,
            "Application" => Self::Application,
            "Application-Data" => Self::ApplicationData,
            "DTMF-Digit" => Self::Key,
            "variable_eavesdrop_whisper_aleg" => Self::WhisperA,
            "variable_eavesdrop_whisper_bleg" => Self::WhisperB,
            "variable_eavesdrop_enable_dtmf" => Self::KeysCount,
            "Hangup-Cause" => Self::Cause,
            "Action" => Self::Action,
            "Conference-Unique-ID" => Self::Conference,
            "Uptime-msec" => Self::Uptime,
            "Session-Count" => Self::Sessions,
            "variable_sip_gateway_name" => Self::GatewayDialed,
            "variable_sip_gateway" => Self::GatewayIn,
            "variable_sofia_profile_name" => Self::Profile,
            "variable_sip_network_ip" => Self::Network,
            "variable_sip_network_port" => Self::NetworkPort,
            "variable_sip_to_host" => Self::ToHost,
            "variable_sip_req_uri" => Self::Request,
            "variable_sip_from_user" => Self::FromUser,
            "variable_user_name" => Self::UserName,
            "variable_sip_auth_username" => Self::AuthName,
            "variable_dialed_user" => Self::DialedUser,
            "variable_cc_agent" => Self::Agent,
            "variable_cc_member_session_uuid" => Self::MemberSession,
            "variable_originator" => Self::Originator,
            "variable_ent_originate_aleg_uuid" => Self::EnterpriseCaller,
            "variable_fifo_bridge_uuid" => Self::FifoCaller,
            "variable_other_loopback_leg_uuid" => Self::OtherHalf,
            "variable_hangup_cause_q850" => Self::Q850,
            "variable_bridge_uuid" => Self::BridgeUuid,
            "variable_transfer_history" => Self::Transfers,
            "variable_originated_legs" => Self::Originated,
            "variable_current_application" => Self::RunsNow,
            "variable_conference_member_id" => Self::MemberId,
            "variable_recovered" => Self::Recovered,
            "variable_originate_retries" => Self::Retries,
            "variable_originate_retry_sleep_ms" => Self::RetrySleep,
            "variable_originate_retry_min_period_ms" => Self::RetryPeriod,
            _ => return None,
        })
    }
}

/// The values of an event that callbridge needs.
#[derive(Debug)]
pub(crate) struct EventFields<'a> {
    values: [Text<'a>; KEYS],
    /// The channel variables used in the administrator's rules.
    pub(crate) variables: Vec<(Text<'a>, Text<'a>)>,
    pub(crate) rule: Option<EventRule>,
    /// Whether bytes that weren't valid UTF-8 had to be repaired.
    pub(crate) repaired: bool,
}

/// The result of reading an event, which is `None` if the event doesn't matter for calls.
pub(crate) type FieldsRead<'a> = Result<Option<Box<EventFields<'a>>>, Unreadable>;

/// Names of the variables to keep, or `None` to keep all of them.
pub(crate) type Wanted<'w> = Option<&'w BTreeSet<String>>;

impl<'a> EventFields<'a> {
    pub(crate) fn new() -> Self {
        Self {
            values: [const { Cow::Borrowed("") }; KEYS],
            variables: Vec::new(),
            rule: None,
            repaired: false,
        }
    }

    /// Returns a header's value, or an empty text if the event doesn't have that header.
    pub(crate) fn get(&self, key: Header) -> &str {
        &self.values[key as usize]
    }

    /// Takes a header's value, leaving an empty text in its place.
    pub(crate) fn take(&mut self, key: Header) -> Text<'a> {
        std::mem::take(&mut self.values[key as usize])
    }

    /// Sets a header's value, unless it already has one. The first value takes precedence, because
    /// if an event contains another one, its own headers come first.
    pub(crate) fn put(&mut self, key: Header, value: Text<'a>) {
        let place = &mut self.values[key as usize];
        if place.is_empty() {
            *place = value;
        }
    }

    /// Stores `value` as the header `known`, as the variable `variable`, or as both. Returns
    /// `false` if the event doesn't matter for calls, so that the rest of its headers needn't be
    /// read.
    fn take_in(
        &mut self,
        known: Option<Header>,
        variable: Option<Text<'a>>,
        value: Text<'a>,
    ) -> bool {
        let variable = if value.is_empty() { None } else { variable };
        let Some(known) = known else {
            self.variables.extend(variable.map(|name| (name, value)));
            return true;
        };
        self.variables
            .extend(variable.map(|name| (name, value.clone())));
        self.put(known, value);
        !matches!(known, Header::EventName | Header::Subclass) || self.goes_on()
    }

    /// Finds the event's rule by its name and subclass, returning `false` if the event doesn't
    /// matter for calls.
    fn goes_on(&mut self) -> bool {
        self.rule = match (self.get(Header::EventName), self.get(Header::Subclass)) {
            // It depends on the name or subclass, which hasn't been read yet.
            ("" | "CUSTOM", "") | ("", CONFERENCE) => return true,
            ("CUSTOM", CONFERENCE) => Some(EventRule::Conference),
            ("" | "CUSTOM", _) => None,
            (name, _) => {
                let found = EVENTS.iter().find(|(event, _)| *event == name);
                found.map(|(_, rule)| *rule)
            }
        };
        self.rule.is_some()
    }

    /// Returns the result once all headers have been read, which is the fields of an event with a
    /// rule, `None` for an event without one, or an error if this isn't an event.
    fn finish(self) -> FieldsRead<'a> {
        match (self.rule, self.get(Header::EventName)) {
            (Some(_), _) => Ok(Some(Box::new(self))),
            (None, "") => Err(Unreadable::NoEvent),
            (None, _) => Ok(None),
        }
    }
}

/// Returns the name of the variable in a header, or `None` if it's not a variable or not wanted.
fn variable<'k>(name: &'k str, wanted: Wanted<'_>) -> Option<&'k str> {
    let name = name.strip_prefix(VARIABLE)?;
    let is_wanted = wanted.is_none_or(|wanted| wanted.contains(name));
    if is_wanted && !name.is_empty() && name.len() <= VARIABLE_NAME_BYTES_MAX {
        Some(name)
    } else {
        None
    }
}

/// Reads a plain event, which is a block of headers with percent-encoded values.
pub(crate) fn read_block<'a>(block: &'a [u8], wanted: Wanted<'_>) -> FieldsRead<'a> {
    let mut fields = EventFields::new();
    for (key, value) in Pairs(block) {
        let Ok(key) = std::str::from_utf8(key) else {
            continue;
        };
        let known = Header::from_name(key);
        let variable = variable(key, wanted);
        if known.is_none() && variable.is_none() {
            continue;
        }
        let (text, repaired) = block::decode(value);
        fields.repaired |= repaired;
        if !fields.take_in(known, variable.map(Cow::Borrowed), text) {
            return Ok(None);
        }
    }
    fields.finish()
}

/// Reads an event in the form of a JSON object.
pub(crate) fn read_json<'a>(text: &'a str, wanted: Wanted<'_>) -> FieldsRead<'a> {
    let mut fields = EventFields::new();
    let mut needless = false;
    let mut json = serde_json::Deserializer::from_str(text);
    let read = json.deserialize_map(Members {
        fields: &mut fields,
        wanted,
        needless: &mut needless,
    });
    if needless {
        return Ok(None);
    }
    let whole = read.and_then(|()| json.end());
    whole.map_err(|_| Unreadable::NotJson)?;
    fields.finish()
}

struct Members<'f, 'a, 'w> {
    fields: &'f mut EventFields<'a>,
    wanted: Wanted<'w>,
    needless: &'f mut bool,
}

impl<'de> Visitor<'de> for Members<'_, 'de, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with an event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(MemberName(key)) = map.next_key()? {
            let known = Header::from_name(&key);
            let variable = variable(&key, self.wanted);
            if known.is_none() && variable.is_none() {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let text = map.next_value_seed(ValueSeed(AsText))?;
            let variable = variable.map(|name| match &key {
                Cow::Borrowed(key) => Cow::Borrowed(&key[VARIABLE.len()..]),
                Cow::Owned(_) => Cow::Owned(name.to_owned()),
            });
            if !self.fields.take_in(known, variable, text) {
                *self.needless = true;
                return Err(A::Error::custom(""));
            }
        }
        Ok(())
    }
}

/// Reads a JSON value as text. A list becomes `ARRAY::a|:b`, as in plain events, and an object
/// becomes an empty text.
struct AsText;

impl<'de> ReadValue<'de> for AsText {
    type Value = Text<'de>;

    #[inline]
    fn text(self, text: Text<'de>) -> Text<'de> {
        text
    }

    fn array(self, elements: Vec<Json<'de>>) -> Text<'de> {
        let texts = elements.into_iter().map(|element| match element {
            Json::Array(elements) => Self.array(elements),
            plain => plain.into_text(),
        });
        Cow::Owned(format!("ARRAY::{}", texts.collect::<Vec<_>>().join("|:")))
    }

    fn object<A: MapAccess<'de>>(self, mut map: A) -> Result<Text<'de>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Cow::Borrowed(""))
    }
}
