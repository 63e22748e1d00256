//! Simulates a switchboard and records what really happens, i.e., which channel is in which bridge,
//! and when. Each channel's role is set by the plot rather than by the channel's name.

use std::collections::{BTreeMap, BTreeSet};

/// Microseconds since the story started.
pub type Micros = i64;
/// A channel in the story, given by its index in [`Deeds::channels`].
pub type Ch = usize;
/// A bridge in the story, given by its index in [`Deeds::bridges`].
pub type Br = usize;

/// An outside line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trunk {
    /// The trunk's name, as in the `--trunk` flag.
    pub name: &'static str,
    /// The endpoint, which all of the trunk's channel names start with.
    pub endpoint: &'static str,
}

/// The company's trunks.
pub const TRUNKS: [Trunk; 4] = [
    Trunk {
        name: "city",
        endpoint: "PJSIP/city",
    },
    Trunk {
        name: "gsm",
        endpoint: "PJSIP/gsm",
    },
    Trunk {
        name: "carrier",
        endpoint: "SIP/carrier",
    },
    Trunk {
        name: "span",
        endpoint: "DAHDI/i1",
    },
];

/// A channel's role in the story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// A customer who called in, with or without a number.
    CameIn {
        trunk: Trunk,
        number: Option<String>,
    },
    /// An outside party that was dialed.
    DialedOut { trunk: Trunk, number: String },
    /// A company phone, which either placed the call or was dialed.
    Phone { extension: String, placed: bool },
    /// Half of a Local channel.
    Local { other: Ch, first: bool },
    /// A recorder, an announcer, or a spy.
    Plumbing { technology: &'static str },
}

/// A channel in the story.
#[derive(Clone, Debug)]
pub struct Channel {
    pub role: Role,
    pub born: Micros,
    /// The channel whose unique ID was this channel's linkedid when it was created.
    pub linkedid: Ch,
    pub dialed_by: Option<Ch>,
}

/// A bridge in the story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bridge {
    pub name: String,
    pub technology: &'static str,
}

impl Bridge {
    /// Returns `true` for a holding bridge, whose channels can't hear each other.
    pub fn is_holding(&self) -> bool {
        self.technology == "holding_bridge"
    }
}

