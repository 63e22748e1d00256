//! Tests with a clock that shows a time before this program was built, as happens on a board
//! without a clock battery after booting.

use super::{Intake, Memory, Settings, SourceSettings};
use callbridge_call::EventTime;
use callbridge_formats::Format;
use callbridge_mapping::{People, Rules, Trunks, trunk};
use callbridge_model::Outcome;
use callbridge_source::{Frame, SourceId};
use callbridge_spool::{Finished, Op};
use std::time::Duration;

const FRAMES: &str = include_str!("../../../tests/recordings/inbound_answered/amiws.jsonl");
const SOURCE: SourceId = SourceId(0);
/// The clock is considered right from this time on. The recording was made at 1795151317.
const RIGHT_FROM: i64 = 1_795_000_000;

fn intake() -> Intake {
    intake_right_from(RIGHT_FROM)
}

fn intake_right_from(right_from: i64) -> Intake {
    let trunk = "city=PJSIP/city,country=UZ,lead=var:LEAD_ID";
    let trunk = trunk::parse(trunk, &trunk::Trunk::default()).expect("a trunk");
    let settings = Settings {
        calls: callbridge_call::Settings {
            cdr_wait: Some(Duration::from_secs(10)),
            max_call: Duration::from_secs(12 * 3600),
            max_open_calls: 1_000,
            ..callbridge_call::Settings::new(Default::default())
        },
        zone: None,
        columns: None,
        clock_right_from: EventTime::from_seconds(right_from),
        rules: Rules {
            trunks: Trunks::new(vec![trunk]).expect("trunks"),
            ..Rules::default()
        },
    };
    let source = SourceSettings {
        shown: "ws://pbx/".to_owned(),
        url: "of the source".to_owned(),
        label: "the source".to_owned(),
        pbx: "hq".to_owned(),
        format: Format::AmiJson,
        file: false,
        forgets: false,
        catch_up: false,
    };
    Intake::new(settings, vec![source], Memory::default()).expect("an intake")
}

fn send_lines(intake: &mut Intake, lines: &[String], arrived: i64) {
    for (seq, line) in (1..).zip(lines) {
        let frame = Frame {
            seq,
            arrived: EventTime::from_seconds(arrived),
            bytes: line.as_bytes().to_vec().into(),
            position: None,
            content_type: None,
            details: None,
        };
        let taken = intake.frame(SOURCE, &frame, &mut |_, _| None);
        taken.expect("taken");
    }
}

fn is_call_snapshot(op: &Op) -> bool {
    matches!(
        op,
        Op::Open {
            snapshot: Some(_),
            ..
        }
    )
}

/// Returns the finished calls and the number of stored open calls when our clock shows this time.
fn take_stored(intake: &mut Intake, now: i64) -> (Vec<Finished>, usize) {
    let now = EventTime::from_seconds(now);
    intake.tick(now);
    let batch = intake.take(&People::default(), now);
    let open = batch.ops.iter().filter(|op| is_call_snapshot(op)).count();
    let finished = batch.ops.into_iter().filter_map(|op| match op {
        Op::Finish(finished) => Some(*finished),
        _ => None,
    });
    (finished.collect(), open)
}

fn frames() -> Vec<String> {
    FRAMES.lines().map(str::to_owned).collect()
}

#[test]
fn calls_remain_open_until_a_wrong_clock_is_set() {
    let mut intake = intake();
    send_lines(&mut intake, &frames(), 100);
    let (finished, open) = take_stored(&mut intake, 101);
    assert_eq!((finished.len(), open), (0, 1), "kept on the disk, open");
    let (finished, _) = take_stored(&mut intake, 50_000);
    assert_eq!(
        finished.len(),
        0,
        "a wrong clock ends no call, however long it stays wrong"
    );
    assert_eq!(intake.next_deadline(), None);
    // The clock is set. No call should end just because it seems to have been open since 1970.
    let (finished, _) = take_stored(&mut intake, 1_795_151_400);
    assert_eq!(finished.len(), 0, "the settling time begins now");
    let (finished, _) = take_stored(&mut intake, 1_795_151_402);
    assert_eq!(finished.len(), 1);
    let record = &finished[0].judged.record;
    assert_eq!(finished[0].judged.outcome, Outcome::Journal);
    assert_eq!(record.started_at.get(), 1_795_151_317);
    assert_eq!((record.duration_sec, record.talk_time_sec), (5, 4));
}

#[test]
fn call_during_which_the_clock_is_set_is_complete() {
    let mut intake = intake();
    let frames = frames();
    let (before, after) = frames.split_at(frames.len() / 2);
    send_lines(&mut intake, before, 100);
    take_stored(&mut intake, 101);
    // The frames from second 102 arrived before the clock was set, and are processed afterward.
    take_stored(&mut intake, 1_795_151_321);
    send_lines(&mut intake, &after[..after.len() / 2], 102);
    send_lines(&mut intake, &after[after.len() / 2..], 1_795_151_322);
    let (finished, _) = take_stored(&mut intake, 1_795_151_330);
    assert_eq!(finished.len(), 1);
    let record = &finished[0].judged.record;
    assert_eq!(finished[0].judged.outcome, Outcome::Journal);
    assert_eq!((record.duration_sec, record.talk_time_sec), (5, 4));
}

/// A file can contain calls from before this program was built, because its events have timestamps.
#[test]
fn call_older_than_program_keeps_times_under_wrong_clock() {
    let made = 1_795_151_317 + 40 * 86_400;
    let mut intake = intake_right_from(made);
    send_lines(&mut intake, &frames(), 100);
    take_stored(&mut intake, 101);
    take_stored(&mut intake, made + 100);
    let (finished, _) = take_stored(&mut intake, made + 102);
    assert_eq!(finished.len(), 1);
    let judged = &finished[0].judged;
    assert_eq!(judged.outcome, Outcome::Journal, "{}", judged.message);
    assert_eq!(judged.record.started_at.get(), 1_795_151_317);
}

#[test]
fn events_without_time_under_wrong_clock_make_dead_letter() {
    let mut intake = intake();
    let timeless = frames().into_iter().map(|line| {
        let (before, after) = line.split_once("\"Timestamp\"").unwrap_or((&line, ""));
        let after = after.split_once(',').map_or(after, |(_, after)| after);
        format!("{before}{after}")
    });
    send_lines(&mut intake, &timeless.collect::<Vec<_>>(), 100);
    take_stored(&mut intake, 101);
    take_stored(&mut intake, 1_795_151_400);
    let (finished, _) = take_stored(&mut intake, 1_795_151_402);
    assert_eq!(finished.len(), 1);
    assert_eq!(finished[0].judged.outcome, Outcome::DeadLetter);
}
