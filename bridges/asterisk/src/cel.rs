//! Turns a channel event logging row in any format into a [`ChannelEvent`], and decodes
//! asterisk-cel-amqp messages.

use crate::cel_time::CelClock;
use crate::key::is;
use crate::repair::Scratch;
use crate::text::{JsonText, RawPairs, RawValue, epoch, number, text_or_empty};
use callbridge_call::event::{UNNAMED, WHO_ANSWERED};
use callbridge_call::json::{Json, Members};
use callbridge_call::{
    ChannelEvent, ChannelRef, ChannelState, Decoded, EventTime, Kind, Origin, Text, Unreadable,
};
use std::borrow::Cow;

/// The fields of a CEL event that matter for calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct CelRow<'a> {
    /// The absolute time that AMI adds to the row (`Timestamp`).
    pub at: Option<EventTime>,
    /// The event's name, such as `CHAN_START` or `HANGUP`.
    pub event: Text<'a>,
    /// The row's own time, in the format configured in `cel.conf`.
    pub time: Text<'a>,
    pub application: Text<'a>,
    pub app_data: Text<'a>,
    pub channel: ChannelRef<'a>,
    pub extra: Extra<'a>,
    /// The other channel's name. Before Asterisk 12, this is the only way in which a bridge is
    /// reported.
    pub peer: Text<'a>,
}

/// The `Extra` field, which is only parsed if the event needs it.
#[derive(Clone, Debug)]
pub(crate) enum Extra<'a> {
    Text(Text<'a>),
    Members(Members<'a>),
}

impl Default for Extra<'_> {
    fn default() -> Self {
        Self::Text(Cow::Borrowed(""))
    }
}

/// The members of `Extra` that are used in events.
#[derive(Default)]
struct ExtraFields<'a> {
    bridge: Text<'a>,
    technology: Text<'a>,
    cause: Option<u16>,
    /// Result of the last `Dial` or `Queue` run by the channel.
    dial_status: Text<'a>,
    /// Unique IDs of the other channels in the event.
    others: Vec<Text<'a>>,
}

impl<'a> CelRow<'a> {
    /// Creates a row from the pairs of AMI's `CEL` event.
    pub(crate) fn from_pairs(pairs: impl RawPairs<'a>, repaired: &mut bool) -> Self {
        let mut row = Self::default();
        for (key, value) in pairs {
            if let Some(field) = Field::from_ami_key(key.as_ref()) {
                row.set(field, value, repaired);
            }
        }
        row
    }

    pub(crate) fn set(&mut self, field: Field, value: impl RawValue<'a>, repaired: &mut bool) {
        let place = match field {
            Field::Timestamp => {
                self.at = epoch(value.as_ref());
                return;
            }
            Field::Extra => {
                self.extra = Extra::Text(text_or_empty(value, repaired));
                return;
            }
            Field::Event => &mut self.event,
            Field::Time => &mut self.time,
            Field::Number => &mut self.channel.caller_number,
            Field::Exten => &mut self.channel.exten,
            Field::Context => &mut self.channel.context,
            Field::Channel => &mut self.channel.name,
            Field::Application => &mut self.application,
            Field::AppData => &mut self.app_data,
            Field::Uniqueid => &mut self.channel.uniqueid,
            Field::Linkedid => &mut self.channel.linkedid,
            Field::Userfield => &mut self.channel.userfield,
            Field::Peer => &mut self.peer,
        };
        *place = text_or_empty(value, repaired);
    }

    /// Returns `true` if the row's peer is a different channel.
    fn has_other_peer(&self) -> bool {
        !self.peer.is_empty() && self.peer != self.channel.name
    }

