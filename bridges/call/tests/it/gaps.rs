//! Tests of calls during which events are lost for a while or the PBX stops.

use crate::story::{
    Story, answered_by_101, assembler, channel, customer, moment, seconds, settings,
};
use callbridge_call::ChannelState::{Down, Ring, Up};
use callbridge_call::{
    Assembler, ClockDifference, Endpoints, EventTime, FinishedCall, Kind, Line, Mark, PbxEvent,
    Settings, Timing, TrunkEndpoint,
};
use std::time::Duration;

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

#[test]
fn pbx_shutdown_ends_call_complete_at_shutdown_time() {
    let (story, _, _) = answered_by_101();
    let mut assembler = assembler();
    send_events(&mut assembler, &story);
    assembler.on_event(&PbxEvent::Mark(Mark::Shutdown { at: None }), moment(7.0));
    let calls = take_finished_at(&mut assembler, 8.0);
    assert_eq!(seconds(&calls[0]), (6.0, 7.0));
    assert_eq!(calls[0].incomplete, None);
}

/// The caller had been waiting in a queue since before callbridge connected to the PBX, and was
/// then answered. The only events received are those of the colleague's channel.
#[test]
fn pbx_shutdown_ends_call_with_unseen_first_channel() {
    let phone = channel("PJSIP/101-00000002", 2).join_call(&customer(1));
    let mut story = Story::new();
    story.at(0.0).create(&phone, Down);
    story.at(1.0).enter(&phone, "b1");
    story.at(5.0).leave(&phone, "b1").hangup(&phone);
    let mut assembler = assembler();
    send_events(&mut assembler, &story);
    assembler.tick(moment(20.0));
    assert_eq!(assembler.open_calls(), 1);
    assembler.on_event(&PbxEvent::Mark(Mark::Shutdown { at: None }), moment(30.0));
    let calls = take_finished_at(&mut assembler, 31.0);
    assert_eq!((calls.len(), assembler.open_calls()), (1, 0));
    assert_eq!(calls[0].linkedid.as_str(), customer(1).id());
    assert_eq!(
        calls[0].incomplete.as_deref(),
        Some("the beginning of the call was not received")
    );
}

#[test]
fn pbx_boot_during_a_gap_ends_its_calls_incomplete() {
    let (story, _, _) = answered_by_101();
    let mut assembler = assembler();
    send_events(&mut assembler, &story);
    assembler.begin_gap(moment(2.0));
    assembler.end_gap(moment(60.0));
    let uptime = Some(Duration::from_secs(20));
    assembler.on_event(&PbxEvent::Mark(Mark::FullyBooted { uptime }), moment(60.0));
    let calls = take_finished_at(&mut assembler, 61.0);
    assert_eq!((calls.len(), assembler.open_calls()), (1, 0));
    assert_eq!(seconds(&calls[0]), (1.0, 2.0), "as far as it was heard");
    assert!(calls[0].incomplete.is_some());
}

#[test]
fn call_after_gap_ends_unless_channels_are_listed() {
    let (story, city, phone) = answered_by_101();
    for listed in [true, false] {
        let mut assembler = assembler();
        send_events(&mut assembler, &story);
        assembler.begin_gap(moment(2.0));
        assembler.end_gap(moment(30.0));
        let mut list = Story::new();
        let bridge = "b1".into();
        list.at(30.0).add_event(
            &city,
            Kind::Listed {
                bridge,
                state: Up,
                age: None,
            },
        );
        let bridge = "b1".into();
        list.add_event(
            &phone,
            Kind::Listed {
                bridge,
                state: Up,
                age: None,
            },
        );
        if listed {
            send_events(&mut assembler, &list);
        }
        assembler.on_event(
            &PbxEvent::Mark(Mark::ListEnd { channels: None }),
            moment(30.1),
        );
        let calls = take_finished_at(&mut assembler, 31.0);
        assert_eq!(calls.len(), usize::from(!listed));
        assert_eq!(assembler.open_calls(), usize::from(listed));
    }
}

