//! The files of `mod_json_cdr`. There is one per leg, written when the leg ends.
//!
//! `variables` are the channel's variables at its end. Each value is percent-encoded, unless
//! `encode-values` is off. `callflow` are the channel's profiles, newest first and never encoded.
//! Each profile has its times in microseconds, and the channel that it was connected with. A leg's
//! bridges are those of its profiles, from `bridged_time` to the transfer or the hangup.
//!
//! The file of a leg also shows what the leg dialed over a gateway: `bridge` was run with
//! `sofia/gateway/city/998901110001`, and `originated_legs` has the resulting leg.

use crate::block::decoded_text;
use crate::event::{self, micros};
use crate::fields::{EventFields, Header};
use crate::monitor;
use crate::rule::{ATTENDED, EventRule};
use callbridge_call::{
    Cdr, ChannelEvent, ChannelRef, ChannelState, ChannelTraits, EventTime, Kind, MonitorMode,
    Origin, PbxEvent, ServerEvent, Text, Unreadable,
};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

/// Maximum applications of a leg that are read.
const APPLICATIONS_MAX: usize = 1024;
/// Maximum profiles of a leg that are read. Each transfer makes one.
const PROFILES_MAX: usize = 64;

/// The headers of an event when the channel is created, with the variables that have the same
/// values at its end.
const AT_BIRTH: [(Header, &str); 19] = [
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
];
/// The headers in the leg's first profile, before any transfer.
const IN_FIRST_PROFILE: [(Header, &str); 3] = [
    (Header::Ani, "ani"),
    (Header::Destination, "destination_number"),
    (Header::Context, "context"),
];

/// Reads the file of one leg.
pub(crate) fn decode(
    bytes: &[u8],
    wanted: Option<&BTreeSet<String>>,
) -> Result<ServerEvent<'static>, Unreadable> {
    let file: Value = serde_json::from_slice(bytes).map_err(|_| Unreadable::NotJson)?;
    let leg = LegFile::of(
        file["variables"].as_object().ok_or(Unreadable::NoLeg)?,
        &file["callflow"],
        &file["app_log"]["applications"],
    )?;
    let server = text(&file["switchname"]);
    Ok(ServerEvent {
        server: (!server.is_empty()).then_some(Cow::Owned(server)),
        event: PbxEvent::Cdr(Box::new(leg.cdr(wanted))),
    })
}

/// The variables of a channel.
struct Variables<'f> {
    raw: &'f Map<String, Value>,
    encoded: bool,
}

impl<'f> Variables<'f> {
    fn of(raw: &'f Map<String, Value>) -> Self {
        // This time contains a blank and is always there, so it shows whether values are encoded.
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
        match self.encoded {
            true => decoded_text(text),
            false => text,
        }
    }

    fn get(&self, name: &str) -> String {
        let text = self.raw.get(name).map(|value| self.plain(value));
        text.unwrap_or_default().into_owned()
    }

    fn time(&self, name: &str) -> Option<EventTime> {
        micros(&self.get(name))
    }

    /// Returns the variables that are wanted and not empty.
    fn kept(&self, wanted: Option<&BTreeSet<String>>) -> Vec<(Text<'static>, Text<'static>)> {
        let all = self.raw.iter();
        let kept = all.filter(|(name, _)| wanted.is_none_or(|wanted| wanted.contains(*name)));
        let reported = kept.map(|(name, value)| {
            let (name, value) = (name.clone(), self.plain(value).into_owned());
            (Text::from(name), Text::from(value))
        });
        reported.filter(|(_, value)| !value.is_empty()).collect()
    }
}

/// A time span in which the leg was connected with another one.
struct Connected {
    with: ChannelRef<'static>,
    from: EventTime,
    to: Option<EventTime>,
}

/// An application that a leg ran and on which the call depends.
enum Ran {
    /// The leg entered this room.
    Room(String),
    /// The leg consulted someone. If the switch dialed no one for it, it is over at once.
    Consultation { dialed_no_one: bool },
    /// The leg monitored this channel.
    Monitor(String, MonitorMode),
}

/// A leg as its file describes it.
struct LegFile<'f> {
    variables: Variables<'f>,
    created: EventTime,
    answered: Option<EventTime>,
    ended: EventTime,
    /// Caller profile of the leg before any transfer.
    first: &'f Value,
    connected: Vec<Connected>,
    /// Times at which the leg left its profiles, by transfer or hangup.
    left: Vec<EventTime>,
    /// Applications that the leg ran and on which the call depends, each with its time.
    ran: Vec<(EventTime, Ran)>,
    dialed: Vec<Dialed>,
}

