//! Tests of call detail records, which are folded if no event reports their call.

use super::{Batch, Intake, Memory, Settings, SourceSettings};
use callbridge_call::EventTime;
use callbridge_formats::Format;
use callbridge_mapping::{People, Rules, Trunks, trunk};
use callbridge_model::Outcome;
use callbridge_source::{Frame, FrameVerdict, SourceId};
use callbridge_spool::{Finished, Known, Op};
use std::time::Duration;

const SOURCE: SourceId = SourceId(0);
/// 2026-11-20 05:09:50 UTC, which is when the records' call started.
const BEGAN: i64 = 1_795_151_390;

fn source_of_format(format: Format) -> SourceSettings {
    SourceSettings {
        shown: format!("source of {format}"),
        url: "of the source".to_owned(),
        label: "the source".to_owned(),
        pbx: "hq".to_owned(),
        format,
        file: false,
        forgets: false,
        catch_up: false,
    }
}

pub(super) fn intake(formats: &[Format]) -> Intake {
    let flag = "city=PJSIP/city,country=UZ,lead=userfield:lead=([0-9]+)";
    let trunk = trunk::parse(flag, &trunk::Trunk::default()).expect("a trunk");
    let settings = Settings {
        calls: callbridge_call::Settings {
            cdr_wait: Some(Duration::from_secs(10)),
            max_call: Duration::from_secs(3600),
            max_open_calls: 1_000,
            ..callbridge_call::Settings::new(Default::default())
        },
        columns: None,
        clock_right_from: EventTime::from_seconds(BEGAN - 86_400),
        zone: None,
        rules: Rules {
            trunks: Trunks::new(vec![trunk]).expect("trunks"),
            ..Rules::default()
        },
    };
    let sources = formats
        .iter()
        .map(|format| source_of_format(*format))
        .collect();
    Intake::new(settings, sources, Memory::default()).expect("an intake")
}

/// Returns the time of a record, this many seconds after 05:00.
fn record_time(second: u32) -> String {
    format!(
        "2026-11-20T05:{:02}:{:02}.000+0000",
        second / 60,
        second % 60
    )
}

/// Returns a record of the customer's channel, as published by asterisk-cdr-amqp.
fn body(dest: &str, from: u32, to: u32, answered: bool) -> String {
    let (answer, billed, disposition) = if answered {
        (record_time(from), to - from, "ANSWERED")
    } else {
        ("1970-01-01T00:00:00.000+0000".to_owned(), 0, "NO ANSWER")
    };
    serde_json::json!({
        "src": "+998901110003", "dst": "s", "channel": "PJSIP/city-00000066",
        "dstchannel": dest, "lastapp": "Dial", "start": record_time(from), "answer": answer,
        "end": record_time(to),
        "durationsec": to - from, "billsec": billed, "disposition": disposition,
        "linkedid": format!("{BEGAN}.185"), "uniqueid": format!("{BEGAN}.185"),
        "userfield": "lead=4003",
    })
    .to_string()
}

/// Returns the two records of a call in which Anna's phone rang, and then Boris talked.
fn bodies() -> [String; 2] {
    [
        body("PJSIP/101-00000067", 590, 600, false),
        body("PJSIP/102-00000068", 600, 660, true),
    ]
}

fn send_body(intake: &mut Intake, source: SourceId, seq: u64, bytes: &str, arrived: i64) {
    let frame = Frame {
        seq,
        arrived: EventTime::from_seconds(arrived),
        bytes: bytes.as_bytes().to_vec().into(),
        position: None,
        content_type: None,
        details: None,
    };
    let taken = intake.frame(source, &frame, &mut |_, _| None);
    taken.expect("taken");
}

/// Folds the records that are due at this second, and takes the batch. If `known` is `true`, the
/// spool already has the call.
fn take_batch(intake: &mut Intake, second: i64, known: bool) -> Batch {
    let now = EventTime::from_seconds(second);
    intake.tick(now);
    intake.fold(now, &mut |_, _| {
        known.then(|| Known {
            own: true,
            started: EventTime::from_seconds(BEGAN).floor_seconds(),
            caller: None,
            incomplete: false,
            letter: None,
        })
    });
    intake.take(&People::default(), now)
}

