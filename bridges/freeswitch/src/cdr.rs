//! Decodes the files written by `mod_json_cdr`. The switch writes one file per leg when the leg
//! ends.
//!
//! `variables` contains the channel's variables as of its end, with percent-encoded values unless
//! `encode-values` is off. `callflow` contains the channel's profiles, newest first and never
//! encoded. Each profile has times in microseconds and the channel that the leg was connected to. A
//! leg's bridges are those of its profiles, each lasting from `bridged_time` until the transfer or
//! hangup.
//!
//! A leg's file also shows what it dialed through a gateway: `bridge` was run with
//! `sofia/gateway/city/998901110001`, and `originated_legs` lists the resulting leg.

mod dialed;

use crate::block::decoded_text;
use crate::event::{self, micros};
use crate::fields::{EventFields, Header};
use crate::monitor;
use crate::rule::{ATTENDED, EventRule};
use callbridge_call::{
    Cdr, ChannelEvent, ChannelRef, ChannelState, ChannelTraits, EventTime, Kind, MonitorMode,
    Origin, PbxEvent, ServerEvent, Text, Unreadable,
};
use dialed::{Dialed, dialed_legs};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

/// Maximum number of a leg's applications to read.
const APPLICATIONS_MAX: usize = 1024;
/// Maximum number of a leg's profiles to read. Each transfer creates another one.
const PROFILES_MAX: usize = 64;

/// Headers of the event that reports a channel's creation, each paired with the variable that has
/// the same value when the channel ends.
const AT_BIRTH: [(Header, &str); 23] = [
    (Header::UniqueId, "uuid"),
    (Header::ChannelName, "channel_name"),
    (Header::Direction, "direction"),
    (Header::PresenceId, "presence_id"),
    (Header::GatewayDialed, "sip_gateway_name"),
    (Header::GatewayIn, "sip_gateway"),
    (Header::Profile, "sofia_profile_name"),
    (Header::Network, "sip_network_ip"),
    (Header::NetworkPort, "sip_network_port"),
    (Header::Request, "sip_req_uri"),
    (Header::UserName, "user_name"),
    (Header::AuthName, "sip_auth_username"),
    (Header::Agent, "cc_agent"),
    (Header::MemberSession, "cc_member_session_uuid"),
    (Header::OtherHalf, "other_loopback_leg_uuid"),
    (Header::Originator, "originator"),
    (Header::OtherId, "originator"),
    (Header::EnterpriseCaller, "ent_originate_aleg_uuid"),
    (Header::FifoCaller, "fifo_bridge_uuid"),
    (Header::Recovered, "recovered"),
    (Header::Retries, "originate_retries"),
    (Header::RetrySleep, "originate_retry_sleep_ms"),
    (Header::RetryPeriod, "originate_retry_min_period_ms"),
];
/// Headers whose values are in the leg's first profile, i.e., from before any transfer.
const IN_FIRST_PROFILE: [(Header, &str); 3] = [
    (Header::Ani, "ani"),
    (Header::Destination, "destination_number"),
    (Header::Context, "context"),
];

/// Decodes a leg's file. `wanted` lists the variables to keep, or is `None` to keep all of them.
pub(crate) fn decode(
    bytes: &[u8],
    wanted: Option<&BTreeSet<String>>,
) -> Result<ServerEvent<'static>, Unreadable> {
    let file: Value = serde_json::from_slice(bytes).map_err(|_| Unreadable::NotJson)?;
    let leg = LegFile::parse(
        file["variables"].as_object().ok_or(Unreadable::NoLeg)?,
        &file["callflow"],
        &file["app_log"]["applications"],
    )?;
    let name = text(&file["switchname"]);
    let server = if name.is_empty() {
        None
    } else {
        Some(Cow::Owned(name))
    };
    Ok(ServerEvent {
        server,
        event: PbxEvent::Cdr(Box::new(leg.cdr(wanted))),
    })
}

/// A channel's variables. `encoded` is `true` if the values are percent-encoded.
struct Variables<'f> {
    raw: &'f Map<String, Value>,
    encoded: bool,
}

impl<'f> Variables<'f> {
    fn new(raw: &'f Map<String, Value>) -> Self {
        // The `start_stamp` variable always exists and contains a space, so it shows whether values
        // are encoded.
        let stamp = raw.get("start_stamp").and_then(Value::as_str);
        let encoded = stamp.is_none_or(|stamp| !stamp.contains(' '));
        Self { raw, encoded }
    }