/// What happens to a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    Born,
    DialBegin {
        by: Option<Ch>,
    },
    DialEnd {
        by: Option<Ch>,
    },
    /// The channel answered but didn't confirm, so dialing it ended without an answer.
    Refused {
        by: Option<Ch>,
    },
    Ringing,
    Up,
    Enter(Br),
    Leave(Br),
    /// A transfer or a pickup joined the channel with another one.
    Joined(Ch),
    /// An event that only shows that the channel is alive, such as the start of a hold.
    Sign,
    /// The channel runs a dialplan application. This only happens in the matrix's stories.
    Runs(&'static str),
    Hangup,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub struct Deed {
    pub at: Micros,
    pub channel: Ch,
    pub act: Act,
    /// The channel whose unique ID is the linkedid of `channel` at that time.
    pub linkedid: Ch,
}

/// Everything that happened, in order.
#[derive(Clone, Debug, Default)]
pub struct Deeds {
    pub channels: Vec<Channel>,
    pub bridges: Vec<Bridge>,
    pub deeds: Vec<Deed>,
}

/// A plot's switchboard.
#[derive(Debug, Default)]
pub struct Switch {
    pub now: Micros,
    pub done: Deeds,
    place: BTreeMap<Ch, Br>,
    linkedid: Vec<Ch>,
    gone: BTreeSet<Ch>,
}

impl Switch {
    /// Creates a switchboard whose story starts at `now`.
    pub fn new(now: Micros) -> Self {
        Self {
            now,
            ..Self::default()
        }
    }

    /// Records what happens to a channel.
    fn note(&mut self, channel: Ch, act: Act) {
        let linkedid = self.linkedid[channel];
        self.done.deeds.push(Deed {
            at: self.now,
            channel,
            act,
            linkedid,
        });
    }

    /// Creates a channel that `dialed_by` dialed, in the call of the channel `call`, or in a call
    /// of its own if `call` is `None`.
    pub fn make(&mut self, role: Role, dialed_by: Option<Ch>, call: Option<Ch>) -> Ch {
        let channel = self.done.channels.len();
        let linkedid = call.map_or(channel, |other| self.linkedid[other]);
        self.linkedid.push(linkedid);
        self.done.channels.push(Channel {
            role,
            born: self.now,
            linkedid,
            dialed_by,
        });
        self.note(channel, Act::Born);
        self.now += 150;
        channel
    }

    /// Creates a channel that starts a call.
    pub fn begin_call(&mut self, role: Role) -> Ch {
        self.make(role, None, None)
    }

    /// Makes the channel `by` dial a channel. `by` is `None` if a program originates the call.
    pub fn dial(&mut self, by: Option<Ch>, role: Role) -> Ch {
        let channel = self.make(role, by, by);
        self.note(channel, Act::DialBegin { by });
        self.now += 200;
        self.note(channel, Act::Ringing);
        self.now += 100;
        channel
    }

    /// Creates both halves of a Local channel and joins them, and returns the dialed half and the
    /// other half. `by` is `None` if a program originates the call.
    pub fn make_local(&mut self, by: Option<Ch>) -> (Ch, Ch) {
        let next = self.done.channels.len();
        let first_half = Role::Local {
            other: next + 1,
            first: true,
        };
        let second_half = Role::Local {
            other: next,
            first: false,
        };
        let near = self.make(first_half, by, by);
        let far = self.make(second_half, None, Some(near));
        self.join(near, far);
        (near, far)
    }

    /// Makes the channel `by` dial a Local channel, and returns the dialed half and the other half.
    pub fn dial_local(&mut self, by: Ch) -> (Ch, Ch) {
        let (near, far) = self.make_local(Some(by));
        self.note(near, Act::DialBegin { by: Some(by) });
        self.now += 200;
        (near, far)
    }

    /// Ends the dialing of a channel, whether or not it was answered.
    pub fn end_dial(&mut self, channel: Ch) {
        self.end_dial_by(self.done.channels[channel].dialed_by, channel);
    }

    /// Ends the dialing of a channel that answered but didn't confirm.
    pub fn refuse(&mut self, channel: Ch) {
        let by = self.done.channels[channel].dialed_by;
        self.note(channel, Act::Refused { by });
        self.now += 100;
    }

    /// Ends the dialing by the channel `by`, which was answered by `channel`.
    pub fn end_dial_by(&mut self, by: Option<Ch>, channel: Ch) {
        self.note(channel, Act::DialEnd { by });
        self.now += 100;
    }

    pub fn answer(&mut self, channel: Ch) {
        self.note(channel, Act::Up);
        self.now += 250;
    }

    pub fn add_sign_of_life(&mut self, channel: Ch) {
        self.note(channel, Act::Sign);
    }

    /// Makes the channel run a dialplan application, such as `Dial` or `Queue`.
    pub fn run(&mut self, channel: Ch, application: &'static str) {
        self.note(channel, Act::Runs(application));
        self.now += 100;
    }

    pub fn join(&mut self, channel: Ch, with: Ch) {
        self.note(channel, Act::Joined(with));
    }

    pub fn bridge(&mut self, name: String, technology: &'static str) -> Br {
        self.done.bridges.push(Bridge { name, technology });
        self.done.bridges.len() - 1
    }

    /// Returns the channels in a bridge.
    pub fn channels_in(&self, bridge: Br) -> Vec<Ch> {
        let here = self.place.iter().filter(|&(_, &there)| there == bridge);
        here.map(|(&channel, _)| channel).collect()
    }

    /// Moves a channel into a bridge, taking it out of any other one. In a simple bridge, all
    /// channels take on the oldest linkedid, whereas in others, such as a conference, linkedids
    /// don't change.
    pub fn enter(&mut self, channel: Ch, bridge: Br) {
        assert!(!self.gone.contains(&channel), "{channel} has hung up");
        self.leave(channel);
        self.place.insert(channel, bridge);
        self.note(channel, Act::Enter(bridge));
        if self.done.bridges[bridge].technology == "simple_bridge" {
            let inside = self.channels_in(bridge);
            let oldest = inside.iter().map(|&ch| self.linkedid[ch]).min();
            for ch in inside {
                self.linkedid[ch] = oldest.unwrap_or(ch);
            }
        }
        self.now += 180;
    }

    pub fn leave(&mut self, channel: Ch) {
        if let Some(bridge) = self.place.remove(&channel) {
            self.note(channel, Act::Leave(bridge));
            self.now += 120;
        }
    }

    /// Takes the channel out of its bridge and hangs it up, unless it has already hung up.
    pub fn hangup(&mut self, channel: Ch) {
        self.leave(channel);
        if self.gone.insert(channel) {
            self.note(channel, Act::Hangup);
            self.now += 140;
        }
    }

    /// Hangs up all channels that haven't hung up yet.
    pub fn close(&mut self) {
        for channel in 0..self.done.channels.len() {
            self.hangup(channel);
        }
    }
}

impl Deeds {
    /// Adds what happened at the same time on another switchboard, renumbering all channels in the
    /// order they were created.
    pub fn merge(&mut self, other: Self) {
        let (channels, bridges) = (self.channels.len(), self.bridges.len());
        let moved = other
            .channels
            .into_iter()
            .map(|channel| channel.renumber(|ch| ch + channels));
        self.channels.extend(moved);
        self.bridges.extend(other.bridges);
        let moved = other.deeds.into_iter().map(|deed| {
            let mut deed = deed.renumber(|ch| ch + channels);
            if let Act::Enter(bridge) | Act::Leave(bridge) = &mut deed.act {
                *bridge += bridges;
            }
            deed
        });
        self.deeds.extend(moved);
        self.deeds.sort_by_key(|deed| deed.at);
        let mut order: Vec<Ch> = (0..self.channels.len()).collect();
        order.sort_by_key(|&ch| self.channels[ch].born);
        let mut place = vec![0; order.len()];
        for (new, &old) in order.iter().enumerate() {
            place[old] = new;
        }
        let old = std::mem::take(&mut self.channels);
        let in_order = order.iter().map(|&ch| old[ch].clone());
        self.channels = in_order
            .map(|channel| channel.renumber(|ch| place[ch]))
            .collect();
        let deeds = std::mem::take(&mut self.deeds).into_iter();
        self.deeds = deeds.map(|deed| deed.renumber(|ch| place[ch])).collect();
    }
}

impl Channel {
    fn renumber(self, number: impl Fn(Ch) -> Ch) -> Self {
        let role = match self.role {
            Role::Local { other, first } => Role::Local {
                other: number(other),
                first,
            },
            role @ (Role::CameIn { .. }
            | Role::DialedOut { .. }
            | Role::Phone { .. }
            | Role::Plumbing { .. }) => role,
        };
        Self {
            role,
            linkedid: number(self.linkedid),
            dialed_by: self.dialed_by.map(number),
            ..self
        }
    }
}

impl Deed {
    fn renumber(self, number: impl Fn(Ch) -> Ch) -> Self {
        let act = match self.act {
            Act::DialBegin { by } => Act::DialBegin {
                by: by.map(&number),
            },
            Act::Refused { by } => Act::Refused {
                by: by.map(&number),
            },
            Act::DialEnd { by } => Act::DialEnd {
                by: by.map(&number),
            },
            Act::Joined(with) => Act::Joined(number(with)),
            act @ (Act::Born
            | Act::Ringing
            | Act::Up
            | Act::Enter(_)
            | Act::Leave(_)
            | Act::Sign
            | Act::Runs(_)
            | Act::Hangup) => act,
        };
        Self {
            channel: number(self.channel),
            linkedid: number(self.linkedid),
            act,
            ..self
        }
    }
}