#[test]
fn call_lost_in_a_gap_ends_at_the_start_of_the_gap() {
    let (story, city, phone) = answered_by_101();
    // In case 0, the call is overdue. In case 1, the PBX no longer lists it. In case 2, the second
    // source ends it.
    for way in 0..3 {
        let mut assembler = assembler();
        send_events(&mut assembler, &story);
        assembler.begin_gap(moment(8.0));
        assembler.end_gap(moment(30.0));
        match way {
            0 => {}
            1 => drop(assembler.on_event(
                &PbxEvent::Mark(Mark::ListEnd { channels: None }),
                moment(30.1),
            )),
            _ => assembler.end_unheard(city.id()),
        }
        let calls = take_finished_at(&mut assembler, 600.0);
        let (talk, lasted) = seconds(&calls[0]);
        assert_eq!((calls.len(), talk, lasted), (1, 7.0, 8.0), "{way}");
        assert!(calls[0].answered && calls[0].incomplete.is_some());
    }
    // The call was listed after the first gap, so its end was missed during the second one.
    let mut assembler = assembler();
    send_events(&mut assembler, &story);
    let mut list = Story::new();
    for channel in [&city, &phone] {
        let bridge = "b1".into();
        list.at(10.0).add_event(
            channel,
            Kind::Listed {
                bridge,
                state: Up,
                age: None,
            },
        );
    }
    for (from, until) in [(8.0, 10.0), (20.0, 30.0)] {
        assembler.begin_gap(moment(from));
        assembler.end_gap(moment(until));
        send_events(&mut assembler, &list);
        assembler.on_event(
            &PbxEvent::Mark(Mark::ListEnd { channels: None }),
            moment(until),
        );
        list.events.clear();
    }
    let calls = take_finished_at(&mut assembler, 40.0);
    assert_eq!(seconds(&calls[0]), (19.0, 20.0));
}

#[test]
fn cut_call_end_uses_the_clock_of_its_events() {
    let (story, ..) = answered_by_101();
    for off in [-3600.0, 3600.0] {
        let mut assembler = assembler();
        for (at, event) in &story.events {
            let arrived = at.micros() as f64 / 1e6 - moment(0.0).micros() as f64 / 1e6;
            assembler.on_event(event, moment(arrived + off));
        }
        assembler.begin_gap(moment(8.0 + off));
        assembler.end_gap(moment(30.0 + off));
        assembler.on_event(
            &PbxEvent::Mark(Mark::ListEnd { channels: None }),
            moment(30.1 + off),
        );
        let calls = take_finished_at(&mut assembler, 60.0 + off);
        assert_eq!(seconds(&calls[0]), (7.0, 8.0), "{off}");
    }
}

#[test]
fn silent_call_after_gap_is_reported_in_a_minute_and_at_its_end() {
    let (mut story, city, phone) = answered_by_101();
    let mut assembler = assembler();
    send_events(&mut assembler, &story);
    assembler.begin_gap(moment(2.0));
    assembler.end_gap(moment(30.0));
    assert!(take_finished_at(&mut assembler, 80.0).is_empty());
    let early = take_finished_at(&mut assembler, 91.0);
    assert!(early[0].incomplete.is_some());
    story.events.clear();
    story.at(100.0).leave(&city, "b1").leave(&phone, "b1");
    story.hangups(&[&city, &phone]);
    send_events(&mut assembler, &story);
    let last = take_finished_at(&mut assembler, 101.0);
    assert_eq!(last[0].linkedid, early[0].linkedid);
    assert_eq!(seconds(&last[0]), (99.0, 100.0));
    assert_eq!(last[0].incomplete, None, "each went on where it was");
}

