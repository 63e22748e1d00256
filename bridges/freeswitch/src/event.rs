//! Converts a FreeSWITCH event's headers to a channel event.
//!
//! | event | meaning |
//! |---|---|
//! | `CHANNEL_CREATE` | a channel came in, or was dialed |
//! | `CHANNEL_ANSWER` | it answered |
//! | `CHANNEL_BRIDGE`, `CHANNEL_UNBRIDGE` | two channels are connected or disconnected |
//! | `CHANNEL_EXECUTE att_xfer` | it consults someone, while its bridge remains |
//! | `CHANNEL_EXECUTE three_way`, `eavesdrop`, `DTMF` | it monitors a channel, and who hears it |
//! | `conference::maintenance` | it enters, is in, or leaves a conference |
//! | `CHANNEL_HANGUP`, `…_COMPLETE`, `CHANNEL_DESTROY` | it ended |

use crate::fields::{EventFields, Header};
use crate::monitor;
use crate::rule::{APPLICATIONS, ATTENDED, EventRule};
use callbridge_call::event::EventStamp;
use callbridge_call::trunk::{is_numeric, is_outside};
use callbridge_call::{
    ChannelEvent, ChannelRef, ChannelState, ChannelTraits, EventTime, Kind, Mark, Origin, PbxEvent,
    Text, Unreadable,
};
use std::borrow::Cow;
use std::time::Duration;

/// The switch's clock advances in steps of 20 ms, and within a step, the event counter shows their
/// order. The counter modulo this number is therefore added to the time as microseconds, which is
/// less than a step.
const STEP_MICROS: i64 = 16_384;

/// Maximum time between an answer and the resulting bridge.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Name prefix of a SIP channel.
const SOFIA: &str = "sofia/";
/// Name prefix of a loopback channel, which leads back into the switch and has two halves.
const LOOPBACK: &str = "loopback/";

/// Applications that a channel may run at its end without being connected to another channel.
const HARMLESS: [&str; 5] = ["", "bridge", "playback", "hangup", "voicemail"];

/// Converts the headers to an event, or returns `None` if the event doesn't matter for calls.
pub(crate) fn decode<'a>(mut fields: EventFields<'a>) -> Result<Option<PbxEvent<'a>>, Unreadable> {
    let Some(rule) = fields.rule else {
        return Ok(None);
    };
    match rule {
        EventRule::Heartbeat => return Ok(heartbeat_mark(&fields)),
        EventRule::Execute | EventRule::ExecuteComplete
            if !APPLICATIONS.contains(&fields.get(Header::Application)) =>
        {
            return Ok(None);
        }
        EventRule::Conference if ConferenceAction::of(&fields).is_none() => {
            return Ok(None);
        }
        _ => {}
    }
    if fields.get(Header::UniqueId).is_empty() {
        return Err(Unreadable::NoChannel);
    }
    let at = event_time(rule, &fields);
    let Some(kind) = kind(rule, &mut fields) else {
        return Ok(None);
    };
    let event = ChannelEvent::new(at, Origin::Channel, channel(rule, fields), kind);
    Ok(Some(PbxEvent::Channel(event)))
}

/// A `conference::maintenance` action that we handle. Each one identifies a conference member.
#[derive(Clone, Copy)]
enum ConferenceAction {
    Add,
    Delete,
    Talk,
}

impl ConferenceAction {
    fn of(fields: &EventFields<'_>) -> Option<Self> {
        Some(match fields.get(Header::Action) {
            "add-member" => Self::Add,
            "del-member" => Self::Delete,
            "start-talking" => Self::Talk,
            _ => return None,
        })
    }
}

/// Returns a `HEARTBEAT` as a mark showing that the switch's process is alive, or `None` if headers
/// are missing.
fn heartbeat_mark<'a>(fields: &EventFields<'_>) -> Option<PbxEvent<'a>> {
    let at = micros(fields.get(Header::Timestamp))?;
    let uptime = fields.get(Header::Uptime).parse().ok();
    Some(PbxEvent::Mark(Mark::Alive {
        process: process(fields)?,
        at,
        stamp: event_stamp(fields),
        began: uptime.map(|uptime| at.minus(Duration::from_millis(uptime))),
        channels: fields.get(Header::Sessions).parse().ok(),
    }))
}

