//! Tests recordings in which some of the channel events are missing.

use super::recorded::{Recording, all, is_channel_event};
use callbridge_call::{Direction, EventTime, FinishedCall};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// In these recordings, an employee consults a colleague and returns. If all events of the
/// consultation are missing, it can't be told apart from a longer conversation.
const CONSULTED: [&str; 3] = [
    "attended_transfer_cancelled",
    "attended_transfer_no_answer",
    "consult_is_declined",
];
/// If the hangup request is missing, the call ends with the channel, which is at most this much
/// later in these recordings.
const REQUEST_DELAY_MAX: Duration = Duration::from_millis(100);
/// Number of cuts per recording.
const CUTS: u64 = 12;

/// Returns random pairs of places, which are the same in every run.
pub fn cuts(recording: &Recording) -> Vec<(EventTime, EventTime)> {
    let places = recording.places();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut cuts = Vec::new();
    for _ in 0..CUTS {
        let a = next_random(&mut seed, places.len());
        let b = next_random(&mut seed, places.len());
        if a != b {
            cuts.push((places[a.min(b)], places[a.max(b)]));
        }
    }
    cuts
}

/// Advances the seed, and returns a number less than `below`.
fn next_random(seed: &mut u64, below: usize) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    usize::try_from((*seed >> 33) % below as u64).expect("small")
}

/// Returns a call as the journal would show it.
pub fn values(call: &FinishedCall) -> String {
    format!(
        "{:?} answered={} trunk={:?} number={:?} employee={:?} of {:?} from {} for {} talk {}",
        call.direction,
        call.answered,
        call.trunk,
        call.number.as_ref().map(|number| &number.text),
        call.employee,
        call.employees_in_order,
        call.started.floor_seconds().get(),
        call.ended.since(call.started).as_millis(),
        call.talk.as_millis(),
    )
}

fn ids(call: &FinishedCall) -> BTreeSet<&str> {
    let aliases = call.also_known_as.iter().map(|id| id.as_str());
    aliases.chain([call.linkedid.as_str()]).collect()
}

fn has_customer(call: &FinishedCall) -> bool {
    call.direction != Direction::Internal
}

fn names_channel(message: &[u8], id: &str) -> bool {
    let line = format!("Uniqueid: {id}\r\n");
    memchr::memmem::find(message, line.as_bytes()).is_some()
}

/// Returns the errors in the calls received with a cut.
fn faults(
    whole: &BTreeMap<String, FinishedCall>,
    received: &BTreeMap<String, FinishedCall>,
    recording: &Recording,
    cut: (EventTime, EventTime),
) -> Vec<String> {
    let mut faults = Vec::new();
    for call in received.values().filter(|call| has_customer(call)) {
        let right = whole.get(call.linkedid.as_str());
        let consulted = CONSULTED.contains(&recording.name.as_str());
        let right = right.is_some_and(|right| {
            let mut adjusted = call.clone();
            if consulted || call.talk.abs_diff(right.talk) <= REQUEST_DELAY_MAX {
                adjusted.talk = right.talk;
            }
            if call.ended.apart(right.ended) <= REQUEST_DELAY_MAX {
                adjusted.ended = right.ended;
            }
            let adjusted_values = values(&adjusted);
            values(right) == adjusted_values
        });
        if call.incomplete.is_none() && !right {
            let whole: Vec<String> = whole.values().map(values).collect();
            faults.push(format!(
                "{} is told as {}",
                whole.join(" and "),
                values(call)
            ));
        }
    }
    for call in whole.values().filter(|call| has_customer(call)) {
        let own = ids(call);
        let is_received = received
            .values()
            .any(|received| !ids(received).is_disjoint(&own));
        let outside = recording.messages.iter().any(|(at, message)| {
            // If only a call's technical channels were received, the call has no customer.
            let telephone = memchr::memmem::find(message, b"\nChannel: PJSIP/").is_some();
            is_channel_event(message)
                && telephone
                && !(cut.0..cut.1).contains(at)
                && own.iter().any(|id| names_channel(message, id))
        });
        if outside && !is_received {
            faults.push(format!("{} is lost", values(call)));
        }
    }
    faults
}

/// Promise: A call that overlaps an unfilled gap is right or `incomplete`.
#[test]
fn call_with_cut_events_is_right_or_incomplete_and_never_lost() {
    let (mut wrong, mut right, mut incomplete) = (Vec::new(), 0, 0);
    for recording in all() {
        let whole = recording.calls(is_channel_event, None);
        for cut in cuts(&recording) {
            let received = recording.calls(is_channel_event, Some(cut));
            for call in received.values() {
                *(if call.incomplete.is_none() {
                    &mut right
                } else {
                    &mut incomplete
                }) += 1;
            }
            for fault in faults(&whole, &received, &recording, cut) {
                wrong.push(format!(
                    "{} cut {} to {}: {fault}",
                    recording.name, cut.0, cut.1
                ));
            }
        }
    }
    let shown = wrong.len().min(20);
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong[..shown].join("\n")
    );
    // If there were no right calls or no incomplete ones, the test didn't check anything.
    assert!(
        right > 20 && incomplete > 500,
        "{right} right, {incomplete} incomplete"
    );
}
