//! A fake switch that sends the events of a scene, with the headers of a live one.

use callbridge_call::{Direction, FinishedCall};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Time of the switch's clock when a scene begins.
pub const BEGIN: u64 = 1_795_300_000;

#[derive(Clone, Default)]
struct Channel {
    headers: BTreeMap<String, String>,
    created: u64,
    answered: u64,
    bridged: u64,
}

/// One scene: events with their times, in milliseconds from its start.
#[derive(Default)]
pub struct Switch {
    channels: BTreeMap<String, Channel>,
    now: u64,
    sequence: u64,
    pub told: Vec<Vec<u8>>,
}

type Headers<'h> = &'h [(&'h str, &'h str)];

impl Switch {
    /// Sets the time of the next events.
    pub fn at(&mut self, millis: u64) -> &mut Self {
        self.now = (BEGIN * 1000 + millis) * 1000;
        self
    }

    fn channel(&mut self, id: &str, name: &str, inbound: bool, headers: Headers<'_>) -> &mut Self {
        let direction = if inbound { "inbound" } else { "outbound" };
        let profile = name.split('/').nth(1).unwrap_or_default();
        let plain = [
            ("Unique-ID", id),
            ("Channel-Name", name),
            ("Call-Direction", direction),
            ("Channel-Call-UUID", id),
            ("variable_sofia_profile_name", profile),
        ];
        let own = plain.iter().chain(headers);
        let headers = own.map(|&(name, value)| (name.to_owned(), value.to_owned()));
        let channel = Channel {
            headers: headers.collect(),
            created: self.now,
            ..Channel::default()
        };
        self.channels.insert(id.to_owned(), channel);
        self.tell("CHANNEL_CREATE", id, &[])
    }

    /// A customer calls in over the carrier.
    pub fn comes_in(&mut self, id: &str, number: &str) -> &mut Self {
        self.comes_in_from(id, number, "16000")
    }

    pub fn comes_in_from(&mut self, id: &str, number: &str, port: &str) -> &mut Self {
        let name = format!("sofia/external/{number}@127.0.0.1");
        let headers = [
            ("Caller-Orig-Caller-ID-Number", number),
            ("Caller-Context", "public"),
            ("variable_sip_network_ip", "127.0.0.1"),
            ("variable_sip_network_port", port),
            ("variable_lead_id", "4001"),
        ];
        self.channel(id, &name, true, &headers)
    }

    /// A telephone dials.
    pub fn dials(&mut self, id: &str, extension: &str) -> &mut Self {
        let name = format!("sofia/internal/{extension}@pbx.lab");
        let headers = [
            ("Caller-Orig-Caller-ID-Number", extension),
            ("Caller-Context", "default"),
            ("variable_user_name", extension),
            ("variable_sip_network_ip", "127.0.0.1"),
            ("variable_sip_network_port", "16101"),
        ];
        self.channel(id, &name, true, &headers)
    }

    /// Returns the headers of a channel that another one made in this call.
    fn made_by(&self, by: &str, call: &str) -> Vec<(&'static str, String)> {
        let Some(maker) = self.channels.get(by) else {
            return Vec::new();
        };
        vec![
            ("Other-Type", "originator".to_owned()),
            ("Other-Leg-Unique-ID", by.to_owned()),
            (
                "Other-Leg-Channel-Name",
                maker.headers["Channel-Name"].clone(),
            ),
            ("variable_originator", by.to_owned()),
            ("Channel-Call-UUID", call.to_owned()),
        ]
    }

    /// Dials a telephone, by this channel in this call. Without a channel if it is empty.
    pub fn rings(&mut self, id: &str, extension: &str, (by, call): (&str, &str)) -> &mut Self {
        self.rings_with(id, extension, (by, call), &[])
    }