/// Returns the applications that the leg ran, each with its time, name, and data.
fn applications(log: &Value) -> impl Iterator<Item = (EventTime, &str, &Value)> {
    let reported = log.as_array().into_iter().flatten().take(APPLICATIONS_MAX);
    reported.filter_map(|it| {
        let at = micros(it["app_stamp"].as_str()?)?;
        Some((at, it["app_name"].as_str()?, &it["app_data"]))
    })
}

impl<'f> LegFile<'f> {
    fn of(raw: &'f Map<String, Value>, flow: &'f Value, log: &Value) -> Result<Self, Unreadable> {
        let variables = Variables::of(raw);
        let profiles = flow.as_array().map_or(&[][..], Vec::as_slice);
        let first = profiles.last().ok_or(Unreadable::NoLeg)?;
        let created = variables.time("start_uepoch");
        let created = created.or_else(|| time(first, "created_time"));
        let answered = profiles.iter().find_map(|it| time(it, "answered_time"));
        let ended = variables.time("end_uepoch");
        let ended = ended.or_else(|| profiles.iter().find_map(|it| time(it, "hangup_time")));
        if variables.get("uuid").is_empty() {
            return Err(Unreadable::NoLeg);
        }
        let newest = variables.get("bridge_uuid");
        let profiles_read = profiles.iter().take(PROFILES_MAX).enumerate();
        let connected = profiles_read.filter_map(|(at, profile)| {
            let named = if at == 0 { newest.as_str() } else { "" };
            connected(profile, named)
        });
        let created = created.ok_or(Unreadable::NoLeg)?;
        let whisper = ["eavesdrop_whisper_aleg", "eavesdrop_whisper_bleg"];
        let whisper = whisper.map(|name| variables.get(name));
        let mut ran = Vec::new();
        for (at, name, data) in applications(log) {
            let data = text(data);
            if name == "conference" {
                ran.push((at, Ran::Room(room(&data, &variables.get("uuid")))));
            } else if name == ATTENDED {
                // At the end, the variables name only the legs that were dialed last.
                for (_, earlier) in &mut ran {
                    if let Ran::Consultation { dialed_no_one } = earlier {
                        *dialed_no_one = false;
                    }
                }
                let dialed_no_one = variables.get("originated_legs").is_empty();
                ran.push((at, Ran::Consultation { dialed_no_one }));
            } else if let Some((target, mode)) =
                monitor::in_log(name, &data, whisper.each_ref().map(String::as_str))
            {
                ran.push((at, Ran::Monitor(target, mode)));
            }
        }
        let bridges = applications(log).filter(|(_, name, _)| *name == "bridge");
        let bridges = bridges.filter_map(|(at, _, data)| Some((at, data.as_str()?)));
        let bridges: Vec<(EventTime, &str)> = bridges.collect();
        Ok(Self {
            created,
            answered: answered.or_else(|| variables.time("answer_uepoch")),
            ended: ended.unwrap_or(created),
            first: &first["caller_profile"],
            connected: connected.collect(),
            left: profiles.iter().filter_map(over).collect(),
            ran,
            dialed: dialed(&bridges, &variables.get("originated_legs")),
            variables,
        })
    }