/// Returns the switch's process, as an FNV-1a hash of the `Core-UUID` header.
fn process(fields: &EventFields<'_>) -> Option<u64> {
    let core = fields.get(Header::CoreUuid).as_bytes();
    if core.is_empty() {
        return None;
    }
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for &byte in core {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    Some(hash)
}

/// Returns the event's number within the switch's process, along with the event's time.
fn event_stamp(fields: &EventFields<'_>) -> Option<EventStamp> {
    Some(EventStamp {
        number: fields.get(Header::Sequence).parse().ok()?,
        at: micros(fields.get(Header::Timestamp))?,
    })
}

/// Parses a time in microseconds, returning `None` for 0, which means that it hasn't happened.
pub(crate) fn micros(text: &str) -> Option<EventTime> {
    let micros: i64 = text.parse().ok()?;
    (micros > 0).then(|| EventTime::from_micros(micros))
}

/// Returns when the event happened. Creations, answers, live bridges, and hangups have headers of
/// their own, so all hangup events get the time of the hangup. Other events get the time when they
/// were written.
fn event_time(rule: EventRule, fields: &EventFields<'_>) -> Option<EventTime> {
    let reported = micros(fields.get(Header::Timestamp))?;
    let own = match rule {
        EventRule::Create => micros(fields.get(Header::Created)),
        EventRule::Answer => micros(fields.get(Header::Answered)),
        EventRule::Hangup => micros(fields.get(Header::HungUp)),
        EventRule::Dump => micros(fields.get(Header::Bridged)),
        _ => None,
    };
    let sequence: i64 = fields.get(Header::Sequence).parse().unwrap_or(0);
    let within = Duration::from_micros(sequence.rem_euclid(STEP_MICROS).unsigned_abs());
    Some(own.unwrap_or_else(|| reported.plus(within)))
}

fn kind<'a>(rule: EventRule, fields: &mut EventFields<'a>) -> Option<Kind<'a>> {
    Some(match rule {
        EventRule::Create => birth(fields),
        EventRule::Answer => Kind::State {
            state: ChannelState::Up,
        },
        EventRule::Bridge => Kind::Linked {
            with: partner(fields)?,
        },
        EventRule::Unbridge => Kind::Unlinked {
            with: partner(fields)?,
        },
        EventRule::Execute | EventRule::ExecuteComplete => {
            let begins = rule == EventRule::Execute;
            if fields.get(Header::Application) != ATTENDED {
                return monitor::by_application(begins, fields);
            }
            Kind::Consults { begins }
        }
        EventRule::Key => return monitor::by_key(fields.get(Header::Key)),
        EventRule::Conference => {
            let action = ConferenceAction::of(fields)?;
            let bridge = fields.take(Header::Conference);
            if bridge.is_empty() {
                return None;
            }
            let technology = Cow::Borrowed("softmix");
            match action {
                ConferenceAction::Add => Kind::BridgeEnter { bridge, technology },
                ConferenceAction::Delete => Kind::BridgeLeave { bridge, technology },
                ConferenceAction::Talk => Kind::Sits { bridge },
            }
        }
        EventRule::Hangup => Kind::Hangup {
            cause: cause(fields),
        },
        EventRule::Dump => match partner(fields) {
            Some(with) => Kind::Linked { with },
            None => Kind::Listed {
                bridge: Cow::Borrowed(""),
                state: ChannelState::Unknown,
                age: None,
            },
        },
        EventRule::Heartbeat => return None,
    })
}

/// Returns the event kind for a new channel. An incoming channel is created in state `Ring`, and
/// any other channel is dialed.
pub(crate) fn birth<'a>(fields: &mut EventFields<'a>) -> Kind<'a> {
    if is_inbound(fields) {
        let state = ChannelState::Ring;
        return Kind::Born { state };
    }
    Kind::DialBegin {
        by: dialing_channel(fields),
        dial_string: Cow::Owned(fields.get(Header::Destination).to_owned()),
    }
}

fn is_inbound(fields: &EventFields<'_>) -> bool {
    fields.get(Header::Direction) == "inbound"
}

/// Returns the channel that dialed this one, or `None` if the event doesn't identify it.
fn dialing_channel<'a>(fields: &mut EventFields<'a>) -> Option<Box<ChannelRef<'a>>> {
    let own = fields.get(Header::UniqueId);
    let other = fields.get(Header::OtherId);
    let is_originator = fields.get(Header::OtherType) == "originator";
    if is_originator && !other.is_empty() && other != own {
        let uniqueid = fields.take(Header::OtherId);
        return Some(Box::new(ChannelRef {
            name: name_of_other(fields.take(Header::OtherName), &uniqueid),
            uniqueid,
            ..ChannelRef::default()
        }));
    }
    let caller = caller_without_session(fields)?.to_owned();
    Some(Box::new(ChannelRef::by_id(caller.into())))
}

