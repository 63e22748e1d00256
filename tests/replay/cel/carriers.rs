//! Converts the CEL events in a recorded AMI stream to other sources' formats.

use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;

/// An AMI message's keys and values, in order.
pub type Message = Vec<(String, String)>;

/// Returns the messages in a recording's AMI text.
pub fn ami(folder: &Path) -> Vec<Message> {
    let bytes = fs::read(folder.join("ami.raw")).expect("the recording");
    let text = String::from_utf8_lossy(&bytes);
    let mut messages = vec![Message::new()];
    for line in text.lines() {
        match (line.split_once(':'), messages.last_mut()) {
            (Some((key, value)), Some(last)) => {
                last.push((key.to_owned(), value.trim_start().to_owned()));
            }
            _ => messages.push(Message::new()),
        }
    }
    messages.retain(|message| !message.is_empty());
    messages
}

/// Returns only the CEL events.
pub fn cel(folder: &Path) -> Vec<Message> {
    let mut all = ami(folder);
    all.retain(|message| value(message, "Event") == "CEL");
    all
}

/// Returns a key's value, ignoring the key's case, or an empty text if the key is missing.
pub fn value<'m>(message: &'m Message, key: &str) -> &'m str {
    let found = message
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(key));
    found.map_or("", |(_, value)| value)
}

/// Replaces a key's value.
pub fn set(message: &mut Message, key: &str, new: &str) {
    for (name, value) in message {
        if name.eq_ignore_ascii_case(key) {
            new.clone_into(value);
        }
    }
}

/// Returns the messages as AMI text.
pub fn as_ami(messages: &[Message]) -> Vec<u8> {
    let mut text = String::new();
    for message in messages {
        for (key, value) in message {
            text.push_str(&format!("{key}: {value}\r\n"));
        }
        text.push_str("\r\n");
    }
    text.into_bytes()
}

/// Returns bodies as on Wazo's bus, in the form `{"name", "origin_uuid", "timestamp", "data"}`,
/// with the variables as an object (like wazo-amid's events).
pub fn as_wazo(messages: &[Message]) -> Vec<u8> {
    let mut lines = String::new();
    for message in messages
        .iter()
        .filter(|message| !value(message, "Event").is_empty())
    {
        let mut data = Map::new();
        for (key, text) in message {
            match (key.strip_suffix("ChanVariable"), text.split_once('=')) {
                (Some(_), Some((name, text))) => {
                    let variables = data.entry(key).or_insert_with(|| json!({}));
                    variables[name] = json!(text);
                }
                _ => {
                    data.insert(key.clone(), json!(text));
                }
            }
        }
        let body = json!({
            "name": value(message, "Event"),
            "origin_uuid": "0b0d7c1e-52a2-4a9f-9b1c-1c1f6a4d2e77",
            "timestamp": "2026-11-20T05:08:37.831530",
            "data": Value::Object(data),
        });
        lines.push_str(&format!("{body}\n"));
    }
    lines.into_bytes()
}

/// Returns asterisk-cel-amqp bodies, with times in Tashkent's time zone.
pub fn as_amqp(rows: &[Message], times: &str) -> Vec<u8> {
    let mut lines = String::new();
    for row in rows {
        let time: f64 = value(row, "Timestamp").parse().expect("a time");
        let time = jiff::Timestamp::from_microsecond((time * 1e6).round() as i64).expect("a time");
        let zone = jiff::tz::TimeZone::get("Asia/Tashkent").expect("a zone");
        let extra: Value = serde_json::from_str(value(row, "Extra")).unwrap_or(json!(""));
        let body = json!({
            "event_name": value(row, "EventName"),
            "caller_id": {"num": value(row, "CallerIDnum"), "dnid": value(row, "CallerIDdnid")},
            "extension": value(row, "Exten"),
            "context": value(row, "Context"),
            "channel": value(row, "Channel"),
            "application": value(row, "Application"),
            "app_data": value(row, "AppData"),
            "event_time": time.to_zoned(zone).strftime(times).to_string(),
            "unique_id": value(row, "UniqueID"),
            "linked_id": value(row, "LinkedID"),
            "user_field": value(row, "Userfield"),
            "peer": value(row, "Peer"),
            "extra": extra,
        });
        lines.push_str(&format!("{body}\n"));
    }
    lines.into_bytes()
}

/// Returns a file's rows with these AMI keys as columns. Every field is quoted.
pub fn as_csv(rows: &[Message], columns: &[&str]) -> Vec<u8> {
    let mut text = String::new();
    for row in rows {
        let fields = columns.iter().map(|key| {
            let key = if *key == "EventTime" {
                "Timestamp"
            } else {
                key
            };
            format!("\"{}\"", value(row, key).replace('"', "\"\""))
        });
        text.push_str(&fields.collect::<Vec<_>>().join(","));
        text.push('\n');
    }
    text.into_bytes()
}
