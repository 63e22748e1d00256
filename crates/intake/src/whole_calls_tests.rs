//! Tests of messages that each contain a whole call (`format=call`).

use super::core::{Batch, Intake};
use super::settings::{Memory, Settings, SourceSettings};
use callbridge_call::EventTime;
use callbridge_mapping::trunk::parse;
use callbridge_mapping::{People, Rules, Trunk, Trunks};
use callbridge_model::{Judged, LeadId, Outcome, Reason};
use callbridge_source::{Frame, FrameVerdict, SourceId, SourceUrl};
use callbridge_spool::Op;
use std::time::Duration;

const START: EventTime = EventTime::from_seconds(1_795_151_317);

fn intake(url: &str, memory: Memory) -> Intake {
    let trunk = parse("city=,country=UZ,lead=var:LEAD_ID", &Trunk::default());
    let settings = Settings {
        calls: callbridge_call::Settings {
            cdr_wait: Some(Duration::from_secs(10)),
            max_call: Duration::from_secs(3_600),
            max_open_calls: 100,
            ..callbridge_call::Settings::new(Default::default())
        },
        zone: None,
        columns: None,
        clock_right_from: EventTime::from_seconds(1_700_000_000),
        rules: Rules {
            trunks: Trunks::new(vec![trunk.expect("a trunk")]).expect("trunks"),
            without_trunk: Some(Trunk::default()),
            ..Rules::default()
        },
    };
    let url = SourceUrl::parse(url).unwrap_or_else(|faults| panic!("{faults:?}"));
    let source = SourceSettings::new(&url, String::new(), false);
    let mut intake = Intake::new(settings, vec![source], memory).expect("no conflict");
    intake.tick(START.plus(Duration::from_secs(10)));
    intake
}

const QUEUE: &str = "amqp://u@mq1,mq2:5673/v?queue=calls&format=call";

fn message(pbx: &str, id: &str) -> String {
    format!(
        r#"{{"pbx":"{pbx}","id":"{id}","direction":"INBOUND","trunk":"city",
            "phone":"+998901110001","startedAt":1795151317.5,"durationSec":5,"answered":true,
            "talkSec":4,"variables":{{"LEAD_ID":"4001"}}}}"#
    )
}

fn frame(seq: u64, body: &str) -> Frame {
    Frame {
        seq,
        arrived: START.plus(Duration::from_secs(6)),
        bytes: body.to_owned().into(),
        position: None,
        content_type: None,
        details: None,
    }
}

fn send_frame(intake: &mut Intake, frame: &Frame) {
    intake
        .frame(SourceId(0), frame, &mut |_, _| None)
        .expect("no conflict");
}

fn take(intake: &mut Intake) -> Batch {
    intake.take(&People::default(), START.plus(Duration::from_secs(10)))
}

fn judged_calls(batch: &Batch) -> Vec<&Judged> {
    let finished = batch.ops.iter().filter_map(|op| match op {
        Op::Finish(finished) => Some(&finished.judged),
        _ => None,
    });
    finished.collect()
}

fn unreadable_reasons(batch: &Batch) -> Vec<&str> {
    let letters = batch.ops.iter().filter_map(|op| match op {
        Op::Unreadable(unread) => Some(unread.why.as_str()),
        _ => None,
    });
    letters.collect()
}

#[test]
fn call_message_is_judged_and_committed_in_one_batch() {
    let mut intake = intake(QUEUE, Memory::default());
    intake.up(SourceId(0), START);
    send_frame(&mut intake, &frame(1, &message("tashkent-1", "1.2")));
    let batch = take(&mut intake);
    let [call] = judged_calls(&batch)[..] else {
        panic!("{:?}", batch.ops)
    };
    assert_eq!((call.outcome, call.live), (Outcome::Journal, true));
    assert_eq!(call.record.lead_id, LeadId::new(4001));
    // Computed in Python: uuid.uuid5(NAMESPACE, "tashkent-1\0" + "1.2")
    let uuid = call.record.uuid.expect("a uuid").to_string();
    assert_eq!(uuid, "c5a3a901-2f7f-5d72-86ae-7f6f44e9ca52");
    let committed = (SourceId(0), FrameVerdict::Committed { through: 1 });
    assert_eq!(batch.verdicts, [committed]);
    assert_eq!(intake.open_calls(), 0);
}

fn is_newer_message_count(op: &Op) -> bool {
    matches!(op, Op::Count { counter, .. } if counter == "messages_of_version_2")
}

#[test]
fn invalid_or_newer_message_is_dead_letter_naming_field() {
    let mut intake = intake(QUEUE, Memory::default());
    let wrong = message("a", "1").replace("\"durationSec\":5", "\"durationSec\":-5");
    send_frame(&mut intake, &frame(1, &wrong));
    let mut newer = frame(2, &message("a", "2"));
    newer.content_type = Some("application/vnd.callbridge.call+json; version=2".into());
    send_frame(&mut intake, &newer);
    let future = message("a", "3").replace("1795151317.5", "1795159999");
    send_frame(&mut intake, &frame(3, &future));
    let batch = take(&mut intake);
    let reasons = unreadable_reasons(&batch);
    assert!(
        reasons[0].starts_with("durationSec: it is -5; it must be "),
        "{reasons:?}"
    );
    assert!(
        reasons[1].starts_with("version: it is 2, and this callbridge reads"),
        "{reasons:?}"
    );
    let counted = batch.ops.iter().filter(|op| is_newer_message_count(op));
    assert_eq!(counted.count(), 1);
    let [call] = judged_calls(&batch)[..] else {
        panic!("{:?}", batch.ops)
    };
    assert_eq!(call.reason, Some(Reason::InvalidEpoch));
    assert!(call.message.starts_with("startedAt: "), "{}", call.message);
}

#[test]
fn calls_and_verdicts_are_held_while_the_clock_is_wrong() {
    let mut intake = intake(QUEUE, Memory::default());
    intake.tick(EventTime::from_seconds(5));
    send_frame(&mut intake, &frame(1, &message("a", "1")));
    let held = take(&mut intake);
    assert!(judged_calls(&held).is_empty() && held.verdicts.is_empty());
    intake.tick(START.plus(Duration::from_secs(10)));
    let batch = take(&mut intake);
    assert_eq!((judged_calls(&batch).len(), batch.verdicts.len()), (1, 1));
}

#[test]
fn call_of_a_file_is_not_live() {
    let mut intake = intake(
        "file:///calls.jsonl?format=call&from=start",
        Memory::default(),
    );
    let file_frame = frame(1, &message("a", "1"));
    send_frame(&mut intake, &file_frame);
    let batch = take(&mut intake);
    let [call] = judged_calls(&batch)[..] else {
        panic!("{:?}", batch.ops)
    };
    assert!(!call.live, "what a file tells may be old");
}
