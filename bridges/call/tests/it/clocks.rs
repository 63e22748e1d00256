//! Tests that the times in events are what counts, no matter how late the events arrive, and that
//! calls are incomplete if a clock is set while they're open.

use crate::story::{Story, answered_by_101, assembler, channel, customer, moment, seconds};
use callbridge_call::ChannelState::{Down, Ring};
use callbridge_call::event::EventStamp;
use callbridge_call::{
    Assembler, ClockDifference, EventTime, FinishedCall, Kind, Line, Mark, PbxEvent, Timing,
};
use std::time::Duration;

const LINE: Line = Line {
    source: 0,
    connection: 1,
};

/// Returns the timing of a live connection.
fn live_timing() -> Timing {
    Timing {
        line: Some(LINE),
        ..Timing::default()
    }
}

/// Returns the timing of a file.
fn file_timing() -> Timing {
    Timing {
        kept: true,
        ..live_timing()
    }
}

/// Sends all of a story's events. `arrival` returns when an event arrives, given its index and its
/// time.
fn send_events(
    assembler: &mut Assembler,
    story: &Story,
    arrival: impl Fn(usize, EventTime) -> EventTime,
) {
    for (i, (at, event)) in story.events.iter().enumerate() {
        assembler.on_event(event, arrival(i, *at));
    }
}

/// Returns the call of a story whose events arrive on a live connection. See [`send_events`] for
/// `arrival`.
fn call_from_live_events(
    story: &Story,
    arrival: impl Fn(usize, EventTime) -> EventTime,
) -> FinishedCall {
    let mut assembler = assembler();
    assembler.timing(live_timing());
    send_events(&mut assembler, story, &arrival);
    let (last, _) = story.events[story.events.len() - 1];
    let last = arrival(story.events.len() - 1, last);
    assembler.tick(last.plus(Duration::from_secs(1)));
    let mut calls = assembler.take_finished();
    assert_eq!(calls.len(), 1);
    calls.remove(0)
}

fn shift_time(at: EventTime, seconds: f64) -> EventTime {
    at.by_clock(ClockDifference::from_micros((seconds * 1e6) as i64))
}

/// Shifts the times of the event at index `first` and all subsequent ones by `seconds`, as if the
/// PBX's clock had been set.
fn set_clock(story: &mut Story, first: usize, seconds: f64) {
    for (_, event) in &mut story.events[first..] {
        if let PbxEvent::Channel(event) = event {
            event.at = event.at.map(|at| shift_time(at, seconds));
        }
    }
}

fn talk_of_four_seconds() -> Story {
    let (mut story, city, phone) = answered_by_101();
    story.at(5.0).leave(&phone, "b1").leave(&city, "b1");
    story.hangups(&[&phone, &city]);
    story
}

/// Promise: A stalled connection changes no value of a call.
#[test]
fn stalled_line_changes_no_value_of_a_call() {
    let story = talk_of_four_seconds();
    let usual = call_from_live_events(&story, |_, at| at);
    assert_eq!((seconds(&usual), usual.live), ((4.0, 5.0), true));
    for stall in [3, 8, 20, 45] {
        for from in [0.0, 0.5, 1.0, 3.0, 5.0] {
            let (from, until) = (moment(from), moment(from).plus(Duration::from_secs(stall)));
            let call =
                call_from_live_events(&story, |_, at| if at >= from { at.max(until) } else { at });
            assert_eq!(call, usual, "{stall} s at {from}");
        }
    }
}

#[test]
fn channel_created_after_call_end_is_separate_despite_stall() {
    // Long after its call was over, a channel gets that call's linkedid. It isn't part of the call.
    let mut story = talk_of_four_seconds();
    let late = channel("PJSIP/102-00000009", 9).join_call(&customer(1));
    story.at(20.0).create(&late, Ring).at(21.0).hangup(&late);
    for stall in [0, 60] {
        let until = moment(1.0).plus(Duration::from_secs(stall));
        let call = call_from_live_events(&story, |_, at| at.max(until));
        assert_eq!(seconds(&call), (4.0, 5.0), "{stall}");
    }
}