fn finished_calls(batch: &Batch) -> Vec<&Finished> {
    let ops = batch.ops.iter();
    ops.filter_map(|op| match op {
        Op::Finish(finished) => Some(&**finished),
        _ => None,
    })
    .collect()
}

fn is_records_snapshot(op: &Op) -> bool {
    matches!(op, Op::Open { pbx, snapshot: Some(_), .. } if pbx == "hq?cdr")
}

#[test]
fn cdr_records_are_committed_before_becoming_one_call() {
    let mut intake = intake(&[Format::CdrAmqp]);
    for (seq, body) in (1..).zip(bodies()) {
        send_body(&mut intake, SOURCE, seq, &body, BEGAN + 70);
    }
    let batch = take_batch(&mut intake, BEGAN + 71, false);
    assert_eq!(
        batch.verdicts,
        [(SOURCE, FrameVerdict::Committed { through: 2 })]
    );
    assert!(
        batch.ops.iter().any(is_records_snapshot),
        "acknowledged, so kept: {batch:?}"
    );
    assert!(finished_calls(&batch).is_empty());
    let batch = take_batch(&mut intake, BEGAN + 80, false);
    let calls = finished_calls(&batch);
    assert_eq!(calls.len(), 1);
    let record = &calls[0].judged.record;
    assert_eq!(calls[0].judged.outcome, Outcome::Journal);
    assert_eq!((record.duration_sec, record.talk_time_sec), (70, 60));
    assert_eq!(record.employee.as_deref(), Some("102"));
    assert!(record.estimate);
    assert_eq!(record.lead_id.map(|lead| lead.get()), Some(4003));
}

fn is_snapshot_deletion(op: &Op) -> bool {
    matches!(op, Op::Open { snapshot: None, .. })
}

#[test]
fn records_on_both_sides_of_a_restart_are_one_call() {
    let [first, second] = bodies();
    let mut before = intake(&[Format::CdrAmqp]);
    send_body(&mut before, SOURCE, 1, &first, BEGAN + 10);
    let batch = take_batch(&mut before, BEGAN + 11, false);
    let mut after = intake(&[Format::CdrAmqp]);
    for op in &batch.ops {
        if let Op::Open {
            pbx,
            key,
            snapshot: Some(bytes),
        } = op
        {
            after.restore(pbx, *key, bytes).expect("restored");
        }
    }
    send_body(&mut after, SOURCE, 1, &second, BEGAN + 70);
    let batch = take_batch(&mut after, BEGAN + 80, false);
    let calls = finished_calls(&batch);
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].judged.record.duration_sec, 70);
    assert!(batch.ops.iter().any(is_snapshot_deletion));
}

/// A row for a call to a customer who's transferred by the phone after three seconds. The row for
/// the conversation with the other phone isn't written until that ends.
fn transferred_row(n: u32) -> String {
    let (src, channel, uniqueid, dest, from, to) = match n {
        1 => (
            "101",
            "PJSIP/101-00000001",
            1,
            "PJSIP/city-00000002",
            590,
            595,
        ),
        _ => (
            "998901110003",
            "PJSIP/city-00000002",
            2,
            "PJSIP/102-00000003",
            595,
            640,
        ),
    };
    serde_json::json!({
        "src": src, "dst": if n == 1 { "998901110003" } else { "102" }, "channel": channel,
        "dstchannel": dest, "lastapp": "Dial", "lastdata": dest, "start": record_time(from),
        "answer": record_time(from + 2 * u32::from(n == 1)), "end": record_time(to),
        "durationsec": to - from, "billsec": to - from - 2 * u32::from(n == 1),
        "disposition": "ANSWERED", "linkedid": format!("{BEGAN}.1"),
        "uniqueid": format!("{BEGAN}.{uniqueid}"), "userfield": "lead=4003",
    })
    .to_string()
}

