//! `explain --call --json`: the timeline of a call as scripts read it. Times are seconds since the
//! epoch, to the microsecond.

use callbridge_call::timeline::{Channel, MomentKind, Role, Way};
use callbridge_call::{EventTime, FinishedCall};
use serde::Serialize;

/// What happened in a call, and which event decided which value.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Story<'a> {
    channels: Vec<Lane<'a>>,
    talk: Vec<TalkShape<'a>>,
    decided: Vec<Decided<'a>>,
    left_out: u32,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Lane<'a> {
    uniqueid: &'a str,
    name: &'a str,
    party: &'static str,
    trunk: Option<&'a str>,
    extension: Option<&'a str>,
    way: &'static str,
    from: f64,
    to: f64,
    hung_up: bool,
    events: Vec<EventShape<'a>>,
    bridges: Vec<StayShape<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EventShape<'a> {
    at: f64,
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    words: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<u16>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct StayShape<'a> {
    bridge: &'a str,
    from: f64,
    to: f64,
    holding: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TalkShape<'a> {
    with: &'a str,
    from: f64,
    to: f64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Decided<'a> {
    value: &'a str,
    at: f64,
    channel: &'a str,
    words: &'a str,
}

impl<'a> Story<'a> {
    /// Of a call; `None` where no channel events told of it.
    pub(super) fn of(call: &'a FinishedCall) -> Option<Self> {
        let timeline = call.timeline.as_ref()?;
        let of = |number: u16| timeline.channels.get(usize::from(number));
        let name = |number: u16| of(number).map_or("", |channel| channel.name.as_str());
        let lane = |channel: &'a Channel| lane(channel, &timeline.bridges, &name);
        let talk = timeline.talk.iter().map(|talk| TalkShape {
            with: name(talk.with),
            from: seconds(talk.from),
            to: seconds(talk.to),
        });
        let decided = call.why.iter().map(|because| Decided {
            value: &because.value,
            at: seconds(because.at),
            channel: &because.channel,
            words: &because.words,
        });
        Some(Self {
            channels: timeline.channels.iter().map(lane).collect(),
            talk: talk.collect(),
            decided: decided.collect(),
            left_out: timeline.left_out,
        })
    }
}

fn lane<'a>(
    channel: &'a Channel,
    bridges: &'a [String],
    name: &impl Fn(u16) -> &'a str,
) -> Lane<'a> {
    let (party, trunk, extension) = match &channel.party {
        Role::Customer(trunk) => ("customer", trunk.as_deref(), None),
        Role::Trunk(trunk) => ("trunk", Some(trunk.as_str()), None),
        Role::Extension(extension) => ("extension", None, Some(extension.as_str())),
        Role::Plumbing => ("plumbing", None, None),
    };
    let events = channel.moments.iter().map(|moment| {
        let (event, by, words, cause) = match &moment.what {
            MomentKind::Dialled { by, string } => {
                ("dialled", by.map(name), Some(string.as_str()), None)
            }
            MomentKind::Rings => ("rings", None, None, None),
            MomentKind::Up => ("up", None, None, None),
            MomentKind::DialEnded(status) => ("dial_ended", None, Some(status.as_str()), None),
            MomentKind::HungUp { cause } => ("hung_up", None, None, *cause),
        };
        let at = seconds(moment.at);
        let words = words.filter(|words| !words.is_empty());
        EventShape {
            at,
            event,
            by,
            words,
            cause,
        }
    });
    let stays = channel.stays.iter().map(|stay| StayShape {
        bridge: bridges
            .get(usize::from(stay.bridge))
            .map_or("", String::as_str),
        from: seconds(stay.from),
        to: seconds(stay.to),
        holding: stay.holding,
    });
    Lane {
        uniqueid: channel.id.as_str(),
        name: &channel.name,
        party,
        trunk,
        extension,
        way: match channel.way {
            Way::CameIn => "came_in",
            Way::Dialled => "dialled",
        },
        from: seconds(channel.from),
        to: seconds(channel.to),
        hung_up: channel.hung_up(),
        events: events.collect(),
        bridges: stays.collect(),
    }
}

/// Microseconds of this century are exact as an f64.
fn seconds(at: EventTime) -> f64 {
    at.micros() as f64 / 1e6
}