#[test]
fn constant_clock_difference_changes_no_value() {
    let usual = call_from_live_events(&talk_of_four_seconds(), |_, at| at);
    for off in [-3600.0, -10.0, 10.0, 3600.0] {
        let story = talk_of_four_seconds();
        let call = call_from_live_events(&story, |_, at| shift_time(at, -off));
        assert_eq!(call, usual, "{off}");
    }
}

#[test]
fn clock_set_during_a_call_makes_it_incomplete() {
    for by in [-3600.0, -2.5, -1.5, 1.5, 2.5, 3600.0] {
        let (mut story, city, phone) = answered_by_101();
        story.at(4.9).add_event(&city, Kind::Seen);
        let first = story.events.len();
        story.at(5.0).leave(&phone, "b1").leave(&city, "b1");
        story.hangups(&[&phone, &city]);
        set_clock(&mut story, first, by);
        let call = call_from_live_events(&story, |_, at| at);
        let is_set = f64::abs(by) > 2.0;
        assert_eq!(call.incomplete.is_some(), is_set, "{by}");
        if is_set {
            let reason = call.incomplete.expect("a reason");
            assert_eq!(reason, "the PBX's clock was set during the call");
        }
    }
}

#[test]
fn clock_set_between_calls_leaves_them_complete() {
    for by in [-3600.0, 3600.0] {
        let mut assembler = assembler();
        assembler.timing(live_timing());
        send_events(&mut assembler, &talk_of_four_seconds(), |_, at| at);
        assembler.tick(moment(6.0));
        let mut story = Story::new();
        let (city, phone) = (
            customer(31),
            channel("PJSIP/101-00000032", 32).join_call(&customer(31)),
        );
        story
            .at(10.0)
            .create(&city, Ring)
            .at(10.5)
            .create(&phone, Down);
        story.at(11.0).enter(&phone, "b2").enter(&city, "b2");
        story.at(15.0).hangups(&[&phone, &city]);
        set_clock(&mut story, 0, by);
        send_events(&mut assembler, &story, |_, at| at);
        assembler.tick(moment(30.0));
        let calls = assembler.take_finished();
        let values: Vec<_> = calls
            .iter()
            .map(|call| (seconds(call), &call.incomplete))
            .collect();
        assert_eq!(values, [((4.0, 5.0), &None), ((4.0, 5.0), &None)], "{by}");
        assert_eq!(assembler.counts.clock_set, 1);
    }
}

#[test]
fn clock_set_shown_by_a_ping_makes_open_calls_incomplete() {
    for (by, complete) in [(0.0, true), (-1.0, true), (-60.0, false), (60.0, false)] {
        let (mut story, city, phone) = answered_by_101();
        let mut assembler = assembler();
        assembler.timing(live_timing());
        send_events(&mut assembler, &story, |_, at| at);
        for (second, by) in [(20.0, 0.0), (40.0, by), (60.0, 0.0)] {
            let (asked, answered) = (moment(second), moment(second + 0.2));
            let at = Some(shift_time(moment(second + 0.1), by));
            assembler.on_answer(LINE, at, asked, answered);
        }
        story.events.clear();
        story.at(65.0).hangups(&[&phone, &city]);
        send_events(&mut assembler, &story, |_, at| at);
        assembler.tick(moment(70.0));
        let calls = assembler.take_finished();
        assert_eq!(calls[0].incomplete.is_none(), complete, "{by}");
    }
}

#[test]
fn new_connection_ignores_times_of_the_previous_one() {
    // The PBX's clock is set back before the fourth event, which arrives on `next`.
    let mut story = talk_of_four_seconds();
    set_clock(&mut story, 3, -3600.0);
    for (next, clock_set) in [(1, 1), (2, 0)] {
        let mut assembler = assembler();
        for (i, (at, event)) in story.events.iter().enumerate() {
            let connection = if i < 3 { 1 } else { next };
            assembler.timing(Timing {
                line: Some(Line { connection, ..LINE }),
                ..Timing::default()
            });
            assembler.on_event(event, *at);
        }
        assert_eq!(assembler.counts.clock_set, clock_set, "connection {next}");
    }
}