    fn plain(&self, value: &'f Value) -> Text<'f> {
        let text = match value {
            Value::String(text) => Cow::Borrowed(text.as_str()),
            Value::Array(_) | Value::Object(_) | Value::Null => Cow::Borrowed(""),
            Value::Number(_) | Value::Bool(_) => Cow::Owned(value.to_string()),
        };
        if self.encoded {
            decoded_text(text)
        } else {
            text
        }
    }

    fn get(&self, name: &str) -> String {
        let text = self.raw.get(name).map(|value| self.plain(value));
        text.unwrap_or_default().into_owned()
    }

    fn time(&self, name: &str) -> Option<EventTime> {
        micros(&self.get(name))
    }

    /// Returns the nonempty variables listed in `wanted`, or all of them if it's `None`.
    fn kept_variables(
        &self,
        wanted: Option<&BTreeSet<String>>,
    ) -> Vec<(Text<'static>, Text<'static>)> {
        let mut kept = Vec::new();
        for (name, value) in self.raw {
            if wanted.is_some_and(|wanted| !wanted.contains(name)) {
                continue;
            }
            let value = self.plain(value).into_owned();
            if !value.is_empty() {
                kept.push((Text::from(name.clone()), Text::from(value)));
            }
        }
        kept
    }
}

/// A span of time during which the leg was connected to another one.
struct Connected {
    with: ChannelRef<'static>,
    from: EventTime,
    to: Option<EventTime>,
}

/// An application run by a leg that matters for the call.
enum Ran {
    /// The leg entered the conference with this name.
    Room(String),
    /// The leg consulted someone. If the switch didn't dial anyone, the consultation is over
    /// immediately.
    Consultation { dialed_no_one: bool },
    /// The leg monitored the channel with this ID.
    Monitor(String, MonitorMode),
}

/// A leg as described by its file.
struct LegFile<'f> {
    variables: Variables<'f>,
    created: EventTime,
    answered: Option<EventTime>,
    ended: EventTime,
    /// The leg's caller profile from before any transfer.
    first: &'f Value,
    connected: Vec<Connected>,
    /// When the leg left its profiles, through a transfer or hangup.
    left: Vec<EventTime>,
    /// Those applications run by the leg that matter for the call, and when they were run.
    ran: Vec<(EventTime, Ran)>,
    dialed: Vec<Dialed>,
}

/// Returns the applications run by the leg, each with its time, name, and data.
fn applications(log: &Value) -> impl Iterator<Item = (EventTime, &str, &Value)> {
    let reported = log.as_array().into_iter().flatten().take(APPLICATIONS_MAX);
    reported.filter_map(|application| {
        let at = micros(application["app_stamp"].as_str()?)?;
        let name = application["app_name"].as_str()?;
        Some((at, name, &application["app_data"]))
    })
}

impl<'f> LegFile<'f> {
    fn parse(
        raw: &'f Map<String, Value>,
        flow: &'f Value,
        log: &Value,
    ) -> Result<Self, Unreadable> {
        let variables = Variables::new(raw);
        let profiles = flow.as_array().map_or(&[][..], Vec::as_slice);
        let first = profiles.last().ok_or(Unreadable::NoLeg)?;
        let created = variables
            .time("start_uepoch")
            .or_else(|| time(first, "created_time"))
            .ok_or(Unreadable::NoLeg)?;
        let answered = first_time(profiles, "answered_time");
        let ended = variables
            .time("end_uepoch")
            .or_else(|| first_time(profiles, "hangup_time"));
        if variables.get("uuid").is_empty() {
            return Err(Unreadable::NoLeg);
        }
        let newest = variables.get("bridge_uuid");
        let profiles_read = profiles.iter().take(PROFILES_MAX).enumerate();
        let connected = profiles_read.filter_map(|(i, profile)| {
            let named = if i == 0 { newest.as_str() } else { "" };
            find_connection(profile, named)
        });
        let whisper = [
            variables.get("eavesdrop_whisper_aleg"),
            variables.get("eavesdrop_whisper_bleg"),
        ];
        let mut ran = Vec::new();
        for (at, name, data) in applications(log) {
            let data = text(data);
            if name == "conference" {
                ran.push((at, Ran::Room(room(&data, &variables.get("uuid")))));
            } else if name == ATTENDED {
                // The final variables only list the legs that were dialed last, so it's only known
                // for the last consultation that it dialed no one.
                for (_, earlier) in &mut ran {
                    if let Ran::Consultation { dialed_no_one } = earlier {
                        *dialed_no_one = false;
                    }
                }
                let dialed_no_one = variables.get("originated_legs").is_empty();
                ran.push((at, Ran::Consultation { dialed_no_one }));
            } else if let Some((target, mode)) =
                monitor::find_in_log(name, &data, whisper.each_ref().map(String::as_str))
            {
                ran.push((at, Ran::Monitor(target, mode)));
            }
        }
        let mut bridges = Vec::new();
        for (at, name, data) in applications(log) {
            if name == "bridge"
                && let Some(data) = data.as_str()
            {
                bridges.push((at, data));
            }
        }
        Ok(Self {
            created,
            answered: answered.or_else(|| variables.time("answer_uepoch")),
            ended: ended.unwrap_or(created),
            first: &first["caller_profile"],
            connected: connected.collect(),
            left: profiles.iter().filter_map(end_of_profile).collect(),
            ran,
            dialed: dialed_legs(&bridges, &variables.get("originated_legs")),
            variables,
        })
    }

