//! Tests of a call's timeline.

use crate::story::{Channel, Story, channel, customer, moment};
use callbridge_call::ChannelState::{Down, Ring, Ringing, Up};
use callbridge_call::timeline::{CHANNELS_MAX, ENTRIES_MAX};
use callbridge_call::{EventTime, FinishedCall, Kind, Origin, PbxEvent, Role, Timeline};
use std::fmt::Write as _;

fn timeline(call: &FinishedCall) -> &Timeline {
    call.timeline.as_ref().expect("a timeline")
}

/// Returns the number of seconds between the start of the story and `time`.
fn seconds_at(time: EventTime) -> f64 {
    time.since(moment(0.0)).as_secs_f64()
}

/// Formats the timeline as text for a snapshot.
fn format_timeline(timeline: &Timeline) -> String {
    let mut text = String::new();
    for (i, channel) in timeline.channels.iter().enumerate() {
        let (from, to) = (seconds_at(channel.from), seconds_at(channel.to));
        let (name, party, way) = (&channel.name, &channel.party, channel.way);
        let _ = writeln!(text, "{i} {name} {party:?} {way:?} {from:.1} to {to:.1}");
        for moment in &channel.moments {
            let _ = writeln!(text, "  {:.1} {:?}", seconds_at(moment.at), moment.what);
        }
        for stay in &channel.stays {
            let bridge = &timeline.bridges[usize::from(stay.bridge)];
            let holding = if stay.holding { " holding" } else { "" };
            let (from, to) = (seconds_at(stay.from), seconds_at(stay.to));
            let _ = writeln!(text, "  {from:.1} to {to:.1} in {bridge}{holding}");
        }
    }
    for talk in &timeline.talk {
        let (from, to) = (seconds_at(talk.from), seconds_at(talk.to));
        let _ = writeln!(text, "talk with {} {from:.1} to {to:.1}", talk.with);
    }
    text
}

/// Returns a customer's call, along with the customer's and 101's channels. The customer waits in a
/// queue's holding bridge, talks to 101 from 3 s to 7 s, and doesn't hang up.
fn queued_call() -> (Story, [Channel; 2]) {
    let city = customer(1);
    let phone = channel("PJSIP/101-00000002", 2).join_call(&city);
    let mut story = Story::new();
    story.at(0.0).create(&city, Ring).state(&city, Up);
    story.at(0.5).enter_kind(&city, "q", "holding_bridge");
    story
        .at(1.0)
        .create(&phone, Down)
        .dial(&city, &phone, "101");
    story.at(1.5).state(&phone, Ringing);
    story.at(3.0).state(&phone, Up);
    story.at(3.0).leave_kind(&city, "q", "holding_bridge");
    story.at(3.0).enter(&phone, "b1").enter(&city, "b1");
    story.at(7.0).leave(&phone, "b1").leave(&city, "b1");
    (story, [city, phone])
}

