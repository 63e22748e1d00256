//! Checks that the tellers write what a real PBX writes: the records and events of a story have the
//! same shape as those of a recording of such a call.

use super::stories::STORIES;
use super::{Source, recorded, tell};
use serde_json::Value;
use std::collections::BTreeMap;

/// Stories, and recordings of the same story by Asterisk 22. In the recording of parking, the PBX
/// dialed the phone that takes the call, so parking is left out.
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

/// Stories, and recordings of the same story by FreeSWITCH 1.10.
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

fn told(name: &str, source: Source) -> String {
    let story = STORIES.iter().find(|story| story.name == name);
    let bytes = tell(story.expect("a story"), source);
    String::from_utf8(bytes).expect("text")
}

/// Returns the endpoint of a channel's name: `PJSIP/city` of `PJSIP/city-0000004f`.
fn endpoint(name: &str) -> &str {
    match name.split_once('/') {
        Some(("Local", _)) => "Local",
        _ => name.split('-').next().unwrap_or_default(),
    }
}

/// Returns the channels, the application, and the disposition of each record, sorted.
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

/// Returns the events of each channel in their order, sorted by endpoint.
fn events(text: &str) -> Vec<String> {
    let mut channels: BTreeMap<&str, String> = BTreeMap::new();
    for message in text.split("\r\n\r\n") {
        let value = |key: &str| {
            let mut lines = message.lines().filter_map(|line| line.split_once(": "));
            lines
                .find(|(name, _)| *name == key)
                .map_or("", |(_, value)| value)
        };
        let (channel, event) = match value("Event") {
            event @ ("DialBegin" | "DialEnd") => (value("DestChannel"), event),
            // Whether a phone rings is up to the phone.
            "Newstate" if value("ChannelStateDesc") == "Up" => (value("Channel"), "Up"),
            event @ ("Newchannel" | "BridgeEnter" | "BridgeLeave" | "Hangup") => {
                (value("Channel"), event)
            }
            _ => continue,
        };
        let events = channels.entry(channel).or_default();
        *events += &format!(" {event}");
    }
    let mut shapes: Vec<String> = channels
        .iter()
        .map(|(name, events)| endpoint(name).to_owned() + events)
        .collect();
    shapes.sort();
    shapes
}

/// Returns FreeSWITCH's events of each channel in their order, sorted by name.
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
        assert_eq!(events(&told), events(&recording), "{story}");
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
