//! Tests of calls with a lost event, as revealed by other events.

use crate::story::{Channel, Story, answered_by_101, channel, customer};
use callbridge_call::ChannelState::{Down, Ring, Ringing, Unknown, Up};
use callbridge_call::Kind;
use std::borrow::Cow;

const ROOM: &str = "room-1";

fn enter_room(story: &mut Story, channel: &Channel) {
    story.enter_kind(channel, ROOM, "softmix");
    sit(story, channel);
}

fn sit(story: &mut Story, channel: &Channel) {
    let bridge = Cow::Borrowed(ROOM);
    story.add_event(channel, Kind::Sits { bridge });
}

/// A customer talks to 101, and then to 102, who stays on longer, in a room. Returns why the call
/// is incomplete, if it is. With `is_lost`, 102's entry was lost.
fn reason_in_room(is_lost: bool) -> Option<String> {
    let (mut story, city, phone) = answered_by_101();
    let guest = channel("PJSIP/102-00000003", 3);
    story.at(3.0).leave(&phone, "b1").leave(&city, "b1");
    enter_room(story.hangup(&phone), &city);
    story.at(4.0).create(&guest, Ring).state(&guest, Up);
    if is_lost {
        sit(&mut story, &guest);
    } else {
        enter_room(&mut story, &guest);
    }
    story.at(9.0).leave_kind(&city, ROOM, "softmix");
    story.hangup(&city);
    story.at(30.0).leave_kind(&guest, ROOM, "softmix");
    let calls = story.hangup(&guest).calls();
    calls[0].incomplete.clone()
}

#[test]
fn conference_joined_without_an_entry_is_incomplete() {
    let why = reason_in_room(true).expect("a reason");
    assert!(why.contains("PJSIP/102-00000003"), "{why}");
    assert_eq!(reason_in_room(false), None);
}

/// CEL lists the channels that remain in the bridge.
#[test]
fn exit_that_names_a_guest_without_an_entry_is_incomplete() {
    for is_lost in [true, false] {
        let mut story = Story::from_cel();
        let city = customer(1);
        let guest = channel("PJSIP/102-00000003", 3);
        story.at(0.0).create(&city, Unknown).state(&city, Up);
        story.at(1.0).create(&guest, Unknown).state(&guest, Up);
        story.at(2.0).enter_kind(&city, ROOM, "softmix");
        if !is_lost {
            story.enter_kind(&guest, ROOM, "softmix");
        }
        let mut leaving = city.clone();
        leaving.0.peers = Cow::Borrowed("CBAnn/600-00000018;2,PJSIP/102-00000003");
        story.at(9.0).leave_kind(&leaving, ROOM, "softmix");
        story.hangup(&city);
        story.at(30.0).leave_kind(&guest, ROOM, "softmix");
        let calls = story.hangup(&guest).calls();
        let why = calls[0].incomplete.as_deref().unwrap_or_default();
        assert_eq!(
            why.contains("the entry of PJSIP/102-00000003"),
            is_lost,
            "{why}"
        );
    }
}

/// 101 answers the PBX's call after two seconds and then dials a customer. Returns why the call is
/// incomplete, if it is.
fn reason_of_click_to_call(mut story: Story, states: [bool; 2]) -> Option<String> {
    let [is_ami, is_created] = states;
    let born = if is_ami { Down } else { Unknown };
    let phone = channel("PJSIP/101-00000001", 1).exten("s");
    let city = channel("PJSIP/city-00000002", 2).join_call(&phone);
    story.at(0.0);
    if is_created {
        story.create(&phone, born);
    }
    story.at(2.0).state(&phone, Up);
    story.at(2.1).create(&city, born);
    if is_ami {
        story.dial(&phone, &city, "998901110002@city");
    }
    story.at(5.0).state(&city, Up).enter(&city, "b1");
    story.enter(&phone, "b1");
    story.at(9.0).leave(&city, "b1").leave(&phone, "b1");
    story.hangups(&[&city, &phone]).call().incomplete
}

#[test]
fn first_channel_without_its_creation_is_incomplete() {
    for (story, is_ami) in [(Story::new(), true), (Story::from_cel(), false)] {
        let why = reason_of_click_to_call(story.clone(), [is_ami, false]);
        let why = why.expect("a reason");
        assert!(why.contains("PJSIP/101-00000001"), "{why}");
        assert_eq!(reason_of_click_to_call(story, [is_ami, true]), None);
    }
}

/// The agent's channel was created before events were being received.
#[test]
fn older_channel_without_its_creation_is_complete() {
    for mut story in [Story::new(), Story::from_cel()] {
        let agent = channel("PJSIP/101-00000001", 1);
        let city = customer(2);
        story.at(5.0).create(&city, Ring).state(&city, Up);
        story.at(8.0).enter(&agent, "b1").enter(&city, "b1");
        story.at(12.0).leave(&agent, "b1").leave(&city, "b1");
        story.hangup(&city).at(20.0).hangup(&agent);
        let calls = story.calls();
        assert_eq!(calls[0].incomplete, None, "{calls:#?}");
    }
}

#[test]
fn dialing_that_ended_without_a_start_is_incomplete() {
    let phone = channel("PJSIP/101-00000001", 1).exten("998901110003");
    let city = channel("PJSIP/city-00000002", 2).join_call(&phone);
    let mut story = Story::new();
    story.at(0.0).create(&phone, Ring).create(&city, Down);
    story.state(&city, Ringing);
    let kind = Kind::DialEnd {
        by: Some(Box::new(phone.0.clone())),
        status: Cow::Borrowed("BUSY"),
    };
    story.at(3.0).add_event(&city, kind);
    let call = story.hangups(&[&city, &phone]).call();
    let why = call.incomplete.expect("a reason");
    assert!(why.contains("which number was dialed"), "{why}");
}

/// As far as is known, the customer was alone in the bridge. The phone's exit isn't reported until
/// after the customer's call has ended.
#[test]
fn customer_alone_in_a_bridge_while_a_phone_is_up_is_incomplete() {
    let city = customer(1);
    let phone = channel("PJSIP/101-00000002", 2).join_call(&city);
    let mut story = Story::new();
    story.at(0.0).create(&city, Ring).state(&city, Up);
    story
        .at(1.0)
        .create(&phone, Down)
        .dial(&city, &phone, "101");
    story.at(3.0).state(&phone, Up).enter(&city, "b1");
    story.at(9.0).leave(&city, "b1").hangup(&city);
    story.at(12.0).leave(&phone, "b1").hangup(&phone);
    let call = story.call();
    let reason = call.incomplete.expect("incomplete");
    assert!(reason.contains("bridge"), "{reason}");
}

/// CEL doesn't report who else is in a conference of these applications.
#[test]
fn customer_in_an_unreported_conference_is_incomplete_in_cel() {
    for application in [
        "ConfBridge",
        "MeetMe",
        "Conference",
        "Konference",
        "confbridge",
    ] {
        let city = customer(1);
        let mut story = Story::from_cel();
        story.at(0.0).create(&city, Ring).state(&city, Up);
        story.at(1.0).app(&city, application, "600");
        story.at(30.0).hangup(&city);
        let reason = story.call().incomplete.expect("incomplete");
        assert!(reason.contains("conference"), "{application}: {reason}");
    }
}
