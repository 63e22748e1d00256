//! Recordings of real calls, for stories that no teller can tell.

use super::measure::Facts;
use callbridge_call::Direction;
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct Expected {
    calls: Vec<ExpectedCall>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExpectedCall {
    direction: Direction,
    answered: bool,
    trunk: Option<String>,
    client_phone: Option<String>,
    employee: Option<String>,
    started_at: f64,
    started_at_exact: Option<f64>,
    duration_sec: f64,
    talk_time_sec: f64,
    talk_time_sec_by_bridge_rule: Option<f64>,
}

/// Returns a file of a recording.
pub fn file(folder: &str, name: &str) -> Vec<u8> {
    fs::read(path(folder).join(name)).expect("a recording")
}

/// Returns the calls that took place in a recording. From Asterisk 12 on (`by_bridges`), talk time
/// is counted for as long as the bridge exists, even while a feature code is being dialed.
pub fn truth(folder: &str, by_bridges: bool) -> Vec<Facts> {
    let text = file(folder, "expected.json");
    let expected: Expected = serde_json::from_slice(&text).expect("what happened");
    let by_bridges = |call: &ExpectedCall| {
        let talk = call.talk_time_sec_by_bridge_rule.filter(|_| by_bridges);
        talk.unwrap_or(call.talk_time_sec)
    };
    let calls = expected.calls.into_iter().map(|call| Facts {
        talk: by_bridges(&call),
        direction: call.direction,
        answered: call.answered,
        trunk: call.trunk,
        number: call.client_phone.map(|phone| phone.replace('+', "")),
        employee: call.employee,
        started: call.started_at_exact.unwrap_or(call.started_at),
        duration: call.duration_sec,
        lead: true,
    });
    calls.collect()
}

fn path(folder: &str) -> PathBuf {
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/recordings");
    recordings.join(folder)
}
