//! Checks that the tellers write what a real PBX writes, i.e., that a story's records and events
//! look just like those in a recording of such a call.

use super::stories::STORIES;
use super::{Source, recorded, tell};
use serde_json::Value;
use std::collections::BTreeMap;

/// Stories, along with recordings of the same story made with Asterisk 22. Parking is omitted
/// because in its recording, the PBX dialed the phone that retrieves the call.
const SAME_IN_ASTERISK: [(&str, &str); 13] = [
    ("answered", "inbound_answered"),
    ("missed", "inbound_no_answer"),
    ("outbound", "outbound_answered"),
    ("outbound unanswered", "outbound_no_answer"),
    ("queue", "queue_second_agent"),
    ("blind transfer", "blind_transfer"),
    ("attended transfer", "attended_transfer_by_phone"),
    ("pickup", "pickup"),
    ("agent login through a queue", "queue_agent_two_customers"),
    ("forwarding", "forwarded_to_mobile"),
    ("failover", "carrier_failover"),
    ("voicemail", "voicemail"),
    ("callback", "campaign_extension"),
];

/// Stories, along with recordings of the same story made with FreeSWITCH 1.10.
const SAME_IN_FREESWITCH: [(&str, &str); 13] = [
    ("answered", "inbound_answered"),
    ("missed", "inbound_no_answer"),
    ("outbound", "outbound_answered"),
    ("outbound unanswered", "outbound_no_answer"),
    ("queue", "queue_second_agent"),
    ("ring group", "ring_group"),
    ("blind transfer", "blind_transfer"),
    ("pickup", "pickup"),
    ("parking", "park"),
    ("conference", "conference"),
    ("forwarding", "forwarded_to_mobile"),
    ("click-to-call", "click_to_call"),
    ("voicemail", "voicemail"),
];

/// Stories, along with recordings of the same story made with Asterisk 11 and 16 using `chan_sip`.
const SAME_IN_OLD_ASTERISK: [(&str, &str); 7] = [
    ("answered", "inbound_answered"),
    ("outbound", "outbound_answered"),
    ("queue", "queue_second_agent"),
    ("ring group", "ring_group"),
    ("forwarding", "forwarded_to_mobile"),
    ("click-to-call", "click_to_call"),
    ("voicemail", "voicemail"),
];

fn told(name: &str, source: Source) -> String {
    let story = STORIES.iter().find(|story| story.name == name);
    let bytes = tell(story.expect("a story"), source);
    String::from_utf8(bytes).expect("text")
}

/// Returns the endpoint in a channel name, such as `PJSIP/city` in `PJSIP/city-0000004f`.
fn endpoint(name: &str) -> &str {
    match name.split_once('/') {
        Some(("Local", _)) => "Local",
        _ => name.split('-').next().unwrap_or_default(),
    }
}

/// Returns the channels, the application, and the disposition of each record, in sorted order.
fn records(rows: &str) -> Vec<String> {
    let mut records = Vec::new();
    for row in rows.lines() {
        let cells: Vec<&str> = row.split("\",\"").collect();
        let [a, b, app] = [5, 6, 7].map(|column| cells[column]);
        let answered = row.contains("\"ANSWERED\"");
        records.push(format!("{} {} {app} {answered}", endpoint(a), endpoint(b)));
    }
    records.sort();
    records
}

/// Returns the value of a key in an AMI message, or an empty text.
fn value<'m>(message: &'m str, key: &str) -> &'m str {
    let mut lines = message.lines().filter_map(|line| line.split_once(": "));
    let found = lines.find(|(name, _)| *name == key);
    found.map_or("", |(_, value)| value)
}

/// Collects the events of each channel.
#[derive(Default)]
struct Shapes<'t>(BTreeMap<&'t str, String>);

impl<'t> Shapes<'t> {
    fn add(&mut self, channel: &'t str, event: &str) {
        *self.0.entry(channel).or_default() += &format!(" {event}");
    }

    /// Returns the endpoint and the events of each channel, in sorted order.
    fn sorted(&self) -> Vec<String> {
        let channels = self.0.iter();
        let mut shapes: Vec<String> = channels
            .map(|(name, events)| endpoint(name).to_owned() + events)
            .collect();
        shapes.sort();
        shapes
    }
}

fn ami_events(text: &str) -> Vec<String> {
    let mut shapes = Shapes::default();
    for message in text.split("\r\n\r\n") {
        let channel = value(message, "Channel");
        match value(message, "Event") {
            event @ ("DialBegin" | "DialEnd") => shapes.add(value(message, "DestChannel"), event),
            // Whether a phone rings is up to the phone.
            "Newstate" if value(message, "ChannelStateDesc") == "Up" => shapes.add(channel, "Up"),
            event @ ("Newchannel" | "BridgeEnter" | "BridgeLeave" | "Hangup") => {
                shapes.add(channel, event);
            }
            _ => {}
        }
    }
    shapes.sorted()
}

