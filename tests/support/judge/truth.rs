//! Compares submissions and the journal with the real calls.

use super::seen::Seen;
use callbridge_testbed::expected::Expected;
use serde_json::Value;
use std::collections::BTreeMap;

/// Every field of a submission.
const FIELDS: [&str; 8] = [
    "leadId",
    "employeeId",
    "uuid",
    "startedAt",
    "durationSec",
    "answered",
    "direction",
    "talkTimeSec",
];

/// Returns how an object with the document's fields differs from the call.
fn differences(call: &Expected, said: &Value) -> Vec<String> {
    let mut all = Vec::new();
    for (name, wants) in [
        ("leadId", Value::from(call.lead)),
        ("employeeId", Value::from(call.employee)),
        ("direction", Value::from(call.direction.as_str())),
        ("answered", Value::from(call.answered)),
        ("startedAt", Value::from(call.started_at)),
    ] {
        if said[name] != wants {
            all.push(format!("{name} is {}, not {wants}", said[name]));
        }
    }
    for (name, wants) in [("durationSec", call.duration), ("talkTimeSec", call.talk)] {
        let near = said[name].as_i64().is_some_and(|has| {
            let has = has as f64;
            (has - wants).abs() <= 1.0
        });
        if !near {
            all.push(format!("{name} is {}, not {wants}", said[name]));
        }
    }
    let (talk, duration) = (&said["talkTimeSec"], &said["durationSec"]);
    if talk.as_i64() > duration.as_i64() {
        all.push(format!("talk {talk} above duration {duration}"));
    }
    all
}

/// Returns every submission that differs from its call or has fields that the document does not
/// have.
pub fn submitted(seen: &[Seen], expected: &[Expected]) -> Vec<String> {
    let known: BTreeMap<&str, &Expected> = expected
        .iter()
        .map(|call| (call.uuid.as_str(), call))
        .collect();
    let mut wrong = Vec::new();
    let submissions = seen.iter();
    let submissions = submissions.filter_map(|request| Some((request.uuid()?, request.json())));
    for (uuid, body) in submissions {
        let Some(call) = known.get(uuid.as_str()) else {
            wrong.push(format!("invented: {body}"));
            continue;
        };
        let fields = body.as_object().into_iter().flatten();
        let unknown = fields.filter(|(name, _)| !FIELDS.contains(&name.as_str()));
        wrong.extend(unknown.map(|(name, _)| format!("{uuid} says {name}")));
        let differences = differences(call, &body);
        for difference in differences {
            wrong.push(format!("{uuid} sent: {difference}"));
        }
    }
    wrong
}

fn seconds(row: &Value, name: &str) -> i64 {
    row[name].as_i64().unwrap_or_default()
}

/// Returns all errors in the CRM's journal: missing, duplicate, invented, or changed calls.
pub fn journal(rows: &Value, expected: &[Expected]) -> Vec<String> {
    let mut records: BTreeMap<&str, &Value> = BTreeMap::new();
    let mut wrong = Vec::new();
    for row in rows.as_array().into_iter().flatten() {
        let uuid = row["sentUuid"].as_str().unwrap_or_default();
        if row["provider"] != "OPEN_API" {
            continue;
        }
        if records.insert(uuid, row).is_some() {
            wrong.push(format!("doubled: {row}"));
        }
    }
    for call in expected {
        let Some(row) = records.remove(call.uuid.as_str()) else {
            wrong.push(format!("missing: {call:?}"));
            continue;
        };
        let mut differences = differences(call, row);
        let end = seconds(row, "startedAt") + seconds(row, "durationSec");
        let cause = ["NO_ANSWER", "ANSWER"][usize::from(call.answered)];
        for (what, holds) in [
            ("uuid", row["uuid"] == format!("oapi-{}", call.uuid)),
            ("end", seconds(row, "endedAt") == end),
            ("hang-up cause", row["hangupCause"] == cause),
            ("company", row["companyId"] == 1),
            ("phone", row["clientPhone"].is_null()),
            ("other fields", row["others"] == serde_json::json!({})),
        ] {
            if !holds {
                differences.push(format!("{what} of {row}"));
            }
        }
        for difference in differences {
            wrong.push(format!("{}: {difference}", call.uuid));
        }
    }
    wrong.extend(records.values().map(|row| format!("invented: {row}")));
    wrong
}