    pub fn rings_with(
        &mut self,
        id: &str,
        extension: &str,
        (by, call): (&str, &str),
        more: Headers<'_>,
    ) -> &mut Self {
        let name = format!("sofia/internal/{extension}@127.0.0.1:16{extension}");
        let presence = format!("{extension}@pbx.lab");
        let uri = format!("{extension}@127.0.0.1:16{extension}");
        let mut headers = vec![
            ("Channel-Presence-ID", presence.as_str()),
            ("Caller-Context", "public"),
            ("Caller-Destination-Number", extension),
            ("variable_dialed_user", extension),
            ("variable_sip_req_uri", uri.as_str()),
        ];
        let made = self.made_by(by, call);
        headers.extend(made.iter().map(|(name, value)| (*name, value.as_str())));
        headers.extend(more);
        self.channel(id, &name, false, &headers)
    }

    /// Dials an outside number over a gateway.
    pub fn dials_out(&mut self, id: &str, target: (&str, &str), by: (&str, &str)) -> &mut Self {
        self.dials_out_with(id, target, by, &[])
    }

    pub fn dials_out_with(
        &mut self,
        id: &str,
        (gateway, number): (&str, &str),
        (by, call): (&str, &str),
        more: Headers<'_>,
    ) -> &mut Self {
        let name = format!("sofia/external/{number}");
        // A carrier that is only called by its gateway has its own address.
        let port = if gateway == "city" { 16_000 } else { 16_099 };
        let uri = format!("{number}@127.0.0.1:{port}");
        let mut headers = vec![
            ("variable_sip_gateway_name", gateway),
            ("Caller-Destination-Number", number),
            ("variable_sip_req_uri", uri.as_str()),
            ("variable_lead_id", "4001"),
        ];
        let made = self.made_by(by, call);
        headers.extend(made.iter().map(|(name, value)| (*name, value.as_str())));
        headers.extend(more);
        self.channel(id, &name, false, &headers)
    }

    /// Adds this header to the later events of the channel.
    pub fn learns(&mut self, id: &str, header: &str, value: &str) -> &mut Self {
        let channel = self.channels.get_mut(id).expect("a channel");
        channel.headers.insert(header.to_owned(), value.to_owned());
        self
    }

    /// Creates one half of a loopback. The second half has the id of the first from its creation
    /// on.
    pub fn half(
        &mut self,
        id: &str,
        name: &str,
        (inbound, other): (bool, &str),
        (by, call): (&str, &str),
    ) -> &mut Self {
        let made = self.made_by(by, call);
        let told = made.iter().map(|(name, value)| (*name, value.as_str()));
        let mut headers: Vec<(&str, &str)> = told.collect();
        if !other.is_empty() {
            headers.push(("variable_other_loopback_leg_uuid", other));
        }
        self.channel(id, name, inbound, &headers)
    }

    pub fn answers(&mut self, id: &str) -> &mut Self {
        self.channels.get_mut(id).expect("a channel").answered = self.now;
        self.tell("CHANNEL_ANSWER", id, &[])
    }

    pub fn bridges(&mut self, a: &str, b: &str) -> &mut Self {
        for (id, other) in [(a, b), (b, a)] {
            let channel = self.channels.get_mut(id).expect("a channel");
            channel.bridged = self.now;
            let bridge = ("variable_bridge_uuid".to_owned(), other.to_owned());
            channel.headers.extend([bridge]);
        }
        let sides = [("Bridge-A-Unique-ID", a), ("Bridge-B-Unique-ID", b)];
        self.tell("CHANNEL_BRIDGE", a, &sides)
    }

    pub fn unbridges(&mut self, a: &str, b: &str) -> &mut Self {
        self.channels.get_mut(a).expect("a channel").bridged = 0;
        let sides = [("Bridge-A-Unique-ID", a), ("Bridge-B-Unique-ID", b)];
        self.tell("CHANNEL_UNBRIDGE", a, &sides)
    }

    /// The channel begins a consultation by feature code, or ends it.
    pub fn consults(&mut self, id: &str, begins: bool) -> &mut Self {
        let event = if begins {
            "CHANNEL_EXECUTE"
        } else {
            "CHANNEL_EXECUTE_COMPLETE"
        };
        self.tell(event, id, &[("Application", "att_xfer")])
    }

