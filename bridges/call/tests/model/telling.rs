//! Reports a story the way a PBX does, as channel events, as CEL, or as both.

use crate::switch::{Act, Ch, Deed, Deeds, Micros, Role};
use callbridge_call::{
    ChannelEvent, ChannelRef, ChannelState, EventTime, Kind, Origin, PbxEvent, UniqueId,
};
use std::borrow::Cow;

/// When all stories start, in seconds since 1970.
pub const EPOCH: i64 = 1_795_000_000;

/// The kinds of events used to report a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voice {
    Channel,
    Cel,
    Both,
    /// Two-channel links and rooms. A link is reported once, by one of its sides. Each channel
    /// reports its traits.
    Links,
}

/// When events show that a channel's linkedid has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkedids {
    AtOnce,
    /// Only in the channel's hangup.
    Late,
    /// Not at all, so all events show the linkedid that the channel was created with.
    Never,
}

/// How a PBX reports a story.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    pub voice: Voice,
    /// When a changed linkedid is reported.
    pub linkedids: Linkedids,
    /// How much later CEL events are timestamped than channel events.
    pub cel_behind: Micros,
    /// Whether unique IDs start with a system name.
    pub named: bool,
}

/// Returns the time `at` after the start of the story.
pub fn moment(at: Micros) -> EventTime {
    EventTime::from_micros(EPOCH * 1_000_000 + at)
}

/// Returns a channel's unique ID.
pub fn id(story: &Deeds, manner: Manner, channel: Ch) -> UniqueId {
    let epoch = EPOCH + story.channels[channel].born.div_euclid(1_000_000);
    let system = if manner.named { "pbx1-" } else { "" };
    // The counters are 97, 98, … 102, which sort differently as text than as numbers.
    UniqueId::new(format!("{system}{epoch}.{}", 97 + channel)).expect("not empty")
}

pub fn owned(text: impl Into<String>) -> Cow<'static, str> {
    Cow::Owned(text.into())
}

/// Returns a channel's name.
pub fn name(story: &Deeds, channel: Ch) -> String {
    match &story.channels[channel].role {
        Role::CameIn { trunk, .. } | Role::DialedOut { trunk, .. } => {
            add_suffix(trunk.endpoint, channel)
        }
        Role::Phone { extension, .. } if extension.starts_with('2') => {
            add_suffix(&format!("SIP/{extension}"), channel)
        }
        Role::Phone { extension, .. } => add_suffix(&format!("PJSIP/{extension}"), channel),
        Role::Local { other, first } => {
            let number = channel.min(*other);
            format!("Local/in@x-{number:08x};{}", if *first { 1 } else { 2 })
        }
        Role::Plumbing { technology } => format!("{technology}/x-{channel:08x}"),
    }
}

/// Adds a suffix to `base` that makes the channel name unique.
fn add_suffix(base: &str, channel: Ch) -> String {
    match base.split_once('/').map_or(base, |(tech, _)| tech) {
        "DAHDI" => format!("{base}/{channel}-1"),
        _ => format!("{base}-{channel:08x}"),
    }
}

/// Returns the part of a dial string after the technology.
pub fn dial_string(story: &Deeds, channel: Ch) -> String {
    match &story.channels[channel].role {
        Role::DialedOut { trunk, number } => match trunk.endpoint.split_once('/') {
            Some(("PJSIP", peer)) => format!("{number}@{peer}"),
            Some((_, peer)) => format!("{peer}/{number}"),
            None => number.clone(),
        },
        Role::Phone { extension, .. } => extension.clone(),
        Role::Local { .. } => "in@x".to_owned(),
        Role::CameIn { .. } | Role::Plumbing { .. } => String::new(),
    }
}

/// Returns a channel as described by its events.
fn describe(story: &Deeds, manner: Manner, channel: Ch, linkedid: Ch) -> ChannelRef<'static> {
    let (caller, exten) = match &story.channels[channel].role {
        Role::CameIn { number, .. } => (number.clone().unwrap_or_default(), "7001"),
        // An outbound channel's caller number includes the dial prefix 9.
        Role::DialedOut { number, .. } => (format!("9{number}"), ""),
        Role::Phone { extension, placed } => (extension.clone(), if *placed { "9000" } else { "" }),
        Role::Local { .. } | Role::Plumbing { .. } => (String::new(), "s"),
    };
    ChannelRef {
        name: owned(name(story, channel)),
        uniqueid: owned(id(story, manner, channel).as_str()),
        linkedid: owned(id(story, manner, linkedid).as_str()),
        caller_number: owned(caller),
        exten: owned(exten),
        ..ChannelRef::default()
    }
}