    /// Turns the row into an event, whose kind is `Kind::Seen` if the row merely shows that the
    /// channel exists.
    pub(crate) fn into_event(self, clock: &mut CelClock) -> ChannelEvent<'a> {
        let starts = self.event == "CHAN_START";
        let at = self
            .at
            .or_else(|| clock.read_time(&self.time, &self.channel.uniqueid, starts));
        let has_other_peer = self.has_other_peer();
        let mut channel = self.channel;
        let kind = match self.event.as_bytes() {
            b"CHAN_START" => Kind::Born {
                state: ChannelState::Unknown,
            },
            b"ANSWER" => Kind::State {
                state: ChannelState::Up,
            },
            b"HANGUP" => {
                let fields = self.extra.fields();
                channel.dial_status = fields.dial_status;
                Kind::Hangup {
                    cause: fields.cause,
                }
            }
            b"CHAN_END" => Kind::Gone,
            b"LINKEDID_END" => Kind::LinkedidEnd,
            b"APP_START" => Kind::App {
                name: self.application.clone(),
                data: self.app_data.clone(),
            },
            name @ (b"BRIDGE_ENTER" | b"BRIDGE_EXIT") => {
                let enters = name == b"BRIDGE_ENTER";
                let peers = if enters { &self.peer } else { "" };
                let fields = self.extra.fields();
                if !enters && !fields.bridge.is_empty() {
                    channel.peers.clone_from(&self.peer);
                }
                let bridge = or_unnamed(fields.bridge, &self.application, &self.app_data, peers);
                Kind::enter_or_leave(enters, bridge, fields.technology)
            }
            // Before Asterisk 12, the channel that picks up the call takes over the unique ID of
            // the phone that was ringing. The bridge may be reported before the unique ID changes.
            b"PICKUP" if !self.extra.is_given() && has_other_peer => Kind::Renamed {
                to: self.peer,
                holder: Text::default(),
            },
            // Before Asterisk 12, for a REFER transfer while the other phone is ringing, `Extra` is
            // the transferred call's linkedid.
            b"ATTENDEDTRANSFER" if self.peer.is_empty() && self.extra.plain().is_some() => {
                let call = self.extra.plain().cloned().unwrap_or_default();
                Kind::Transfers { call }
            }
            b"PICKUP"
            | b"ATTENDEDTRANSFER"
            | b"BLINDTRANSFER"
            | b"LOCAL_OPTIMIZE"
            | b"LOCAL_OPTIMIZE_BEGIN" => {
                let mut with = self.extra.fields().others;
                // Before Asterisk 12, only the other channel's name is reported.
                if with.is_empty() && has_other_peer {
                    with.push(self.peer);
                }
                with.retain(|id| *id != channel.uniqueid);
                if with.is_empty() {
                    Kind::Seen
                } else {
                    Kind::Joined { with }
                }
            }
            event => old_bridge_kind(event, &self.peer, &self.app_data).unwrap_or(Kind::Seen),
        };
        channel.application = self.application;
        channel.app_data = self.app_data;
        ChannelEvent::new(at, Origin::Cel, channel, kind)
    }

    /// Turns the row into an event. A row without a channel is unreadable.
    pub(crate) fn into_decoded(self, clock: &mut CelClock, repaired: bool) -> Decoded<'a> {
        let event = self.into_event(clock);
        if !event.channel.is_named() {
            return Decoded::Unreadable(Unreadable::NoChannel);
        }
        Decoded::from_event(Ok(callbridge_call::PbxEvent::Channel(event)), repaired)
    }
}

/// Decodes an asterisk-cel-amqp message. The module misspells a member (`peer_acount`), but it
/// doesn't matter for calls. `extra` is either an object or a text that contains one.
pub(crate) fn decode_amqp<'a>(
    body: &'a [u8],
    scratch: &'a mut Scratch,
    clock: &mut CelClock,
) -> Decoded<'a> {
    let Some((members, repaired)) = scratch.object(body) else {
        return Decoded::Unreadable(Unreadable::NotJson);
    };
    let row = row_from_members(members);
    if row.event.is_empty() {
        return Decoded::Unreadable(Unreadable::NoEvent);
    }
    row.into_decoded(clock, repaired)
}

