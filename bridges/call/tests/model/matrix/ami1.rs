//! Tells a story as AMI 1.x of Asterisk 11 with `eventwhencalled = yes`. It can't tell transfers,
//! pickups, or parking, because before Asterisk 12 they're masquerades, in which channels take over
//! each other's names. The matrix uses recordings for these stories.

use super::scene::{COMPANY, LEAD, Scene};
use crate::switch::{Act, Br, Ch, Deed, Deeds, Micros, Role};
use crate::telling::{self, moment};
use std::fmt::Write as _;

/// Returns the bytes sent by the manager.
pub fn tell(story: &Deeds) -> Vec<u8> {
    let mut teller = Teller {
        scene: Scene::new(story),
        text: "Asterisk Call Manager/1.3\r\n".to_owned(),
    };
    for deed in &story.deeds {
        // The event for the end of a link lists both channels.
        let leaves = matches!(deed.act, Act::Leave(_));
        if !leaves {
            teller.scene.follow(deed);
        }
        teller.tell(deed);
        if leaves {
            teller.scene.follow(deed);
        }
    }
    teller.text.into_bytes()
}

struct Teller<'s> {
    scene: Scene<'s>,
    text: String,
}

impl Teller<'_> {
    fn tell(&mut self, deed: &Deed) {
        let (at, channel) = (deed.at, deed.channel);
        match deed.act {
            Act::Born => self.begin_channel(deed),
            Act::Ringing => self.state(at, channel, "Ringing"),
            Act::Up => {
                self.state(at, channel, "Up");
                if self.is_originated(channel) {
                    let name = self.name(channel);
                    self.originated(deed, &name, &self.scene.id(channel));
                }
            }
            Act::DialBegin { by: Some(by) } if self.scene.application(by).0 == "Queue" => {
                self.call_agent(deed, by);
            }
            Act::DialBegin { by: Some(by) } => self.dial(deed, by),
            Act::DialEnd { by: None } if !self.scene.is_up(channel) => {
                let name = self.name(channel);
                let peer = name.split('-').next().unwrap_or_default();
                let interface = format!("{peer}/{}", dialed_number(self.scene.story, channel));
                self.originated(deed, &interface, "<null>");
            }
            Act::Enter(bridge) | Act::Leave(bridge) => self.share(deed, bridge),
            Act::Hangup => {
                self.begin("Hangup", at).channel(channel);
                self.field("Cause", "16").end();
            }
            _ => {}
        }
    }

    fn begin(&mut self, event: &str, at: Micros) -> &mut Self {
        let at = moment(at).micros();
        let (seconds, micros) = (at / 1_000_000, at % 1_000_000);
        self.field("Event", event).field("Privilege", "call,all");
        self.field("Timestamp", &format!("{seconds}.{micros:06}"))
    }

    fn field(&mut self, key: &str, value: &str) -> &mut Self {
        let _ = write!(self.text, "{key}: {value}\r\n");
        self
    }

    fn end(&mut self) {
        self.text += "\r\n";
    }

    fn name(&self, channel: Ch) -> String {
        self.scene.name(channel).replace("PJSIP/", "SIP/")
    }

    fn is_originated(&self, channel: Ch) -> bool {
        self.scene.application(channel).0 == "AppDial2"
    }

    fn channel(&mut self, channel: Ch) -> &mut Self {
        let (name, id) = (self.name(channel), self.scene.id(channel));
        let number = self.scene.number(channel);
        self.field("Channel", &name).field("Uniqueid", &id);
        self.field("CallerIDNum", &number);
        self.variable(channel)
    }

    fn variable(&mut self, channel: Ch) -> &mut Self {
        let key = format!("ChanVariable({})", self.name(channel));
        let value = format!("{}={}", LEAD.0, self.scene.lead(channel));
        self.field(&key, &value)
    }

    fn state(&mut self, at: Micros, channel: Ch, state: &str) {
        self.begin("Newstate", at).channel(channel);
        self.field("ChannelStateDesc", state).end();
    }

    /// A `chan_sip` channel starts out as `Down`, and its first state shows whether it came in.
    fn begin_channel(&mut self, deed: &Deed) {
        let channel = deed.channel;
        self.begin("Newchannel", deed.at).channel(channel);
        let exten = self.scene.exten(channel);
        self.field("ChannelStateDesc", "Down");
        self.field("Exten", &exten).end();
        let calls = matches!(
            self.scene.story.channels[channel].role,
            Role::CameIn { .. } | Role::Phone { placed: true, .. }
        );
        if calls {
            self.state(deed.at, channel, "Ring");
        }
    }

    fn dial(&mut self, deed: &Deed, by: Ch) {
        let (from, to) = (self.name(by), self.name(deed.channel));
        let (id, dest) = (self.scene.id(by), self.scene.id(deed.channel));
        let number = self.scene.number(by);
        let target = telling::dial_string(self.scene.story, deed.channel);
        // `chan_sip` dials PEER/NUMBER.
        let target = match target.split_once('@') {
            Some((number, peer)) => format!("{peer}/{number}"),
            None => target,
        };
        self.begin("Dial", deed.at).field("SubEvent", "Begin");
        self.field("Channel", &from).field("Destination", &to);
        self.field("CallerIDNum", &number);
        self.field("UniqueID", &id).field("DestUniqueID", &dest);
        self.field("Dialstring", &target);
        self.variable(by).variable(deed.channel).end();
    }

    fn call_agent(&mut self, deed: &Deed, by: Ch) {
        let (from, to) = (self.name(by), self.name(deed.channel));
        let interface = to.split('-').next().unwrap_or_default().to_owned();
        let id = self.scene.id(by);
        self.begin("AgentCalled", deed.at).field("Queue", "sales");
        self.field("AgentCalled", &interface)
            .field("ChannelCalling", &from);
        self.field("DestinationChannel", &to)
            .field("Uniqueid", &id)
            .end();
    }

    /// Reports the result of an originate action. If the party didn't answer, there's no ID.
    fn originated(&mut self, deed: &Deed, channel: &str, id: &str) {
        self.begin("OriginateResponse", deed.at);
        self.field("Channel", channel).field("Uniqueid", id);
        self.field("CallerIDNum", COMPANY).end();
    }

    /// Reports that the channel enters or leaves a bridge, which may be a room or a two-channel
    /// link.
    fn share(&mut self, deed: &Deed, bridge: Br) {
        let bridge = &self.scene.story.bridges[bridge];
        let enters = matches!(deed.act, Act::Enter(_));
        if bridge.technology == "softmix" {
            let event = if enters {
                "ConfbridgeJoin"
            } else {
                "ConfbridgeLeave"
            };
            let room = bridge.name.clone();
            self.begin(event, deed.at).channel(deed.channel);
            self.field("Conference", &room).end();
        } else if !bridge.is_holding()
            && let [other] = self.scene.partners(deed.channel)[..]
        {
            let state = if enters { "Link" } else { "Unlink" };
            let (one, two) = (deed.channel.min(other), deed.channel.max(other));
            self.begin("Bridge", deed.at).field("Bridgestate", state);
            for (place, channel) in [("1", one), ("2", two)] {
                let (name, id) = (self.name(channel), self.scene.id(channel));
                let number = self.scene.number(channel);
                self.field(&format!("Channel{place}"), &name);
                self.field(&format!("Uniqueid{place}"), &id);
                self.field(&format!("CallerID{place}"), &number);
            }
            self.variable(one).variable(two).end();
        }
    }
}

fn dialed_number(story: &Deeds, channel: Ch) -> &str {
    match &story.channels[channel].role {
        Role::DialedOut { number, .. } => number,
        Role::Phone { extension, .. } => extension,
        _ => "",
    }
}