/// Returns all events in the order they're reported.
pub fn report_events(story: &Deeds, manner: Manner) -> Vec<PbxEvent<'static>> {
    if manner.voice == Voice::Links {
        return crate::links::report_events(story, manner);
    }
    let mut events: Vec<(Micros, PbxEvent<'static>)> = Vec::new();
    for deed in &story.deeds {
        if manner.voice != Voice::Cel {
            for (channel, kind) in channel_events(story, manner, deed) {
                events.push((deed.at, pbx_event(deed.at, Origin::Channel, channel, kind)));
            }
        }
        if manner.voice != Voice::Channel {
            let at = deed.at + manner.cel_behind;
            for (channel, kind) in cel_events(story, manner, deed) {
                events.push((at, pbx_event(at, Origin::Cel, channel, kind)));
            }
        }
    }
    events.sort_by_key(|&(at, _)| at);
    events.into_iter().map(|(_, event)| event).collect()
}

fn pbx_event(
    at: Micros,
    origin: Origin,
    channel: ChannelRef<'static>,
    kind: Kind<'static>,
) -> PbxEvent<'static> {
    PbxEvent::Channel(ChannelEvent {
        at: Some(moment(at)),
        origin,
        channel,
        kind,
    })
}

/// Returns the channel whose unique ID is the linkedid shown in the event for `deed`.
fn shown_linkedid(story: &Deeds, manner: Manner, deed: &Deed) -> Ch {
    let is_current = match manner.linkedids {
        Linkedids::AtOnce => true,
        Linkedids::Late => deed.act == Act::Hangup,
        Linkedids::Never => false,
    };
    if is_current {
        deed.linkedid
    } else {
        story.channels[deed.channel].linkedid
    }
}

type Reports = Vec<(ChannelRef<'static>, Kind<'static>)>;

/// Returns a channel with the linkedid that it was created with.
fn describe_at_birth(story: &Deeds, manner: Manner, channel: Ch) -> ChannelRef<'static> {
    describe(story, manner, channel, story.channels[channel].linkedid)
}

fn channel_events(story: &Deeds, manner: Manner, deed: &Deed) -> Reports {
    let channel = describe(
        story,
        manner,
        deed.channel,
        shown_linkedid(story, manner, deed),
    );
    let kinds = match deed.act {
        Act::Born => first_events(story, deed.channel),
        Act::DialBegin { by } => vec![Kind::DialBegin {
            by: by.map(|by| Box::new(describe_at_birth(story, manner, by))),
            dial_string: owned(dial_string(story, deed.channel)),
        }],
        Act::DialEnd { by } => vec![Kind::DialEnd {
            by: by.map(|by| Box::new(describe_at_birth(story, manner, by))),
            status: owned("ANSWER"),
        }],
        Act::Refused { by } => vec![Kind::DialEnd {
            by: by.map(|by| Box::new(describe_at_birth(story, manner, by))),
            status: owned("NOANSWER"),
        }],
        Act::Ringing => vec![Kind::State {
            state: ChannelState::Ringing,
        }],
        Act::Up => vec![Kind::State {
            state: ChannelState::Up,
        }],
        Act::Enter(bridge) => vec![Kind::BridgeEnter {
            bridge: owned(&story.bridges[bridge].name),
            technology: owned(story.bridges[bridge].technology),
        }],
        Act::Leave(bridge) => vec![Kind::BridgeLeave {
            bridge: owned(&story.bridges[bridge].name),
            technology: owned(story.bridges[bridge].technology),
        }],
        Act::Joined(with) => vec![Kind::Joined {
            with: vec![owned(id(story, manner, with).as_str())],
        }],
        Act::Sign | Act::Runs(_) => vec![Kind::Seen],
        Act::Hangup => vec![Kind::Hangup { cause: Some(16) }],
    };
    kinds.into_iter().map(|k| (channel.clone(), k)).collect()
}

