//! Tells a story as FreeSWITCH events, in JSON as sent by its event socket and mod_amqp. The events
//! contain only headers that a live switch sends and that at least one rule reads.
//!
//! FreeSWITCH doesn't need Local channels, so parties on either side of one are bridged directly.

use super::scene::{LEAD, Scene};
use crate::switch::{Act, Br, Ch, Deed, Deeds, Micros, Role};
use crate::telling::moment;
use crate::truth::heard_channels;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Returns one event per line.
pub fn tell(story: &Deeds) -> Vec<u8> {
    let mut teller = Teller {
        scene: Scene::new(story),
        bridged: BTreeSet::new(),
        answered: BTreeMap::new(),
        hung_up: BTreeSet::new(),
        sequence: 0,
        lines: Vec::new(),
    };
    for (place, deed) in story.deeds.iter().enumerate() {
        let next = story.deeds.get(place + 1);
        let hangs_up =
            next.is_some_and(|next| next.channel == deed.channel && next.act == Act::Hangup);
        // A hangup is reported before the end of the bridge or of the stay in a room.
        if hangs_up && matches!(deed.act, Act::Leave(_)) {
            teller.hang_up(deed);
        }
        teller.scene.follow(deed);
        teller.tell(deed);
        teller.update_bridges(deed.at);
    }
    teller.lines
}

/// Returns `true` for a channel that exists on FreeSWITCH.
pub fn is_party(story: &Deeds, channel: Ch) -> bool {
    match story.channels[channel].role {
        Role::CameIn { .. } | Role::DialedOut { .. } | Role::Phone { .. } => true,
        Role::Local { .. } | Role::Plumbing { .. } => false,
    }
}

/// Returns the pairs of parties that can hear each other outside of rooms. In each pair, the side
/// that the bridge is reported for comes first.
pub fn bridged_pairs(scene: &Scene<'_>) -> BTreeSet<(Ch, Ch)> {
    let story = scene.story;
    let is_talking = |channel: &Ch| {
        let bridge = &story.bridges[scene.places[channel]];
        is_party(story, *channel) && bridge.technology != "softmix"
    };
    let inside: Vec<Ch> = scene.places.keys().copied().filter(is_talking).collect();
    let mut pairs = BTreeSet::new();
    for &one in &inside {
        for other in heard_channels(story, &scene.places, one) {
            if inside.contains(&other) && one < other {
                // A phone that joins on its own, as in a pickup, reports the bridge, but one that
                // retrieves a parked call doesn't.
                let is_dialed = story.channels[other].dialed_by.is_some();
                let joins = !is_dialed && scene.application(other).0 != "ParkedCall";
                pairs.insert(if joins { (other, one) } else { (one, other) });
            }
        }
    }
    pairs
}

/// A channel's headers that don't change.
pub fn headers(scene: &Scene<'_>, channel: Ch) -> Vec<(&'static str, String)> {
    let born = &scene.story.channels[channel];
    let mut headers = vec![
        ("Unique-ID", scene.id(channel)),
        ("variable_lead_id", LEAD.1.to_owned()),
    ];
    match &born.role {
        Role::CameIn { number, .. } => {
            let number = number.clone().unwrap_or_default();
            headers.extend([
                ("Channel-Name", format!("sofia/external/{number}@127.0.0.1")),
                ("Call-Direction", "inbound".to_owned()),
                ("Caller-ANI", number.clone()),
                ("Caller-Orig-Caller-ID-Number", number),
                ("Caller-Destination-Number", "7001".to_owned()),
                ("Caller-Context", "public".to_owned()),
                ("variable_sofia_profile_name", "external".to_owned()),
                ("variable_sip_network_ip", "127.0.0.1".to_owned()),
                ("variable_sip_network_port", "16000".to_owned()),
            ]);
        }
        Role::DialedOut { trunk, number } => headers.extend([
            ("Channel-Name", format!("sofia/external/{number}")),
            ("Call-Direction", "outbound".to_owned()),
            ("Caller-Destination-Number", number.clone()),
            ("variable_sofia_profile_name", "external".to_owned()),
            ("variable_sip_gateway_name", trunk.name.to_owned()),
            ("variable_sip_req_uri", format!("{number}@127.0.0.1:16000")),
        ]),
        Role::Phone { extension, placed } => headers.extend(phone_headers(extension, *placed)),
        Role::Local { .. } | Role::Plumbing { .. } => {}
    }
    if let Some(by) = born.dialed_by {
        if scene.application(by).0 == "Queue" {
            headers.push(("variable_cc_member_session_uuid", scene.id(by)));
        } else {
            headers.extend([
                ("Other-Type", "originator".to_owned()),
                ("Other-Leg-Unique-ID", scene.id(by)),
                ("variable_originator", scene.id(by)),
                ("Channel-Call-UUID", scene.id(by)),
            ]);
            return headers;
        }
    }
    headers.push(("Channel-Call-UUID", scene.id(channel)));
    headers
}

