//! Tests of a switch whose clock is set back while calls are open. The duration of such a call is
//! not reported as known, and no other event is mistaken for a clock that was set back.

use crate::expected::{Expected, bodies, faults, recordings, settings};
use crate::late::last_told;
use crate::metamorphic::Chance;
use crate::recordings::slack;
use callbridge_call::{Assembler, Decoded, EventTime, FinishedCall, Timing};
use callbridge_freeswitch::Decoder;
use serde_json::Value;
use std::ops::Range;
use std::time::Duration;

const WHY: &str = "the PBX's clock was set back during the call";
/// Time between two heartbeats, because a busy switch sends messages this often.
const BEAT_MICROS: u64 = 400_000;
const SEEDS: u64 = 4;
const SECOND: u64 = 1_000_000;

fn micros(event: &Value, key: &str) -> Option<u64> {
    event[key].as_str()?.parse().ok()
}

/// Makes the heartbeats of a switch during these events.
fn beats(events: &[Value], every: u64) -> Vec<Value> {
    let time = |event: &Value| micros(event, "Event-Date-Timestamp").expect("a time");
    let (first, last) = (events.first(), events.last());
    let (from, until) = (time(first.expect("one")), time(last.expect("one")));
    let moments = (from - every..until + every).step_by(usize::try_from(every).expect("few"));
    let beat = |at: u64| {
        let mut beat = Value::Object(serde_json::Map::new());
        for key in ["Core-UUID", "FreeSWITCH-Switchname"] {
            beat[key] = events[0][key].clone();
        }
        beat["Event-Name"] = "HEARTBEAT".into();
        beat["Event-Date-Timestamp"] = at.to_string().into();
        beat["Uptime-msec"] = (3_600_000 + (at + every - from) / 1000).to_string().into();
        beat
    };
    moments.map(beat).collect()
}

/// Returns all events of the switch, in its own order, with new numbers.
fn told(messages: &[Vec<u8>], every: u64) -> Vec<Value> {
    let read = |message: &Vec<u8>| serde_json::from_slice(message).expect("an event");
    let mut events: Vec<Value> = messages.iter().map(read).collect();
    events.retain(|event| event["Event-Name"] != "HEARTBEAT");
    let number = |event: &Value| micros(event, "Event-Sequence").unwrap_or(0);
    events.sort_by_key(number);
    let beats = beats(&events, every);
    events.extend(beats);
    let time = |event: &Value| micros(event, "Event-Date-Timestamp");
    events.sort_by_key(time);
    for (number, event) in (1000_u64..).zip(&mut events) {
        event["Event-Sequence"] = number.to_string().into();
    }
    events
}

/// Returns the events, if the switch's clock is set back by `by` at the time `at`.
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

/// A message, and its arrival by our own clock.
type Arrival = (u64, Vec<u8>);

/// Returns the calls with customers of these messages.
fn finished(arrivals: &[Arrival], kept: bool) -> Vec<FinishedCall> {
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
    last_told(assembler.take_finished())
}

/// Returns the arrival of each event: up to 400 ms after it happened, some of them twice, and the
/// later half `late`.
fn arrivals(events: &[Value], told: &[Value], late: u64, chance: &mut Chance) -> Vec<Arrival> {
    let time = |event: &Value| micros(event, "Event-Date-Timestamp").expect("a time");
    let mut all = Vec::new();
    for (at, (event, told)) in events.iter().zip(told).enumerate() {
        let body = told.to_string().into_bytes();
        let late = if at < events.len() / 2 { 0 } else { late };
        for _ in 0..=u64::from(chance.next(4) == 0) {
            all.push((time(event) + late + chance.next(400_000), body.clone()));
        }
    }
    all.sort_by_key(|&(arrived, _)| arrived);
    all
}

/// Returns the differences of the calls from the expected ones. A call that is incomplete because
/// of the clock is right. A call that began after the clock was set back has a start by that clock.
fn wrong(calls: &[FinishedCall], wanted: &Expected, slack: f64, by: u64) -> Vec<String> {
    let mut wrong = Vec::new();
    for call in &wanted.calls {
        let same = |it: &&FinishedCall| it.linkedid.as_str() == call.linkedid;
        let told: Vec<FinishedCall> = calls.iter().filter(same).cloned().collect();
        let cut = |it: &FinishedCall| it.incomplete.as_deref() == Some(WHY);
        if !told.is_empty() && told.iter().all(cut) {
            continue;
        }
        let faults_from = |started_at: i64| {
            let mut call = call.clone();
            call.started_at = started_at;
            faults(&told, &Expected { calls: vec![call] }, slack)
        };
        let moved = call.started_at - (by / SECOND).cast_signed();
        if !faults_from(moved).is_empty() {
            wrong.extend(faults_from(call.started_at));
        }
    }
    wrong
}

fn span(events: &[Value]) -> Range<u64> {
    let time = |event: Option<&Value>| {
        let event = event.expect("an event");
        micros(event, "Event-Date-Timestamp").expect("a time")
    };
    time(events.first())..time(events.last())
}

#[test]
fn clock_set_back_during_call_never_yields_wrong_figures() {
    let mut faults = Vec::new();
    let mut cut = 0;
    for recording in recordings() {
        let events = told(&bodies(&recording.read("amqp.jsonl")), BEAT_MICROS);
        let (span, expected) = (span(&events), recording.expected());
        let seconds = (span.end - span.start) / SECOND;
        for seed in 0..SEEDS {
            let mut chance = Chance::new(seed);
            let by = (1 + chance.next(seconds.max(1))) * SECOND;
            let at = span.start + chance.next(span.end - span.start);
            let mut told = set_back(&events, at, by);
            if seed % 2 == 0 {
                // Only numbers and times show it.
                told.iter_mut()
                    .for_each(|it| it["Uptime-msec"] = Value::Null);
            }
            let arrivals = arrivals(&events, &told, 0, &mut chance);
            for kept in [true, false] {
                let calls = finished(&arrivals, kept);
                cut += calls.iter().filter(|it| it.incomplete.is_some()).count();
                let all = wrong(&calls, &expected, slack(&recording), by).into_iter();
                let name = &recording.name;
                faults.extend(all.map(|it| format!("{name}, {seed}, kept {kept}: {it}")));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert!(cut > 100, "only {cut} were cut");
}

#[test]
fn late_and_duplicate_messages_are_not_a_clock_set_back() {
    let mut wrong = Vec::new();
    for recording in recordings() {
        let events = told(&bodies(&recording.read("amqp.jsonl")), BEAT_MICROS);
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
            let calls = finished(&arrivals, true);
            let all = faults(&calls, &recording.expected(), slack(&recording)).into_iter();
            let name = &recording.name;
            wrong.extend(all.map(|it| format!("{name}, {seed}: {it}")));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
