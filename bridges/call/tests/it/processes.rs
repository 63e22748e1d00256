//! The calls of a PBX process end with the process.

use crate::story::{Channel, Story, assembler, channel, customer, moment, seconds};
use callbridge_call::ChannelState::{Down, Ring};
use callbridge_call::event::EventStamp;
use callbridge_call::{Assembler, EventTime, Mark, PbxEvent, Reception};

const OURS: u64 = 1;

fn of(process: u64, mut channel: Channel) -> Channel {
    channel.0.process = Some(process);
    channel
}

/// Plays a talk that begins after one second and does not end.
fn talk(assembler: &mut Assembler) -> [Channel; 2] {
    let city = of(OURS, customer(1));
    let phone = of(OURS, channel("PJSIP/101-00000002", 2)).of(&city);
    let mut story = Story::new();
    story.at(0.0).born(&city, Ring).born(&phone, Down);
    story.at(1.0).enter(&phone, "b1").enter(&city, "b1");
    for (at, told) in &story.events {
        assembler.on_event(told, *at);
    }
    [city, phone]
}

/// Sends a heartbeat of the process, which began at `began`.
fn beats(assembler: &mut Assembler, process: u64, at: EventTime, began: EventTime) {
    beats_by_number(assembler, (process, None), at, began);
}

fn beats_by_number(
    assembler: &mut Assembler,
    (process, number): (u64, Option<u64>),
    at: EventTime,
    began: EventTime,
) {
    let alive = Mark::Alive {
        process,
        at,
        stamp: number.map(|number| EventStamp { number, at }),
        began: Some(began),
        channels: None,
    };
    assembler.on_event(&PbxEvent::Mark(alive), at);
}

fn three_beats(assembler: &mut Assembler) {
    for at in [20.0, 40.0, 60.0] {
        beats(assembler, OURS, moment(at), moment(-1000.0));
    }
}

#[test]
fn calls_of_silent_process_end_at_last_heartbeat() {
    let mut assembler = assembler();
    let [city, phone] = talk(&mut assembler);
    three_beats(&mut assembler);
    assembler.tick(moment(200.0));
    assert!(assembler.take_finished().is_empty());
    // Nothing is received, so the silence of the process means nothing.
    assembler.set_reception(Reception::Lost);
    assembler.tick(moment(4000.0));
    assert!(assembler.take_finished().is_empty());
    let since = moment(4000.0);
    assembler.set_reception(Reception::Arriving { since });
    assembler.tick(moment(4179.0));
    assert!(assembler.take_finished().is_empty());
    assembler.tick(moment(4180.0));
    let calls = assembler.take_finished();
    assert_eq!((calls.len(), seconds(&calls[0])), (1, (59.0, 60.0)));
    let incomplete = calls[0].incomplete.as_deref();
    assert_eq!(incomplete, Some("its end was not received"));
    // Only the connection had failed: the end of the call arrives.
    let mut end = Story::new();
    end.at(5000.0).hangups(&[&phone, &city]);
    for (at, told) in &end.events {
        assembler.on_event(told, *at);
    }
    assembler.tick(moment(5001.0));
    let calls = assembler.take_finished();
    assert_eq!((calls.len(), seconds(&calls[0])), (1, (4999.0, 5000.0)));
    assert_eq!(calls[0].incomplete, None);
}

pub fn restarted(mut first: Assembler) -> Assembler {
    let mut second = assembler();
    for change in first.take_changes() {
        // A call that is over has no snapshot.
        if let Some(snapshot) = change.snapshot {
            second.restore(change.key, &snapshot).expect("a snapshot");
        }
    }
    second
}

#[test]
fn restart_does_not_forget_until_when_a_process_lived() {
    let mut first = assembler();
    talk(&mut first);
    three_beats(&mut first);
    let mut second = restarted(first);
    let since = moment(600.0);
    second.set_reception(Reception::Arriving { since });
    beats(&mut second, 2, moment(600.0), moment(590.0));
    second.tick(moment(601.0));
    let calls = second.take_finished();
    assert_eq!((calls.len(), seconds(&calls[0])), (1, (59.0, 60.0)));
    assert!(calls[0].incomplete.is_some());
    assert_eq!(second.open_calls(), 0);
}