fn ami1_events(text: &str) -> Vec<String> {
    let mut shapes = Shapes::default();
    for message in text.split("\r\n\r\n") {
        let channel = value(message, "Channel");
        match value(message, "Event") {
            "Newstate" if value(message, "ChannelStateDesc") != "Ringing" => {
                shapes.add(channel, value(message, "ChannelStateDesc"));
            }
            "Dial" if value(message, "SubEvent") == "Begin" => {
                shapes.add(value(message, "Destination"), "Dial");
            }
            "Bridge" => {
                for key in ["Channel1", "Channel2"] {
                    shapes.add(value(message, key), value(message, "Bridgestate"));
                }
            }
            event @ ("Newchannel" | "Hangup") => shapes.add(channel, event),
            _ => {}
        }
    }
    shapes.sorted()
}

fn cel_events(rows: &str) -> Vec<String> {
    let mut shapes = Shapes::default();
    for row in rows.lines() {
        let cells: Vec<&str> = row.split("\",\"").collect();
        let (event, channel) = (cells[0].trim_start_matches('"'), cells[9]);
        // Which applications' events are written depends on `cel.conf`.
        if !event.starts_with("APP_") && event != "LINKEDID_END" {
            shapes.add(channel, event);
        }
    }
    shapes.sorted()
}

/// Returns each channel's FreeSWITCH events in order, sorted by channel name.
fn freeswitch_events(lines: &str) -> Vec<String> {
    let mut channels: BTreeMap<String, (String, String)> = BTreeMap::new();
    for line in lines.lines() {
        let event: Value = serde_json::from_str(line).expect("an event");
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        let name = match text("Event-Name").strip_prefix("CHANNEL_") {
            Some(name) => name.to_owned(),
            None => text("Action"),
        };
        let wanted = "CREATE ANSWER BRIDGE UNBRIDGE HANGUP HANGUP_COMPLETE add-member del-member";
        if wanted.split(' ').any(|wanted| wanted == name) {
            let (_, events) = channels
                .entry(text("Unique-ID"))
                .or_insert_with(|| (text("Channel-Name"), String::new()));
            *events += &format!(" {name}");
        }
    }
    let shapes = channels.into_values().map(|(name, events)| {
        let profile = name.split('/').nth(1).unwrap_or_default();
        format!("{profile}{events}")
    });
    let mut shapes: Vec<String> = shapes.collect();
    shapes.sort();
    shapes
}

#[test]
fn told_cdrs_have_the_shape_of_recorded_ones() {
    for (story, folder) in SAME_IN_ASTERISK {
        let recording = recorded::file(folder, "cdr.csv");
        let recording = String::from_utf8(recording).expect("text");
        let told = told(story, Source::BareCdr);
        assert_eq!(records(&told), records(&recording), "{story}");
    }
}

#[test]
fn told_ami_events_have_the_shape_of_recorded_ones() {
    for (story, folder) in SAME_IN_ASTERISK {
        let recording = recorded::file(folder, "ami.raw");
        let recording = String::from_utf8_lossy(&recording);
        let told = told(story, Source::Ami);
        assert_eq!(ami_events(&told), ami_events(&recording), "{story}");
    }
}

#[test]
fn told_freeswitch_events_have_the_recorded_shape() {
    for (story, folder) in SAME_IN_FREESWITCH {
        let recording = recorded::file(&format!("freeswitch/{folder}"), "esl.jsonl");
        let recording = String::from_utf8(recording).expect("text");
        let told = told(story, Source::Freeswitch);
        assert_eq!(
            freeswitch_events(&told),
            freeswitch_events(&recording),
            "{story}"
        );
    }
}

#[test]
fn told_ami1_events_have_the_shape_of_recorded_ones() {
    for (story, folder) in SAME_IN_OLD_ASTERISK {
        let recording = recorded::file(&format!("asterisk-old/11/{folder}"), "ami.raw");
        let recording = String::from_utf8_lossy(&recording);
        let told = told(story, Source::Ami1);
        assert_eq!(ami1_events(&told), ami1_events(&recording), "{story}");
    }
}

#[test]
fn told_cel_has_the_shape_of_recorded_cel() {
    for (story, folder) in SAME_IN_OLD_ASTERISK {
        let recording = recorded::file(&format!("asterisk-old/16/{folder}"), "cel.csv");
        let recording = String::from_utf8(recording).expect("text");
        let recording = recording.replace("SIP/", "PJSIP/");
        let told = told(story, Source::Cel);
        assert_eq!(cel_events(&told), cel_events(&recording), "{story}");
    }
}
