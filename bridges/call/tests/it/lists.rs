//! Tests of the lists of live channels that a PBX sends after a login and every few minutes, and of
//! call ends in recordings without a hangup.

use crate::story::{
    self, Channel, Story, answered_by_101, assembler, channel, customer, moment, seconds,
};
use callbridge_call::ChannelState::{Ring, Up};
use callbridge_call::{
    Assembler, Direction, EventTime, FinishedCall, Kind, Line, Mark, PbxEvent, Timing,
};

fn send_events(assembler: &mut Assembler, story: &Story) {
    for (at, event) in &story.events {
        assembler.on_event(event, *at);
    }
}

/// Advances the assembler's clock to the second `at`, and takes the finished calls.
fn take_finished_at(assembler: &mut Assembler, at: f64) -> Vec<FinishedCall> {
    assembler.tick(moment(at));
    assembler.take_finished()
}

/// Returns a list of live channels created by the PBX at second `at`, including its end.
fn list_of(channels: &[&Channel], at: f64) -> Vec<(EventTime, PbxEvent<'static>)> {
    let mut list = Story::new();
    for channel in channels {
        let bridge = "".into();
        let age = None;
        let state = Up;
        list.at(at)
            .add_event(channel, Kind::Listed { bridge, state, age });
    }
    for (_, event) in &mut list.events {
        if let PbxEvent::Channel(event) = event {
            event.at = None;
        }
    }
    let channels = Some(channels.len());
    let end = PbxEvent::Mark(Mark::ListEnd { channels });
    list.events.push((moment(at), end));
    list.events
}

fn send_list(assembler: &mut Assembler, channels: &[&Channel], at: f64) {
    for (at, event) in list_of(channels, at) {
        assembler.on_event(&event, at);
    }
}

/// A call whose customer has left the bridge, but whose hangup was lost. The colleague hung up.
fn without_hangup_of_customer() -> (Story, Channel) {
    let (mut story, city, phone) = answered_by_101();
    story.at(40.0).leave(&city, "b1").leave(&phone, "b1");
    story.hangup(&phone);
    (story, city)
}

#[test]
fn channel_that_two_lists_omit_ends_at_its_last_event() {
    let (story, _) = without_hangup_of_customer();
    let mut assembler = assembler();
    send_events(&mut assembler, &story);
    send_list(&mut assembler, &[], 200.0);
    assert!(take_finished_at(&mut assembler, 300.0).is_empty());
    send_list(&mut assembler, &[], 380.0);
    let calls = take_finished_at(&mut assembler, 390.0);
    assert_eq!((calls.len(), assembler.open_calls()), (1, 0));
    assert_eq!(seconds(&calls[0]), (39.0, 40.0));
    assert_eq!(
        calls[0].incomplete.as_deref(),
        Some("a hangup was not received: the PBX no longer lists a channel of the call")
    );
}

#[test]
fn channel_that_lists_have_goes_on_without_a_bridge() {
    let (story, city) = without_hangup_of_customer();
    let mut assembler = assembler();
    send_events(&mut assembler, &story);
    for at in [200.0, 380.0, 560.0, 1200.0, 2400.0] {
        send_list(&mut assembler, &[&city], at);
    }
    assert!(take_finished_at(&mut assembler, 2410.0).is_empty());
    let mut end = Story::new();
    end.at(2420.0).hangup(&city);
    send_events(&mut assembler, &end);
    let calls = take_finished_at(&mut assembler, 2430.0);
    assert_eq!(seconds(&calls[0]), (39.0, 2420.0));
    assert_eq!(calls[0].incomplete, None, "the lists changed nothing");
}

#[test]
fn list_that_arrived_in_part_ends_no_call() {
    let (story, _) = without_hangup_of_customer();
    let mut assembler = assembler();
    send_events(&mut assembler, &story);
    for at in [200.0, 380.0, 560.0] {
        let channels = Some(3);
        let end = PbxEvent::Mark(Mark::ListEnd { channels });
        assembler.on_event(&end, moment(at));
    }
    assert!(take_finished_at(&mut assembler, 570.0).is_empty());
    assert_eq!(assembler.open_calls(), 1);
}

