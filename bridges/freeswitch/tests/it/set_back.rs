//! Tests of a switch whose clock is set back while calls are open. Such calls are marked as
//! incomplete, whereas messages that are merely late or duplicate don't count as a clock change.

use crate::expected::{Expected, ExpectedCall, bodies, faults, recordings, settings};
use crate::late::latest_reports;
use crate::metamorphic::Chance;
use crate::recordings::slack;
use callbridge_call::{Assembler, Decoded, EventTime, FinishedCall, Timing};
use callbridge_freeswitch::Decoder;
use serde_json::Value;
use std::ops::Range;
use std::time::Duration;

const WHY: &str = "the PBX's clock was set back during the call";
/// Time between two heartbeats, which is how often a busy switch sends messages.
const BEAT_MICROS: u64 = 400_000;
const SEEDS: u64 = 4;
const SECOND: u64 = 1_000_000;

fn micros(event: &Value, key: &str) -> Option<u64> {
    event[key].as_str()?.parse().ok()
}

fn event_time(event: &Value) -> u64 {
    micros(event, "Event-Date-Timestamp").expect("a time")
}

/// Creates a switch's heartbeats for the duration of the events, one every `every` microseconds.
fn heartbeats(events: &[Value], every: u64) -> Vec<Value> {
    let from = event_time(events.first().expect("one"));
    let until = event_time(events.last().expect("one"));
    let mut beats = Vec::new();
    for at in (from - every..until + every).step_by(usize::try_from(every).expect("few")) {
        let mut beat = Value::Object(serde_json::Map::new());
        for key in ["Core-UUID", "FreeSWITCH-Switchname"] {
            beat[key] = events[0][key].clone();
        }
        beat["Event-Name"] = "HEARTBEAT".into();
        beat["Event-Date-Timestamp"] = at.to_string().into();
        beat["Uptime-msec"] = (3_600_000 + (at + every - from) / 1000).to_string().into();
        beats.push(beat);
    }
    beats
}

/// Returns the events in the order in which the switch sent them, with new sequence numbers and a
/// heartbeat every `every` microseconds.
fn switch_events(messages: &[Vec<u8>], every: u64) -> Vec<Value> {
    let mut events: Vec<Value> = messages
        .iter()
        .map(|message| serde_json::from_slice(message).expect("an event"))
        .collect();
    events.retain(|event| event["Event-Name"] != "HEARTBEAT");
    events.sort_by_key(|event| micros(event, "Event-Sequence").unwrap_or(0));
    let beats = heartbeats(&events, every);
    events.extend(beats);
    events.sort_by_key(|event| micros(event, "Event-Date-Timestamp"));
    for (number, event) in (1000_u64..).zip(&mut events) {
        event["Event-Sequence"] = number.to_string().into();
    }
    events
}

/// Returns the events as sent by a switch whose clock is set back by `by` at the time `at`. Both
/// are in microseconds.
fn set_back(events: &[Value], at: u64, by: u64) -> Vec<Value> {
    let times = [
        "Event-Date-Timestamp",
        "Caller-Channel-Created-Time",
        "Caller-Channel-Answered-Time",
        "Caller-Channel-Bridged-Time",
        "Caller-Channel-Hangup-Time",
    ];
    let mut events = events.to_vec();
    for event in &mut events {
        for key in times {
            if let Some(time) = micros(event, key).filter(|&time| time >= at) {
                event[key] = (time - by).to_string().into();
            }
        }
    }
    events
}

/// When a message arrives, by callbridge's clock in microseconds, and the message itself.
type Arrival = (u64, Vec<u8>);

/// Returns the calls with customers. If `kept` is `true`, the messages were kept in a queue.
fn finish_calls(arrivals: &[Arrival], kept: bool) -> Vec<FinishedCall> {
    let mut decoder = Decoder::new(None);
    let mut assembler = Assembler::new(settings());
    assembler.timing(Timing {
        kept,
        ..Timing::default()
    });
    let mut now = EventTime::from_micros(0);
    for (arrived, body) in arrivals {
        now = EventTime::from_micros(arrived.cast_signed());
        assembler.tick(now);
        if let Decoded::Event { received, .. } = decoder.decode(body) {
            assembler.on_event(&received.event, now);
        }
    }
    for _ in 0..8 {
        now = now.plus(Duration::from_secs(30));
        assembler.tick(now);
    }
    assert_eq!(assembler.open_calls(), 0, "calls stay open");
    latest_reports(assembler.take_finished())
}

