//! A process of the PBX that is gone takes its calls with it.

use crate::story::{Channel, Story, assembler, channel, customer, moment, seconds};
use callbridge_call::event::ChannelState::{Down, Ring};
use callbridge_call::{Assembler, EventTime, Mark, PbxEvent};

const OURS: u64 = 1;

fn of(process: u64, mut channel: Channel) -> Channel {
    channel.0.process = Some(process);
    channel
}

/// A talk that begins after a second, and does not end.
fn talk(assembler: &mut Assembler) -> [Channel; 2] {
    let city = of(OURS, customer(1));
    let phone = of(OURS, channel("PJSIP/101-00000002", 2)).of(&city);
    let mut story = Story::new();
    story.at(0.0).born(&city, Ring).born(&phone, Down);
    story.at(1.0).enter(&phone, "b1").enter(&city, "b1");
    for (at, told) in &story.events {
        assembler.hear(told, *at);
    }
    [city, phone]
}

/// The process says that it lives, and since when.
fn beats(assembler: &mut Assembler, process: u64, at: EventTime, began: EventTime) {
    let began = Some(began);
    let alive = Mark::Alive { process, at, began };
    assembler.hear(&PbxEvent::Mark(alive), at);
}

fn three_beats(assembler: &mut Assembler) {
    for at in [20.0, 40.0, 60.0] {
        beats(assembler, OURS, moment(at), moment(-1000.0));
    }
}

#[test]
fn a_process_that_says_no_more_that_it_lives_has_its_calls_given_out_until_then() {
    let mut assembler = assembler();
    let [city, phone] = talk(&mut assembler);
    three_beats(&mut assembler);
    assembler.tick(moment(200.0));
    assert!(assembler.take_finished().is_empty());
    // Nobody listens: its silence says nothing.
    assembler.listens(false, moment(200.0));
    assembler.tick(moment(4000.0));
    assert!(assembler.take_finished().is_empty());
    assembler.listens(true, moment(4000.0));
    assembler.tick(moment(4179.0));
    assert!(assembler.take_finished().is_empty());
    assembler.tick(moment(4180.0));
    let calls = assembler.take_finished();
    assert_eq!((calls.len(), seconds(&calls[0])), (1, (59.0, 60.0)));
    let incomplete = calls[0].incomplete.as_deref();
    assert_eq!(incomplete, Some("its end was not heard"));
    // It was the way between, after all.
    let mut end = Story::new();
    end.at(5000.0).hangups(&[&phone, &city]);
    for (at, told) in &end.events {
        assembler.hear(told, *at);
    }
    assembler.tick(moment(5001.0));
    let calls = assembler.take_finished();
    assert_eq!((calls.len(), seconds(&calls[0])), (1, (4999.0, 5000.0)));
    assert_eq!(calls[0].incomplete, None);
}

#[test]
fn a_restart_does_not_forget_until_when_a_process_lived() {
    let mut first = assembler();
    talk(&mut first);
    three_beats(&mut first);
    let mut second = assembler();
    for change in first.take_changes() {
        let snapshot = change.snapshot.expect("open");
        second.restore(change.key, &snapshot).expect("a snapshot");
    }
    second.listens(true, moment(600.0));
    beats(&mut second, 2, moment(600.0), moment(590.0));
    second.tick(moment(601.0));
    let calls = second.take_finished();
    assert_eq!((calls.len(), seconds(&calls[0])), (1, (59.0, 60.0)));
    assert!(calls[0].incomplete.is_some());
    assert_eq!(second.open_calls(), 0);
}

#[test]
fn a_process_that_lives_beside_another_keeps_its_calls() {
    let mut assembler = assembler();
    talk(&mut assembler);
    for at in [20.0, 40.0, 60.0, 80.0, 100.0, 120.0] {
        beats(&mut assembler, OURS, moment(at), moment(-1000.0));
        // Each time another new one, as of a switch that does not come up.
        beats(
            &mut assembler,
            2 + at as u64,
            moment(at + 9.0),
            moment(at + 8.0),
        );
    }
    assembler.tick(moment(130.0));
    assert!(assembler.take_finished().is_empty());
    assert_eq!(assembler.open_calls(), 1);
}