    /// Builds the event that the switch would have sent when the channel was created.
    fn birth(&self, wanted: Option<&BTreeSet<String>>) -> ChannelEvent<'static> {
        let mut fields = EventFields::new();
        fields.variables = self.variables.kept_variables(wanted);
        for (header, name) in AT_BIRTH {
            fields.put(header, self.variables.get(name).into());
        }
        for (header, name) in IN_FIRST_PROFILE {
            fields.put(header, text(&self.first[name]).into());
        }
        fields.put(Header::OtherType, "originator".into());
        let times = [
            (Header::Created, Some(self.created)),
            (Header::Answered, self.answered),
        ];
        for (header, at) in times {
            let micros = at.map(|at| at.micros().to_string());
            fields.put(header, micros.unwrap_or_default().into());
        }
        let kind = event::birth(&mut fields);
        let channel = event::channel(EventRule::Create, fields);
        ChannelEvent::new(Some(self.created), Origin::Channel, channel, kind)
    }

    fn cdr(self, wanted: Option<&BTreeSet<String>>) -> Cdr<'static> {
        let birth = self.birth(wanted);
        let channel = birth.channel.clone();
        let ended = self.ended;
        let mut events = vec![birth];
        if let Some(at) = self.answered {
            let state = ChannelState::Up;
            events.push(event_of(&channel, at, Kind::State { state }));
        }
        for dialed in self.dialed {
            let mut connected = self.connected.iter();
            let is_connected = connected.any(|connected| connected.with.uniqueid == dialed.id);
            let [begins, over] = dialed.events(&channel, ended);
            events.push(begins);
            if !is_connected {
                events.push(over);
            }
        }
        for connected in self.connected {
            let with = Box::new(connected.with);
            let over = Kind::Unlinked { with: with.clone() };
            let to = connected.to.unwrap_or(ended);
            events.push(event_of(&channel, connected.from, Kind::Linked { with }));
            events.push(event_of(&channel, to, over));
        }
        for (came, ran) in self.ran {
            let later = self.left.iter().copied().filter(|&at| at > came);
            let left = later.min().unwrap_or(ended);
            match ran {
                Ran::Consultation { dialed_no_one } => {
                    events.push(event_of(&channel, came, Kind::Consults { begins: true }));
                    if dialed_no_one {
                        let back = came.plus(Duration::from_micros(1));
                        let over = Kind::Consults { begins: false };
                        events.push(event_of(&channel, back, over));
                    }
                }
                Ran::Room(room) => {
                    for (at, enters) in [(came, true), (left, false)] {
                        let kind =
                            Kind::enter_or_leave(enters, room.clone().into(), "softmix".into());
                        events.push(event_of(&channel, at, kind));
                    }
                }
                Ran::Monitor(target, mode) => {
                    for (at, mode) in [(came, mode), (left, MonitorMode::Ended)] {
                        let kind = Kind::Monitors {
                            target: target.clone().into(),
                            mode,
                            by_keys: false,
                        };
                        events.push(event_of(&channel, at, kind));
                    }
                }
            }
        }
        let cause = self.variables.get("hangup_cause_q850").parse().ok();
        events.push(event_of(&channel, ended, Kind::Hangup { cause }));
        let disposition = if self.answered.is_some() {
            "ANSWERED"
        } else {
            "NO ANSWER"
        };
        Cdr {
            uniqueid: channel.uniqueid.clone(),
            linkedid: channel.linkedid.clone(),
            channel: channel.name.clone(),
            started_at: Some(self.created),
            answered_at: self.answered,
            ended_at: Some(ended),
            disposition: disposition.into(),
            events,
            ..Cdr::default()
        }
    }
}