/// Returns when each event arrives, which is up to 400 ms after its time in `events`. The second
/// half is delayed by another `late` microseconds, and some events arrive twice. `changed` has the
/// events' text.
fn arrivals(events: &[Value], changed: &[Value], late: u64, chance: &mut Chance) -> Vec<Arrival> {
    let mut all = Vec::new();
    for (at, (event, changed)) in events.iter().zip(changed).enumerate() {
        let body = changed.to_string().into_bytes();
        let late = if at < events.len() / 2 { 0 } else { late };
        for _ in 0..=u64::from(chance.next(4) == 0) {
            all.push((
                event_time(event) + late + chance.next(400_000),
                body.clone(),
            ));
        }
    }
    all.sort_by_key(|&(arrived, _)| arrived);
    all
}

/// Returns the differences between the calls and the expected ones. A call that's incomplete
/// because of the clock counts as right, and a call may start earlier than expected by `by`.
fn differences(calls: &[FinishedCall], wanted: &Expected, slack: f64, by: u64) -> Vec<String> {
    let mut wrong = Vec::new();
    for call in &wanted.calls {
        let reported: Vec<FinishedCall> = calls
            .iter()
            .filter(|other| other.linkedid.as_str() == call.linkedid)
            .cloned()
            .collect();
        let is_cut = reported
            .iter()
            .all(|other| other.incomplete.as_deref() == Some(WHY));
        if !reported.is_empty() && is_cut {
            continue;
        }
        let moved = call.started_at - (by / SECOND).cast_signed();
        if !faults_if_started_at(moved, call, &reported, slack).is_empty() {
            wrong.extend(faults_if_started_at(
                call.started_at,
                call,
                &reported,
                slack,
            ));
        }
    }
    wrong
}

fn faults_if_started_at(
    started_at: i64,
    call: &ExpectedCall,
    reported: &[FinishedCall],
    slack: f64,
) -> Vec<String> {
    let mut call = call.clone();
    call.started_at = started_at;
    faults(reported, &Expected { calls: vec![call] }, slack)
}

fn span(events: &[Value]) -> Range<u64> {
    let (first, last) = (events.first(), events.last());
    event_time(first.expect("an event"))..event_time(last.expect("an event"))
}

#[test]
fn clock_set_back_during_call_never_yields_wrong_figures() {
    let mut faults = Vec::new();
    let mut cut = 0;
    for recording in recordings() {
        let events = switch_events(&bodies(&recording.read("amqp.jsonl")), BEAT_MICROS);
        let (span, expected) = (span(&events), recording.expected());
        let seconds = (span.end - span.start) / SECOND;
        for seed in 0..SEEDS {
            let mut chance = Chance::new(seed);
            let by = (1 + chance.next(seconds.max(1))) * SECOND;
            let at = span.start + chance.next(span.end - span.start);
            let mut changed = set_back(&events, at, by);
            if seed % 2 == 0 {
                // Without uptimes, only the sequence numbers and times reveal the change.
                changed
                    .iter_mut()
                    .for_each(|event| event["Uptime-msec"] = Value::Null);
            }
            let arrivals = arrivals(&events, &changed, 0, &mut chance);
            for kept in [true, false] {
                let calls = finish_calls(&arrivals, kept);
                cut += calls
                    .iter()
                    .filter(|call| call.incomplete.is_some())
                    .count();
                let all = differences(&calls, &expected, slack(&recording), by).into_iter();
                let name = &recording.name;
                faults.extend(all.map(|fault| format!("{name}, {seed}, kept {kept}: {fault}")));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert!(cut > 100, "only {cut} calls were incomplete");
}

#[test]
fn late_and_duplicate_messages_are_not_a_clock_set_back() {
    let mut wrong = Vec::new();
    for recording in recordings() {
        let events = switch_events(&bodies(&recording.read("amqp.jsonl")), BEAT_MICROS);
        for seed in 0..SEEDS {
            let mut chance = Chance::new(seed);
            let late = chance.next(3600 * SECOND);
            let mut arrivals = arrivals(&events, &events, late, &mut chance);
            // The earlier messages arrive again.
            let cut = arrivals.len() / 2;
            let again: Vec<Arrival> = arrivals[cut / 2..cut].to_vec();
            let back = arrivals[cut].0;
            let again = again.into_iter().map(|(_, body)| (back, body));
            arrivals.splice(cut..cut, again);
            let calls = finish_calls(&arrivals, true);
            let all = faults(&calls, &recording.expected(), slack(&recording)).into_iter();
            let name = &recording.name;
            wrong.extend(all.map(|fault| format!("{name}, {seed}: {fault}")));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
