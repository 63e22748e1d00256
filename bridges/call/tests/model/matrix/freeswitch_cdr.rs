//! Tells a story as files written by FreeSWITCH's `mod_json_cdr` with `log-b-leg` on, which writes
//! one per leg when the leg hangs up. It can't tell stories in which legs are bridged again without
//! a transfer (a queue, a pickup, or parking), so the matrix uses recordings for these.

use super::freeswitch::{bridged_pairs, headers, is_party};
use super::scene::Scene;
use crate::switch::{Act, Ch, Deed, Deeds, Micros};
use crate::telling::moment;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Returns one file per line.
pub fn tell(story: &Deeds) -> Vec<u8> {
    let mut scene = Scene::new(story);
    let mut legs: BTreeMap<Ch, Leg> = BTreeMap::new();
    let mut lines = Vec::new();
    for deed in &story.deeds {
        scene.follow(deed);
        if !is_party(story, deed.channel) {
            continue;
        }
        let leg = legs.entry(deed.channel).or_default();
        match deed.act {
            Act::Up => leg.answered = Some(deed.at),
            Act::Runs("ConfBridge") => leg.rooms.push(deed.at),
            _ => {}
        }
        update_bridges(&scene, &mut legs, deed.at);
        if deed.act == Act::Hangup {
            let file = legs[&deed.channel].file(&scene, deed);
            lines.extend(file.to_string().into_bytes());
            lines.push(b'\n');
        }
    }
    lines
}

fn update_bridges(scene: &Scene<'_>, legs: &mut BTreeMap<Ch, Leg>, at: Micros) {
    let pairs = bridged_pairs(scene);
    for (&channel, leg) in legs {
        let mut sides = pairs.iter().flat_map(|&(a, b)| [(a, b), (b, a)]);
        let other = sides.find(|(one, _)| *one == channel);
        leg.update(other.map(|(_, other)| other), at);
    }
}

/// A span during which a leg was bridged with another one.
struct Bridged {
    with: Ch,
    from: Micros,
    to: Option<Micros>,
}

#[derive(Default)]
struct Leg {
    answered: Option<Micros>,
    bridges: Vec<Bridged>,
    /// When the leg entered a conference.
    rooms: Vec<Micros>,
}

impl Leg {
    fn update(&mut self, with: Option<Ch>, at: Micros) {
        let open = self.bridges.iter_mut().find(|bridge| bridge.to.is_none());
        if open.as_ref().map(|bridge| bridge.with) == with {
            return;
        }
        if let Some(bridge) = open {
            bridge.to = Some(at);
        }
        if let Some(with) = with {
            self.bridges.push(Bridged {
                with,
                from: at,
                to: None,
            });
        }
    }

    fn file(&self, scene: &Scene<'_>, hangup: &Deed) -> Value {
        let channel = hangup.channel;
        let born = scene.story.channels[channel].born;
        let mut variables: Map<String, Value> = Map::new();
        for (name, value) in headers(scene, channel) {
            if let Some(name) = variable(name) {
                variables.insert(name.to_owned(), encoded(&value).into());
            }
        }
        for (name, at) in [
            ("start_uepoch", Some(born)),
            ("answer_uepoch", self.answered),
            ("end_uepoch", Some(hangup.at)),
        ] {
            variables.insert(name.to_owned(), micros(at).into());
        }
        variables.insert("start_stamp".to_owned(), "2026-11-18%2011%3A06%3A40".into());
        variables.insert("hangup_cause_q850".to_owned(), "16".into());
        let rooms = self.rooms.iter().map(|&at| {
            let at = micros(Some(at));
            json!({"app_name": "conference", "app_data": "600@default", "app_stamp": at})
        });
        json!({
            "core-uuid": "core",
            "switchname": "pbx",
            "variables": variables,
            "app_log": {"applications": rooms.collect::<Vec<Value>>()},
            "callflow": self.profiles(scene, hangup),
        })
    }

    /// Returns the leg's profiles, newest first. Each transfer starts another one.
    fn profiles(&self, scene: &Scene<'_>, hangup: &Deed) -> Vec<Value> {
        let Some((newest, earlier)) = self.bridges.split_last() else {
            return vec![self.profile(scene, hangup, None)];
        };
        let mut profiles = Vec::new();
        // The last bridge ends with the leg, unless the leg continued alone, as in a room.
        if newest.to.is_some_and(|to| hangup.at - to > 100_000) {
            profiles.push(self.profile(scene, hangup, None));
            profiles.push(transferred(
                self.profile(scene, hangup, Some(newest)),
                newest,
            ));
        } else {
            profiles.push(self.profile(scene, hangup, Some(newest)));
        }
        for bridge in earlier.iter().rev() {
            profiles.push(transferred(
                self.profile(scene, hangup, Some(bridge)),
                bridge,
            ));
        }
        profiles
    }

    /// Returns a profile that ends with the leg.
    fn profile(&self, scene: &Scene<'_>, hangup: &Deed, bridge: Option<&Bridged>) -> Value {
        let channel = hangup.channel;
        let all = headers(scene, channel);
        let header = |wanted: &str| {
            let found = all.iter().find(|(name, _)| *name == wanted);
            found.map_or("", |(_, value)| value.as_str())
        };
        let mut caller = json!({
            "uuid": scene.id(channel),
            "ani": header("Caller-ANI"),
            "destination_number": header("Caller-Destination-Number"),
            "context": header("Caller-Context"),
        });
        let born = &scene.story.channels[channel];
        if let Some(bridge) = bridge {
            let side = if born.dialed_by == Some(bridge.with) {
                "originator"
            } else {
                "originatee"
            };
            let other = json!({"uuid": scene.id(bridge.with)});
            caller[side] = json!({format!("{side}_caller_profiles"): [other]});
        }
        json!({"caller_profile": caller, "times": {
            "created_time": micros(Some(born.born)),
            "answered_time": micros(self.answered),
            "bridged_time": micros(bridge.map(|bridge| bridge.from)),
            "transfer_time": "0",
            "hangup_time": micros(Some(hangup.at)),
        }})
    }
}

/// Returns a profile that ends with a transfer at the end of its bridge.
fn transferred(mut profile: Value, bridge: &Bridged) -> Value {
    profile["times"]["transfer_time"] = micros(bridge.to).into();
    profile["times"]["hangup_time"] = "0".into();
    profile
}

/// Returns the variable that contains a header's value in a leg's file.
fn variable(header: &'static str) -> Option<&'static str> {
    match header {
        "Unique-ID" => Some("uuid"),
        "Channel-Name" => Some("channel_name"),
        "Call-Direction" => Some("direction"),
        "Channel-Presence-ID" => Some("presence_id"),
        _ => header.strip_prefix("variable_"),
    }
}

fn micros(at: Option<Micros>) -> String {
    at.map_or("0".to_owned(), |at| moment(at).micros().to_string())
}

fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