#[test]
fn talk_over_long_gap_is_incomplete_with_catch_up() {
    for (until, whole) in [(3.0, true), (30.0, false)] {
        let (mut story, city, phone) = answered_by_101();
        let mut assembler = Assembler::new(Settings {
            caught_up: true,
            ..settings()
        });
        send_events(&mut assembler, &story);
        assembler.begin_gap(moment(2.0));
        assembler.end_gap(moment(until));
        story.events.clear();
        story.at(40.0).leave(&city, "b1").leave(&phone, "b1");
        story.hangups(&[&city, &phone]);
        send_events(&mut assembler, &story);
        let calls = take_finished_at(&mut assembler, 41.0);
        assert_eq!(calls[0].incomplete.is_none(), whole, "{until}");
    }
}

#[test]
fn one_second_gap_keeps_talk_complete() {
    let (mut story, city, phone) = answered_by_101();
    let mut assembler = assembler();
    send_events(&mut assembler, &story);
    assembler.begin_gap(moment(2.0));
    assembler.end_gap(moment(3.0));
    story.events.clear();
    story.at(9.0).leave(&city, "b1").leave(&phone, "b1");
    story.hangups(&[&city, &phone]);
    send_events(&mut assembler, &story);
    let calls = take_finished_at(&mut assembler, 10.0);
    assert_eq!(
        (seconds(&calls[0]), &calls[0].incomplete),
        ((8.0, 9.0), &None)
    );
}

#[test]
fn call_ringing_before_gap_and_answered_after_is_complete() {
    let (city, phone) = (customer(1), channel("PJSIP/101-00000002", 2));
    for (rang, whole) in [(true, true), (false, false)] {
        let phone = phone.clone().join_call(&city);
        let mut before = Story::new();
        before.at(0.0).create(&city, Ring);
        let mut after = Story::new();
        let dialed = if rang { &mut before } else { &mut after };
        dialed.at(if rang { 0.1 } else { 30.0 });
        dialed.create(&phone, Down).dial(&city, &phone, "101");
        after.at(31.0).enter(&phone, "b1").enter(&city, "b1");
        after.at(39.0).leave(&city, "b1").leave(&phone, "b1");
        after.hangups(&[&city, &phone]);
        let mut assembler = assembler();
        send_events(&mut assembler, &before);
        assembler.begin_gap(moment(2.0));
        assembler.end_gap(moment(30.0));
        send_events(&mut assembler, &after);
        let calls = take_finished_at(&mut assembler, 40.0);
        assert_eq!(calls[0].incomplete.is_none(), whole, "{calls:?}");
    }
}

#[test]
fn missed_call_over_gap_is_complete_if_dial_end_is_received() {
    for received in [true, false] {
        let city = customer(1);
        let phone = channel("PJSIP/101-00000002", 2).join_call(&city);
        let mut before = Story::new();
        before.at(0.0).create(&city, Ring).create(&phone, Down);
        before.dial(&city, &phone, "101");
        let mut after = Story::new();
        after.at(31.0);
        if received {
            let (by, status) = (Some(Box::new(city.0.clone())), "CANCEL".into());
            after.add_event(&phone, Kind::DialEnd { by, status });
        }
        after.hangups(&[&phone, &city]);
        let mut assembler = assembler();
        send_events(&mut assembler, &before);
        assembler.begin_gap(moment(2.0));
        assembler.end_gap(moment(30.0));
        send_events(&mut assembler, &after);
        let calls = take_finished_at(&mut assembler, 40.0);
        assert!(!calls[0].answered);
        assert_eq!(calls[0].incomplete.is_none(), received, "{calls:?}");
    }
}

