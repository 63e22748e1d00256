//! Tests for the time up to which nothing from a connection is missing, which is where a gap
//! begins.

use super::{Intake, Memory, SourceSettings};
use crate::tests::{FRAMES, SOURCE, recorded_time, settings};
use callbridge_call::EventTime;
use callbridge_formats::Format;
use callbridge_mapping::People;
use callbridge_source::Frame;
use callbridge_spool::Op;
use std::time::Duration;

/// Returns an intake whose only source is a connection that's been up since the first recorded
/// event.
fn connected_intake() -> Intake {
    let line = SourceSettings {
        shown: "ws://pbx/".to_owned(),
        url: "of the source".to_owned(),
        label: "the source".to_owned(),
        pbx: "hq".to_owned(),
        format: Format::AmiJson,
        file: false,
        forgets: true,
        catch_up: false,
    };
    let intake = Intake::new(settings(), vec![line], Memory::default());
    let mut intake = intake.expect("an intake");
    intake.up(SOURCE, seconds_after_start(0));
    intake
}

fn seconds_after_start(seconds: u64) -> EventTime {
    recorded_time("").plus(Duration::from_secs(seconds))
}

/// Passes a recorded event to the intake, `delay` seconds after it happened.
fn send_late(intake: &mut Intake, line: &str, delay: u64) {
    let frame = Frame {
        seq: 1,
        arrived: recorded_time(line).plus(Duration::from_secs(delay)),
        bytes: line.as_bytes().to_vec().into(),
        position: None,
        content_type: None,
        details: None,
    };
    let taken = intake.frame(SOURCE, &frame, &mut |_, _| None);
    taken.expect("taken");
}

/// Returns the end of the period for which all events are known to have arrived, in seconds after
/// the first event, or `None` if it hasn't been stored again.
fn take_stored(intake: &mut Intake) -> Option<u64> {
    let ops = intake.take(&People::default(), seconds_after_start(0)).ops;
    let key = Intake::last_received_key("ws://pbx/");
    ops.into_iter().find_map(|op| match op {
        Op::Meta { key: name, value } if name == key => {
            let time = EventTime::from_micros(value.parse().expect("a time"));
            Some(time.since(seconds_after_start(0)).as_secs())
        }
        _ => None,
    })
}

fn lines() -> Vec<&'static str> {
    FRAMES.lines().collect()
}

/// Returns how many seconds after the first event this line's event happened.
fn second_of(line: &str) -> u64 {
    recorded_time(line).since(recorded_time("")).as_secs()
}

#[test]
fn late_event_stores_its_own_time_as_the_start_of_a_gap() {
    let mut intake = connected_intake();
    let lines = lines();
    let last = lines[lines.len() - 1];
    send_late(&mut intake, lines[0], 0);
    assert_eq!(take_stored(&mut intake), Some(0));
    // The process crashes during the burst that follows a stall of half a minute.
    send_late(&mut intake, last, 34);
    assert_eq!(take_stored(&mut intake), Some(second_of(last)));
}

#[test]
fn only_a_prompt_response_to_a_ping_moves_the_start_of_a_gap() {
    let mut intake = connected_intake();
    take_stored(&mut intake);
    let (asked, soon, late) = (20, 21, 40);
    let at = seconds_after_start;
    intake.pong(SOURCE, None, at(asked), at(late));
    assert_eq!(take_stored(&mut intake), None);
    intake.pong(SOURCE, None, at(asked), at(soon));
    assert_eq!(take_stored(&mut intake), Some(asked));
}

#[test]
fn untimed_event_of_a_stalled_line_moves_no_start_of_a_gap() {
    let mut intake = connected_intake();
    take_stored(&mut intake);
    let lines = lines();
    let created = lines.iter().find(|line| line.contains("\"Newchannel\""));
    let timeless = created
        .expect("an event")
        .replace("\"Timestamp\"", "\"Removed\"");
    intake.note_stall(SOURCE, true);
    send_late(&mut intake, &timeless, 30);
    assert_eq!(take_stored(&mut intake), None);
    intake.note_stall(SOURCE, false);
    send_late(&mut intake, &timeless, 40);
    assert_eq!(take_stored(&mut intake), Some(40));
}

/// Returns the delay that `status` shows this many seconds after the first event.
fn shown_delay(intake: &mut Intake, seconds: u64) -> Option<u64> {
    intake.tick(seconds_after_start(seconds));
    intake.statuses()[0].late_seconds
}

#[test]
fn response_over_a_minute_late_is_shown_as_late_events() {
    let mut intake = connected_intake();
    let at = seconds_after_start;
    intake.pong(SOURCE, None, at(10), at(70));
    assert_eq!(shown_delay(&mut intake, 71), None);
    intake.pong(SOURCE, None, at(10), at(71));
    assert_eq!(shown_delay(&mut intake, 71), Some(61));
}

#[test]
fn event_over_a_minute_late_is_shown_for_ten_minutes() {
    let mut intake = connected_intake();
    let lines = lines();
    send_late(&mut intake, lines[0], 0);
    let last = lines[lines.len() - 1];
    send_late(&mut intake, last, 59);
    assert_eq!(shown_delay(&mut intake, 70), None);
    send_late(&mut intake, last, 90);
    let arrived = second_of(last) + 90;
    let shown = shown_delay(&mut intake, arrived).expect("a problem");
    assert!((89..=91).contains(&shown), "{shown}");
    assert!(shown_delay(&mut intake, arrived + 600).is_some());
    assert_eq!(shown_delay(&mut intake, arrived + 601), None);
}
