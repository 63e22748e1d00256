//! Tests of calls on an Asterisk that's killed, with its CEL events coming from a queue or a file.

use super::{Batch, Intake};
use callbridge_call::EventTime;
use callbridge_formats::Format;
use callbridge_mapping::People;
use callbridge_source::{Frame, SourceId};
use callbridge_spool::Op;

const SOURCE: SourceId = SourceId(0);
const BEGAN: i64 = 1_795_151_390;

fn intake() -> Intake {
    let mut intake = super::records_tests::intake(&[Format::CelAmqp]);
    intake.up(SOURCE, EventTime::from_seconds(BEGAN));
    intake
}

/// Creates an event of the trunk channel `counter`, which was created at `born`. Both times are in
/// seconds since `BEGAN`.
fn event(name: &str, (born, counter): (i64, u32), at: i64) -> String {
    let id = format!("{}.{counter}", BEGAN + born);
    let time = EventTime::from_seconds(BEGAN + at);
    let time = jiff::Timestamp::from_second(time.floor_seconds().get()).expect("a time");
    serde_json::json!({
        "event_name": name, "caller_id": {"num": "998901110003", "name": ""},
        "extension": "s", "context": "in", "channel": format!("PJSIP/city-{counter:08x}"),
        "application": "", "event_time": time.to_string(),
        "unique_id": id, "linked_id": id, "extra": {},
    })
    .to_string()
}

fn send_event(intake: &mut Intake, seq: u64, body: &str, at: i64) -> Batch {
    let frame = Frame {
        seq,
        arrived: EventTime::from_seconds(BEGAN + at),
        bytes: body.as_bytes().to_vec().into(),
        position: None,
        content_type: None,
        details: None,
    };
    intake
        .frame(SOURCE, &frame, &mut |_, _| None)
        .expect("taken");
    tick(intake, at)
}

fn tick(intake: &mut Intake, at: i64) -> Batch {
    let now = EventTime::from_seconds(BEGAN + at);
    intake.tick(now);
    intake.take(&People::default(), now)
}

/// Returns each finished call's linkedid, why it's incomplete, and its end (in seconds since
/// `BEGAN`).
fn finished_calls(batch: &Batch) -> Vec<(String, Option<String>, i64)> {
    let mut calls = Vec::new();
    for op in &batch.ops {
        if let Op::Finish(finished) = op {
            let call = &finished.call;
            let ended = call.ended.floor_seconds().get() - BEGAN;
            calls.push((call.linkedid.to_string(), call.incomplete.clone(), ended));
        }
    }
    calls
}

/// Returns the calls that finish from second `from` through second `until` without any more events
/// arriving. The clock advances in one-second steps.
fn finished_calls_until(
    intake: &mut Intake,
    from: i64,
    until: i64,
) -> Vec<(String, Option<String>, i64)> {
    let batches = (from..=until).map(|at| tick(intake, at));
    batches.flat_map(|batch| finished_calls(&batch)).collect()
}

#[test]
fn calls_of_a_killed_asterisk_end_at_the_next_call() {
    let mut intake = intake();
    send_event(&mut intake, 1, &event("CHAN_START", (10, 7), 10), 10);
    send_event(&mut intake, 2, &event("ANSWER", (10, 7), 15), 15);
    let mut calls = finished_calls(&send_event(
        &mut intake,
        3,
        &event("CHAN_START", (100, 0), 100),
        100,
    ));
    calls.extend(finished_calls_until(&mut intake, 100, 130));
    let [(linkedid, incomplete, ended)] = &calls[..] else {
        panic!("{calls:?}")
    };
    assert_eq!((linkedid, *ended), (&format!("{}.7", BEGAN + 10), 15));
    assert!(incomplete.is_some());
    assert_eq!(intake.open_calls(), 1, "the new call goes on");
}

#[test]
fn calls_of_a_killed_asterisk_end_after_a_daemon_restart() {
    let mut first = intake();
    let batch = send_event(&mut first, 1, &event("CHAN_START", (10, 7), 10), 10);
    let mut second = intake();
    for op in &batch.ops {
        if let Op::Open {
            pbx,
            key,
            snapshot: Some(snapshot),
        } = op
        {
            second.restore(pbx, *key, snapshot).expect("a snapshot");
        }
    }
    assert_eq!(second.open_calls(), 1);
    let mut calls = finished_calls(&send_event(
        &mut second,
        1,
        &event("CHAN_START", (100, 0), 100),
        100,
    ));
    calls.extend(finished_calls_until(&mut second, 100, 130));
    assert_eq!(calls.len(), 1);
}

#[test]
fn cel_events_out_of_order_end_no_call() {
    let mut intake = intake();
    // The newest event arrives first, and then an old event is redelivered.
    send_event(&mut intake, 1, &event("CHAN_START", (50, 9), 50), 51);
    send_event(&mut intake, 2, &event("CHAN_START", (40, 8), 40), 51);
    send_event(&mut intake, 3, &event("CHAN_START", (10, 7), 10), 51);
    send_event(&mut intake, 4, &event("CHAN_START", (50, 9), 50), 52);
    send_event(&mut intake, 5, &event("CHAN_START", (70, 10), 70), 70);
    assert_eq!(finished_calls_until(&mut intake, 70, 100), []);
    assert_eq!(intake.open_calls(), 4);
}

#[test]
fn later_event_of_an_open_call_rules_out_a_restart() {
    let mut intake = intake();
    send_event(&mut intake, 1, &event("CHAN_START", (10, 7), 10), 10);
    send_event(&mut intake, 2, &event("ANSWER", (10, 7), 120), 120);
    send_event(&mut intake, 3, &event("CHAN_START", (100, 0), 100), 121);
    assert_eq!(finished_calls_until(&mut intake, 121, 150), []);
    assert_eq!(intake.open_calls(), 2);
}
