//! The headers of an event to what it tells of a channel.
//!
//! | event | what it tells |
//! |---|---|
//! | `CHANNEL_CREATE` | a channel came in, or is dialled |
//! | `CHANNEL_ANSWER` | it answered |
//! | `CHANNEL_BRIDGE`, `CHANNEL_UNBRIDGE` | two hear each other, or no more; told by one of them |
//! | `CHANNEL_EXECUTE att_xfer` | it consults somebody; its bridge stays |
//! | `conference::maintenance` | it is in a room, or is out of it |
//! | `CHANNEL_HANGUP`, `…_COMPLETE`, `CHANNEL_DESTROY` | it is over |

use crate::fields::{Fields, Key};
use crate::rule::{ATTENDED, Rule};
use callbridge_call::event::{ChannelTraits, Text};
use callbridge_call::{
    ChannelEvent, ChannelRef, EventTime, Kind, Mark, Origin, PbxEvent, Unreadable,
};
use std::borrow::Cow;
use std::time::Duration;

/// The switch's clock steps by 20 ms: within a step, the counter of its events says what came
/// first. It may go so far, which is less than a step.
const STEP_MICROS: i64 = 16_384;

/// What the decoder remembers of a switch.
#[derive(Debug, Default)]
pub(crate) struct SwitchHeard {
    /// `Core-UUID` of the process that was heard last.
    core: String,
}

/// What the headers tell; `None` if no call depends on it.
pub(crate) fn tell<'a>(
    mut fields: Fields<'a>,
    heard: &mut SwitchHeard,
) -> Result<Option<PbxEvent<'a>>, Unreadable> {
    let Some(rule) = fields.rule else {
        return Ok(None);
    };
    match rule {
        Rule::Heartbeat => return Ok(heard.beat(&fields)),
        Rule::Execute | Rule::ExecuteComplete if fields.get(Key::Application) != ATTENDED => {
            return Ok(None);
        }
        Rule::Conference if !matches!(fields.get(Key::Action), "add-member" | "del-member") => {
            return Ok(None);
        }
        _ => {}
    }
    heard.hears(&fields);
    if fields.get(Key::UniqueId).is_empty() {
        return Err(Unreadable::NoChannel);
    }
    let at = at(rule, &fields);
    let kind = kind(rule, &mut fields);
    let Some(kind) = kind else {
        return Ok(None);
    };
    Ok(Some(PbxEvent::Channel(ChannelEvent {
        at,
        origin: Origin::Channel,
        channel: channel(rule, fields),
        kind,
    })))
}

impl SwitchHeard {
    fn hears(&mut self, fields: &Fields<'_>) {
        if self.core.is_empty() {
            self.core = fields.get(Key::CoreUuid).to_owned();
        }
    }

    /// The switch says that it lives. Another process than before: it was started again, and what
    /// was open before is gone.
    fn beat<'a>(&mut self, fields: &Fields<'_>) -> Option<PbxEvent<'a>> {
        let core = fields.get(Key::CoreUuid);
        let other = !self.core.is_empty() && !core.is_empty() && self.core != core;
        if self.core != core {
            self.core = core.to_owned();
        }
        let uptime = fields.get(Key::Uptime).parse().ok();
        let told = micros(fields.get(Key::Timestamp));
        let began = told.zip(uptime.map(Duration::from_millis));
        let began = began.map(|(at, uptime)| at.minus(uptime));
        other.then_some(PbxEvent::Mark(Mark::Restarted { began }))
    }
}

/// A time in microseconds; `None` for what never was.
fn micros(text: &str) -> Option<EventTime> {
    let micros: i64 = text.parse().ok()?;
    (micros > 0).then(|| EventTime::from_micros(micros))
}

/// When it happened. What comes after the hang-up tells when that was.
fn at(rule: Rule, fields: &Fields<'_>) -> Option<EventTime> {
    let told = micros(fields.get(Key::Timestamp))?;
    let own = match rule {
        Rule::Create => micros(fields.get(Key::Created)),
        Rule::Answer => micros(fields.get(Key::Answered)),
        Rule::Hangup => micros(fields.get(Key::HungUp)),
        Rule::Dump => micros(fields.get(Key::Bridged)),
        _ => None,
    };
    let sequence: i64 = fields.get(Key::Sequence).parse().unwrap_or(0);
    let within = Duration::from_micros(sequence.rem_euclid(STEP_MICROS).unsigned_abs());
    Some(own.unwrap_or_else(|| told.plus(within)))
}