fn row_from_members(members: Members<'_>) -> CelRow<'_> {
    let mut row = CelRow::default();
    let mut repaired = false;
    for (name, value) in members {
        match (Field::from_name(&name), value) {
            (None, Json::Object(caller)) if name.eq_ignore_ascii_case("caller_id") => {
                let number = caller.into_iter().find(|(name, _)| name == "num");
                if let Some((_, number)) = number {
                    row.set(Field::Number, JsonText(number.into_text()), &mut repaired);
                }
            }
            (None, _) => {}
            (Some(Field::Extra), Json::Object(members)) => row.extra = Extra::Members(members),
            (Some(field), value) => row.set(field, JsonText(value.into_text()), &mut repaired),
        }
    }
    row
}

/// Returns the meaning of a bridge or conference row in CEL before Asterisk 12, or `None` for any
/// other row.
fn old_bridge_kind<'a>(event: &[u8], peer: &Text<'a>, app_data: &str) -> Option<Kind<'a>> {
    Some(match event {
        b"BRIDGE_START" | b"BRIDGE_UPDATE" if !peer.is_empty() => Kind::Linked {
            with: channel_named(peer),
        },
        b"BRIDGE_END" if !peer.is_empty() => Kind::Unlinked {
            with: channel_named(peer),
        },
        b"BRIDGE_START" | b"BRIDGE_END" => {
            let bridge = Cow::Owned(format!("{UNNAMED}{WHO_ANSWERED}"));
            Kind::enter_or_leave(event == b"BRIDGE_START", bridge, Text::default())
        }
        b"CONF_ENTER" | b"CONF_EXIT" if !app_data.is_empty() => {
            let technology = Cow::Borrowed("softmix");
            Kind::enter_or_leave(event == b"CONF_ENTER", room(app_data), technology)
        }
        _ => return None,
    })
}

fn channel_named<'a>(name: &Text<'a>) -> Box<ChannelRef<'a>> {
    Box::new(ChannelRef {
        name: name.clone(),
        ..ChannelRef::default()
    })
}

/// Returns `bridge`, which is the ID in `Extra`, or generates an ID if it's empty. A conference is
/// then identified by its name, and any other bridge by `peers`, the channels that are already in
/// it.
fn or_unnamed<'a>(bridge: Text<'a>, application: &str, data: &str, peers: &str) -> Text<'a> {
    if !bridge.is_empty() {
        return bridge;
    }
    match application {
        "ConfBridge" | "MeetMe" if !data.is_empty() => room(data),
        _ => Cow::Owned(format!("{UNNAMED}{peers}")),
    }
}

/// Returns the conference ID for the data of `MeetMe` or `ConfBridge`, which is the same as in AMI
/// 1.x events.
fn room<'a>(app_data: &str) -> Text<'a> {
    let name = app_data.split([',', '|']).next().unwrap_or_default();
    Cow::Owned(format!("room {name}"))
}

/// A row's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Timestamp,
    Event,
    Time,
    Number,
    Exten,
    Context,
    Channel,
    Application,
    AppData,
    Uniqueid,
    Linkedid,
    Userfield,
    Extra,
    Peer,
}

impl Field {
    /// Returns the field with this name in the mapping, in AMI, or in a database table, such as
    /// `${CHANNEL(channame)}`, `${CSV_QUOTE(${eventtype})}`, `Channel`, or `channame`.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let lower = name.trim().to_lowercase();
        let unquoted = lower.trim_matches(|c| matches!(c, '"' | '`' | '\'' | ' '));
        let argument = unquoted
            .strip_prefix("${csv_quote(")
            .and_then(|rest| rest.strip_suffix(")}"))
            .unwrap_or(unquoted);
        let variable = argument
            .strip_prefix("${")
            .unwrap_or(argument)
            .trim_end_matches('}');
        let column = match variable.strip_prefix("channel(") {
            Some(rest) => rest.trim_end_matches(')'),
            None => variable,
        };
        Some(match column {
            "eventtype" | "event_type" | "event" | "eventname" | "event_name" => Self::Event,
            "eventtime" | "event_time" | "time" => Self::Time,
            "callerid(num)" | "cid_num" | "cidnum" | "calleridnum" | "callerid_num" => Self::Number,
            "exten" | "extension" => Self::Exten,
            "context" => Self::Context,
            "channame" | "chan_name" | "channel_name" | "channel" => Self::Channel,
            "appname" | "app_name" | "application" | "app" => Self::Application,
            "appdata" | "app_data" | "applicationdata" => Self::AppData,
            "uniqueid" | "unique_id" => Self::Uniqueid,
            "linkedid" | "linked_id" => Self::Linkedid,
            "userfield" | "user_field" => Self::Userfield,
            "bridgepeer" | "peer" => Self::Peer,
            "eventextra" | "event_extra" | "extra" => Self::Extra,
            _ => return None,
        })
    }

    /// Returns the field with this AMI key, ignoring case.
    #[inline]
    fn from_ami_key(key: &[u8]) -> Option<Self> {
        Some(match key.len() {
            4 if is(key, b"Peer") => Self::Peer,
            5 if is(key, b"Exten") => Self::Exten,
            5 if is(key, b"Extra") => Self::Extra,
            7 if is(key, b"Channel") => Self::Channel,
            7 if is(key, b"Context") => Self::Context,
            7 if is(key, b"AppData") => Self::AppData,
            8 if is(key, b"UniqueID") => Self::Uniqueid,
            8 if is(key, b"LinkedID") => Self::Linkedid,
            9 if is(key, b"Timestamp") => Self::Timestamp,
            9 if is(key, b"EventName") => Self::Event,
            9 if is(key, b"EventTime") => Self::Time,
            9 if is(key, b"Userfield") => Self::Userfield,
            11 if is(key, b"CallerIDnum") => Self::Number,
            11 if is(key, b"Application") => Self::Application,
            _ => return None,
        })
    }
}

