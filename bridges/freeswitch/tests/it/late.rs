//! Tests of messages that arrive late because callbridge was stopped or the broker was down. The
//! delay must not change any call.

use crate::expected::{bodies, faults, recordings, settings};
use crate::recordings::slack;
use callbridge_call::{
    Assembler, ClockDifference, Decoded, Direction, EventTime, FinishedCall, PbxEvent, Timing,
};
use callbridge_freeswitch::Decoder;
use std::time::Duration;

const KEPT: Timing = Timing {
    line: None,
    wall_ahead: ClockDifference::ZERO,
    kept: true,
    order: None,
};

/// What causes the delay in the middle of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Away {
    /// The connection is lost while callbridge keeps running, so its clock advances.
    Broker,
    /// callbridge is stopped, and then restarted with its stored state.
    Program,
}

/// Restarts the assembler from its stored state.
fn restart(mut assembler: Assembler) -> Assembler {
    let mut next = Assembler::new(settings());
    next.timing(KEPT);

    for change in assembler.take_changes() {
        if let Some(snapshot) = change.snapshot {
            next.restore(change.key, &snapshot).expect("a snapshot");
        }
    }
    next
}

/// Returns the calls with customers. Messages from index `cut` onward are delayed by `later`.
fn finish_late_calls(
    messages: &[Vec<u8>],
    cut: usize,
    later: Duration,
    away: Away,
) -> Vec<FinishedCall> {
    let mut decoder = Decoder::new(None);
    let mut assembler = Assembler::new(settings());
    assembler.timing(KEPT);

    let (mut now, mut back) = (EventTime::from_seconds(0), None);
    let mut calls = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        if at == cut {
            let end = now.plus(later);
            back = Some(end);
            if away == Away::Program {
                calls.append(&mut assembler.take_finished());
                assembler = restart(assembler);
                decoder = Decoder::new(None);
            }
            while away == Away::Broker && now < end {
                now = now.plus(Duration::from_millis(500));
                assembler.tick(now);
            }
        }
        let Decoded::Event { received, .. } = decoder.decode(message) else {
            continue;
        };
        if let PbxEvent::Channel(event) = &received.event {
            now = now.max(event.at.unwrap_or(now)).max(back.unwrap_or(now));
        }
        assembler.on_event(&received.event, now);
        assembler.tick(now);
    }
    assembler.tick(now.plus(Duration::from_secs(2)));
    assert_eq!(assembler.open_calls(), 0, "calls stay open");
    calls.append(&mut assembler.take_finished());
    latest_reports(calls)
}

/// Returns the calls with customers, oldest first. If a call was reported as both incomplete and
/// complete, only the complete one is returned.
pub fn latest_reports(mut calls: Vec<FinishedCall>) -> Vec<FinishedCall> {
    calls.retain(|call| call.direction != Direction::Internal);
    let whole = calls.iter().filter(|call| call.incomplete.is_none());
    let whole: Vec<_> = whole.map(|call| call.linkedid.clone()).collect();
    calls.retain(|call| call.incomplete.is_none() || !whole.contains(&call.linkedid));
    calls.sort_by_key(|call| call.started);
    calls
}

/// Checks each recording with several delays. `cuts` takes the number of messages and returns the
/// indexes at which to start delaying them.
fn check_recordings(away: Away, cuts: impl Fn(usize) -> Vec<usize>) {
    let mut wrong = Vec::new();
    for recording in recordings() {
        let messages = bodies(&recording.read("amqp.jsonl"));
        for cut in cuts(messages.len()) {
            for seconds in [7, 60, 3600] {
                let calls = finish_late_calls(&messages, cut, Duration::from_secs(seconds), away);
                let name = &recording.name;
                for fault in faults(&calls, &recording.expected(), slack(&recording)) {
                    wrong.push(format!("{name}, {seconds} s after message {cut}: {fault}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn quarters(messages: usize) -> Vec<usize> {
    vec![messages / 4, messages / 2, messages * 3 / 4]
}

#[test]
fn recordings_are_reproduced_after_the_broker_was_away() {
    check_recordings(Away::Broker, quarters);
}

#[test]
fn recordings_are_reproduced_after_the_program_was_away() {
    check_recordings(Away::Program, quarters);
}

/// Returns the calls found two minutes after the last message of a stream whose start was lost.
fn calls_without_start(messages: &[Vec<u8>]) -> Vec<FinishedCall> {
    const LATER_MICROS: i64 = 120_000_000;
    let mut decoder = Decoder::new(None);
    let mut assembler = Assembler::new(settings());
    assembler.timing(KEPT);
    let mut now = EventTime::from_seconds(0);
    let mut later: serde_json::Value =
        serde_json::from_slice(messages.last().expect("a message")).expect("an event");
    for key in ["Unique-ID", "Channel-Call-UUID", "variable_originator"] {
        later[key] = "another".into();
    }
    let time = later["Event-Date-Timestamp"].as_str().expect("a time");
    let time: i64 = time.parse().expect("microseconds");
    for key in [
        "Event-Date-Timestamp",
        "Caller-Channel-Created-Time",
        "Caller-Channel-Hangup-Time",
    ] {
        later[key] = (time + LATER_MICROS).to_string().into();
    }
    later["Event-Name"] = "CHANNEL_CREATE".into();
    let later = serde_json::to_vec(&later).expect("JSON");
    for message in messages.iter().chain([&later]) {
        if let Decoded::Event { received, .. } = decoder.decode(message) {
            if let PbxEvent::Channel(event) = &received.event {
                now = now.max(event.at.unwrap_or(now));
            }
            assembler.on_event(&received.event, now);
            assembler.tick(now);
        }
    }
    let mut calls = assembler.take_finished();
    calls.retain(|call| call.direction != Direction::Internal);
    calls
}

fn is_customer_hangup(message: &[u8]) -> bool {
    let event: serde_json::Value = serde_json::from_slice(message).expect("an event");
    let name = event["Channel-Name"].as_str().unwrap_or_default();
    event["Event-Name"] == "CHANNEL_HANGUP" && name.starts_with("sofia/external/")
}

/// A broker's stream doesn't show when the connection started, so callbridge can't know that
/// messages were lost.
#[test]
fn unanswered_call_with_lost_start_is_still_reported() {
    let mut incomplete = 0;
    for recording in recordings() {
        let messages = bodies(&recording.read("amqp.jsonl"));
        let expected = recording.expected();
        if expected.calls.len() != 1 || expected.calls[0].answered {
            continue;
        }
        let (name, wanted) = (&recording.name, &expected.calls[0]);
        let end = messages
            .iter()
            .position(|message| is_customer_hangup(message));
        let end = end.expect("an end");
        for from in 1..=end {
            let calls = calls_without_start(&messages[from..]);
            let found = calls
                .iter()
                .find(|call| call.linkedid.as_str() == wanted.linkedid);
            let found = found.unwrap_or_else(|| panic!("{name} from {from} on: no trace"));
            assert!(!found.answered, "{name} from {from} on");
            assert_eq!(found.direction, wanted.direction, "{name} from {from} on");
            incomplete += usize::from(found.incomplete.is_some());
        }
    }
    assert!(incomplete > 10, "only {incomplete} incomplete calls");
}