/// Returns an event of the channel with only the values that identify it, which are its ID, name,
/// and linkedid.
fn event_of(
    channel: &ChannelRef<'static>,
    at: EventTime,
    kind: Kind<'static>,
) -> ChannelEvent<'static> {
    let mut own = ChannelRef::by_id(channel.uniqueid.clone());
    own.name.clone_from(&channel.name);
    own.linkedid.clone_from(&channel.linkedid);
    ChannelEvent::new(Some(at), Origin::Channel, own, kind)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn time(profile: &Value, name: &str) -> Option<EventTime> {
    micros(profile["times"][name].as_str().unwrap_or_default())
}

fn first_time(profiles: &[Value], name: &str) -> Option<EventTime> {
    profiles.iter().find_map(|profile| time(profile, name))
}

/// Returns when the leg left the profile, through a transfer or hangup.
fn end_of_profile(profile: &Value) -> Option<EventTime> {
    time(profile, "transfer_time").or_else(|| time(profile, "hangup_time"))
}

/// Returns the span of the profile's bridge and the other leg, or `None` if the profile has no
/// bridge.
///
/// The other leg is the one with the ID `named` or, failing that, the leg that this one dialed or
/// the one that dialed it.
fn find_connection(profile: &Value, named: &str) -> Option<Connected> {
    let from = time(profile, "bridged_time")?;
    let to = end_of_profile(profile);
    let caller = &profile["caller_profile"];
    let mut partners = Vec::new();
    for side in ["originatee", "originator"] {
        profiles_in(&caller[side], 0, &mut partners);
    }
    let partner = partners
        .iter()
        .find(|partner| text(&partner["uuid"]) == named)
        .or(partners.first())?;
    let id = text(&partner["uuid"]);
    let name = text(&partner["chan_name"]);
    // If the other leg has no file, these traits are all that's known about it.
    let traits = ChannelTraits {
        profile: name.split('/').nth(1).unwrap_or_default().to_owned().into(),
        dialed: text(&partner["destination_number"]).into(),
        answered: Some(from),
        ..ChannelTraits::default()
    };
    (!id.is_empty()).then(|| Connected {
        with: ChannelRef {
            uniqueid: id.into(),
            name: name.into(),
            traits: Some(Box::new(traits)),
            ..ChannelRef::default()
        },
        from,
        to,
    })
}

/// Adds the caller profiles in `value` to `into`. `value` is the content of `originatee` or
/// `originator`, which may be a single profile or nested lists.
fn profiles_in<'v>(value: &'v Value, depth: usize, into: &mut Vec<&'v Value>) {
    match value {
        _ if depth > 3 || into.len() > PROFILES_MAX => {}
        Value::Object(object) if object.contains_key("uuid") => into.push(value),
        Value::Object(object) => {
            for value in object.values() {
                profiles_in(value, depth + 1, into);
            }
        }
        Value::Array(list) => {
            for value in list {
                profiles_in(value, depth + 1, into);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Prefix of a `conference` argument that dials someone into the conference.
const CALLS_IN: &str = "bridge:";
/// If the dialplan uses this name, the conference is named after the channel's ID.
const OWN_ROOM: &str = "_uuid_";

/// Returns the name of the conference in `argument`, such as `600` in
/// `600@default+1234+flags{mute}`, where the name is followed by a profile, a PIN, and flags. `id`
/// is the leg that ran `conference`.
fn room(argument: &str, id: &str) -> String {
    let calls_in = argument.get(..CALLS_IN.len());
    let is_call = calls_in.is_some_and(|begin| begin.eq_ignore_ascii_case(CALLS_IN));
    let mut target = argument;
    if is_call {
        let rest = &argument[CALLS_IN.len()..];
        target = rest.split_once(':').map_or(rest, |(target, _)| target);
    }
    let with_profile = target.split_once('+').map_or(target, |(name, _)| name);
    let name = with_profile
        .rsplit_once('@')
        .map_or(with_profile, |(name, _)| name)
        .trim();
    if name.eq_ignore_ascii_case(OWN_ROOM) {
        return id.to_owned();
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_name_omits_profile_pin_and_flags() {
        for argument in [
            "600",
            "600@default",
            "600@default+1234",
            "600+flags{mute|endconf}",
            "600@default+flags{mute}",
            "600@wideband+1234+flags{moderator}",
            " 600@default",
            "bridge:600@default:user/101@pbx.lab",
            "BRIDGE:600:sofia/gateway/city/998901110001",
        ] {
            assert_eq!(room(argument, "a"), "600", "{argument}");
        }
        // FusionPBX also names rooms after the domain.
        assert_eq!(room("600-pbx.lab@video+flags{}", "a"), "600-pbx.lab");
        assert_eq!(room("600@pbx.lab@default", "a"), "600@pbx.lab");
        assert_eq!(room("bridge:_uuid_:user/101", "a"), "a");
        assert_eq!(room("", "a"), "");
    }
}