fn kind<'a>(rule: Rule, fields: &mut Fields<'a>) -> Option<Kind<'a>> {
    Some(match rule {
        Rule::Create if is_inbound(fields) => Kind::Born {
            state: callbridge_call::event::ChannelState::Ring,
        },
        Rule::Create => Kind::DialBegin {
            by: dialler(fields),
            dial_string: Cow::Owned(fields.get(Key::Destination).to_owned()),
        },
        Rule::Answer => Kind::State {
            state: callbridge_call::event::ChannelState::Up,
        },
        Rule::Bridge => Kind::Linked {
            with: partner(fields)?,
        },
        Rule::Unbridge => Kind::Unlinked {
            with: partner(fields)?,
        },
        Rule::Execute => Kind::Consults { begins: true },
        Rule::ExecuteComplete => Kind::Consults { begins: false },
        Rule::Conference => {
            let bridge = fields.take(Key::Conference);
            if bridge.is_empty() {
                return None;
            }
            let technology = Cow::Borrowed("softmix");
            if fields.get(Key::Action) == "add-member" {
                Kind::BridgeEnter { bridge, technology }
            } else {
                Kind::BridgeLeave { bridge, technology }
            }
        }
        Rule::Hangup => Kind::Hangup {
            cause: cause(fields),
        },
        Rule::Dump => match partner(fields) {
            Some(with) => Kind::Linked { with },
            None => Kind::Seen,
        },
        Rule::Heartbeat => return None,
    })
}

fn is_inbound(fields: &Fields<'_>) -> bool {
    fields.get(Key::Direction) == "inbound"
}

/// The channel that made this one, as far as it is told.
fn dialler<'a>(fields: &mut Fields<'a>) -> Option<Box<ChannelRef<'a>>> {
    if fields.get(Key::OtherType) != "originator" {
        return None;
    }
    let uniqueid = fields.take(Key::OtherId);
    let own = uniqueid.is_empty() || uniqueid == fields.get(Key::UniqueId);
    (!own).then(|| {
        Box::new(ChannelRef {
            uniqueid,
            name: fields.take(Key::OtherName),
            ..ChannelRef::default()
        })
    })
}

/// The other side of a bridge.
fn partner<'a>(fields: &mut Fields<'a>) -> Option<Box<ChannelRef<'a>>> {
    let own = fields.take(Key::UniqueId);
    let sides = [fields.take(Key::BridgeA), fields.take(Key::BridgeB)];
    let dumped = [Cow::Owned(fields.get(Key::BridgeUuid).to_owned())];
    let mut others = sides.into_iter().chain(dumped);
    let other = others.find(|side| !side.is_empty() && *side != own);
    fields.put_back(own);
    Some(Box::new(ChannelRef {
        uniqueid: other?,
        ..ChannelRef::default()
    }))
}

/// The Q.850 cause, by its number or its name.
fn cause(fields: &Fields<'_>) -> Option<u16> {
    let number = fields.get(Key::Q850).parse().ok();
    number.or_else(|| {
        Some(match fields.get(Key::Cause) {
            "UNALLOCATED_NUMBER" => 1,
            "NORMAL_CLEARING" => 16,
            "USER_BUSY" => 17,
            "NO_USER_RESPONSE" => 18,
            "NO_ANSWER" => 19,
            "SUBSCRIBER_ABSENT" => 20,
            "CALL_REJECTED" => 21,
            "DESTINATION_OUT_OF_ORDER" => 27,
            "INVALID_NUMBER_FORMAT" => 28,
            "NORMAL_UNSPECIFIED" => 31,
            "NORMAL_CIRCUIT_CONGESTION" => 34,
            "NORMAL_TEMPORARY_FAILURE" => 41,
            "RECOVERY_ON_TIMER_EXPIRE" => 102,
            _ => return None,
        })
    })
}

fn channel<'a>(rule: Rule, mut fields: Fields<'a>) -> ChannelRef<'a> {
    let inbound = is_inbound(&fields);
    let linkedid = linkedid(rule, &mut fields);
    let name = name(&mut fields);
    let traits = traits(rule, inbound, &mut fields);
    let callers = [Key::FirstCaller, Key::Ani, Key::FromUser, Key::Caller];
    // The switch shows zeros where it was told no number.
    let told = |key: &Key| fields.get(*key).bytes().any(|digit| digit != b'0');
    let caller = callers.into_iter().find(told);
    // Of a channel that is dialled, it is whatever number it is shown.
    let caller = caller.filter(|_| inbound);
    ChannelRef {
        caller_number: caller.map(|key| fields.take(key)).unwrap_or_default(),
        name,
        linkedid,
        context: fields.take(Key::Context),
        exten: Cow::Borrowed(""),
        variables: std::mem::take(&mut fields.variables),
        uniqueid: fields.take(Key::UniqueId),
        traits: Some(Box::new(traits)),
        ..ChannelRef::default()
    }
}

/// The channel whose call this one belongs to from its birth. `Channel-Call-UUID` says so then, and
/// changes with every transfer after that.
fn linkedid<'a>(rule: Rule, fields: &mut Fields<'a>) -> Text<'a> {
    let second = fields.get(Key::ChannelName).ends_with("-b");
    let born = rule == Rule::Create;
    let wanted = [
        (Key::MemberSession, true),
        (Key::OtherHalf, second),
        (Key::CallUuid, born),
        (Key::Originator, true),
    ];
    let found = wanted
        .into_iter()
        .find(|&(key, counts)| counts && !fields.get(key).is_empty());
    let key = found.map_or(Key::UniqueId, |(key, _)| key);
    Cow::Owned(fields.get(key).to_owned())
}

