//! Reports a story as a PBX does: as channel events, as CEL, or as both.

use crate::switch::{Act, Ch, Deed, Deeds, Micros, Role};
use callbridge_call::{
    ChannelEvent, ChannelRef, ChannelState, EventTime, Kind, Origin, PbxEvent, UniqueId,
};
use std::borrow::Cow;

/// Time at which all stories begin, in seconds since 1970.
pub const EPOCH: i64 = 1_795_000_000;

/// The kinds of events that report a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voice {
    Channel,
    Cel,
    Both,
    /// Links of two channels, and rooms. One of the two channels reports the link, once. Each
    /// channel reports its traits.
    Links,
}

/// When events show that a channel's linkedid has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkedids {
    AtOnce,
    /// Only in the channel's hangup.
    Late,
    /// Not at all: all events show the linkedid that the channel was created with.
    Never,
}

/// How a PBX reports a story.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    pub voice: Voice,
    /// When a changed linkedid is reported.
    pub linkedids: Linkedids,
    /// How much later the times of CEL events are than the times of channel events.
    pub cel_behind: Micros,
    /// `true` if unique ids begin with a system name.
    pub named: bool,
}

/// Returns the time that is `at` after the beginning of the story.
pub fn moment(at: Micros) -> EventTime {
    EventTime::from_micros(EPOCH * 1_000_000 + at)
}

/// Returns the unique id of a channel.
pub fn id(story: &Deeds, manner: Manner, channel: Ch) -> UniqueId {
    let epoch = EPOCH + story.channels[channel].born.div_euclid(1_000_000);
    let system = if manner.named { "pbx1-" } else { "" };
    // The counters are 97, 98, … 102, which sort differently as text and as numbers.
    UniqueId::new(format!("{system}{epoch}.{}", 97 + channel)).expect("not empty")
}

pub fn owned(text: impl Into<String>) -> Cow<'static, str> {
    Cow::Owned(text.into())
}

/// Returns the name of a channel.
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

/// Adds the suffix to `base` that makes the name of a channel unique.
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

/// Returns a channel as its events describe it.
fn describe(story: &Deeds, manner: Manner, channel: Ch, linkedid: Ch) -> ChannelRef<'static> {
    let (caller, exten) = match &story.channels[channel].role {
        Role::CameIn { number, .. } => (number.clone().unwrap_or_default(), "7001"),
        // The caller number of an outbound channel has the dial prefix 9.
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

/// Returns every event, in the order in which it is reported.
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

/// Returns the channel whose unique id is the linkedid that the event of `deed` shows.
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

/// Returns a channel with the linkedid that the channel had at its creation.
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

/// Returns the first events of a channel, which show whether the channel came in. PJSIP shows this
/// at the creation of the channel, and `chan_sip` in the first Newstate.
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
        // The caller number of an originated channel is the company's number, and is empty here.
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
        // CEL does not report Local pairs: both halves have the same linkedid and name.
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

/// Returns the CEL row of the `Dial` with which the channel `by` dials the channel of `deed`.
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
