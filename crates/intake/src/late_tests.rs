//! Tests of late messages from a queue, and of messages from a PBX without any calls.

use super::{Intake, Memory, SourceSettings};
use crate::tests::settings;
use callbridge_call::EventTime;
use callbridge_formats::{Decoded, Decoder, DecoderSettings, Format};
use callbridge_mapping::People;
use callbridge_source::{Frame, Outage, SourceId};
use callbridge_spool::Op;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const FRAMES: &str = include_str!("../../../tests/recordings/inbound_answered/amiws.jsonl");

fn source(forgets: bool) -> SourceSettings {
    SourceSettings {
        shown: "amqp://broker/".to_owned(),
        url: "of the source".to_owned(),
        label: "the source".to_owned(),
        pbx: "hq".to_owned(),
        format: Format::AmiJson,
        file: false,
        forgets,
        catch_up: false,
    }
}

fn frame(seq: u64, arrived: EventTime, body: &str) -> Frame {
    Frame {
        seq,
        arrived,
        bytes: body.as_bytes().to_vec().into(),
        position: None,
        content_type: None,
        details: None,
    }
}

/// Returns why the recording's call isn't journaled, whether it was answered, its duration, and its
/// talk time, given that the events of its second half arrive a minute late. With `forgets`, the
/// source is a connection, which loses events when it breaks.
fn outcome_with_late_half(forgets: bool) -> (Option<String>, bool, u32, u32) {
    let intake = Intake::new(settings(), vec![source(forgets)], Memory::default());
    let mut intake = intake.expect("an intake");
    let mut decoder = Decoder::new(Format::AmiJson, DecoderSettings::default());
    let lines: Vec<&str> = FRAMES.lines().collect();
    let mut arrived = EventTime::from_seconds(0);
    for (seq, line) in (1..).zip(&lines) {
        if let Decoded::Event { received, .. } = decoder.decode(line.as_bytes())
            && let callbridge_call::PbxEvent::Channel(event) = received.event
        {
            arrived = arrived.max(event.at.expect("a time"));
        }
        if seq == lines.len() / 2 {
            arrived = arrived.plus(Duration::from_secs(60));
        }
        let frame = frame(u64::try_from(seq).expect("few"), arrived, line);
        let taken = intake.frame(SourceId(0), &frame, &mut |_, _| None);
        taken.expect("taken");
    }
    let end = arrived.plus(Duration::from_secs(2));
    intake.tick(end);
    let ops = intake.take(&People::default(), end).ops;
    let mut finished = ops.into_iter().filter_map(|op| match op {
        Op::Finish(finished) => Some(finished.judged),
        _ => None,
    });
    let judged = finished.next().expect("a call");
    let record = judged.record;
    let reason = judged.reason.map(|reason| reason.word().to_owned());
    (
        reason,
        record.answered,
        record.duration_sec,
        record.talk_time_sec,
    )
}

#[test]
fn late_message_is_judged_by_its_own_time() {
    let kept = outcome_with_late_half(false);
    let (reason, answered, duration, talk) = &kept;
    assert_eq!((reason, *answered), (&None, true));
    assert!(*duration < 20 && *talk < 20, "{talk} of {duration}");
    // A connection that stalls for a minute leads to the same result.
    assert_eq!(outcome_with_late_half(true), kept);
}