/// The channel's name. The two halves of a loopback are named after what they lead to, as any other
/// such pair is: the id of the first tells them apart.
fn name<'a>(fields: &mut Fields<'a>) -> Text<'a> {
    let name = fields.take(Key::ChannelName);
    let Some(target) = name.strip_prefix("loopback/") else {
        return name;
    };
    if let Some(target) = target.strip_suffix("-a") {
        return Cow::Owned(format!("loopback/{target};{};1", fields.get(Key::UniqueId)));
    }
    let other = fields.get(Key::OtherHalf);
    match target.strip_suffix("-b") {
        Some(target) if !other.is_empty() => Cow::Owned(format!("loopback/{target};{other};2")),
        _ => name,
    }
}

fn traits<'a>(rule: Rule, inbound: bool, fields: &mut Fields<'a>) -> ChannelTraits<'a> {
    let extension = extension(rule, inbound, fields);
    ChannelTraits {
        inbound,
        gateway: fields.take(if inbound {
            Key::GatewayIn
        } else {
            Key::GatewayDialled
        }),
        profile: fields.take(Key::Profile),
        address: address(inbound, fields),
        extension,
        dialled: dialled(rule, inbound, fields),
        fresh: is_fresh(rule, fields),
        listed: rule == Rule::Dump,
        created: micros(fields.get(Key::Created)),
        answered: micros(fields.get(Key::Answered)),
        linked: linked(rule, fields),
    }
}

/// The last bridge of the channel, which it names after it began.
fn linked<'a>(rule: Rule, fields: &mut Fields<'a>) -> Option<(EventTime, Text<'a>)> {
    let tells = matches!(rule, Rule::Hangup | Rule::Unbridge);
    let since = micros(fields.get(Key::Bridged)).filter(|_| tells)?;
    let with = fields.take(Key::BridgeUuid);
    (!with.is_empty()).then_some((since, with))
}

/// Nothing happened to it before that could have been missed: it was in no bridge, and in no room,
/// which nobody enters without an answer.
fn is_fresh(rule: Rule, fields: &Fields<'_>) -> bool {
    let never = |key| micros(fields.get(key)).is_none();
    rule == Rule::Create || never(Key::Bridged) && (rule == Rule::Answer || never(Key::Answered))
}

/// Where the other end of the line is, with its port where that is told.
fn address<'a>(inbound: bool, fields: &mut Fields<'a>) -> Text<'a> {
    if !inbound {
        let request = fields.get(Key::Request);
        let host = request.rsplit_once('@').map_or("", |(_, host)| host);
        let host = host.split(';').next().unwrap_or_default();
        if !host.is_empty() {
            return Cow::Owned(host.to_owned());
        }
        return fields.take(Key::ToHost);
    }
    let (host, port) = (fields.take(Key::Network), fields.get(Key::NetworkPort));
    if host.is_empty() || port.is_empty() {
        return host;
    }
    if host.contains(':') {
        return Cow::Owned(format!("[{host}]:{port}"));
    }
    Cow::Owned(format!("{host}:{port}"))
}

/// The telephone: of a channel that is dialled whom it was made for, of one that came in who logged
/// in there. A channel that dials carries the user it dialled, too, so that counts at birth alone.
fn extension<'a>(rule: Rule, inbound: bool, fields: &Fields<'a>) -> Text<'a> {
    if !inbound && !fields.get(Key::GatewayDialled).is_empty() {
        return Cow::Borrowed("");
    }
    let born = rule == Rule::Create;
    let of_dialled = [
        (Key::PresenceId, true),
        (Key::DialledUser, born),
        (Key::Agent, true),
    ];
    let of_caller = [(Key::UserName, true), (Key::AuthName, true)];
    let wanted: &[(Key, bool)] = if inbound { &of_caller } else { &of_dialled };
    for &(key, counts) in wanted {
        let user = fields.get(key).split('@').next().unwrap_or_default();
        if counts && !user.is_empty() {
            return Cow::Owned(user.to_owned());
        }
    }
    Cow::Borrowed("")
}

/// The number that the channel was made for. Its destination changes with each transfer.
fn dialled<'a>(rule: Rule, inbound: bool, fields: &mut Fields<'a>) -> Text<'a> {
    if inbound {
        return Cow::Borrowed("");
    }
    if rule == Rule::Create {
        return fields.take(Key::Destination);
    }
    let request = fields.get(Key::Request);
    let user = request.rsplit_once('@').map_or("", |(user, _)| user);
    Cow::Owned(user.to_owned())
}
