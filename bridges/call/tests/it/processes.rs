//! Tests that a PBX process's calls end when the process does.

use crate::story::{Channel, Story, assembler, channel, customer, moment, seconds};
use callbridge_call::ChannelState::{Down, Ring};
use callbridge_call::event::EventStamp;
use callbridge_call::{Assembler, EventTime, Mark, PbxEvent, Reception};

const OURS: u64 = 1;

fn channel_of_process(process: u64, mut channel: Channel) -> Channel {
    channel.0.process = Some(process);
    channel
}

/// Plays a conversation that starts after one second and doesn't end, and returns the customer's
/// and the phone's channels.
fn play_talk(assembler: &mut Assembler) -> [Channel; 2] {
    let city = channel_of_process(OURS, customer(1));
    let phone = channel_of_process(OURS, channel("PJSIP/101-00000002", 2)).join_call(&city);
    let mut story = Story::new();
    story.at(0.0).create(&city, Ring).create(&phone, Down);
    story.at(1.0).enter(&phone, "b1").enter(&city, "b1");
    for (at, event) in &story.events {
        assembler.on_event(event, *at);
    }
    [city, phone]
}

/// Sends a heartbeat of `process` at `at`. The process started at `began`.
fn send_heartbeat(assembler: &mut Assembler, process: u64, at: EventTime, began: EventTime) {
    send_numbered_heartbeat(assembler, (process, None), at, began);
}

