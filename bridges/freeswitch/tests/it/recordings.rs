//! Tests of the recorded scenarios over each of the interfaces.

use crate::expected::{Recording, bodies, faults, finished_calls, recordings, split};

/// Maximum time difference in seconds. Media starts shortly after the bridge, and the switch's
/// clock advances in steps of 20 ms.
const SLACK: f64 = 0.4;
/// Maximum time difference for a feature-code consultation, which starts when the switch plays
/// music, not when the customer hears it.
const CONSULTATION_SLACK: f64 = 0.6;

/// Returns the maximum time difference for a recording, in seconds.
pub fn slack(recording: &Recording) -> f64 {
    if recording.name == "attended_transfer" {
        CONSULTATION_SLACK
    } else {
        SLACK
    }
}

/// Checks the calls of all recordings. `messages` returns the messages that are received.
fn check_recordings(messages: impl Fn(&Recording) -> Vec<Vec<u8>>) {
    let mut wrong = Vec::new();
    for recording in recordings() {
        let calls = finished_calls(&messages(&recording));
        assert!(calls.iter().all(|call| !call.estimate));
        let faults = faults(&calls, &recording.expected(), slack(&recording));
        let name = &recording.name;
        wrong.extend(faults.into_iter().map(|fault| format!("{name}: {fault}")));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn recordings_are_reproduced_from_plain_events() {
    check_recordings(|recording| split(&recording.read("esl.txt")));
}

#[test]
fn recordings_are_reproduced_from_json_events() {
    check_recordings(|recording| split(&recording.read("esl.jsonl")));
}

#[test]
fn recordings_are_reproduced_over_amqp() {
    check_recordings(|recording| bodies(&recording.read("amqp.jsonl")));
}
