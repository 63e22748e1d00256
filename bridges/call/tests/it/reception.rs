//! Tests of the local clock while a queue keeps messages, and after the queue has been read.

use crate::processes::restart_assembler;
use crate::story::{Story, answered_by_101, assembler, moment, seconds, settings};
use callbridge_call::{Assembler, Cdr, Folder, Reception, Settings, Timing};
use std::time::Duration;

const HOUR: f64 = 3600.0;

/// Sends the story's events as messages that were kept in a queue for `late` seconds.
fn send_kept_events(assembler: &mut Assembler, story: &Story, late: f64) {
    assembler.timing(Timing {
        kept: true,
        ..Timing::default()
    });
    for (at, event) in &story.events {
        assembler.on_event(event, at.plus(Duration::from_secs_f64(late)));
    }
}

fn arriving_since(seconds: f64) -> Reception {
    Reception::Arriving {
        since: moment(seconds),
    }
}

/// Returns an assembler after a restart, and a story with the hangup that arrives later. The
/// assembler has a single call, whose customer has left but whose phone hasn't.
fn restart_before_call_end() -> (Assembler, Story) {
    let (mut story, city, phone) = answered_by_101();
    story.at(5.0).leave(&phone, "b1").leave(&city, "b1");
    story.hangup(&city);
    let mut before = assembler();
    send_kept_events(&mut before, &story, 0.0);
    let mut after = restart_assembler(before);
    after.set_reception(Reception::Kept);
    let mut end = Story::new();
    end.at(6.0).hangup(&phone);
    (after, end)
}

#[test]
fn call_with_end_in_queue_finishes_after_queue_is_read() {
    let (mut assembler, end) = restart_before_call_end();
    assert_eq!(assembler.next_deadline(), None);
    assembler.tick(moment(HOUR));
    assembler.set_reception(arriving_since(HOUR));
    assembler.tick(moment(HOUR));
    assert!(assembler.take_finished().is_empty());
    send_kept_events(&mut assembler, &end, HOUR);
    assembler.tick(moment(2.0 * HOUR));
    let calls = assembler.take_finished();
    assert_eq!((calls.len(), seconds(&calls[0])), (1, (4.0, 5.0)));
    assert_eq!(calls[0].incomplete, None);
}

#[test]
fn settling_time_is_measured_from_the_start_of_queue_reading() {
    let (mut assembler, _) = restart_before_call_end();
    assembler.set_reception(arriving_since(HOUR));
    assert_eq!(assembler.next_deadline(), Some(moment(HOUR + 0.5)));
    assembler.tick(moment(HOUR + 0.4));
    assert!(assembler.take_finished().is_empty());
    assembler.tick(moment(HOUR + 0.5));
    let calls = assembler.take_finished();
    assert_eq!((calls.len(), calls[0].incomplete.as_deref()), (1, None));
}

/// The local clock is set back after reading of the queue began. The call shouldn't have to wait
/// until the clock shows that time again.
#[test]
fn clock_set_back_delays_no_call() {
    let (mut assembler, _) = restart_before_call_end();
    assembler.set_reception(arriving_since(HOUR));
    assembler.tick(moment(10.0));
    assert_eq!(assembler.next_deadline(), Some(moment(10.5)));
    assembler.tick(moment(10.5));
    assert_eq!(assembler.take_finished().len(), 1);
}

#[test]
fn hung_up_call_waits_for_kept_but_not_lost_messages() {
    let (mut story, city, phone) = answered_by_101();
    story.at(5.0).leave(&phone, "b1").leave(&city, "b1");
    story.hangups(&[&phone, &city]);
    for (reception, open) in [(Reception::Kept, 1), (Reception::Lost, 0)] {
        let mut before = assembler();
        send_kept_events(&mut before, &story, 0.0);
        let mut after = restart_assembler(before);
        after.set_reception(reception);
        after.tick(moment(HOUR));
        assert_eq!(after.open_calls(), open, "{reception:?}");
        after.set_reception(arriving_since(HOUR));
        after.tick(moment(HOUR + 0.4));
        assert_eq!(after.open_calls(), open, "{reception:?}");
        after.tick(moment(HOUR + 0.5));
        assert_eq!(after.open_calls(), 0, "{reception:?}");
        assert_eq!(after.take_finished().len(), 1, "{reception:?}");
    }
}

/// The call is older than the maximum duration of a call, but its end is still in the queue.
#[test]
fn overlong_call_waits_for_its_end_kept_in_the_queue() {
    let (story, city, phone) = answered_by_101();
    let mut before = assembler();
    send_kept_events(&mut before, &story, 0.0);
    let mut after = restart_assembler(before);
    after.set_reception(Reception::Kept);
    let back = 13.0 * HOUR;
    after.tick(moment(back));
    after.set_reception(arriving_since(back));
    after.tick(moment(back + 1.0));
    assert_eq!(after.open_calls(), 1);
    let mut end = Story::new();
    end.at(9.0).hangups(&[&phone, &city]);
    send_kept_events(&mut after, &end, back);
    after.tick(moment(back + 60.0));
    let calls = after.take_finished();
    assert_eq!((calls.len(), seconds(&calls[0])), (1, (8.0, 9.0)));
    assert_eq!(calls[0].incomplete, None);
}

fn record(uniqueid: &'static str, from: f64, until: f64) -> Cdr<'static> {
    Cdr {
        uniqueid: uniqueid.into(),
        linkedid: "1700000000.1".into(),
        channel: "PJSIP/city-00000001".into(),
        dest_channel: "PJSIP/101-00000002".into(),
        source: "998901110001".into(),
        destination: "100".into(),
        started_at: Some(moment(from)),
        answered_at: Some(moment(from)),
        ended_at: Some(moment(until)),
        disposition: "ANSWERED".into(),
        ..Cdr::default()
    }
}

fn folder() -> Folder {
    Folder::new(Settings {
        cdr_wait: Some(Duration::from_secs(10)),
        ..settings()
    })
}

/// A call has two CDRs. callbridge reads one of them, restarts, and then reads the other one.
#[test]
fn records_of_a_call_wait_for_records_kept_in_the_queue() {
    let mut before = folder();
    before.on_cdr(&record("1700000000.1", 0.0, 5.0), moment(5.0));
    let mut after = folder();
    for change in before.take_changes() {
        let snapshot = change.snapshot.expect("it waits");
        after.restore(change.key, &snapshot).expect("a snapshot");
    }
    after.set_reception(Reception::Kept);
    assert_eq!(after.next_deadline(), None);
    after.tick(moment(HOUR));
    after.set_reception(arriving_since(HOUR));
    after.tick(moment(HOUR + 1.0));
    assert_eq!((after.open_calls(), after.take_finished().len()), (1, 0));
    assert!(after.on_cdr(&record("1700000000.2", 5.0, 9.0), moment(HOUR + 1.0)));
    after.tick(moment(HOUR + 20.0));
    let calls = after.take_finished();
    assert_eq!((calls.len(), calls[0].ended), (1, moment(9.0)));
}
