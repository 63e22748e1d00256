//! Reports a story as two-channel links and rooms. A link is reported once, by one of its sides.
//! Each channel reports its traits and the call that it was created in. Transfers, pickups, and
//! parking lots aren't reported.

use crate::switch::{Act, Br, Ch, Deed, Deeds, Micros, Role};
use crate::telling::{Manner, id, moment, name, owned};
use callbridge_call::{
    ChannelEvent, ChannelRef, ChannelState, ChannelTraits, Kind, Origin, PbxEvent,
};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the channel in whose call `channel` was created, which is the one that dialed it or the
/// first half of a Local channel, or else `channel` itself.
pub fn parent(story: &Deeds, channel: Ch) -> Ch {
    let born = &story.channels[channel];
    match born.role {
        Role::Local {
            other,
            first: false,
        } => other,
        _ => born.dialed_by.unwrap_or(channel),
    }
}

/// Returns the first channel of the call in which `channel` was created.
pub fn origin(story: &Deeds, channel: Ch) -> Ch {
    match parent(story, channel) {
        own if own == channel => own,
        other => origin(story, other),
    }
}

/// Returns the name used for a channel in events, which is `loopback/…` if the channel has no
/// party.
fn reported_name(story: &Deeds, channel: Ch) -> String {
    let name = name(story, channel);
    match (&story.channels[channel].role, name.split_once('/')) {
        (Role::Local { .. } | Role::Plumbing { .. }, Some((_, rest))) => format!("loopback/{rest}"),
        _ => name,
    }
}

/// Creates a story's events, deed by deed.
struct Reporter<'s> {
    story: &'s Deeds,
    manner: Manner,
    /// Bridges that count as rooms, which are conferences and bridges that held three channels at
    /// once.
    rooms: BTreeSet<Br>,
    inside: BTreeMap<Br, Vec<Ch>>,
    answered: BTreeMap<Ch, Micros>,
    /// Channels whose answer has been reported.
    up: BTreeSet<Ch>,
    /// Each channel's last link, given by when it started and the other channel.
    linked: BTreeMap<Ch, (Micros, Ch)>,
    events: Vec<PbxEvent<'static>>,
}

/// Returns all events in the order they're reported.
pub fn report_events(story: &Deeds, manner: Manner) -> Vec<PbxEvent<'static>> {
    let mut reporter = Reporter {
        story,
        manner,
        rooms: rooms(story),
        inside: BTreeMap::new(),
        answered: BTreeMap::new(),
        up: BTreeSet::new(),
        linked: BTreeMap::new(),
        events: Vec::new(),
    };
    story.deeds.iter().for_each(|deed| reporter.on_event(deed));
    reporter.events
}

fn rooms(story: &Deeds) -> BTreeSet<Br> {
    let (mut inside, mut rooms) = (BTreeMap::<Br, usize>::new(), BTreeSet::new());
    for deed in &story.deeds {
        match deed.act {
            Act::Enter(bridge) => {
                let count = inside.entry(bridge).or_default();
                *count += 1;
                if *count > 2 || story.bridges[bridge].technology == "softmix" {
                    rooms.insert(bridge);
                }
            }
            Act::Leave(bridge) => *inside.entry(bridge).or_default() -= 1,
            _ => {}
        }
    }
    rooms
}

