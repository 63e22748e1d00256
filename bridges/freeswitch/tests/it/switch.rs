//! A fake switch that generates a scene's events, with the same headers as a live switch.

use callbridge_call::{Direction, FinishedCall};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The time shown by the switch's clock when a scene starts, in seconds since 1970.
pub const BEGIN: u64 = 1_795_300_000;

#[derive(Clone, Default)]
struct Channel {
    headers: BTreeMap<String, String>,
    created: u64,
    answered: u64,
    bridged: u64,
}

/// A scene, consisting of its channels and the events so far.
#[derive(Default)]
pub struct Switch {
    channels: BTreeMap<String, Channel>,
    now: u64,
    sequence: u64,
    pub messages: Vec<Vec<u8>>,
}

type Headers<'h> = &'h [(&'h str, &'h str)];

impl Switch {
    /// Sets the time of the following events, in milliseconds since the start of the scene.
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
        self.send_event("CHANNEL_CREATE", id, &[])
    }

    /// Makes a customer call in over the carrier. `id` is the ID of the customer's channel.
    pub fn call_in(&mut self, id: &str, number: &str) -> &mut Self {
        self.call_in_from(id, number, "16000")
    }

    pub fn call_in_from(&mut self, id: &str, number: &str, port: &str) -> &mut Self {
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

    /// Makes an extension's phone dial. `id` is the ID of the phone's channel.
    pub fn dial(&mut self, id: &str, extension: &str) -> &mut Self {
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

    /// Makes a phone that isn't logged in dial, using a channel with this name.
    pub fn dial_without_login(&mut self, id: &str, name: &str, headers: Headers<'_>) -> &mut Self {
        self.channel(id, name, true, headers)
    }

    /// Returns the headers of a channel that the channel `by` created in the call `call`, or none
    /// if `by` isn't a channel.
    fn originator_headers(&self, by: &str, call: &str) -> Vec<(&'static str, String)> {
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

    /// Dials a phone. The channel `by` dials it in the call `call`, or no channel does if `by` is
    /// empty.
    pub fn ring(&mut self, id: &str, extension: &str, (by, call): (&str, &str)) -> &mut Self {
        self.ring_with(id, extension, (by, call), &[])
    }

    pub fn ring_with(
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
        let made = self.originator_headers(by, call);
        headers.extend(made.iter().map(|(name, value)| (*name, value.as_str())));
        headers.extend(more);
        self.channel(id, &name, false, &headers)
    }

    /// Dials an outside number. `target` is the gateway and the number, and `by` is the dialing
    /// channel and the call.
    pub fn dial_out(&mut self, id: &str, target: (&str, &str), by: (&str, &str)) -> &mut Self {
        self.dial_out_with(id, target, by, &[])
    }

    pub fn dial_out_with(
        &mut self,
        id: &str,
        (gateway, number): (&str, &str),
        (by, call): (&str, &str),
        more: Headers<'_>,
    ) -> &mut Self {
        let name = format!("sofia/external/{number}");
        // For any gateway other than `city`, the number has an address that doesn't match any
        // trunk.
        let port = if gateway == "city" { 16_000 } else { 16_099 };
        let uri = format!("{number}@127.0.0.1:{port}");
        let mut headers = vec![
            ("variable_sip_gateway_name", gateway),
            ("Caller-Destination-Number", number),
            ("variable_sip_req_uri", uri.as_str()),
            ("variable_lead_id", "4001"),
        ];
        let made = self.originator_headers(by, call);
        headers.extend(made.iter().map(|(name, value)| (*name, value.as_str())));
        headers.extend(more);
        self.channel(id, &name, false, &headers)
    }

    /// Adds a header to all subsequent events of the channel.
    pub fn add_header(&mut self, id: &str, header: &str, value: &str) -> &mut Self {
        let channel = self.channels.get_mut(id).expect("a channel");
        channel.headers.insert(header.to_owned(), value.to_owned());
        self
    }

    /// Creates half of a loopback channel, which the channel `by` does in the call `call`. `other`
    /// is the other half's ID, or empty if the event doesn't show it.
    pub fn add_loopback_half(
        &mut self,
        id: &str,
        name: &str,
        (inbound, other): (bool, &str),
        (by, call): (&str, &str),
    ) -> &mut Self {
        let made = self.originator_headers(by, call);
        let pairs = made.iter().map(|(name, value)| (*name, value.as_str()));
        let mut headers: Vec<(&str, &str)> = pairs.collect();
        if !other.is_empty() {
            headers.push(("variable_other_loopback_leg_uuid", other));
        }
        self.channel(id, name, inbound, &headers)
    }

    pub fn answer(&mut self, id: &str) -> &mut Self {
        self.channels.get_mut(id).expect("a channel").answered = self.now;
        self.send_event("CHANNEL_ANSWER", id, &[])
    }

    pub fn bridge(&mut self, a: &str, b: &str) -> &mut Self {
        for (id, other) in [(a, b), (b, a)] {
            let channel = self.channels.get_mut(id).expect("a channel");
            channel.bridged = self.now;
            let bridge = ("variable_bridge_uuid".to_owned(), other.to_owned());
            channel.headers.extend([bridge]);
        }
        let sides = [("Bridge-A-Unique-ID", a), ("Bridge-B-Unique-ID", b)];
        self.send_event("CHANNEL_BRIDGE", a, &sides)
    }

    pub fn unbridge(&mut self, a: &str, b: &str) -> &mut Self {
        self.channels.get_mut(a).expect("a channel").bridged = 0;
        let sides = [("Bridge-A-Unique-ID", a), ("Bridge-B-Unique-ID", b)];
        self.send_event("CHANNEL_UNBRIDGE", a, &sides)
    }

    /// Makes the channel start or end a consultation by feature code.
    pub fn consult(&mut self, id: &str, begins: bool) -> &mut Self {
        let event = if begins {
            "CHANNEL_EXECUTE"
        } else {
            "CHANNEL_EXECUTE_COMPLETE"
        };
        self.send_event(event, id, &[("Application", "att_xfer")])
    }

    /// Makes the channel start or end the application `name` with the argument `data`.
    pub fn execute(&mut self, id: &str, (name, data): (&str, &str), begins: bool) -> &mut Self {
        let event = if begins {
            "CHANNEL_EXECUTE"
        } else {
            "CHANNEL_EXECUTE_COMPLETE"
        };
        self.send_event(
            event,
            id,
            &[("Application", name), ("Application-Data", data)],
        )
    }

    /// Makes the channel's user press a key. The event has no variables.
    pub fn press(&mut self, id: &str, key: &str) -> &mut Self {
        self.send_event("DTMF", id, &[("DTMF-Digit", key)])
    }

    /// Makes the channel enter (if `enters`) or leave a room.
    pub fn enter_or_leave_room(&mut self, id: &str, room: &str, enters: bool) -> &mut Self {
        let action = if enters { "add-member" } else { "del-member" };
        self.act_in_room(id, room, action)
    }

    /// Makes the member start talking in the room.
    pub fn talk_in_room(&mut self, id: &str, room: &str) -> &mut Self {
        self.act_in_room(id, room, "start-talking")
    }

    fn act_in_room(&mut self, id: &str, room: &str, action: &str) -> &mut Self {
        let headers = [
            ("Event-Subclass", "conference::maintenance"),
            ("Conference-Unique-ID", room),
            ("Action", action),
        ];
        self.send_event("CUSTOM", id, &headers)
    }

    pub fn hang_up(&mut self, id: &str) -> &mut Self {
        self.send_event("CHANNEL_HANGUP", id, &[("Hangup-Cause", "NORMAL_CLEARING")]);
        self.send_event("CHANNEL_HANGUP_COMPLETE", id, &[])
    }

    /// Reports the channel again as part of another process (`fsctl recover`), possibly on another
    /// node.
    pub fn recover(&mut self, id: &str, (core, node): (&str, &str)) -> &mut Self {
        self.add_header(id, "Core-UUID", core);
        self.add_header(id, "FreeSWITCH-Switchname", node);
        self.add_header(id, "variable_recovered", "true");
        self.send_event("CHANNEL_CREATE", id, &[])
    }

    /// Sends a heartbeat with the number of live channels.
    pub fn send_heartbeat(&mut self, channels: usize) -> &mut Self {
        self.sequence += 1;
        let message = json!({
            "Event-Name": "HEARTBEAT",
            "Core-UUID": "core",
            "Event-Date-Timestamp": self.now.to_string(),
            "Event-Sequence": self.sequence.to_string(),
            "Uptime-msec": (self.now / 1000 - BEGIN * 1000 + 3_600_000).to_string(),
            "Session-Count": channels.to_string(),
        });
        self.messages.push(message.to_string().into_bytes());
        self
    }

    fn send_event(&mut self, event: &str, id: &str, more: Headers<'_>) -> &mut Self {
        self.sequence += 1;
        let channel = self.channels.get(id).expect("a channel");
        let mut headers: Map<String, Value> = Map::new();
        for (name, value) in [
            ("Event-Name", event.to_owned()),
            ("Core-UUID", "core".to_owned()),
            ("Event-Date-Timestamp", self.now.to_string()),
            ("Event-Sequence", self.sequence.to_string()),
            ("Caller-Channel-Created-Time", channel.created.to_string()),
            ("Caller-Channel-Answered-Time", channel.answered.to_string()),
            ("Caller-Channel-Bridged-Time", channel.bridged.to_string()),
        ] {
            headers.insert(name.to_owned(), json!(value));
        }
        let variables = event != "DTMF";
        for (name, value) in &channel.headers {
            if variables || !name.starts_with("variable_") {
                headers.insert(name.clone(), json!(value));
            }
        }
        for (name, value) in more {
            headers.insert((*name).to_owned(), json!(value));
        }
        self.messages
            .push(serde_json::to_vec(&headers).expect("JSON"));
        self
    }
}

/// Describes a finished call in one line, including its parties, trunk, talk time, and duration.
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
