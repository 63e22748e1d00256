//! Event times, arrival times, and which of them counts.

use crate::story::{Story, answered_by_101, assembler, channel, customer, moment, seconds};
use callbridge_call::ChannelState::{Down, Ring};
use callbridge_call::event::EventStamp;
use callbridge_call::{EventTime, FinishedCall, PbxEvent};
use std::time::Duration;

/// The one call of these events, heard at these moments.
fn received(story: &Story, arrival: impl Fn(usize, EventTime) -> EventTime) -> (FinishedCall, u64) {
    let mut assembler = assembler();
    let mut last = moment(0.0);
    for (i, (at, told)) in story.events.iter().enumerate() {
        last = arrival(i, *at);
        assembler.on_event(told, last);
    }
    assembler.tick(last.plus(Duration::from_secs(10)));
    let mut calls = assembler.take_finished();
    assert_eq!(calls.len(), 1);
    (calls.remove(0), assembler.counts.clock_clamped)
}

fn talk_of_four_seconds() -> Story {
    let (mut story, city, phone) = answered_by_101();
    story.at(5.0).hangups(&[&phone, &city]);
    story
}

#[test]
fn a_call_heard_within_five_seconds_of_its_time_is_live() {
    let story = talk_of_four_seconds();
    let (near, _) = received(&story, |_, at| at.plus(Duration::from_secs(5)));
    let (far, clamped) = received(&story, |_, at| at.plus(Duration::from_secs(6)));
    assert!(near.live && !far.live);
    assert_eq!(
        (seconds(&near), seconds(&far), clamped),
        ((4.0, 5.0), (4.0, 5.0), 0)
    );
}

#[test]
fn in_a_live_call_arrival_wins_over_a_clock_that_jumped() {
    let mut story = talk_of_four_seconds();
    // The PBX's clock is set forward by an hour before the hang-ups.
    let events = story.events.len();
    for (_, told) in &mut story.events[events - 2..] {
        if let PbxEvent::Channel(event) = told {
            event.at = event.at.map(|at| at.plus(Duration::from_secs(3600)));
        }
    }
    let (call, clamped) = received(&story, |_, at| at);
    assert_eq!((seconds(&call), clamped), ((4.0, 5.0), 2));
    assert_eq!(
        call.remarks,
        ["event times more than 5 s from their arrival, which was used in their place: 2"]
    );
}

#[test]
fn a_clock_that_comes_to_be_more_than_five_seconds_off_turns_no_order_round() {
    let (mut story, city, phone) = answered_by_101();
    story.at(5.0).leave(&phone, "b1").leave(&city, "b1");
    story.hangups(&[&phone, &city]);
    let events = story.events.len();
    // Of the leavings and the hang-ups the time of arrival counts, of all before them their own.
    let off = |i| Duration::from_millis(if i + 4 < events { 4900 } else { 5100 });
    let (ahead, clamped) = received(&story, |i, at| at.minus(off(i)));
    assert_eq!(
        (ahead.answered, seconds(&ahead), clamped),
        (true, (3.8, 4.8), 4)
    );
    let (behind, clamped) = received(&story, |i, at| at.plus(off(i)));
    assert_eq!(
        (behind.answered, seconds(&behind), clamped),
        (true, (4.2, 5.2), 4)
    );
}

#[test]
fn in_a_live_call_a_line_that_stood_still_changes_nothing_where_events_are_numbered() {
    let mut story = talk_of_four_seconds();
    let events = story.events.len();
    for (number, (at, told)) in (1..).zip(&mut story.events) {
        if let PbxEvent::Channel(event) = told {
            event.channel.stamp = Some(EventStamp { number, at: *at });
        }
    }
    let stalls = |i, at: EventTime| {
        if i + 2 < events {
            at
        } else {
            at.plus(Duration::from_secs(7))
        }
    };
    let (call, clamped) = received(&story, stalls);
    assert_eq!((seconds(&call), call.live, clamped), ((4.0, 5.0), true, 0));
}

#[test]
fn in_a_backlog_event_times_alone_count() {
    let story = talk_of_four_seconds();
    let (call, clamped) = received(&story, |i, _| moment(86_400.0 + 100.0 * i as f64));
    assert_eq!(
        (seconds(&call), call.started, clamped),
        ((4.0, 5.0), moment(0.0), 0)
    );
}

#[test]
fn a_clock_set_back_by_a_day_tears_no_call() {
    let story = talk_of_four_seconds();
    let mut assembler = assembler();
    let arrived = moment(90_000.0);
    // A colleague lifts her receiver; then the PBX's clock is set back.
    let (_, PbxEvent::Channel(mut other)) = story.events[0].clone() else {
        panic!("a channel's event comes first");
    };
    other.at = Some(moment(86_400.0));
    other.channel.name = "PJSIP/105-0000ffff".into();
    other.channel.uniqueid = "1795999999.1".into();
    other.channel.linkedid = other.channel.uniqueid.clone();
    assembler.on_event(&PbxEvent::Channel(other), arrived);
    for (_, told) in &story.events {
        assembler.on_event(told, arrived);
    }
    assembler.finish_all(arrived);
    let calls = assembler.take_finished();
    let told: Vec<_> = calls
        .iter()
        .map(|it| (seconds(it), &it.incomplete))
        .collect();
    assert_eq!(told, [((4.0, 5.0), &None)]);
}

#[test]
fn without_event_times_the_time_of_arrival_serves() {
    let mut story = talk_of_four_seconds();
    for (_, told) in &mut story.events {
        if let PbxEvent::Channel(event) = told {
            event.at = None;
        }
    }
    let (call, _) = received(&story, |_, at| at.plus(Duration::from_secs(1000)));
    assert_eq!(
        (seconds(&call), call.started, call.live),
        ((4.0, 5.0), moment(1000.0), true)
    );
}

#[test]
fn a_clock_set_back_in_a_call_of_a_file_leaves_it_incomplete_with_sound_figures() {
    for back in [4.0, 8.0, 60.0, 3600.0] {
        let (city, phone) = (
            customer(1),
            channel("PJSIP/101-00000002", 2).of(&customer(1)),
        );
        let mut story = Story::new();
        story.at(0.0).born(&city, Ring).at(0.5).born(&phone, Down);
        story.at(6.0).enter(&phone, "b").enter(&city, "b");
        // The call goes on for two seconds, by a clock that shows an earlier time.
        story.at(8.0 - back).leave(&phone, "b").leave(&city, "b");
        story.hangups(&[&phone, &city]);
        let hour = Duration::from_secs(3600);
        let mut assembler = assembler();
        for (at, event) in &story.events {
            assembler.on_event(event, at.plus(hour));
        }
        assembler.finish_all(moment(10_000.0));
        let calls = assembler.take_finished();
        assert_eq!(calls.len(), 1, "{back}");
        let (talk, length) = seconds(&calls[0]);
        assert!(talk <= length, "{back}: {talk} of {length}");
        // Four seconds back nothing contradicts itself.
        assert_eq!(calls[0].incomplete.is_some(), back > 5.0, "{back}");
    }
}