#[test]
fn channel_with_an_event_between_two_lists_goes_on() {
    let (mut story, city) = without_hangup_of_customer();
    let mut assembler = assembler();
    send_events(&mut assembler, &story);
    for at in [200.0, 380.0, 560.0] {
        send_list(&mut assembler, &[], at);
        story.events.clear();
        story.at(at + 1.0).add_event(&city, Kind::Seen);
        send_events(&mut assembler, &story);
    }
    assert_eq!(assembler.open_calls(), 1);
}

#[test]
fn channel_created_while_a_later_list_arrives_keeps_its_times() {
    let (story, _) = without_hangup_of_customer();
    let mut assembler = assembler();
    send_events(&mut assembler, &story);
    send_list(&mut assembler, &[], 200.0);
    let late = channel("PJSIP/city-00000009", 9);
    send_list(&mut assembler, &[&late], 300.9);
    let mut own = Story::new();
    own.at(301.0).create(&late, Ring);
    own.at(310.0).hangup(&late);
    send_events(&mut assembler, &own);
    let calls = take_finished_at(&mut assembler, 320.0);
    assert_eq!(seconds(calls.last().expect("a call")), (0.0, 9.0));
    assert_eq!(calls.last().expect("a call").incomplete, None);
}

#[test]
fn list_of_another_source_ends_no_channel() {
    let (story, _) = without_hangup_of_customer();
    let mut assembler = assembler();
    let of = |source| Timing {
        line: Some(Line {
            source,
            connection: 1,
        }),
        ..Timing::default()
    };
    assembler.timing(of(0));
    send_events(&mut assembler, &story);
    for at in [200.0, 380.0, 560.0] {
        assembler.timing(of(1));
        send_list(&mut assembler, &[], at);
    }
    assert_eq!(assembler.open_calls(), 1);
}

#[test]
fn call_known_only_from_a_list_ends_with_the_next_gap() {
    let city = customer(1);
    let mut assembler = assembler();
    assembler.end_gap(moment(10.0));
    send_list(&mut assembler, &[&city], 10.0);
    assembler.begin_gap(moment(16.0));
    assembler.end_gap(moment(20.0));
    send_list(&mut assembler, &[], 20.0);
    let calls = take_finished_at(&mut assembler, 30.0);
    assert_eq!((calls.len(), assembler.open_calls()), (1, 0));
    assert_eq!(seconds(&calls[0]), (0.0, 16.0), "from its id to the gap");
    assert!(calls[0].incomplete.is_some() && !calls[0].answered);
}

/// Sends a number of lists with the channels in `listed`, followed by an empty one, and returns the
/// customers' calls.
fn calls_of_lists(listed: &[&Channel], lists: u32) -> Vec<FinishedCall> {
    let mut assembler = assembler();
    for n in 0..=lists {
        let at = 10.0 + 10.0 * f64::from(n);
        if n > 0 {
            assembler.begin_gap(moment(at - 4.0));
        }
        assembler.end_gap(moment(at));
        send_list(&mut assembler, if n < lists { listed } else { &[] }, at);
    }
    let mut calls = take_finished_at(&mut assembler, 100.0);
    assert_eq!(assembler.open_calls(), 0);
    calls.retain(|call| call.direction != Direction::Internal);
    calls
}

