//! Tells a story as AMI of Asterisk 12 and later, omitting events that don't matter for calls.

use super::scene::{LEAD, Scene};
use crate::switch::{Act, Br, Ch, Deed, Deeds, Micros, Role};
use crate::telling::{self, moment};
use std::fmt::Write as _;

/// Returns the bytes sent by the manager.
pub fn tell(story: &Deeds) -> Vec<u8> {
    let mut teller = Teller {
        scene: Scene::new(story),
        ringing: Vec::new(),
        text: "Asterisk Call Manager/11.0.0\r\n".to_owned(),
    };
    for deed in &story.deeds {
        teller.tell(deed);
    }
    teller.text.into_bytes()
}

struct Teller<'s> {
    scene: Scene<'s>,
    ringing: Vec<Ch>,
    text: String,
}

impl Teller<'_> {
    fn tell(&mut self, deed: &Deed) {
        let (at, channel) = (deed.at, deed.channel);
        self.scene.follow(deed);
        match deed.act {
            Act::Born => self.begin("Newchannel", at).channel("", deed),
            Act::Ringing => {
                self.ringing.push(channel);
                self.begin("Newstate", at).channel("", deed);
            }
            Act::Up => self.begin("Newstate", at).channel("", deed),
            Act::DialBegin { by } => {
                let target = telling::dial_string(self.scene.story, channel);
                self.dial("DialBegin", deed, by)
                    .field("DialString", &target);
            }
            Act::DialEnd { by } => {
                let status = self.scene.dial_status(channel);
                self.dial("DialEnd", deed, by).field("DialStatus", status);
            }
            Act::Enter(bridge) => {
                self.begin("BridgeEnter", at).bridge("Bridge", bridge);
                self.channel("", deed);
            }
            Act::Leave(bridge) => {
                self.begin("BridgeLeave", at).bridge("Bridge", bridge);
                self.channel("", deed);
            }
            Act::Joined(with) => self.join(deed, with),
            Act::Hangup => {
                self.begin("Hangup", at).channel("", deed);
                self.field("Cause", "16")
                    .field("Cause-txt", "Normal Clearing");
            }
            Act::Sign | Act::Runs(_) | Act::Refused { .. } => return,
        }
        self.text += "\r\n";
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

    /// Adds the fields for the channel of `deed`, with `prefix` at the start of their keys.
    fn channel(&mut self, prefix: &str, deed: &Deed) {
        self.other(prefix, deed.channel, deed.linkedid);
    }

    fn other(&mut self, prefix: &str, channel: Ch, linkedid: Ch) -> &mut Self {
        let state = self.state(channel);
        let scene = &self.scene;
        let number = scene.number(channel);
        let shown = if number.is_empty() {
            "<unknown>"
        } else {
            &number
        };
        let fields = [
            ("Channel", scene.name(channel)),
            ("ChannelState", state.0.to_owned()),
            ("ChannelStateDesc", state.1.to_owned()),
            ("CallerIDNum", shown.to_owned()),
            ("CallerIDName", "<unknown>".to_owned()),
            ("Exten", scene.exten(channel)),
            ("Priority", "1".to_owned()),
            ("Uniqueid", scene.id(channel)),
            ("Linkedid", scene.id(linkedid)),
            (
                "ChanVariable",
                format!("{}={}", LEAD.0, scene.lead(channel)),
            ),
        ];
        for (key, value) in fields {
            self.field(&format!("{prefix}{key}"), &value);
        }
        self
    }

    fn state(&self, channel: Ch) -> (&'static str, &'static str) {
        let calls = match self.scene.story.channels[channel].role {
            Role::CameIn { .. } => true,
            Role::Phone { placed, .. } => placed,
            Role::Local { first, .. } => !first,
            _ => false,
        };
        if self.scene.is_up(channel) {
            ("6", "Up")
        } else if calls {
            ("4", "Ring")
        } else if self.ringing.contains(&channel) {
            ("5", "Ringing")
        } else {
            ("0", "Down")
        }
    }

    fn dial(&mut self, event: &str, deed: &Deed, by: Option<Ch>) -> &mut Self {
        self.begin(event, deed.at);
        if let Some(by) = by {
            self.other("", by, deed.linkedid);
        }
        self.channel("Dest", deed);
        self
    }

    /// Adds a bridge's fields. `prefix` is `Bridge`, `OrigBridge`, or the like.
    fn bridge(&mut self, prefix: &str, bridge: Br) -> &mut Self {
        let shown = &self.scene.story.bridges[bridge];
        let inside = self.scene.places.values().filter(|&&at| at == bridge);
        let count = inside.count().to_string();
        self.field(&format!("{prefix}Uniqueid"), &shown.name);
        self.field(&format!("{prefix}Type"), "basic");
        self.field(&format!("{prefix}Technology"), shown.technology);
        self.field(&format!("{prefix}NumChannels"), &count)
    }

    fn join(&mut self, deed: &Deed, with: Ch) {
        let scene = &self.scene;
        let role = &scene.story.channels[deed.channel].role;
        if matches!(role, Role::Local { other, .. } if *other == with) {
            self.begin("LocalBridge", deed.at).channel("LocalOne", deed);
            self.other("LocalTwo", with, deed.linkedid);
        } else if self.ringing.contains(&with) && !scene.is_up(with) {
            self.begin("Pickup", deed.at).channel("", deed);
            self.other("Target", with, linkedid_at_birth(self.scene.story, with));
        } else {
            self.transfer(deed, with);
        }
    }

    /// Adds the event for an attended transfer. `with` is the transferrer's second line.
    fn transfer(&mut self, deed: &Deed, with: Ch) {
        let (first, second) = (self.scene.partners(deed.channel), self.scene.partners(with));
        let lines = [("OrigTransferer", deed.channel), ("SecondTransferer", with)];
        let parties = [("Transferee", first[0]), ("TransferTarget", second[0])];
        let bridges = [("OrigBridge", deed.channel), ("SecondBridge", with)];
        self.begin("AttendedTransfer", deed.at)
            .field("Result", "Success");
        for (prefix, channel) in lines.into_iter().chain(parties) {
            let linkedid = linkedid_at_birth(self.scene.story, channel);
            self.other(prefix, channel, linkedid);
        }
        for (prefix, channel) in bridges {
            let bridge = self.scene.places[&channel];
            self.bridge(prefix, bridge);
        }
        self.field("DestType", "Bridge");
    }
}

fn linkedid_at_birth(story: &Deeds, channel: Ch) -> Ch {
    story.channels[channel].linkedid
}