/// Returns the caller of a channel that the switch dialed without a session, i.e., using enterprise
/// originate (`:_:` in a dial string) or mod_fifo, or `None` for other channels. Such a channel has
/// no originator, and its call UUID is its own ID, so the caller can only be found in a variable.
fn caller_without_session<'f>(fields: &'f EventFields<'_>) -> Option<&'f str> {
    if is_inbound(fields) {
        return None;
    }
    let own = fields.get(Header::UniqueId);
    let variables = [Header::EnterpriseCaller, Header::FifoCaller];
    let mut callers = variables.into_iter().map(|variable| fields.get(variable));
    callers.find(|caller| !caller.is_empty() && *caller != own)
}

/// Returns the other channel of a bridge.
fn partner<'a>(fields: &mut EventFields<'a>) -> Option<Box<ChannelRef<'a>>> {
    let sides = [
        fields.take(Header::BridgeA),
        fields.take(Header::BridgeB),
        Cow::Owned(fields.get(Header::BridgeUuid).to_owned()),
    ];
    let own = fields.get(Header::UniqueId);
    let mut others = sides.into_iter();
    let other = others.find(|side| !side.is_empty() && *side != own)?;
    Some(Box::new(ChannelRef::by_id(other)))
}

/// Returns the hangup's Q.850 cause from the header with the number or, failing that, from the
/// cause's name.
fn cause(fields: &EventFields<'_>) -> Option<u16> {
    fields.get(Header::Q850).parse().ok().or_else(|| {
        Some(match fields.get(Header::Cause) {
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

/// Returns the channel that the event is about. `rule` is the rule used to read the event.
pub(crate) fn channel<'a>(rule: EventRule, mut fields: EventFields<'a>) -> ChannelRef<'a> {
    let inbound = is_inbound(&fields);
    let linkedid = linkedid(rule, &fields);
    let name = name(&mut fields);
    let callers = [
        Header::FirstCaller,
        Header::Ani,
        Header::FromUser,
        Header::Caller,
    ];
    // A dialed channel's caller number is the number shown to it, which isn't a caller's.
    let caller = if inbound {
        // The switch shows zeros if it has no number.
        callers
            .into_iter()
            .find(|key| fields.get(*key).bytes().any(|digit| digit != b'0'))
    } else {
        None
    };
    let number = caller.map(|key| fields.get(key)).unwrap_or_default();
    let extension = extension(rule, inbound, &name, number, &fields);
    let is_member = !fields.get(Header::MemberId).is_empty();
    let traits = traits(rule, inbound, extension, &mut fields);
    ChannelRef {
        caller_number: caller.map(|key| fields.take(key)).unwrap_or_default(),
        name,
        linkedid,
        application: Cow::Borrowed(if is_member { "conference" } else { "" }),
        process: process(&fields),
        stamp: event_stamp(&fields),
        context: fields.take(Header::Context),
        exten: match rule {
            EventRule::Create if inbound => fields.take(Header::Destination),
            _ => Cow::Borrowed(""),
        },
        variables: std::mem::take(&mut fields.variables),
        uniqueid: fields.take(Header::UniqueId),
        traits: Some(Box::new(traits)),
        ..ChannelRef::default()
    }
}

/// Returns the ID of the channel whose call this channel belongs to.
///
/// `Channel-Call-UUID` only has this ID when the channel is created, since every transfer changes
/// it. If it contains the channel's own ID, it's inconclusive.
fn linkedid<'a>(rule: EventRule, fields: &EventFields<'a>) -> Text<'a> {
    let own = fields.get(Header::UniqueId);
    let is_second_half = fields.get(Header::ChannelName).ends_with("-b");
    let sources = [
        (Header::MemberSession, true),
        (Header::OtherHalf, is_second_half),
        (Header::CallUuid, rule == EventRule::Create),
        (Header::Originator, true),
    ];
    for (source, counts) in sources {
        let id = fields.get(source);
        if counts && !id.is_empty() && id != own {
            return Cow::Owned(id.to_owned());
        }
    }
    Cow::Owned(caller_without_session(fields).unwrap_or(own).to_owned())
}

/// Returns the channel's name. For either half of a loopback channel, that's a name that identifies
/// both halves.
fn name<'a>(fields: &mut EventFields<'a>) -> Text<'a> {
    let name = fields.take(Header::ChannelName);
    let id = fields.get(Header::UniqueId);
    let other = fields.get(Header::OtherHalf);
    name_of_half(&name, id, other).map_or(name, Cow::Owned)
}

