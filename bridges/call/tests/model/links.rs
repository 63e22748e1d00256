//! Reports a story as links of two channels, and rooms. One side of a link reports it, once. Each
//! channel reports its traits, and the call in which it was created. Transfers, pickups, and
//! parking lots are not reported.

use crate::switch::{Act, Br, Ch, Deed, Deeds, Micros, Role};
use crate::telling::{Manner, id, moment, name, own};
use callbridge_call::{
    ChannelEvent, ChannelRef, ChannelState, ChannelTraits, Kind, Origin, PbxEvent,
};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the channel in whose call this one was created: the one that dialed it, or the other
/// half of a Local channel. Returns the channel itself if there is none.
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

/// Returns the channel with which the channel's call began.
pub fn origin(story: &Deeds, channel: Ch) -> Ch {
    match parent(story, channel) {
        own if own == channel => own,
        other => origin(story, other),
    }
}

/// Returns the name of a channel. Channels without a party are named `loopback/…`.
fn called(story: &Deeds, channel: Ch) -> String {
    let name = name(story, channel);
    match (&story.channels[channel].role, name.split_once('/')) {
        (Role::Local { .. } | Role::Plumbing { .. }, Some((_, rest))) => format!("loopback/{rest}"),
        _ => name,
    }
}

struct Teller<'s> {
    story: &'s Deeds,
    manner: Manner,
    /// Bridges that are rooms: conferences, and bridges that held three channels at once.
    rooms: BTreeSet<Br>,
    inside: BTreeMap<Br, Vec<Ch>>,
    answered: BTreeMap<Ch, Micros>,
    /// Channels whose answer has been reported.
    up: BTreeSet<Ch>,
    /// Beginning and other side of the last link of each channel.
    linked: BTreeMap<Ch, (Micros, Ch)>,
    told: Vec<PbxEvent<'static>>,
}

/// Returns every event, in the order in which it is reported.
pub fn tell(story: &Deeds, manner: Manner) -> Vec<PbxEvent<'static>> {
    let mut teller = Teller {
        story,
        manner,
        rooms: rooms(story),
        inside: BTreeMap::new(),
        answered: BTreeMap::new(),
        up: BTreeSet::new(),
        linked: BTreeMap::new(),
        told: Vec::new(),
    };
    story.deeds.iter().for_each(|deed| teller.on_event(deed));
    teller.told
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

impl Teller<'_> {
    fn on_event(&mut self, deed: &Deed) {
        let (at, channel) = (deed.at, deed.channel);
        match deed.act {
            Act::Born => {
                let kind = if self.came(channel) {
                    Kind::Born {
                        state: ChannelState::Ring,
                    }
                } else {
                    self.dialed(channel)
                };
                self.say(at, channel, kind);
            }
            Act::Up => self.answers(at, channel),
            Act::Enter(bridge) => self.enters(at, channel, bridge),
            Act::Leave(bridge) => self.leaves(at, channel, bridge),
            Act::Sign => self.say(at, channel, Kind::Seen),
            Act::Hangup => self.say(at, channel, Kind::Hangup { cause: Some(16) }),
            Act::DialBegin { .. } | Act::DialEnd { .. } | Act::Ringing | Act::Joined(_) => {}
        }
    }

    fn answers(&mut self, at: Micros, channel: Ch) {
        if self.up.insert(channel) {
            self.answered.insert(channel, at);
            let state = ChannelState::Up;
            self.say(at, channel, Kind::State { state });
        }
    }

    fn enters(&mut self, at: Micros, channel: Ch, bridge: Br) {
        if self.story.bridges[bridge].is_holding() {
            return;
        }
        self.answers(at, channel);
        if self.rooms.contains(&bridge) {
            self.say(at, channel, self.room(bridge, true));
            return;
        }
        let inside = self.inside.entry(bridge).or_default();
        inside.push(channel);
        if let [first, second] = inside[..] {
            self.linked.insert(first, (at, second));
            self.linked.insert(second, (at, first));
            // Either side can report the link.
            let (by, other) = if bridge.is_multiple_of(2) {
                (first, second)
            } else {
                (second, first)
            };
            let with = Box::new(self.named(other));
            self.say(at, by, Kind::Linked { with });
        }
    }

    fn leaves(&mut self, at: Micros, channel: Ch, bridge: Br) {
        if self.story.bridges[bridge].is_holding() {
            return;
        }
        if self.rooms.contains(&bridge) {
            self.say(at, channel, self.room(bridge, false));
            return;
        }
        let inside = self.inside.entry(bridge).or_default();
        let both = inside.clone();
        inside.retain(|it| *it != channel);
        if let [first, second] = both[..] {
            let (by, other) = if bridge.is_multiple_of(2) {
                (first, second)
            } else {
                (second, first)
            };
            let with = Box::new(self.named(other));
            self.say(at, by, Kind::Unlinked { with });
        }
    }

    fn room(&self, bridge: Br, enters: bool) -> Kind<'static> {
        let (bridge, technology) = (own(&self.story.bridges[bridge].name), own("softmix"));
        match enters {
            true => Kind::BridgeEnter { bridge, technology },
            false => Kind::BridgeLeave { bridge, technology },
        }
    }

    fn came(&self, channel: Ch) -> bool {
        match &self.story.channels[channel].role {
            Role::CameIn { .. } | Role::Plumbing { .. } => true,
            Role::Phone { placed, .. } => *placed,
            Role::Local { first, .. } => !first,
            Role::DialedOut { .. } => false,
        }
    }

    fn dialed(&self, channel: Ch) -> Kind<'static> {
        let by = self.story.channels[channel].dialed_by;
        Kind::DialBegin {
            by: by.map(|by| Box::new(self.named(by))),
            dial_string: own(""),
        }
    }

    /// Returns a channel as the events of other channels name it: only by its id.
    fn named(&self, channel: Ch) -> ChannelRef<'static> {
        ChannelRef {
            uniqueid: own(id(self.story, self.manner, channel).as_str()),
            ..ChannelRef::default()
        }
    }

    fn say(&mut self, at: Micros, channel: Ch, kind: Kind<'static>) {
        let story = self.story;
        let text = |ch: Ch| own(id(story, self.manner, ch).as_str());
        let (mut caller, mut extension, mut dialed) = Default::default();
        match &story.channels[channel].role {
            Role::CameIn { number, .. } => caller = number.clone().unwrap_or_default(),
            Role::DialedOut { number, .. } => dialed = number.clone(),
            Role::Phone { extension: it, .. } => extension = it.clone(),
            Role::Local { .. } | Role::Plumbing { .. } => {}
        }
        let ends = matches!(kind, Kind::Hangup { .. } | Kind::Unlinked { .. });
        let linked = self.linked.get(&channel).filter(|_| ends);
        let traits = ChannelTraits {
            inbound: self.came(channel),
            extension: own(extension),
            dialed: own(dialed),
            fresh: true,
            created: Some(moment(story.channels[channel].born)),
            answered: self.answered.get(&channel).map(|at| moment(*at)),
            linked: linked.map(|&(at, with)| (moment(at), text(with))),
            ..ChannelTraits::default()
        };
        let channel = ChannelRef {
            name: own(called(story, channel)),
            uniqueid: text(channel),
            linkedid: text(parent(story, channel)),
            caller_number: own(caller),
            traits: Some(Box::new(traits)),
            ..ChannelRef::default()
        };
        self.told.push(PbxEvent::Channel(ChannelEvent {
            at: Some(moment(at)),
            origin: Origin::Channel,
            channel,
            kind,
        }));
    }
}