#[test]
fn stalled_line_changes_no_call_with_numbered_events() {
    let mut story = talk_of_four_seconds();
    let events = story.events.len();
    for (number, (at, event)) in (1..).zip(&mut story.events) {
        if let PbxEvent::Channel(event) = event {
            event.channel.stamp = Some(EventStamp { number, at: *at });
        }
    }
    let call = call_from_live_events(&story, |i, at| {
        if i + 2 < events {
            at
        } else {
            at.plus(Duration::from_secs(7))
        }
    });
    assert_eq!(
        (seconds(&call), call.live, call.incomplete),
        ((4.0, 5.0), true, None)
    );
}

#[test]
fn backlog_uses_event_times_only() {
    let story = talk_of_four_seconds();
    let mut assembler = assembler();
    assembler.timing(Timing {
        kept: true,
        ..Timing::default()
    });
    send_events(&mut assembler, &story, |i, _| {
        moment(86_400.0 + 100.0 * i as f64)
    });
    assembler.tick(moment(90_000.0));
    let calls = assembler.take_finished();
    assert_eq!((seconds(&calls[0]), calls[0].live), ((4.0, 5.0), false));
    assert_eq!(calls[0].started, moment(0.0));
}

#[test]
fn clock_set_back_by_a_day_leaves_the_call_complete() {
    let story = talk_of_four_seconds();
    let mut assembler = assembler();
    assembler.timing(live_timing());
    let arrived = moment(90_000.0);
    // An event from a colleague's phone arrives, and then the PBX's clock is set back.
    let (_, PbxEvent::Channel(mut other)) = story.events[0].clone() else {
        panic!("a channel's event comes first");
    };
    other.at = Some(moment(86_400.0));
    other.channel.name = "PJSIP/105-0000ffff".into();
    other.channel.uniqueid = "1795999999.1".into();
    other.channel.linkedid = other.channel.uniqueid.clone();
    assembler.on_event(&PbxEvent::Channel(other), arrived);
    send_events(&mut assembler, &story, |_, _| arrived);
    assert_eq!(assembler.counts.clock_set, 1);
    assembler.finish_all(arrived);
    let calls = assembler.take_finished();
    let values: Vec<_> = calls
        .iter()
        .map(|call| (seconds(call), &call.incomplete))
        .collect();
    assert_eq!(values, [((4.0, 5.0), &None)]);
}

#[test]
fn shutdown_arriving_late_ends_calls_at_its_own_time() {
    let (story, ..) = answered_by_101();
    for (at, length) in [(Some(moment(7.0)), 7.0), (None, 27.0)] {
        let mut assembler = assembler();
        assembler.timing(live_timing());
        send_events(&mut assembler, &story, |_, at| at);
        assembler.on_event(&PbxEvent::Mark(Mark::Shutdown { at }), moment(27.0));
        assembler.tick(moment(28.0));
        let calls = assembler.take_finished();
        assert_eq!(seconds(&calls[0]), (length - 1.0, length));
    }
}

fn remove_event_times(mut story: Story) -> Story {
    for (_, event) in &mut story.events {
        if let PbxEvent::Channel(event) = event {
            event.at = None;
        }
    }
    story
}

#[test]
fn events_without_times_use_their_arrival_time() {
    let story = remove_event_times(talk_of_four_seconds());
    let call = call_from_live_events(&story, |_, at| shift_time(at, 1000.0));
    assert_eq!((seconds(&call), call.live), ((4.0, 5.0), true));
    assert_eq!((call.started, call.incomplete), (moment(1000.0), None));
}

#[test]
fn wall_clock_set_during_a_call_changes_no_length() {
    let story = remove_event_times(talk_of_four_seconds());
    let mut assembler = assembler();
    for (i, (at, event)) in story.events.iter().enumerate() {
        // The clock of the machine running callbridge is set forward by an hour during the call.
        let ahead = if i < 4 { 60_000_000 } else { 3_660_000_000 };
        assembler.timing(Timing {
            wall_ahead: ClockDifference::from_micros(ahead),
            ..live_timing()
        });
        assembler.on_event(event, *at);
    }
    assembler.tick(moment(7.0));
    let calls = assembler.take_finished();
    assert_eq!(
        (seconds(&calls[0]), calls[0].started),
        ((4.0, 5.0), moment(60.0))
    );
}