#[test]
fn events_of_an_idle_switch_are_no_format_mismatch() {
    let source = SourceSettings {
        format: Format::Freeswitch,
        ..source(false)
    };
    let mut intake = Intake::new(settings(), vec![source], Memory::default()).expect("an intake");
    intake.up(SourceId(0), EventTime::from_seconds(1_795_212_386));
    let events = [
        ("RE_SCHEDULE", ""),
        ("HEARTBEAT", r#","Core-UUID":"c","Uptime-msec":"9000""#),
        ("CHANNEL_STATE", r#","Unique-ID":"u""#),
    ];
    for (seq, (name, more)) in (1..).zip(events.iter().cycle().take(9)) {
        let head = format!(r#""Event-Name":"{name}","FreeSWITCH-Switchname":"vm""#);
        let body = format!(r#"{{{head},"Event-Date-Timestamp":"1795212386914351"{more}}}"#);
        let frame = frame(seq, EventTime::from_seconds(1_795_212_387), &body);
        let taken = intake.frame(SourceId(0), &frame, &mut |_, _| None);
        taken.expect("taken");
    }
    assert!(intake.format_mismatches.is_empty());
    let status = &intake.statuses()[0];
    assert_eq!((status.unreadable, &status.reason), (0, &None));
    assert!(status.state.is_up());
}

#[test]
fn switches_of_one_queue_are_listed_with_pbx_ids() {
    let source = SourceSettings {
        format: Format::Freeswitch,
        ..source(false)
    };
    let mut intake = Intake::new(settings(), vec![source], Memory::default()).expect("an intake");
    let arrived = EventTime::from_seconds(1_795_212_387);
    for (seq, switch) in (1..).zip(["fs1", "fs2", "fs1"]) {
        let head = format!(r#""Event-Name":"HEARTBEAT","FreeSWITCH-Switchname":"{switch}""#);
        let rest = r#""Core-UUID":"c","Event-Date-Timestamp":"1795212386914351""#;
        let frame = frame(seq, arrived, &format!("{{{head},{rest}}}"));
        let taken = intake.frame(SourceId(0), &frame, &mut |_, _| None);
        taken.expect("taken");
    }
    let status = serde_json::to_value(&intake.statuses()[0]).expect("JSON");
    let wanted = serde_json::json!([
        {"name": "fs1", "pbx": "hq"},
        {"name": "fs2", "pbx": "hq/fs2"},
    ]);
    assert_eq!(status["switches"], wanted);
}

/// Creates an intake for two queues of the same PBX.
fn intake_of_two_queues() -> Intake {
    let sources = vec![source(false), source(false)];
    Intake::new(settings(), sources, Memory::default()).expect("an intake")
}

/// Creates an intake that continues with the open call in `kept`, 3,000 s after the process ended.
fn restored_intake(kept: &[Op], stop: EventTime) -> Intake {
    let mut intake = intake_of_two_queues();
    for op in kept {
        if let Op::Open { pbx, key, snapshot } = op
            && let Some(bytes) = snapshot
        {
            intake.restore(pbx, *key, bytes).expect("restored");
        }
    }
    intake.was_away();
    intake.tick(stop.plus(3000 * SECOND));
    assert_eq!((intake.open_calls(), intake.next_deadline()), (1, None));
    intake
}

/// Returns `true` if the intake has no open calls after a tick at `now`.
fn finishes_at(intake: &mut Intake, now: EventTime) -> bool {
    intake.tick(now);
    intake.open_calls() == 0
}

fn report_outage(intake: &mut Intake, id: SourceId, since: EventTime, is_absent: bool) {
    intake.down(
        id,
        Outage {
            why: "why".to_owned(),
            since,
            is_ours: true,
            is_absent,
        },
    );
}

/// A call has hung up by the time the process ends. When it finishes after the restart depends on
/// which of its PBX's two queues are being read.
#[test]
fn silence_counts_only_while_a_queue_of_the_pbx_is_read() {
    let mut lines: Vec<&str> = FRAMES.lines().collect();
    let ends = lines.iter().rposition(|line| line.contains("\"Hangup\""));
    lines.truncate(ends.expect("a hangup") + 1);
    let mut before = intake_of_two_queues();
    let stop = crate::tests::recorded_time(lines[0]).plus(30 * SECOND);
    for (seq, line) in (1..).zip(&lines) {
        let frame = frame(seq, crate::tests::recorded_time(line), line);
        let taken = before.frame(SourceId(0), &frame, &mut |_, _| None);
        taken.expect("taken");
    }
    let kept = before.take(&People::default(), stop).ops;
    let restart = stop.plus(3000 * SECOND);
    let [first, second] = [SourceId(0), SourceId(1)];
    let mut intake = restored_intake(&kept, stop);
    intake.up(first, restart);
    assert!(!finishes_at(&mut intake, restart));
    // The second queue is down, but the first one is still being read.
    report_outage(&mut intake, second, restart, false);
    assert!(finishes_at(&mut intake, stop.plus(3001 * SECOND)));
    let mut intake = restored_intake(&kept, stop);
    intake.up(second, restart);
    report_outage(&mut intake, second, restart, false);
    assert!(!finishes_at(&mut intake, stop.plus(3400 * SECOND)));
    intake.up(first, stop.plus(3400 * SECOND));
    // Nothing was read while the disk was full.
    intake.resumes(stop.plus(3500 * SECOND));
    assert!(!finishes_at(&mut intake, stop.plus(3500 * SECOND)));
    assert!(finishes_at(&mut intake, stop.plus(3501 * SECOND)));
    // The process was suspended. Messages that arrived in the meantime are read first.
    let mut intake = restored_intake(&kept, stop);
    intake.up(first, restart);
    assert!(!finishes_at(&mut intake, restart));
    assert!(!finishes_at(&mut intake, stop.plus(4000 * SECOND)));
    assert!(finishes_at(&mut intake, stop.plus(4001 * SECOND)));
    // A file that doesn't exist isn't keeping any events, whereas one that can't be read might be.
    let mut intake = restored_intake(&kept, stop);
    report_outage(&mut intake, second, restart, true);
    assert!(!finishes_at(&mut intake, restart));
    report_outage(&mut intake, first, restart, true);
    assert!(finishes_at(&mut intake, restart));
}