#[test]
fn every_customer_known_only_from_lists_has_an_incomplete_call() {
    let [caller, waiting] = ["Dial", "Queue"].map(|running| customer(1).running(running, ""));
    let dialed = customer(1).running("AppDial", "(Outgoing Line)");
    let other = channel("PJSIP/city-00000005", 5).caller("998901110005");
    let phone = channel("PJSIP/101-00000002", 2);
    let rung = channel("PJSIP/101-00000002", 2).join_call(&caller);
    for (what, listed, lists, wanted) in [
        ("a caller who rings", &[&caller] as &[&Channel], 1, 1),
        ("a caller in a queue", &[&waiting], 1, 1),
        ("a customer who is dialed", &[&dialed], 1, 1),
        ("over two lists", &[&caller], 2, 1),
        ("over four lists", &[&waiting], 4, 1),
        ("with the phone that rings", &[&caller, &rung], 1, 1),
        ("with a phone of another call", &[&caller, &phone], 2, 1),
        ("two customers", &[&caller, &other], 1, 2),
        ("two customers over three lists", &[&waiting, &other], 3, 2),
        ("only a phone", &[&phone], 1, 0),
        ("only a phone over two lists", &[&phone], 2, 0),
    ] {
        let calls = calls_of_lists(listed, lists);
        assert_eq!(calls.len(), wanted, "{what}: {calls:#?}");
        for call in calls {
            assert!(call.incomplete.is_some() && !call.answered, "{what}");
        }
    }
}

#[test]
fn listed_channel_shows_direction_and_caller() {
    for (application, direction) in [
        ("Dial", Direction::Inbound),
        ("Queue", Direction::Inbound),
        ("AppDial", Direction::Outbound),
        ("AppDial2", Direction::Outbound),
        ("AppQueue", Direction::Outbound),
    ] {
        let city = channel("PJSIP/city-00000001", 1)
            .caller("+998901110001")
            .running(application, "");
        let mut assembler = assembler();
        assembler.end_gap(moment(10.0));
        send_list(&mut assembler, &[&city], 10.0);
        let mut end = Story::new();
        end.at(20.0).hangup(&city);
        send_events(&mut assembler, &end);
        let calls = take_finished_at(&mut assembler, 30.0);
        assert_eq!(calls[0].direction, direction, "{application}");
        assert!(calls[0].incomplete.is_some(), "{application}");
        if direction == Direction::Inbound {
            let number = calls[0].number.as_ref().map(|number| number.text.as_str());
            assert_eq!(number, Some("+998901110001"), "{application}");
        }
    }
}

#[test]
fn recording_that_lacks_a_requested_hangup_is_incomplete() {
    let (mut story, city) = without_hangup_of_customer();
    for requested in [true, false] {
        story.events.retain(|(_, event)| {
            !matches!(event, PbxEvent::Channel(event) if event.kind == Kind::HangupRequested)
        });
        if requested {
            story.at(40.0).add_event(&city, Kind::HangupRequested);
        }
        let mut assembler = assembler();
        send_events(&mut assembler, &story);
        assembler.finish_all(moment(100.0));
        let calls = assembler.take_finished();
        assert_eq!(calls.len(), usize::from(requested));
        if let [call] = &calls[..] {
            assert_eq!(seconds(call), (39.0, 40.0));
            assert!(call.incomplete.is_some());
        }
    }
}

#[test]
fn first_id_after_a_login_shows_that_the_pbx_was_restarted() {
    for (number, ends) in [(0, 1), (90, 0)] {
        let city = channel("PJSIP/city-00000001", 71);
        let mut story = Story::new();
        story.at(0.0).create(&city, Ring);
        let mut assembler = assembler();
        send_events(&mut assembler, &story);
        assembler.on_event(&PbxEvent::Mark(Mark::LoggedIn), moment(50.0));
        let mut next = Story::new();
        let mut new = channel("PJSIP/city-00000000", number);
        new.0.uniqueid = format!("{}.{number}", story::EPOCH + 60).into();
        new.0.linkedid = new.0.uniqueid.clone();
        next.at(60.0).create(&new, Ring);
        send_events(&mut assembler, &next);
        let calls = take_finished_at(&mut assembler, 65.0);
        assert_eq!(calls.len(), ends, "{number}");
        assert!(calls.iter().all(|call| call.incomplete.is_some()));
    }
}