impl Reporter<'_> {
    fn on_event(&mut self, deed: &Deed) {
        let (at, channel) = (deed.at, deed.channel);
        match deed.act {
            Act::Born => {
                let kind = if self.is_inbound(channel) {
                    Kind::Born {
                        state: ChannelState::Ring,
                    }
                } else {
                    self.dial_event(channel)
                };
                self.push_event(at, channel, kind);
            }
            Act::Up => self.report_answer(at, channel),
            Act::Enter(bridge) => self.report_enter(at, channel, bridge),
            Act::Leave(bridge) => self.report_leave(at, channel, bridge),
            Act::Sign => self.push_event(at, channel, Kind::Seen),
            Act::Hangup => self.push_event(at, channel, Kind::Hangup { cause: Some(16) }),
            Act::DialBegin { .. }
            | Act::DialEnd { .. }
            | Act::Refused { .. }
            | Act::Ringing
            | Act::Joined(_)
            | Act::Runs(_) => {}
        }
    }

    fn report_answer(&mut self, at: Micros, channel: Ch) {
        if self.up.insert(channel) {
            self.answered.insert(channel, at);
            let state = ChannelState::Up;
            self.push_event(at, channel, Kind::State { state });
        }
    }

    fn report_enter(&mut self, at: Micros, channel: Ch, bridge: Br) {
        if self.story.bridges[bridge].is_holding() {
            return;
        }
        self.report_answer(at, channel);
        if self.rooms.contains(&bridge) {
            self.push_event(at, channel, self.room_event(bridge, true));
            return;
        }
        let inside = self.inside.entry(bridge).or_default();
        inside.push(channel);
        if let [first, second] = inside[..] {
            self.linked.insert(first, (at, second));
            self.linked.insert(second, (at, first));
            // The bridge's number determines which of the two channels reports the link.
            let (by, other) = if bridge.is_multiple_of(2) {
                (first, second)
            } else {
                (second, first)
            };
            let with = Box::new(self.id_reference(other));
            self.push_event(at, by, Kind::Linked { with });
        }
    }

    fn report_leave(&mut self, at: Micros, channel: Ch, bridge: Br) {
        if self.story.bridges[bridge].is_holding() {
            return;
        }
        if self.rooms.contains(&bridge) {
            self.push_event(at, channel, self.room_event(bridge, false));
            return;
        }
        let inside = self.inside.entry(bridge).or_default();
        let both = inside.clone();
        inside.retain(|other| *other != channel);
        if let [first, second] = both[..] {
            let (by, other) = if bridge.is_multiple_of(2) {
                (first, second)
            } else {
                (second, first)
            };
            let with = Box::new(self.id_reference(other));
            self.push_event(at, by, Kind::Unlinked { with });
        }
    }

    fn room_event(&self, bridge: Br, enters: bool) -> Kind<'static> {
        let (bridge, technology) = (owned(&self.story.bridges[bridge].name), owned("softmix"));
        if enters {
            Kind::BridgeEnter { bridge, technology }
        } else {
            Kind::BridgeLeave { bridge, technology }
        }
    }

    fn is_inbound(&self, channel: Ch) -> bool {
        match &self.story.channels[channel].role {
            Role::CameIn { .. } | Role::Plumbing { .. } => true,
            Role::Phone { placed, .. } => *placed,
            Role::Local { first, .. } => !first,
            Role::DialedOut { .. } => false,
        }
    }

    fn dial_event(&self, channel: Ch) -> Kind<'static> {
        let by = self.story.channels[channel].dialed_by;
        Kind::DialBegin {
            by: by.map(|by| Box::new(self.id_reference(by))),
            dial_string: owned(""),
        }
    }

    /// Returns a channel that has only an ID, which is how other channels' events refer to it.
    fn id_reference(&self, channel: Ch) -> ChannelRef<'static> {
        ChannelRef {
            uniqueid: self.owned_id(channel),
            ..ChannelRef::default()
        }
    }

    fn owned_id(&self, channel: Ch) -> Cow<'static, str> {
        owned(id(self.story, self.manner, channel).as_str())
    }

    fn push_event(&mut self, at: Micros, channel: Ch, kind: Kind<'static>) {
        let story = self.story;
        let (mut caller, mut extension, mut dialed) = Default::default();
        match &story.channels[channel].role {
            Role::CameIn { number, .. } => caller = number.clone().unwrap_or_default(),
            Role::DialedOut { number, .. } => dialed = number.clone(),
            Role::Phone {
                extension: number, ..
            } => extension = number.clone(),
            Role::Local { .. } | Role::Plumbing { .. } => {}
        }
        let ends = matches!(kind, Kind::Hangup { .. } | Kind::Unlinked { .. });
        let linked = if ends {
            self.linked.get(&channel)
        } else {
            None
        };
        let traits = ChannelTraits {
            inbound: self.is_inbound(channel),
            extension: owned(extension),
            dialed: owned(dialed),
            fresh: true,
            created: Some(moment(story.channels[channel].born)),
            answered: self.answered.get(&channel).map(|at| moment(*at)),
            unlinked: matches!(kind, Kind::Hangup { .. }) && !self.linked.contains_key(&channel),
            linked: linked.map(|&(at, with)| (moment(at), self.owned_id(with))),
            ..ChannelTraits::default()
        };
        let channel = ChannelRef {
            name: owned(reported_name(story, channel)),
            uniqueid: self.owned_id(channel),
            linkedid: self.owned_id(parent(story, channel)),
            caller_number: owned(caller),
            traits: Some(Box::new(traits)),
            ..ChannelRef::default()
        };
        self.events.push(PbxEvent::Channel(ChannelEvent {
            at: Some(moment(at)),
            origin: Origin::Channel,
            channel,
            kind,
        }));
    }
}