    /// The channel begins or ends an application with this argument.
    pub fn executes(&mut self, id: &str, (name, data): (&str, &str), begins: bool) -> &mut Self {
        let event = if begins {
            "CHANNEL_EXECUTE"
        } else {
            "CHANNEL_EXECUTE_COMPLETE"
        };
        self.tell(
            event,
            id,
            &[("Application", name), ("Application-Data", data)],
        )
    }

    /// The user of the channel presses a key. The event carries no variables.
    pub fn presses(&mut self, id: &str, key: &str) -> &mut Self {
        self.tell("DTMF", id, &[("DTMF-Digit", key)])
    }

    /// The channel enters or leaves a room.
    pub fn in_room(&mut self, id: &str, room: &str, comes: bool) -> &mut Self {
        let action = if comes { "add-member" } else { "del-member" };
        let headers = [
            ("Event-Subclass", "conference::maintenance"),
            ("Conference-Unique-ID", room),
            ("Action", action),
        ];
        self.tell("CUSTOM", id, &headers)
    }

    pub fn hangs_up(&mut self, id: &str) -> &mut Self {
        self.tell("CHANNEL_HANGUP", id, &[("Hangup-Cause", "NORMAL_CLEARING")]);
        self.tell("CHANNEL_HANGUP_COMPLETE", id, &[])
    }

    /// The switch counts its live channels.
    pub fn counts(&mut self, channels: usize) -> &mut Self {
        self.sequence += 1;
        let message = json!({
            "Event-Name": "HEARTBEAT",
            "Core-UUID": "core",
            "Event-Date-Timestamp": self.now.to_string(),
            "Event-Sequence": self.sequence.to_string(),
            "Uptime-msec": (self.now / 1000 - BEGIN * 1000 + 3_600_000).to_string(),
            "Session-Count": channels.to_string(),
        });
        self.told.push(message.to_string().into_bytes());
        self
    }

    fn tell(&mut self, event: &str, id: &str, more: Headers<'_>) -> &mut Self {
        self.sequence += 1;
        let channel = self.channels.get(id).expect("a channel");
        let mut headers: Map<String, Value> = Map::new();
        let mut put = |name: &str, value: String| headers.insert(name.to_owned(), json!(value));
        put("Event-Name", event.to_owned());
        put("Core-UUID", "core".to_owned());
        put("Event-Date-Timestamp", self.now.to_string());
        put("Event-Sequence", self.sequence.to_string());
        put("Caller-Channel-Created-Time", channel.created.to_string());
        put("Caller-Channel-Answered-Time", channel.answered.to_string());
        put("Caller-Channel-Bridged-Time", channel.bridged.to_string());
        let variables = event != "DTMF";
        for (name, value) in &channel.headers {
            if variables || !name.starts_with("variable_") {
                put(name, value.clone());
            }
        }
        for (name, value) in more {
            put(name, (*value).to_owned());
        }
        self.told.push(serde_json::to_vec(&headers).expect("JSON"));
        self
    }
}

/// Describes a finished call in one line: who, whom, and how long.
pub fn line(call: &FinishedCall) -> String {
    let employees: Vec<String> = call
        .employees_in_order
        .iter()
        .map(ToString::to_string)
        .collect();
    let direction = match call.direction {
        Direction::Inbound => "in",
        Direction::Outbound => "out",
        Direction::Internal => "internal",
        Direction::Unknown => "unknown",
    };
    let number = call.number.as_ref().map_or("-", |number| &number.text);
    let employee = call
        .employee
        .as_ref()
        .map_or("-".to_owned(), ToString::to_string);
    let whole = call.incomplete.as_deref().unwrap_or("whole");
    format!(
        "{} {direction} {} {number} [{}] {employee} talk {:.1} of {:.1}, {whole}",
        call.linkedid,
        call.trunk.as_deref().unwrap_or("-"),
        employees.join(" "),
        call.talk.as_secs_f64(),
        call.ended.since(call.started).as_secs_f64(),
    )
}