/// Returns a channel's first events, which show whether it came in. PJSIP shows this when the
/// channel is created, and `chan_sip` in the first Newstate.
fn first_events(story: &Deeds, channel: Ch) -> Vec<Kind<'static>> {
    let calls = match &story.channels[channel].role {
        Role::CameIn { .. } => true,
        Role::Phone { placed, .. } => *placed,
        Role::Local { first, .. } => !*first,
        Role::DialedOut { .. } | Role::Plumbing { .. } => false,
    };
    match name(story, channel).split('/').next() {
        Some("SIP") if calls => vec![
            Kind::Born {
                state: ChannelState::Down,
            },
            Kind::State {
                state: ChannelState::Ring,
            },
        ],
        Some("DAHDI") if calls => vec![Kind::Born {
            state: ChannelState::PreRing,
        }],
        _ if calls => vec![Kind::Born {
            state: ChannelState::Ring,
        }],
        _ => vec![Kind::Born {
            state: ChannelState::Down,
        }],
    }
}

fn cel_events(story: &Deeds, manner: Manner, deed: &Deed) -> Reports {
    let mut channel = describe(
        story,
        manner,
        deed.channel,
        shown_linkedid(story, manner, deed),
    );
    let born_as = &story.channels[deed.channel];
    let dialed = match &born_as.role {
        Role::DialedOut { .. } => true,
        Role::Phone { placed, .. } => !*placed,
        Role::Local { first, .. } => *first,
        Role::CameIn { .. } | Role::Plumbing { .. } => false,
    };
    if dialed {
        channel.exten = owned("s");
        // An originated channel's caller number is the company's number, which is empty here.
        channel.caller_number = match (&born_as.role, deed.act == Act::Born) {
            (Role::Phone { extension, .. }, _) if born_as.dialed_by.is_some() => {
                owned(extension.as_str())
            }
            _ => owned(""),
        };
        if deed.act != Act::Born {
            let is_originated = born_as.dialed_by.is_none();
            channel.application = owned(if is_originated { "AppDial2" } else { "AppDial" });
            channel.app_data = owned("(Outgoing Line)");
        }
    }
    let mut reports = Vec::new();
    let kind = match deed.act {
        Act::Born => Kind::Born {
            state: ChannelState::Unknown,
        },
        Act::Up => Kind::State {
            state: ChannelState::Up,
        },
        Act::DialBegin { by: Some(by) } => return dial_row(story, manner, deed, by),
        Act::DialBegin { by: None } | Act::DialEnd { .. } | Act::Ringing => return reports,
        Act::Refused { .. } => Kind::App {
            name: owned("Read"),
            data: owned("KEY,press-1,1"),
        },
        Act::Enter(bridge) => Kind::BridgeEnter {
            bridge: owned(&story.bridges[bridge].name),
            technology: owned(story.bridges[bridge].technology),
        },
        Act::Leave(bridge) => Kind::BridgeLeave {
            bridge: owned(&story.bridges[bridge].name),
            technology: owned(story.bridges[bridge].technology),
        },
        // CEL doesn't report the two halves of a Local channel as joined, since they have the same
        // linkedid and name.
        Act::Joined(with) if matches!(born_as.role, Role::Local { other, .. } if other == with) => {
            return reports;
        }
        Act::Joined(with) => Kind::Joined {
            with: vec![owned(id(story, manner, with).as_str())],
        },
        Act::Sign | Act::Runs(_) => Kind::Seen,
        Act::Hangup => {
            reports.push((channel.clone(), Kind::Gone));
            Kind::Hangup { cause: Some(16) }
        }
    };
    reports.push((channel, kind));
    reports
}

/// Returns the CEL row of the `Dial` that the channel `by` uses to dial the channel of `deed`.
fn dial_row(story: &Deeds, manner: Manner, deed: &Deed, by: Ch) -> Reports {
    let name = name(story, deed.channel);
    let technology = name.split('/').next().unwrap_or_default();
    let data = format!("{technology}/{},20,tT", dial_string(story, deed.channel));
    let mut channel = describe_at_birth(story, manner, by);
    channel.application = owned("Dial");
    channel.app_data = owned(data.clone());
    let (name, data) = (owned("Dial"), owned(data));
    vec![(channel, Kind::App { name, data })]
}