/// Returns each call's talk time and duration, and whether it was revised by a late record.
fn revisions(batch: &Batch) -> Vec<(u32, u32, bool)> {
    let calls = finished_calls(batch).into_iter();
    calls
        .map(|call| {
            let record = &call.judged.record;
            (record.talk_time_sec, record.duration_sec, call.is_revision)
        })
        .collect()
}

#[test]
fn late_row_after_a_transfer_revises_the_call_once() {
    let mut intake = intake(&[Format::CdrAmqp]);
    send_body(&mut intake, SOURCE, 1, &transferred_row(1), BEGAN + 5);
    let batch = take_batch(&mut intake, BEGAN + 20, false);
    assert_eq!(revisions(&batch), [(3, 5, false)]);
    for (seq, expected) in [(2, &[(48, 50, true)][..]), (3, &[])] {
        send_body(&mut intake, SOURCE, seq, &transferred_row(2), BEGAN + 51);
        let batch = take_batch(&mut intake, BEGAN + 70, true);
        assert_eq!(revisions(&batch), expected, "{seq}");
    }
}

/// Returns a row for a customer who reaches a phone. All rows have the same channel name, as on a
/// PBX that was restarted.
fn row_of_reused_channel(born: u32, dest: &str, from: u32, to: u32) -> String {
    serde_json::json!({
        "src": "998901110003", "dst": "101", "channel": "PJSIP/city-00000001", "dstchannel": dest,
        "lastapp": "Dial", "lastdata": dest, "start": record_time(590 + from),
        "answer": record_time(590 + from), "end": record_time(590 + to), "durationsec": to - from,
        "billsec": to - from, "disposition": "ANSWERED",
        "uniqueid": format!("{}.1", BEGAN + i64::from(born)), "userfield": "lead=4003",
    })
    .to_string()
}

#[test]
fn late_row_revises_the_call_with_its_id_not_its_channel() {
    let mut intake = intake(&[Format::CdrAmqp]);
    send_body(
        &mut intake,
        SOURCE,
        1,
        &row_of_reused_channel(0, "SIP/101-1", 0, 30),
        BEGAN + 30,
    );
    send_body(
        &mut intake,
        SOURCE,
        2,
        &row_of_reused_channel(40, "SIP/101-2", 40, 50),
        BEGAN + 50,
    );
    let batch = take_batch(&mut intake, BEGAN + 70, false);
    assert_eq!(revisions(&batch), [(30, 30, false), (10, 10, false)]);
    send_body(
        &mut intake,
        SOURCE,
        3,
        &row_of_reused_channel(0, "SIP/102-3", 30, 55),
        BEGAN + 71,
    );
    let batch = take_batch(&mut intake, BEGAN + 90, true);
    assert_eq!(revisions(&batch), [(55, 55, true)]);
}

#[test]
fn second_call_with_the_id_of_a_folded_call_reaches_the_spool() {
    let mut intake = intake(&[Format::CdrAmqp]);
    let [_, talk] = bodies();
    send_body(&mut intake, SOURCE, 1, &talk, BEGAN + 70);
    assert_eq!(
        revisions(&take_batch(&mut intake, BEGAN + 81, false)).len(),
        1
    );
    let later = talk
        .replace("T05:", "T07:")
        .replace("901110003", "901110009")
        .replace("-000000", "-000001");
    send_body(&mut intake, SOURCE, 2, &later, BEGAN + 7_270);
    let batch = take_batch(&mut intake, BEGAN + 7_300, false);
    let calls = finished_calls(&batch);
    assert_eq!(calls.len(), 1, "the spool makes a dead letter of it");
    let phone = calls[0].judged.record.phone();
    assert_eq!(phone, Some("+998901110009"));
}