#[test]
fn stall_makes_calls_without_times_incomplete() {
    let timed = talk_of_four_seconds();
    let untimed = remove_event_times(timed.clone());
    let count = timed.events.len();
    for (story, complete) in [(&timed, true), (&untimed, false)] {
        // The stall starts during the call, before it, and after its last event.
        for (from, until, touches) in [(3, 6, true), (0, 2, true), (count, count, false)] {
            let mut assembler = assembler();
            assembler.timing(live_timing());
            for (i, (at, event)) in story.events.iter().enumerate() {
                if i == from || i == until {
                    assembler.set_stalled(LINE, i == from);
                }
                assembler.on_event(event, *at);
            }
            if from == count {
                assembler.set_stalled(LINE, true);
            }
            assembler.tick(moment(7.0));
            let calls = assembler.take_finished();
            let is_complete = calls[0].incomplete.is_none();
            assert_eq!(is_complete, complete || !touches, "{from}");
        }
    }
}

#[test]
fn stall_between_two_events_makes_an_untimed_call_incomplete() {
    let timed = talk_of_four_seconds();
    let untimed = remove_event_times(timed.clone());
    for (story, complete) in [(&timed, true), (&untimed, false)] {
        let mut assembler = assembler();
        assembler.timing(live_timing());
        for (i, (at, event)) in story.events.iter().enumerate() {
            if i == 4 {
                assembler.set_stalled(LINE, true);
                assembler.set_stalled(LINE, false);
            }
            assembler.on_event(event, *at);
        }
        assembler.tick(moment(7.0));
        let calls = assembler.take_finished();
        assert_eq!(calls[0].incomplete.is_none(), complete);
    }
}

/// Returns the calls of a story without timestamps. `stalls` are spans (in seconds) during which
/// the connection delivers nothing. The PBX responds to a ping at second -1, and to another one at
/// the end of each stall.
fn untimed_calls(story: &Story, stalls: &[(f64, f64)]) -> Vec<FinishedCall> {
    let story = remove_event_times(story.clone());
    let mut assembler = assembler();
    assembler.timing(live_timing());
    let ping = |assembler: &mut Assembler, second: f64| {
        let (asked, answered) = (moment(second), moment(second + 0.1));
        assembler.on_answer(LINE, Some(asked), asked, answered);
    };
    ping(&mut assembler, -1.0);
    let mut ended: Vec<f64> = stalls.iter().map(|(_, until)| until + 0.2).collect();
    for (at, event) in &story.events {
        let held = stalls
            .iter()
            .find(|(from, until)| (moment(*from)..moment(*until)).contains(at));
        let arrived = held.map_or(*at, |(_, until)| moment(*until));
        while let Some(second) = ended.first().copied()
            && moment(second) < arrived
        {
            ping(&mut assembler, second);
            ended.remove(0);
        }
        assembler.on_event(event, arrived);
    }
    assembler.tick(moment(10_000.0));
    assembler.take_finished()
}

/// Returns a call like [`talk_of_four_seconds`] that starts at this second, as reflected in its
/// IDs.
fn later_call(second: u32) -> Story {
    let id = |number: u32| format!("{}.{number}", 1_795_000_000 + second);
    let mut city = customer(1);
    let mut phone = channel("PJSIP/101-00000002", 2);
    city.0.uniqueid = id(second * 2).into();
    city.0.linkedid = city.0.uniqueid.clone();
    phone.0.uniqueid = id(second * 2 + 1).into();
    phone.0.linkedid = city.0.linkedid.clone();
    phone.0.name = format!("PJSIP/101-{second:08x}").into();
    city.0.name = format!("PJSIP/city-{second:08x}").into();
    let (second, bridge): (f64, &'static str) = (second.into(), "b");
    let mut story = Story::new();
    story.at(second).create(&city, Ring);
    story.at(second + 0.5).create(&phone, Down);
    story
        .at(second + 1.0)
        .enter(&phone, bridge)
        .enter(&city, bridge);
    story
        .at(second + 5.0)
        .leave(&phone, bridge)
        .leave(&city, bridge);
    story.hangups(&[&phone, &city]);
    story
}

#[test]
fn channel_later_than_its_id_makes_untimed_calls_incomplete() {
    let call = later_call(100);
    for (stalls, is_complete) in [
        (&[][..], true),
        (&[(99.0, 101.0)][..], true),
        (&[(90.0, 103.0)][..], false),
        (&[(90.0, 130.0)][..], false),
        // The stall was over before the call started.
        (&[(60.0, 90.0)][..], true),
    ] {
        let calls = untimed_calls(&call, stalls);
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0].incomplete.is_none(), is_complete, "{stalls:?}");
    }
}

