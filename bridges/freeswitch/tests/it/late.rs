//! Tests of messages that arrive late, because callbridge was stopped or the broker was down. Each
//! call is reported as it was.

use crate::expected::{Recording, bodies, faults, recordings, settings};
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

/// The cause of the delay in the middle of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Away {
    /// The connection is lost. Our clock continues.
    Broker,
    /// callbridge is stopped, and started again with its stored state.
    Program,
}

/// Restarts the assembler from its stored state.
fn restarted(mut assembler: Assembler) -> Assembler {
    let mut next = Assembler::new(settings());
    next.timing(KEPT);

    for change in assembler.take_changes() {
        if let Some(snapshot) = change.snapshot {
            next.restore(change.key, &snapshot).expect("a snapshot");
        }
    }
    next
}

/// Returns the calls with customers, if the messages from `cut` on arrive `later`.
fn finished(messages: &[Vec<u8>], cut: usize, later: Duration, away: Away) -> Vec<FinishedCall> {
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
                assembler = restarted(assembler);
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
    last_told(calls)
}

/// Returns the calls with customers, in order. An incomplete call is replaced by the whole call.
pub fn last_told(mut calls: Vec<FinishedCall>) -> Vec<FinishedCall> {
    calls.retain(|call| call.direction != Direction::Internal);
    let whole = calls.iter().filter(|call| call.incomplete.is_none());
    let whole: Vec<_> = whole.map(|call| call.linkedid.clone()).collect();
    calls.retain(|call| call.incomplete.is_none() || !whole.contains(&call.linkedid));
    calls.sort_by_key(|call| call.started);
    calls
}

/// Checks each recording with a delay after these messages.
fn all_are_told(away: Away, cuts: impl Fn(usize) -> Vec<usize>) {
    let mut wrong = Vec::new();
    let told = |recording: &Recording| bodies(&recording.read("amqp.jsonl"));
    for recording in recordings() {
        let messages = told(&recording);
        for cut in cuts(messages.len()) {
            for seconds in [7, 60, 3600] {
                let calls = finished(&messages, cut, Duration::from_secs(seconds), away);
                let faults = faults(&calls, &recording.expected(), slack(&recording));
                let name = &recording.name;
                let words = |it| format!("{name}, {seconds} s after message {cut}: {it}");
                wrong.extend(faults.into_iter().map(words));
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
    all_are_told(Away::Broker, quarters);
}

#[test]
fn recordings_are_reproduced_after_the_program_was_away() {
    all_are_told(Away::Program, quarters);
}

/// Returns the calls whose first messages were lost, after two more minutes of the stream.
fn beheaded(messages: &[Vec<u8>]) -> Vec<FinishedCall> {
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

/// A broker's stream has no start of a connection, so it is not known from when on messages were
/// received.
#[test]
fn unanswered_call_with_lost_start_is_still_reported() {
    let mut letters = 0;
    for recording in recordings() {
        let messages = bodies(&recording.read("amqp.jsonl"));
        let expected = recording.expected();
        if expected.calls.len() != 1 || expected.calls[0].answered {
            continue;
        }
        let (name, wanted) = (&recording.name, &expected.calls[0]);
        let is_end = |message: &Vec<u8>| {
            let event: serde_json::Value = serde_json::from_slice(message).expect("an event");
            let name = event["Channel-Name"].as_str().unwrap_or_default();
            event["Event-Name"] == "CHANNEL_HANGUP" && name.starts_with("sofia/external/")
        };
        let end = messages.iter().position(is_end).expect("an end");
        for from in 1..=end {
            let calls = beheaded(&messages[from..]);
            let same = |call: &&FinishedCall| call.linkedid.as_str() == wanted.linkedid;
            let told = calls.iter().find(same);
            let told = told.unwrap_or_else(|| panic!("{name} from {from} on: no trace"));
            assert!(!told.answered, "{name} from {from} on");
            assert_eq!(told.direction, wanted.direction, "{name} from {from} on");
            letters += usize::from(told.incomplete.is_some());
        }
    }
    assert!(letters > 10, "only {letters} letters");
}