fn phone_headers(extension: &str, placed: bool) -> Vec<(&'static str, String)> {
    let address = format!("{extension}@127.0.0.1:16{extension}");
    let mut headers = vec![("variable_sofia_profile_name", "internal".to_owned())];
    if placed {
        headers.extend([
            (
                "Channel-Name",
                format!("sofia/internal/{extension}@pbx.lab"),
            ),
            ("Call-Direction", "inbound".to_owned()),
            ("Caller-ANI", extension.to_owned()),
            ("Caller-Orig-Caller-ID-Number", extension.to_owned()),
            ("Caller-Context", "default".to_owned()),
            ("variable_user_name", extension.to_owned()),
            ("variable_sip_network_ip", "127.0.0.1".to_owned()),
            ("variable_sip_network_port", format!("16{extension}")),
        ]);
    } else {
        headers.extend([
            ("Channel-Name", format!("sofia/internal/{address}")),
            ("Call-Direction", "outbound".to_owned()),
            ("Channel-Presence-ID", format!("{extension}@pbx.lab")),
            ("Caller-Destination-Number", extension.to_owned()),
            ("variable_dialed_user", extension.to_owned()),
            ("variable_sip_req_uri", address),
        ]);
    }
    headers
}

struct Teller<'s> {
    scene: Scene<'s>,
    bridged: BTreeSet<(Ch, Ch)>,
    answered: BTreeMap<Ch, Micros>,
    hung_up: BTreeSet<Ch>,
    sequence: u64,
    lines: Vec<u8>,
}

impl Teller<'_> {
    fn tell(&mut self, deed: &Deed) {
        let (at, channel) = (deed.at, deed.channel);
        if !is_party(self.scene.story, channel) {
            return;
        }
        match deed.act {
            Act::Born => self.send("CHANNEL_CREATE", at, channel, &[]),
            Act::Up => {
                self.answered.insert(channel, at);
                self.send("CHANNEL_ANSWER", at, channel, &[]);
            }
            Act::Enter(bridge) => self.move_in_room(deed, bridge, "add-member"),
            Act::Leave(bridge) => self.move_in_room(deed, bridge, "del-member"),
            Act::Hangup => {
                self.hang_up(deed);
                self.send("CHANNEL_HANGUP_COMPLETE", at, channel, &[]);
            }
            _ => {}
        }
    }

    /// Reports a party's hangup, unless it has already been reported.
    fn hang_up(&mut self, deed: &Deed) {
        if is_party(self.scene.story, deed.channel) && self.hung_up.insert(deed.channel) {
            let cause = [("Hangup-Cause", "NORMAL_CLEARING".to_owned())];
            self.send("CHANNEL_HANGUP", deed.at, deed.channel, &cause);
        }
    }

    fn move_in_room(&mut self, deed: &Deed, bridge: Br, action: &str) {
        let room = &self.scene.story.bridges[bridge];
        if room.technology != "softmix" {
            return;
        }
        let headers = [
            ("Event-Subclass", "conference::maintenance".to_owned()),
            ("Conference-Name", room.name.clone()),
            ("Conference-Unique-ID", format!("room-{}", room.name)),
            ("Action", action.to_owned()),
        ];
        self.send("CUSTOM", deed.at, deed.channel, &headers);
    }

    fn update_bridges(&mut self, at: Micros) {
        let now = bridged_pairs(&self.scene);
        let before = std::mem::replace(&mut self.bridged, now.clone());
        for (event, pairs) in [
            ("CHANNEL_UNBRIDGE", before.difference(&now)),
            ("CHANNEL_BRIDGE", now.difference(&before)),
        ] {
            for &(a, b) in pairs {
                let sides = [
                    ("Bridge-A-Unique-ID", self.scene.id(a)),
                    ("Bridge-B-Unique-ID", self.scene.id(b)),
                ];
                self.send(event, at, a, &sides);
            }
        }
    }

    fn send(&mut self, event: &str, at: Micros, channel: Ch, more: &[(&str, String)]) {
        self.sequence += 1;
        let micros = |at: Micros| moment(at).micros().to_string();
        let answered = self.answered.get(&channel).copied();
        let born = self.scene.story.channels[channel].born;
        let envelope = [
            ("Event-Name", event.to_owned()),
            ("Core-UUID", "core".to_owned()),
            ("Event-Date-Timestamp", micros(at)),
            ("Event-Sequence", self.sequence.to_string()),
            ("Caller-Channel-Created-Time", micros(born)),
            (
                "Caller-Channel-Answered-Time",
                answered.map_or("0".to_owned(), micros),
            ),
        ];
        let mut headers: Map<String, Value> = Map::new();
        let own = headers_of_event(event, self::headers(&self.scene, channel));
        for (name, value) in envelope.into_iter().chain(own) {
            headers.insert(name.to_owned(), value.into());
        }
        for (name, value) in more {
            headers.insert((*name).to_owned(), value.as_str().into());
        }
        self.lines
            .extend(Value::Object(headers).to_string().into_bytes());
        self.lines.push(b'\n');
    }
}

/// Returns the headers that an event has. Room events have no variables.
fn headers_of_event(
    event: &str,
    mut headers: Vec<(&'static str, String)>,
) -> Vec<(&'static str, String)> {
    headers.retain(|(name, _)| event != "CUSTOM" || !name.starts_with("variable_"));
    headers
}