/// Sends a heartbeat of a process, including the event number, if any.
fn send_numbered_heartbeat(
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

fn send_three_heartbeats(assembler: &mut Assembler) {
    for at in [20.0, 40.0, 60.0] {
        send_heartbeat(assembler, OURS, moment(at), moment(-1000.0));
    }
}

#[test]
fn calls_of_silent_process_end_at_last_heartbeat() {
    let mut assembler = assembler();
    let [city, phone] = play_talk(&mut assembler);
    send_three_heartbeats(&mut assembler);
    assembler.tick(moment(200.0));
    assert!(assembler.take_finished().is_empty());
    // The connection is lost, so missing heartbeats don't mean that the process has ended.
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
    // The process hadn't ended after all, and the end of the call arrives.
    let mut end = Story::new();
    end.at(5000.0).hangups(&[&phone, &city]);
    for (at, event) in &end.events {
        assembler.on_event(event, *at);
    }
    assembler.tick(moment(5001.0));
    let calls = assembler.take_finished();
    assert_eq!((calls.len(), seconds(&calls[0])), (1, (4999.0, 5000.0)));
    assert_eq!(calls[0].incomplete, None);
}

/// Moves the open calls of `first` to a new assembler, as a restart would.
pub fn restart_assembler(mut first: Assembler) -> Assembler {
    let mut second = assembler();
    for change in first.take_changes() {
        // A finished call's change has no snapshot.
        if let Some(snapshot) = change.snapshot {
            second.restore(change.key, &snapshot).expect("a snapshot");
        }
    }
    second
}

#[test]
fn restart_remembers_the_last_heartbeat_of_a_process() {
    let mut first = assembler();
    play_talk(&mut first);
    send_three_heartbeats(&mut first);
    let mut second = restart_assembler(first);
    let since = moment(600.0);
    second.set_reception(Reception::Arriving { since });
    send_heartbeat(&mut second, 2, moment(600.0), moment(590.0));
    second.tick(moment(601.0));
    let calls = second.take_finished();
    assert_eq!((calls.len(), seconds(&calls[0])), (1, (59.0, 60.0)));
    assert!(calls[0].incomplete.is_some());
    assert_eq!(second.open_calls(), 0);
}

#[test]
fn live_process_keeps_its_calls_despite_other_processes() {
    let mut assembler = assembler();
    play_talk(&mut assembler);
    for at in [20.0, 40.0, 60.0, 80.0, 100.0, 120.0] {
        send_heartbeat(&mut assembler, OURS, moment(at), moment(-1000.0));
        // After each of these heartbeats, a new process sends a single heartbeat of its own, as if
        // a PBX were failing to start.
        send_heartbeat(
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

/// Sends the story's events, numbered from `from`.
fn send_numbered_events(assembler: &mut Assembler, story: &Story, from: u64) {
    for (number, (at, event)) in (from..).zip(&story.events) {
        let mut numbered = event.clone();
        if let PbxEvent::Channel(channel_event) = &mut numbered {
            channel_event.channel.stamp = Some(EventStamp { number, at: *at });
        }
        assembler.on_event(&numbered, *at);
    }
}

/// Returns two stories, which are a call of the process `OURS` whose phone is connected at second
/// `begin`, and the end of that call at second `end`.
fn call_and_its_end(n: u32, begin: f64, end: f64) -> [Story; 2] {
    let city = channel_of_process(OURS, customer(n));
    let name = format!("PJSIP/101-0000000{n}");
    let phone = channel_of_process(OURS, channel(&name, n + 20)).join_call(&city);
    let (mut first, mut last) = (Story::new(), Story::new());
    first.at(begin).create(&city, Ring).create(&phone, Down);
    first
        .enter(&phone, &n.to_string())
        .enter(&city, &n.to_string());
    last.at(end).hangups(&[&phone, &city]);
    [first, last]
}

/// Advances the clock to second `at`, and returns why each finished call is incomplete, if it is.
fn incomplete_reasons_at(assembler: &mut Assembler, at: f64) -> Vec<Option<String>> {
    assembler.tick(moment(at));
    let calls = assembler.take_finished().into_iter();
    calls.map(|call| call.incomplete).collect()
}

/// Sends a heartbeat of our process with this event number. Both times are in seconds since the
/// start of the story.
fn send_our_heartbeat(assembler: &mut Assembler, number: u64, at: f64, began: f64) {
    let process = (OURS, Some(number));
    send_numbered_heartbeat(assembler, process, moment(at), moment(began));
}

#[test]
fn clock_set_back_in_silence_is_detected_by_uptime() {
    let cut = [Some(
        "the PBX's clock was set back during the call".to_owned(),
    )];
    for restarts in [false, true] {
        let mut assembler = assembler();
        let [begins, ends] = call_and_its_end(1, 15.0, 72.0);
        send_our_heartbeat(&mut assembler, 10, 10.0, -1000.0);
        send_numbered_events(&mut assembler, &begins, 20);
        send_our_heartbeat(&mut assembler, 30, 30.0, -1000.0);
        if restarts {
            assembler = restart_assembler(assembler);
        }
        // The clock is set back by five seconds, but no time occurs twice, so only the uptime
        // reveals the change.
        send_our_heartbeat(&mut assembler, 40, 45.0, -1005.0);
        // A duplicate of an earlier heartbeat doesn't mean that the clock was set.
        send_our_heartbeat(&mut assembler, 30, 30.0, -1000.0);
        send_our_heartbeat(&mut assembler, 50, 65.0, -1005.0);
        let [after, over] = call_and_its_end(2, 70.0, 75.0);
        send_numbered_events(&mut assembler, &after, 60);
        send_numbered_events(&mut assembler, &ends, 70);
        assert_eq!(
            incomplete_reasons_at(&mut assembler, 73.0),
            cut,
            "{restarts}"
        );
        send_numbered_events(&mut assembler, &over, 80);
        send_our_heartbeat(&mut assembler, 90, 85.0, -1005.0);
        assert_eq!(
            incomplete_reasons_at(&mut assembler, 86.0),
            [None],
            "{restarts}"
        );
    }
}

#[test]
fn clock_set_back_across_restart_shows_in_event_numbers() {
    let cut = [Some(
        "the PBX's clock was set back during the call".to_owned(),
    )];
    let mut assembler = assembler();
    let [[first, ends], [other, over], [later, last]] = [
        call_and_its_end(1, 0.0, 30.0),
        call_and_its_end(2, 20.0, 18.0),
        call_and_its_end(3, 19.0, 40.0),
    ];
    send_numbered_events(&mut assembler, &first, 10);
    send_numbered_events(&mut assembler, &other, 20);
    assembler = restart_assembler(assembler);
    // The second call hangs up after 7 s. According to the clock, which was set back by 9 s, that's
    // before the call started.
    send_numbered_events(&mut assembler, &over, 30);
    send_numbered_events(&mut assembler, &later, 40);
    assert_eq!(incomplete_reasons_at(&mut assembler, 22.0), cut);
    assembler = restart_assembler(assembler);
    send_numbered_events(&mut assembler, &ends, 50);
    send_numbered_events(&mut assembler, &last, 60);
    assert_eq!(
        incomplete_reasons_at(&mut assembler, 50.0),
        [cut[0].clone(), None]
    );
}

#[test]
fn calls_with_distant_event_numbers_show_no_clock_set_back() {
    let mut assembler = assembler();
    // Two recordings of the same process are played at the same time.
    let [[first, ends], [other, over]] = [
        call_and_its_end(1, 0.0, 5.0),
        call_and_its_end(2, 0.25, 6.0),
    ];
    send_numbered_events(&mut assembler, &first, 10);
    send_numbered_events(&mut assembler, &other, 500);
    send_numbered_events(&mut assembler, &ends, 30);
    send_numbered_events(&mut assembler, &over, 520);
    assert_eq!(incomplete_reasons_at(&mut assembler, 10.0), [None, None]);
}
