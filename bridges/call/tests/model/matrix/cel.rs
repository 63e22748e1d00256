//! Tells a story as CEL of Asterisk 12 and later, in the form of `cel_custom` rows with the columns
//! from `deploy/asterisk/cel_custom.conf`.

use super::scene::Scene;
use crate::switch::{Act, Br, Ch, Deed, Deeds, Role};
use crate::telling::moment;
use serde_json::{Value, json};

/// Returns the file's rows.
pub fn tell(story: &Deeds) -> Vec<u8> {
    let mut teller = Teller {
        scene: Scene::new(story),
        rows: String::new(),
    };
    for (place, deed) in story.deeds.iter().enumerate() {
        // A row shows the peers in the bridge that's being left.
        let leaves = matches!(deed.act, Act::Leave(_));
        if !leaves {
            teller.scene.follow(deed);
        }
        teller.tell(place, deed);
        if leaves {
            teller.scene.follow(deed);
        }
    }
    teller.rows.into_bytes()
}

struct Teller<'s> {
    scene: Scene<'s>,
    rows: String,
}

impl Teller<'_> {
    fn tell(&mut self, place: usize, deed: &Deed) {
        let channel = deed.channel;
        match deed.act {
            Act::Born => self.row("CHAN_START", deed, &Value::Null),
            Act::Runs(_) => self.row("APP_START", deed, &Value::Null),
            Act::Up => self.row("ANSWER", deed, &Value::Null),
            Act::Enter(bridge) => {
                let extra = self.bridge(bridge);
                self.row("BRIDGE_ENTER", deed, &extra);
            }
            Act::Leave(bridge) => {
                let extra = self.bridge(bridge);
                self.row("BRIDGE_EXIT", deed, &extra);
            }
            Act::Joined(with) => self.join(deed, with),
            Act::Hangup => {
                let status = self.scene.status(channel);
                let extra = json!({"hangupcause": 16, "hangupsource": "", "dialstatus": status});
                self.row("HANGUP", deed, &extra);
                self.row("CHAN_END", deed, &Value::Null);
                let later = &self.scene.story.deeds[place + 1..];
                if later.iter().all(|other| other.linkedid != deed.linkedid) {
                    self.row("LINKEDID_END", deed, &Value::Null);
                }
            }
            Act::DialBegin { .. } | Act::DialEnd { .. } | Act::Refused { .. } => {}
            Act::Ringing | Act::Sign => {}
        }
    }

    fn bridge(&self, bridge: Br) -> Value {
        let shown = &self.scene.story.bridges[bridge];
        json!({"bridge_id": shown.name, "bridge_technology": shown.technology})
    }

    fn join(&mut self, deed: &Deed, with: Ch) {
        let scene = &self.scene;
        if matches!(scene.story.channels[deed.channel].role, Role::Local { .. }) {
            return;
        }
        let Some(&target) = scene.partners(with).first() else {
            let picked = Deed {
                channel: with,
                ..deed.clone()
            };
            let by = deed.channel;
            let extra = json!({
                "pickup_channel": scene.name(by), "pickup_channel_uniqueid": scene.id(by),
            });
            return self.row("PICKUP", &picked, &extra);
        };
        let customer = scene.partners(deed.channel)[0];
        let bridge = |channel| &scene.story.bridges[scene.places[&channel]].name;
        let extra = json!({
            "bridge1_id": bridge(deed.channel),
            "channel2_name": scene.name(with),
            "channel2_uniqueid": scene.id(with),
            "bridge2_id": bridge(with),
            "transferee_channel_name": scene.name(customer),
            "transferee_channel_uniqueid": scene.id(customer),
            "transfer_target_channel_name": scene.name(target),
            "transfer_target_channel_uniqueid": scene.id(target),
        });
        self.row("ATTENDEDTRANSFER", deed, &extra);
    }

    fn row(&mut self, event: &str, deed: &Deed, extra: &Value) {
        let (scene, channel) = (&self.scene, deed.channel);
        let at = moment(deed.at).micros();
        let time = format!("{}.{:06}", at / 1_000_000, at % 1_000_000);
        let is_new = event == "CHAN_START";
        let is_originated = scene.application(channel).0 == "AppDial2";
        // An originated channel doesn't get its number and application until after its creation.
        let number = if is_new && is_originated {
            String::new()
        } else {
            scene.number(channel)
        };
        let (app, data) = if is_new {
            ("", String::new())
        } else {
            scene.application(channel)
        };
        let peers: Vec<String> = scene
            .partners(channel)
            .iter()
            .map(|&ch| scene.name(ch))
            .collect();
        let extra = match extra {
            Value::Null => String::new(),
            value => value.to_string(),
        };
        let cells = [
            event,
            &time,
            "",
            &number,
            &number,
            "",
            "",
            &scene.exten(channel),
            "internal",
            &scene.name(channel),
            app,
            &data,
            "3",
            "",
            &scene.id(channel),
            &scene.id(deed.linkedid),
            &peers.join(","),
            "",
            "",
            &extra,
        ];
        let quoted = cells.map(|cell| format!("\"{}\"", cell.replace('"', "\"\"")));
        self.rows += &quoted.join(",");
        self.rows.push('\n');
    }
}