#[test]
fn process_that_lives_beside_another_keeps_its_calls() {
    let mut assembler = assembler();
    talk(&mut assembler);
    for at in [20.0, 40.0, 60.0, 80.0, 100.0, 120.0] {
        beats(&mut assembler, OURS, moment(at), moment(-1000.0));
        // Each heartbeat between is from a new process, as of a switch that does not come up.
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

/// Sends the story as events that are numbered from `from` on.
fn tells(assembler: &mut Assembler, story: &Story, from: u64) {
    for (number, (at, told)) in (from..).zip(&story.events) {
        let mut told = told.clone();
        if let PbxEvent::Channel(event) = &mut told {
            event.channel.stamp = Some(EventStamp { number, at: *at });
        }
        assembler.on_event(&told, *at);
    }
}

/// Returns a call of the process, in which the telephone is connected from the start, and the end
/// of the call.
fn call(n: u32, begin: f64, end: f64) -> [Story; 2] {
    let city = of(OURS, customer(n));
    let name = format!("PJSIP/101-0000000{n}");
    let phone = of(OURS, channel(&name, n + 20)).of(&city);
    let (mut first, mut last) = (Story::new(), Story::new());
    first.at(begin).born(&city, Ring).born(&phone, Down);
    first
        .enter(&phone, &n.to_string())
        .enter(&city, &n.to_string());
    last.at(end).hangups(&[&phone, &city]);
    [first, last]
}

/// Returns the reasons why the calls that are finished at `at` are incomplete.
fn why(assembler: &mut Assembler, at: f64) -> Vec<Option<String>> {
    assembler.tick(moment(at));
    let calls = assembler.take_finished().into_iter();
    calls.map(|call| call.incomplete).collect()
}

#[test]
fn clock_set_back_in_silence_is_detected_by_uptime() {
    let cut = [Some(
        "the PBX's clock was set back during the call".to_owned(),
    )];
    for restarts in [false, true] {
        let mut assembler = assembler();
        let [begins, ends] = call(1, 15.0, 72.0);
        let up = |assembler: &mut Assembler, number, at, began| {
            let process = (OURS, Some(number));
            beats_by_number(assembler, process, moment(at), moment(began));
        };
        up(&mut assembler, 10, 10.0, -1000.0);
        tells(&mut assembler, &begins, 20);
        up(&mut assembler, 30, 30.0, -1000.0);
        if restarts {
            assembler = restarted(assembler);
        }
        // The clock is set back by five seconds. No time occurs twice.
        up(&mut assembler, 40, 45.0, -1005.0);
        // An earlier heartbeat is repeated. It does not mean that the clock was set.
        up(&mut assembler, 30, 30.0, -1000.0);
        up(&mut assembler, 50, 65.0, -1005.0);
        let [after, over] = call(2, 70.0, 75.0);
        tells(&mut assembler, &after, 60);
        tells(&mut assembler, &ends, 70);
        assert_eq!(why(&mut assembler, 73.0), cut, "{restarts}");
        tells(&mut assembler, &over, 80);
        up(&mut assembler, 90, 85.0, -1005.0);
        assert_eq!(why(&mut assembler, 86.0), [None], "{restarts}");
    }
}

#[test]
fn clock_set_back_across_restart_shows_in_event_numbers() {
    let cut = [Some(
        "the PBX's clock was set back during the call".to_owned(),
    )];
    let mut assembler = assembler();
    let [[first, ends], [other, over], [later, last]] =
        [call(1, 0.0, 30.0), call(2, 20.0, 18.0), call(3, 19.0, 40.0)];
    tells(&mut assembler, &first, 10);
    tells(&mut assembler, &other, 20);
    assembler = restarted(assembler);
    // It hangs up after 7 s, by a clock that was set back by 9 s.
    tells(&mut assembler, &over, 30);
    tells(&mut assembler, &later, 40);
    assert_eq!(why(&mut assembler, 22.0), cut);
    assembler = restarted(assembler);
    tells(&mut assembler, &ends, 50);
    tells(&mut assembler, &last, 60);
    assert_eq!(why(&mut assembler, 50.0), [cut[0].clone(), None]);
}

#[test]
fn calls_with_distant_event_numbers_show_no_clock_set_back() {
    let mut assembler = assembler();
    // Two recordings of one process are played at the same time.
    let [[first, ends], [other, over]] = [call(1, 0.0, 5.0), call(2, 0.25, 6.0)];
    tells(&mut assembler, &first, 10);
    tells(&mut assembler, &other, 500);
    tells(&mut assembler, &ends, 30);
    tells(&mut assembler, &over, 520);
    assert_eq!(why(&mut assembler, 10.0), [None, None]);
}