impl<'a> Extra<'a> {
    /// Returns `true` if the field is neither missing nor empty.
    fn is_given(&self) -> bool {
        !matches!(self, Self::Text(text) if text.is_empty())
    }

    /// Returns the field's text, which is empty if the field was parsed as an object.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Members(_) => "",
        }
    }

    /// Returns the field's text if it isn't a JSON object. Releases before Asterisk 12 write such
    /// texts.
    fn plain(&self) -> Option<&Text<'a>> {
        match self {
            Self::Text(text) if !text.is_empty() && !text.starts_with('{') => Some(text),
            Self::Text(_) | Self::Members(_) => None,
        }
    }

    fn fields(self) -> ExtraFields<'a> {
        match self {
            Self::Text(text) if text.is_empty() => ExtraFields::default(),
            Self::Text(text) if !text.starts_with('{') => ExtraFields::from_plain(&text),
            Self::Text(Cow::Borrowed(text)) => Json::object(text.as_bytes())
                .map(ExtraFields::from_members)
                .unwrap_or_default(),
            // The text was escaped inside JSON or CSV, so nothing can borrow from it.
            Self::Text(Cow::Owned(text)) => {
                let fields = Json::object(text.as_bytes()).map(ExtraFields::from_members);
                fields.unwrap_or_default().into_owned()
            }
            Self::Members(members) => ExtraFields::from_members(members),
        }
    }
}

impl<'a> ExtraFields<'a> {
    /// Parses the plain text in a `HANGUP` before Asterisk 12, which consists of the cause, the
    /// channel that hung up, and the result of the last `Dial`.
    fn from_plain(text: &str) -> Self {
        let mut parts = text.split(',');
        let cause = parts.next().and_then(|cause| number(cause.as_bytes()));
        let dial_status = parts.nth(1).unwrap_or_default().to_owned();
        Self {
            cause,
            dial_status: Cow::Owned(dial_status),
            ..Self::default()
        }
    }

    fn from_members(members: Members<'a>) -> Self {
        let mut fields = Self::default();
        for (name, value) in members {
            let value = value.into_text();
            match name.as_ref() {
                "bridge_id" => fields.bridge = value,
                "bridge_technology" => fields.technology = value,
                "hangupcause" => fields.cause = number(value.as_bytes()),
                "dialstatus" => fields.dial_status = value,
                "pickup_channel_uniqueid"
                | "channel2_uniqueid"
                | "transferee_channel_uniqueid"
                | "transfer_target_channel_uniqueid"
                | "local_two_id"
                    if !value.is_empty() =>
                {
                    fields.others.push(value);
                }
                _ => {}
            }
        }
        fields
    }

    fn into_owned<'b>(self) -> ExtraFields<'b> {
        ExtraFields {
            bridge: owned(self.bridge),
            technology: owned(self.technology),
            cause: self.cause,
            dial_status: owned(self.dial_status),
            others: self.others.into_iter().map(owned).collect(),
        }
    }
}

fn owned<'b>(text: Text<'_>) -> Text<'b> {
    Cow::Owned(text.into_owned())
}