#[test]
fn call_hung_up_after_gap_waits_full_time_for_cdr() {
    let city = TrunkEndpoint::new("city", "PJSIP/city");
    let endpoints = vec![TrunkEndpoint {
        awaits_cdr: true,
        ..city
    }];
    for touched in [false, true] {
        let (mut story, city, phone) = answered_by_101();
        story.at(5.0).leave(&city, "b1").leave(&phone, "b1");
        story.hangups(&[&phone, &city]);
        let mut assembler = Assembler::new(Settings {
            cdr_wait: Some(Duration::from_secs(120)),
            ..Settings::new(Endpoints::new(endpoints.clone()).expect("no conflict"))
        });
        let (before, after) = story.events.split_at(if touched { 6 } else { 0 });
        send_events(&mut assembler, &story.with_events(before.to_vec()));
        assembler.begin_gap(moment(if touched { 2.0 } else { -2.0 }));
        assembler.end_gap(moment(if touched { 3.0 } else { -1.0 }));
        send_events(&mut assembler, &story.with_events(after.to_vec()));
        assert!(
            take_finished_at(&mut assembler, 124.0).is_empty(),
            "{touched}"
        );
        let calls = take_finished_at(&mut assembler, 126.0);
        assert_eq!((calls.len(), &calls[0].incomplete), (1, &None), "{touched}");
    }
}

/// Returns the time by callbridge's clock, given that the PBX's clock is `ahead` seconds ahead.
fn local_time(at: EventTime, ahead: i64) -> EventTime {
    at.by_clock(ClockDifference::from_micros(-ahead * 1_000_000))
}

fn timing_of_connection(connection: u64) -> Timing {
    let line = Line {
        source: 0,
        connection,
    };
    Timing {
        line: Some(line),
        ..Timing::default()
    }
}

/// A call starts during the gap. The channel list shows who's talking, and the unique IDs show when
/// each channel was created.
#[test]
fn call_begun_in_a_gap_gets_its_values_from_the_channel_list() {
    for ahead in [0, 3600] {
        let (city, phone) = (
            customer(1),
            channel("PJSIP/101-00000002", 2).join_call(&customer(1)),
        );
        let mut assembler = assembler();
        // An earlier call shows how far apart the PBX's and callbridge's clocks are.
        let other = channel("PJSIP/105-00000009", 9);
        let mut story = Story::new();
        story
            .at(-30.0)
            .create(&other, Ring)
            .at(-20.0)
            .hangup(&other);
        assembler.timing(timing_of_connection(1));
        for (at, event) in &story.events {
            assembler.on_event(event, local_time(*at, ahead));
        }
        assembler.begin_gap(local_time(moment(-10.0), ahead));
        assembler.end_gap(local_time(moment(40.0), ahead));
        let mut list = Story::new();
        list.at(40.0);
        for channel in [&city, &phone] {
            let bridge = "b1".into();
            list.add_event(
                channel,
                Kind::Listed {
                    bridge,
                    state: Up,
                    age: None,
                },
            );
        }
        assembler.timing(timing_of_connection(2));
        for (at, event) in &mut list.events {
            if let PbxEvent::Channel(event) = event {
                event.at = None;
            }
            assembler.on_event(event, local_time(*at, ahead));
        }
        assembler.on_event(
            &PbxEvent::Mark(Mark::ListEnd { channels: None }),
            local_time(moment(40.0), ahead),
        );
        story.events.clear();
        story.at(100.0).leave(&phone, "b1").leave(&city, "b1");
        story.hangups(&[&phone, &city]);
        for (at, event) in &story.events {
            assembler.on_event(event, local_time(*at, ahead));
        }
        assembler.tick(local_time(moment(101.0), ahead));
        let calls = assembler.take_finished();
        let call = calls
            .iter()
            .find(|call| call.linkedid.as_str() == city.id());
        let call = call.expect("the call");
        assert_eq!(
            (call.started, call.answered),
            (moment(0.0), true),
            "{ahead}"
        );
        assert_eq!(seconds(call), (60.0, 100.0), "{ahead}");
        assert_eq!(
            call.employee.as_ref().map(|employee| employee.as_str()),
            Some("101")
        );
        assert!(call.incomplete.is_some());
    }
}