/// Returns the name of the other channel, whose ID is `id`. For the second half of a loopback
/// channel, that's an empty name, because the first half's ID isn't known here, and without it, the
/// name would separate the halves.
fn name_of_other<'a>(name: Text<'a>, id: &str) -> Text<'a> {
    if name.starts_with(LOOPBACK) {
        return Cow::Owned(name_of_half(&name, id, "").unwrap_or_default());
    }
    name
}

/// Returns a name for half of a loopback channel, consisting of the target, the first half's ID,
/// and `1` or `2`. `id` is this half's ID, and `other` is the other half's. Returns `None` for any
/// other channel, or if the first half's ID isn't known.
fn name_of_half(name: &str, id: &str, other: &str) -> Option<String> {
    let target = name.strip_prefix(LOOPBACK)?;
    if let Some(target) = target.strip_suffix("-a") {
        return Some(format!("{LOOPBACK}{target};{id};1"));
    }
    let target = target.strip_suffix("-b")?;
    if other.is_empty() {
        return None;
    }
    Some(format!("{LOOPBACK}{target};{other};2"))
}

fn traits<'a>(
    rule: EventRule,
    inbound: bool,
    extension: Text<'a>,
    fields: &mut EventFields<'a>,
) -> ChannelTraits<'a> {
    let sole = is_sole(rule, fields);
    ChannelTraits {
        inbound,
        gateway: fields.take(if inbound {
            Header::GatewayIn
        } else {
            Header::GatewayDialed
        }),
        profile: fields.take(Header::Profile),
        address: address(inbound, fields),
        extension,
        dialed: dialed_number(rule, inbound, fields),
        pause: pause(fields),
        fresh: is_fresh(rule, fields) || sole,
        sole: sole && rule == EventRule::Hangup,
        unlinked: is_unlinked(rule, fields),
        listed: rule == EventRule::Dump,
        recovered: fields.get(Header::Recovered) == "true",
        created: micros(fields.get(Header::Created)),
        answered: micros(fields.get(Header::Answered)),
        linked: last_bridge(rule, fields),
    }
}

/// Returns how long the command that dialed the channel waits before redialing, or zero if it
/// doesn't redial. The switch waits for one second unless the dial string says otherwise, and
/// ignores values outside these ranges.
fn pause(fields: &EventFields<'_>) -> Duration {
    if !number(fields, Header::Retries).is_some_and(|retries| (2..=100).contains(&retries)) {
        return Duration::ZERO;
    }
    let sleep = number(fields, Header::RetrySleep).filter(|sleep| (500..=60_000).contains(sleep));
    let longest = sleep.max(number(fields, Header::RetryPeriod));
    Duration::from_millis(longest.map_or(1000, u64::from))
}

fn number(fields: &EventFields<'_>, header: Header) -> Option<u32> {
    fields.get(header).parse().ok()
}

/// Returns when the channel's last bridge started, along with the other channel. Only hangups and
/// the ends of bridges have this information.
fn last_bridge<'a>(rule: EventRule, fields: &mut EventFields<'a>) -> Option<(EventTime, Text<'a>)> {
    if !matches!(rule, EventRule::Hangup | EventRule::Unbridge) {
        return None;
    }
    let since = micros(fields.get(Header::Bridged))?;
    let with = fields.take(Header::BridgeUuid);
    if with.is_empty() {
        None
    } else {
        Some((since, with))
    }
}

/// Returns `true` if no earlier event of the channel that matters can have been missed, because it
/// didn't dial anyone and wasn't in a bridge or conference. A channel only enters a conference
/// after it's been answered.
fn is_fresh(rule: EventRule, fields: &EventFields<'_>) -> bool {
    if rule == EventRule::Create {
        return true;
    }
    let was_bridged = micros(fields.get(Header::Bridged)).is_some();
    let was_answered = micros(fields.get(Header::Answered)).is_some();
    if was_bridged || was_answered && rule != EventRule::Answer {
        return false;
    }
    // A key press event has no variables.
    rule != EventRule::Key && fields.get(Header::Originated).is_empty()
}

