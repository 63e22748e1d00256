//! Tests of a connection that is lost during a call. The call is either correct or marked as
//! incomplete.

use crate::expected::{
    Ended, Expected, ExpectedCall, faults, finished_calls_when, finished_calls_with_gap,
    recordings, split,
};
use crate::recordings::slack;
use std::collections::HashMap;

/// Tries all gaps of `length` messages in all recordings. Returns for how many gaps all calls are
/// right, and for how many a call is incomplete or missing. Panics if a call is wrong.
fn count_calls_with_gaps(length: usize) -> (usize, usize) {
    let (mut right, mut incomplete) = (0, 0);
    for recording in recordings() {
        let messages = split(&recording.read("esl.jsonl"));
        let expected = recording.expected();
        for from in 1..messages.len().saturating_sub(length) {
            let missed = from..from + length;
            let calls = finished_calls_with_gap(&messages, missed.clone(), Ended::Recording);
            let faults = faults(&calls, &expected, slack(&recording));
            if faults.is_empty() {
                right += 1;
                continue;
            }
            // A call that is still open is not in `calls`, and an incomplete call is not wrong.
            let are_incomplete = calls.iter().all(|call| call.incomplete.is_some());
            assert!(
                are_incomplete,
                "{}, without {missed:?}: {faults:?}",
                recording.name
            );
            incomplete += 1;
        }
    }
    (right, incomplete)
}

#[test]
fn missed_events_make_calls_incomplete_but_not_wrong() {
    for length in [1, 5] {
        let (right, incomplete) = count_calls_with_gaps(length);
        println!("{length}: {right} right, {incomplete} incomplete");
        assert!(right > 0 && incomplete > 0);
    }
}

#[test]
fn listener_starting_late_gets_correct_or_incomplete_calls() {
    let (mut right, mut incomplete) = (0, 0);
    for recording in recordings() {
        let messages = split(&recording.read("esl.jsonl"));
        let expected = recording.expected();
        let creations = creation_indexes(&messages);
        for from in 1..messages.len() {
            for call in finished_calls_when(&messages[from..], Ended::Recording) {
                if call.incomplete.is_some() {
                    incomplete += 1;
                    continue;
                }
                let wanted = expected
                    .calls
                    .iter()
                    .filter(|other| call.linkedid.as_str() == linkedid(other))
                    .cloned();
                // The dialed number is only reported when the channel is created.
                let creation_received = creations[call.linkedid.as_str()] >= from;
                let wanted = wanted.map(|call| ExpectedCall {
                    did: if creation_received { call.did } else { None },
                    ..call
                });
                let wanted = Expected {
                    calls: wanted.collect(),
                };
                let faults = faults(std::slice::from_ref(&call), &wanted, slack(&recording));
                let name = &recording.name;
                assert!(faults.is_empty(), "{name} from {from} on: {faults:?}");
                right += 1;
            }
        }
    }
    println!("{right} right, {incomplete} incomplete");
    assert!(right > 50 && incomplete > 50);
}

/// Returns the index of the message that reports the creation of each channel.
fn creation_indexes(messages: &[Vec<u8>]) -> HashMap<String, usize> {
    let creations = messages.iter().enumerate().filter_map(|(at, message)| {
        let message: serde_json::Value = serde_json::from_slice(message).ok()?;
        let id = message["Unique-ID"].as_str()?.to_owned();
        (message["Event-Name"] == "CHANNEL_CREATE").then_some((id, at))
    });
    creations.collect()
}

fn linkedid(call: &ExpectedCall) -> &str {
    &call.linkedid
}