#[test]
fn timeline_shows_channels_bridges_and_talk_with_times() {
    let (mut story, [city, phone]) = queued_call();
    story.at(7.0);
    let (by, status) = (Some(Box::new(city.0.clone())), "ANSWER".into());
    story.add_event(&phone, Kind::DialEnd { by, status });
    story.add_event(&phone, Kind::Hangup { cause: Some(16) });
    story.at(8.0).hangup(&city);
    insta::assert_snapshot!(format_timeline(timeline(&story.call())), @r#"
    0 PJSIP/city-00000001 Customer(Some("city")) CameIn 0.0 to 8.0
      0.0 Up
      8.0 HungUp { cause: Some(16) }
      0.5 to 3.0 in q holding
      3.0 to 7.0 in b1
    1 PJSIP/101-00000002 Extension("101") Dialed 1.0 to 7.0
      1.0 Dialed { by: Some(0), string: "101" }
      1.5 Rings
      3.0 Up
      7.0 DialEnded("ANSWER")
      7.0 HungUp { cause: Some(16) }
      3.0 to 7.0 in b1
    talk with 1 3.0 to 7.0
    "#);
}

#[test]
fn timeline_shows_duplicate_ami_and_cel_events_once() {
    let (mut story, [city, phone]) = queued_call();
    let once = {
        let mut story = story.clone();
        story.at(8.0).hangups(&[&phone, &city]);
        format_timeline(timeline(&story.call()))
    };
    story.at(8.0).hangups(&[&phone, &city]);
    let by_cel = story
        .events
        .iter()
        .filter_map(|(at, pbx_event)| match pbx_event {
            PbxEvent::Channel(event) if !matches!(event.kind, Kind::DialBegin { .. }) => {
                let mut event = event.clone();
                event.origin = Origin::Cel;
                Some((*at, PbxEvent::Channel(event)))
            }
            PbxEvent::Channel(_) | PbxEvent::Cdr(_) | PbxEvent::Mark(_) => None,
        });
    let again: Vec<_> = by_cel.chain(story.events.clone()).collect();
    story.events.extend(again);
    story.events.sort_by_key(|(at, _)| *at);
    assert_eq!(format_timeline(timeline(&story.call())), once);
}

#[test]
fn huge_conference_timeline_is_bounded_and_has_the_customer() {
    let city = customer(1);
    let mut story = Story::new();
    story.at(0.0).create(&city, Ring).enter(&city, "b1");
    let mut all = Vec::new();
    for number in 2..202 {
        let name = match number % 2 {
            0 => format!("Local/{number}@rooms-{number:08x};1"),
            _ => format!("PJSIP/{number}-{number:08x}"),
        };
        all.push(channel(&name, number).join_call(&city));
        story.at(1.0).create(&all[all.len() - 1], Down);
    }
    for second in 2..10 {
        for phone in &all {
            story.at(f64::from(second)).enter(phone, "b1");
        }
        for phone in &all {
            story.at(f64::from(second) + 0.5).leave(phone, "b1");
        }
    }
    story.at(20.0);
    for phone in &all {
        story.hangup(phone);
    }
    story.hangup(&city);
    let call = story.call();
    let timeline = timeline(&call);
    assert_eq!(timeline.channels.len(), CHANNELS_MAX);
    assert!(matches!(
        timeline.channels[0].party,
        Role::Customer(Some(_))
    ));
    let mut entries = timeline.talk.len();
    for channel in &timeline.channels {
        assert_ne!(channel.party, Role::Plumbing);
        entries += channel.moments.len() + channel.stays.len();
    }
    // Every hangup is kept in addition to the `ENTRIES_MAX` entries.
    assert!(entries <= ENTRIES_MAX + CHANNELS_MAX, "{entries}");
    assert!(timeline.left_out > 0);
    assert!(timeline.channels.iter().all(|channel| channel.hung_up()));
}

/// 101 calls 102, transfers them to 103, and hangs up.
#[test]
fn timeline_of_an_internal_call_goes_on_after_its_first_party() {
    let first = channel("PJSIP/101-00000001", 1);
    let second = channel("PJSIP/102-00000002", 2).join_call(&first);
    let third = channel("PJSIP/103-00000003", 3).join_call(&first);
    let mut story = Story::new();
    story.at(0.0).create(&first, Ring).state(&first, Up);
    story
        .at(1.0)
        .create(&second, Down)
        .dial(&first, &second, "102");
    story
        .at(2.0)
        .state(&second, Up)
        .enter(&first, "b1")
        .enter(&second, "b1");
    story.at(5.0).leave(&first, "b1").hangup(&first);
    story
        .at(6.0)
        .create(&third, Down)
        .dial(&second, &third, "103");
    story.at(7.0).state(&third, Up).enter(&third, "b1");
    story.at(60.0).leave(&third, "b1").leave(&second, "b1");
    story.hangups(&[&third, &second]);
    let call = story.call();
    let ends: Vec<f64> = timeline(&call)
        .channels
        .iter()
        .map(|channel| seconds_at(channel.to))
        .collect();
    assert_eq!(ends, [5.0, 60.0, 60.0]);
}
