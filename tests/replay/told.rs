//! Compares the output of `callbridge explain --json` with a recording's `expected.json`.

use serde_json::Value;

/// The values that must match exactly.
const EXACT: [&str; 9] = [
    "linkedid",
    "direction",
    "answered",
    "leadId",
    "trunk",
    "clientPhone",
    "employee",
    "employeesInOrder",
    "startedAt",
];

/// Returns the differences between a reported call and an entry in an `expected.json`. Seconds may
/// differ by one.
pub fn differences(expected: &Value, reported: &Value) -> Vec<String> {
    let mut all = Vec::new();
    for key in EXACT {
        if expected[key] != reported[key] {
            all.push(format!(
                "{key}: {} is told as {}",
                expected[key], reported[key]
            ));
        }
    }
    for key in ["durationSec", "talkTimeSec"] {
        let (wants, has) = (expected[key].as_f64(), reported[key].as_f64());
        let near = wants
            .zip(has)
            .is_some_and(|(wants, has)| (wants - has).abs() <= 1.0);
        if !near {
            all.push(format!(
                "{key}: {} is told as {}",
                expected[key], reported[key]
            ));
        }
    }
    let reason = match (&expected["reason"], &expected["leadId"]) {
        (Value::Null, Value::Null) => Value::from("no_lead"),
        (reason, _) => reason.clone(),
    };
    let outcome = if reason.is_null() {
        "journal"
    } else {
        "dead_letter"
    };
    if reported["outcome"] != outcome || reported["reason"] != reason {
        let (outcome, told_reason) = (&reported["outcome"], &reported["reason"]);
        all.push(format!(
            "outcome: {outcome} {told_reason}, and not {reason}"
        ));
    }
    all
}