#[test]
fn late_channel_makes_calls_that_ended_in_its_burst_incomplete() {
    let mut story = later_call(100);
    story.events.extend(later_call(108).events);
    // The first call's hangup and the second call's first event are held up for five seconds.
    let calls = untimed_calls(&story, &[(104.5, 113.0)]);
    let incomplete: Vec<_> = calls.iter().map(|call| call.incomplete.is_some()).collect();
    assert_eq!(incomplete, [true, true]);
    // The connection is prompt again.
    let mut story = later_call(100);
    story.events.extend(later_call(120).events);
    let calls = untimed_calls(&story, &[(99.0, 104.0)]);
    let incomplete: Vec<_> = calls.iter().map(|call| call.incomplete.is_some()).collect();
    assert_eq!(incomplete, [true, false]);
}

#[test]
fn untimed_answer_and_hangup_in_one_read_are_incomplete() {
    for (talk, is_complete) in [(0.05, false), (0.3, true), (4.0, true)] {
        let (mut story, city, phone) = answered_by_101();
        story.at(1.0 + talk).leave(&phone, "b1").leave(&city, "b1");
        story.hangups(&[&phone, &city]);
        let call = call_from_live_events(&remove_event_times(story.clone()), |_, at| at);
        assert_eq!(call.incomplete.is_none(), is_complete, "{talk}");
        let timed = call_from_live_events(&story, |_, at| at);
        assert_eq!(timed.incomplete, None, "{talk}: its own times show it");
    }
}

#[test]
fn heartbeat_shows_that_a_clock_was_set_ahead() {
    for by in [0.0, 3600.0] {
        let mut assembler = assembler();
        assembler.timing(live_timing());
        let (story, ..) = answered_by_101();
        send_events(&mut assembler, &story, |_, at| at);
        for (arrived, by) in [(2.0, 0.0), (22.0, by)] {
            let beat = Mark::Alive {
                process: 1,
                at: shift_time(moment(arrived), by),
                stamp: None,
                began: None,
                channels: None,
            };
            assembler.on_event(&PbxEvent::Mark(beat), moment(arrived));
        }
        assert_eq!(assembler.counts.clock_set, u64::from(by > 0.0), "{by}");
    }
}

#[test]
fn clock_set_back_in_a_file_makes_its_call_incomplete() {
    for back in [1.0, 4.0, 8.0, 60.0, 3600.0] {
        let (city, phone) = (
            customer(1),
            channel("PJSIP/101-00000002", 2).join_call(&customer(1)),
        );
        let mut story = Story::new();
        story
            .at(0.0)
            .create(&city, Ring)
            .at(0.5)
            .create(&phone, Down);
        story.at(6.0).enter(&phone, "b").enter(&city, "b");
        // The call continues for two seconds, by a clock that shows an earlier time.
        story.at(8.0 - back).leave(&phone, "b").leave(&city, "b");
        story.hangups(&[&phone, &city]);
        let mut assembler = assembler();
        assembler.timing(file_timing());
        send_events(&mut assembler, &story, |_, at| shift_time(at, 3600.0));
        assembler.finish_all(moment(10_000.0));
        let calls = assembler.take_finished();
        assert_eq!(calls.len(), 1, "{back}");
        let (talk, length) = seconds(&calls[0]);
        assert!(talk <= length, "{back}: {talk} of {length}");
        // From 4 s on, the exit from the bridge comes before the entry.
        assert_eq!(calls[0].incomplete.is_some(), back >= 4.0, "{back}");
    }
}

#[test]
fn file_in_reverse_order_is_not_detected_as_clock_set() {
    let mut story = talk_of_four_seconds();
    story.events.reverse();
    let mut assembler = assembler();
    assembler.timing(file_timing());
    send_events(&mut assembler, &story, |_, _| moment(1000.0));
    assembler.finish_all(moment(2000.0));
    assert_eq!(assembler.counts.clock_set, 0);
    assert_eq!(assembler.take_finished()[0].incomplete, None);
}