#[test]
fn late_row_that_adds_nothing_revises_no_call() {
    let mut intake = intake(&[Format::CdrAmqp]);
    let [_, talk] = bodies();
    send_body(&mut intake, SOURCE, 1, &talk, BEGAN + 70);
    assert_eq!(
        revisions(&take_batch(&mut intake, BEGAN + 81, false)).len(),
        1
    );
    let [rang, _] = bodies();
    send_body(&mut intake, SOURCE, 2, &rang, BEGAN + 82);
    assert_eq!(revisions(&take_batch(&mut intake, BEGAN + 100, true)), []);
}

fn is_known_call_count(op: &Op) -> bool {
    matches!(op, Op::Count { counter, by: 1 } if counter == "cdr_known")
}

#[test]
fn known_call_is_not_stored_again_from_its_records() {
    let mut intake = intake(&[Format::CdrAmqp]);
    for (seq, body) in (1..).zip(bodies()) {
        send_body(&mut intake, SOURCE, seq, &body, BEGAN + 70);
    }
    let batch = take_batch(&mut intake, BEGAN + 80, true);
    assert!(finished_calls(&batch).is_empty());
    assert!(batch.ops.iter().any(is_known_call_count));
}

fn hour_earlier(line: &str) -> String {
    line.replace("17951513", "17951477")
}

#[test]
fn records_wait_for_the_events_of_their_call() {
    let events = include_str!("../../../tests/recordings/forwarded_to_mobile/amiws.jsonl");
    let mut intake = intake(&[Format::AmiJson, Format::CdrAmqp]);
    intake.up(SOURCE, EventTime::from_seconds(BEGAN - 3600));
    let lines: Vec<&str> = events.lines().collect();
    // Another call's events arrive, followed by this call's records. The events of this call may
    // still be in transit.
    for (seq, line) in (1..).zip(&lines) {
        send_body(&mut intake, SOURCE, seq, &hour_earlier(line), BEGAN - 3600);
    }
    assert_eq!(
        finished_calls(&take_batch(&mut intake, BEGAN, false)).len(),
        1
    );
    for (seq, body) in (1..).zip(bodies()) {
        send_body(&mut intake, SourceId(1), seq, &body, BEGAN + 70);
    }
    assert!(finished_calls(&take_batch(&mut intake, BEGAN + 600, false)).is_empty());
    // The call's events arrive and report the call.
    for (seq, line) in (101..).zip(&lines) {
        send_body(&mut intake, SOURCE, seq, line, BEGAN + 601);
    }
    let batch = take_batch(&mut intake, BEGAN + 606, false);
    let calls = finished_calls(&batch);
    assert_eq!(calls.len(), 1);
    assert!(!calls[0].judged.record.estimate);
    for second in [7_200, 7_209, 7_218] {
        assert!(finished_calls(&take_batch(&mut intake, BEGAN + second, false)).is_empty());
    }
}

#[test]
fn calls_are_built_from_cdr_events_if_no_others_arrive() {
    let events = include_str!("../../../tests/recordings/forwarded_to_mobile/amiws.jsonl");
    let mut intake = intake(&[Format::AmiJson]);
    let records = events
        .lines()
        .filter(|line| line.contains("\"Event\": \"Cdr\""));
    for (seq, line) in (1..).zip(records) {
        send_body(&mut intake, SOURCE, seq, line, BEGAN + 5);
    }
    let batch = take_batch(&mut intake, BEGAN + 20, false);
    let calls = finished_calls(&batch);
    assert_eq!(calls.len(), 1);
    assert!(calls[0].judged.record.estimate && calls[0].judged.record.answered);
}

#[test]
fn records_are_kept_while_the_clock_is_wrong() {
    let mut intake = intake(&[Format::CdrAmqp]);
    let reset = BEGAN - 800_000_000;
    for (seq, body) in (1..).zip(bodies()) {
        send_body(&mut intake, SOURCE, seq, &body, reset);
    }
    let batch = take_batch(&mut intake, reset + 3_600, false);
    assert!(finished_calls(&batch).is_empty());
    assert_eq!(
        batch.verdicts.len(),
        1,
        "they are kept, so they are acknowledged"
    );
    let batch = take_batch(&mut intake, BEGAN + 3_600, false);
    assert_eq!(finished_calls(&batch).len(), 1);
}