    /// Builds the event that the switch would have sent when the channel was created.
    fn birth(&self, wanted: Option<&BTreeSet<String>>) -> ChannelEvent<'static> {
        let mut fields = EventFields::new();
        fields.variables = self.variables.kept(wanted);
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
        let event = |at: EventTime, kind: Kind<'static>| {
            let mut own = ChannelRef::by_id(channel.uniqueid.clone());
            own.name.clone_from(&channel.name);
            own.linkedid.clone_from(&channel.linkedid);
            ChannelEvent::new(Some(at), Origin::Channel, own, kind)
        };
        let (created, ended) = (self.created, self.ended);
        let (mut events, state) = (vec![birth], ChannelState::Up);
        events.extend(self.answered.map(|at| event(at, Kind::State { state })));
        for it in self.dialed {
            let met = self.connected.iter().any(|met| met.with.uniqueid == it.id);
            let [begins, over] = it.events(&channel, ended);
            events.push(begins);
            events.extend((!met).then_some(over));
        }
        for it in self.connected {
            let with = Box::new(it.with);
            let over = Kind::Unlinked { with: with.clone() };
            events.push(event(it.from, Kind::Linked { with }));
            events.push(event(it.to.unwrap_or(ended), over));
        }
        for (came, ran) in self.ran {
            let left = self.left.iter().copied().filter(|&at| at > came);
            let left = left.min().unwrap_or(ended);
            match ran {
                Ran::Consultation { dialed_no_one } => {
                    events.push(event(came, Kind::Consults { begins: true }));
                    if dialed_no_one {
                        let back = came.plus(Duration::from_micros(1));
                        events.push(event(back, Kind::Consults { begins: false }));
                    }
                }
                Ran::Room(room) => {
                    for (at, enters) in [(came, true), (left, false)] {
                        let kind = Kind::passes(enters, room.clone().into(), "softmix".into());
                        events.push(event(at, kind));
                    }
                }
                Ran::Monitor(target, mode) => {
                    for (at, mode) in [(came, mode), (left, MonitorMode::Ended)] {
                        let kind = Kind::Monitors {
                            target: target.clone().into(),
                            mode,
                            by_keys: false,
                        };
                        events.push(event(at, kind));
                    }
                }
            }
        }
        let cause = self.variables.get("hangup_cause_q850").parse().ok();
        events.push(event(ended, Kind::Hangup { cause }));
        Cdr {
            uniqueid: channel.uniqueid.clone(),
            linkedid: channel.linkedid.clone(),
            channel: channel.name.clone(),
            started_at: Some(created),
            answered_at: self.answered,
            ended_at: Some(ended),
            events,
            ..Cdr::default()
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn time(profile: &Value, name: &str) -> Option<EventTime> {
    micros(profile["times"][name].as_str().unwrap_or_default())
}

/// Returns the time at which the leg left this profile, by transfer or hangup.
fn over(profile: &Value) -> Option<EventTime> {
    time(profile, "transfer_time").or_else(|| time(profile, "hangup_time"))
}

/// Returns the time span of the profile's bridge with the other leg: the one that the variables
/// name, else the one that answered it, else the one that dialed it.
fn connected(profile: &Value, named: &str) -> Option<Connected> {
    let from = time(profile, "bridged_time")?;
    let to = over(profile);
    let caller = &profile["caller_profile"];
    let mut partners = Vec::new();
    for side in ["originatee", "originator"] {
        profiles_in(&caller[side], 0, &mut partners);
    }
    let mut reported = partners.iter();
    let one = reported.find(|it| text(&it["uuid"]) == named);
    let one = one.or(partners.first())?;
    let (id, name) = (text(&one["uuid"]), text(&one["chan_name"]));
    // If the other leg has no file, this is all that is known about it.
    let traits = ChannelTraits {
        profile: name.split('/').nth(1).unwrap_or_default().to_owned().into(),
        dialed: text(&one["destination_number"]).into(),
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

/// Collects the caller profiles under `originatee` or `originator`: one, or lists of them.
fn profiles_in<'v>(value: &'v Value, depth: usize, into: &mut Vec<&'v Value>) {
    match value {
        _ if depth > 3 || into.len() > PROFILES_MAX => {}
        Value::Object(object) if object.contains_key("uuid") => into.push(value),
        Value::Object(object) => {
            let values = object.values();
            values.for_each(|it| profiles_in(it, depth + 1, into));
        }
        Value::Array(list) => list.iter().for_each(|it| profiles_in(it, depth + 1, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Prefix of an argument of `conference` that calls someone into the room.
const CALLS_IN: &str = "bridge:";
/// Name that stands for a room with the id of the channel.
const OWN_ROOM: &str = "_uuid_";

/// Returns the name of the room that `conference` was run with by the leg `id`: `600` of
/// `600@default+1234+flags{mute}`, where a profile, a PIN, and flags follow the name.
fn room(argument: &str, id: &str) -> String {
    let calls_in = argument.get(..CALLS_IN.len());
    let is_call = calls_in.is_some_and(|begin| begin.eq_ignore_ascii_case(CALLS_IN));
    let mut name = argument;
    if is_call {
        let rest = &argument[CALLS_IN.len()..];
        name = rest.split_once(':').map_or(rest, |(name, _)| name);
    }
    let name = name.split_once('+').map_or(name, |(name, _)| name);
    let name = name.rsplit_once('@').map_or(name, |(name, _)| name).trim();
    if name.eq_ignore_ascii_case(OWN_ROOM) {
        return id.to_owned();
    }
    name.to_owned()
}

/// Prefix of a dial string for a gateway.
const GATEWAY: &str = "sofia/gateway/";
/// Maximum dialed legs of one leg that are read.
const LEGS_MAX: usize = 64;

/// A leg that was dialed over a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Dialed {
    at: EventTime,
    id: String,
    gateway: String,
    number: String,
}

impl Dialed {
    /// Returns the events of a leg without a file. It was dialed by this channel, and ended at
    /// `ended` at the latest.
    fn events(self, by: &ChannelRef<'static>, ended: EventTime) -> [ChannelEvent<'static>; 2] {
        let dialed = Kind::DialBegin {
            by: Some(Box::new(ChannelRef::by_id(by.uniqueid.clone()))),
            dial_string: Cow::Owned(self.number.clone()),
        };
        let channel = ChannelRef {
            uniqueid: Cow::Owned(self.id),
            linkedid: by.linkedid.clone(),
            traits: Some(Box::new(ChannelTraits {
                gateway: Cow::Owned(self.gateway),
                dialed: Cow::Owned(self.number),
                fresh: true,
                ..ChannelTraits::default()
            })),
            ..ChannelRef::default()
        };
        let event = |at, kind| ChannelEvent::new(Some(at), Origin::Channel, channel.clone(), kind);
        [event(self.at, dialed), event(ended, Kind::Seen)]
    }
}

/// Returns the legs that these bridges dialed. If a number was dialed over several gateways, the
/// legs are assigned to them in order. If their numbers differ, there are none.
fn dialed(bridges: &[(EventTime, &str)], originated: &str) -> Vec<Dialed> {
    let targets: Vec<(EventTime, &str, &str)> = bridges
        .iter()
        .flat_map(|&(at, data)| targets(data).map(move |(gateway, number)| (at, gateway, number)))
        .collect();
    let list = originated.strip_prefix("ARRAY::").unwrap_or(originated);
    let legs = list.split("|:").take(LEGS_MAX).filter_map(|leg| {
        let (id, rest) = leg.split_once(';')?;
        Some((id, rest.rsplit(';').next()?))
    });
    let legs: Vec<(&str, &str)> = legs.filter(|(id, _)| !id.is_empty()).collect();
    let mut found = Vec::new();
    for (place, &(id, number)) in legs.iter().enumerate() {
        let same = || targets.iter().filter(|(.., it)| *it == number);
        let of_number = legs.iter().filter(|(_, it)| *it == number).count();
        let before = legs[..place].iter().filter(|(_, it)| *it == number);
        let first = same().next();
        let one = first.filter(|(_, gateway, _)| same().all(|(_, it, _)| it == gateway));
        let in_order = (same().count() == of_number).then(|| same().nth(before.count()));
        if let Some(&(at, gateway, _)) = in_order.flatten().or(one) {
            found.push(Dialed {
                at,
                id: id.to_owned(),
                gateway: gateway.to_owned(),
                number: number.to_owned(),
            });
        }
    }
    found
}

/// Returns the gateway and the number of each target: `city` and `998901110001` for
/// `{a=b}sofia/gateway/city/998901110001,[c=d]user/101`.
fn targets(data: &str) -> impl Iterator<Item = (&str, &str)> {
    data.split(GATEWAY).skip(1).filter_map(|rest| {
        let end = rest
            .find([',', '|', ':', '^', ' ', '['])
            .unwrap_or(rest.len());
        let (gateway, number) = rest[..end].split_once('/')?;
        (!gateway.is_empty() && !number.is_empty()).then_some((gateway, number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(data: &str, originated: &str) -> Vec<(String, String)> {
        let at = EventTime::from_seconds(1_795_211_901);
        let found = dialed(&[(at, data)], originated).into_iter();
        found.map(|it| (it.id, it.gateway)).collect()
    }

    fn pair(id: &str, gateway: &str) -> (String, String) {
        (id.to_owned(), gateway.to_owned())
    }

    #[test]
    fn legs_over_a_gateway_are_paired_with_it() {
        let one = found("sofia/gateway/city/9989", "a;Outbound Call;9989");
        assert_eq!(one, [pair("a", "city")]);
        let group = "{x=1}user/101,[y=2]sofia/gateway/city/9989,sofia/gateway/gsm/9935";
        let legs = "ARRAY::a;Aziz;101|:b;Outbound;Call;9989|:c;;9935";
        assert_eq!(found(group, legs), [pair("b", "city"), pair("c", "gsm")]);
    }

    #[test]
    fn legs_over_several_gateways_have_their_own_or_none() {
        let data = "sofia/gateway/city/9989|sofia/gateway/gsm/9989";
        let both = found(data, "ARRAY::a;;9989|:b;;9989");
        assert_eq!(both, [pair("a", "city"), pair("b", "gsm")]);
        assert_eq!(found(data, "a;;9989"), []);
        let again = "sofia/gateway/city/9989|sofia/gateway/city/9989";
        assert_eq!(found(again, "a;;9989"), [pair("a", "city")]);
    }

    #[test]
    fn room_is_named_without_profile_pin_and_flags() {
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

    #[test]
    fn legs_without_a_valid_gateway_or_id_are_not_paired() {
        for (data, legs) in [
            ("", ""),
            ("user/101", "a;;101"),
            ("sofia/gateway/city", "a;;9989"),
            ("sofia/gateway//9989", "a;;9989"),
            ("sofia/gateway/city/9989", ";;9989"),
            ("sofia/gateway/city/9989", "a"),
        ] {
            assert_eq!(found(data, legs), [], "{data} {legs}");
        }
    }
}
