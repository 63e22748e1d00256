//! Tells a story as call messages, as published by a phone system that knows what happened.

use super::measure::Facts;
use super::scene::LEAD;
use serde_json::json;

/// Returns one message per line.
pub fn tell(calls: &[Facts]) -> Vec<u8> {
    let mut lines = String::new();
    for (number, call) in calls.iter().enumerate() {
        let mut message = json!({
            "pbx": "cloud",
            "id": format!("call-{number}"),
            "direction": call.direction.word(),
            "trunk": call.trunk,
            "phone": call.number,
            "startedAt": call.started,
            "durationSec": call.duration,
            "answered": call.answered,
            "extension": call.employee,
            "variables": {LEAD.0: LEAD.1},
        });
        if call.answered {
            message["talkSec"] = call.talk.into();
        }
        lines += &message.to_string();
        lines.push('\n');
    }
    lines.into_bytes()
}