/// Returns `true` if the channel was only ever connected to one other channel, which is the case if
/// its last bridge started when it answered and the partner is the channel that it dialed last.
///
/// After an unanswered attended transfer, the last one dialed would be a different channel. After
/// any other transfer, the switch writes a history.
fn is_sole(rule: EventRule, fields: &EventFields<'_>) -> bool {
    // Only these events contain all of the channel's variables and times.
    if !matches!(rule, EventRule::Hangup | EventRule::Dump) {
        return false;
    }
    let Some(answered) = micros(fields.get(Header::Answered)) else {
        return false;
    };
    let Some(bridged) = micros(fields.get(Header::Bridged)) else {
        return false;
    };
    let partner = fields.get(Header::BridgeUuid);
    let originated = fields.get(Header::Originated);
    let last = originated.rsplit("|:").next().unwrap_or_default();
    let last_dialed = last.strip_prefix("ARRAY::").unwrap_or(last);
    bridged.since(answered) < AT_ONCE
        && !partner.is_empty()
        && (last_dialed.is_empty() || last_dialed.starts_with(partner))
        && fields.get(Header::Transfers).is_empty()
        && HARMLESS.contains(&fields.get(Header::RunsNow))
}

/// Returns `true` if the channel's final event shows that it was never bridged. The other channel's
/// ID is checked as well, since a transfer resets the bridge time but not this ID.
fn is_unlinked(rule: EventRule, fields: &EventFields<'_>) -> bool {
    rule == EventRule::Hangup
        && fields.get(Header::Bridged) == "0"
        && fields.get(Header::BridgeUuid).is_empty()
}

/// Returns the address of the remote end, with its port if known.
fn address<'a>(inbound: bool, fields: &mut EventFields<'a>) -> Text<'a> {
    if !inbound {
        let host = host_of(fields.get(Header::Request));
        if !host.is_empty() {
            return Cow::Owned(host.to_owned());
        }
        return fields.take(Header::ToHost);
    }
    let host = fields.take(Header::Network);
    if host.is_empty() {
        return host;
    }
    Cow::Owned(host_and_port(&host, fields.get(Header::NetworkPort)))
}

/// Returns the host in a SIP address, with the port if there is one, or an empty text if the
/// address has no `@`.
fn host_of(request: &str) -> &str {
    let host = request.rsplit_once('@').map_or("", |(_, host)| host);
    host.split(';').next().unwrap_or_default()
}

/// Joins a host and a port, which may be empty, putting brackets around an IPv6 host.
fn host_and_port(host: &str, port: &str) -> String {
    match (host.contains(':'), port.is_empty()) {
        (_, true) => host.to_owned(),
        (true, false) => format!("[{host}]:{port}"),
        (false, false) => format!("{host}:{port}"),
    }
}

/// Returns the extension of the phone at the channel, or an empty text. For a dialed channel, it's
/// the dialed user. `dialed_user` is only used on creation, because channels that dial get it too.
///
/// For an incoming channel, it's the user who logged in. A browser phone may only have a presence
/// ID, and a phone that isn't on SIP may have no user at all, so its extension is the caller's
/// number.
fn extension<'a>(
    rule: EventRule,
    inbound: bool,
    name: &str,
    caller: &str,
    fields: &EventFields<'a>,
) -> Text<'a> {
    let candidates = if inbound {
        let number = if name.starts_with(SOFIA) || !is_numeric(caller) {
            ""
        } else {
            caller
        };
        let unproven = [user(fields.get(Header::PresenceId)), number];
        let [presence, number] = unproven.map(|user| if is_outside(user) { "" } else { user });
        let login = [Header::UserName, Header::AuthName].map(|key| user(fields.get(key)));
        [login[0], login[1], presence, number]
    } else if fields.get(Header::GatewayDialed).is_empty() {
        let dialed = match rule {
            EventRule::Create => fields.get(Header::DialedUser),
            _ => "",
        };
        let presence = fields.get(Header::PresenceId);
        [presence, dialed, fields.get(Header::Agent), ""].map(user)
    } else {
        [""; 4]
    };
    let known = candidates.into_iter().find(|user| !user.is_empty());
    Cow::Owned(known.unwrap_or_default().to_owned())
}

/// Returns the user in `user@host`.
fn user(address: &str) -> &str {
    address.split('@').next().unwrap_or_default()
}

/// Returns the number that the channel was created to dial. After its creation, the number is taken
/// from the request URI, because a transfer changes the destination.
fn dialed_number<'a>(rule: EventRule, inbound: bool, fields: &mut EventFields<'a>) -> Text<'a> {
    if inbound {
        return Cow::Borrowed("");
    }
    if rule == EventRule::Create {
        return fields.take(Header::Destination);
    }
    let request = fields.get(Header::Request);
    let user = request.rsplit_once('@').map_or("", |(user, _)| user);
    Cow::Owned(user.to_owned())
}
