//! Tests of how long the customer talked to another party.

use crate::story::{Story, answered_by_101, channel, customer, extensions, seconds};
use callbridge_call::ChannelState::{Down, Ring, Ringing, Up};
use callbridge_call::Origin;

/// Returns a call in which 101 and a customer talk for `length` seconds.
fn call_with_talk(length: f64) -> callbridge_call::FinishedCall {
    let (mut story, city, phone) = answered_by_101();
    story
        .at(1.0 + length)
        .leave(&city, "b1")
        .leave(&phone, "b1")
        .hangups(&[&city, &phone]);
    story.call()
}

#[test]
fn call_counts_as_answered_from_half_a_second_of_talk() {
    let (short, long) = (call_with_talk(0.499), call_with_talk(0.5));
    assert!(!short.answered && long.answered);
    assert_eq!(seconds(&short).0, 0.0);
    assert_eq!(seconds(&long), (0.5, 1.5));
    assert_eq!(
        short.remarks,
        ["499 ms of talk are too short for an answer"]
    );
}

#[test]
fn halves_of_a_local_channel_connect_their_bridges() {
    let city = customer(1);
    let one = channel("Local/101@internal-0000000c;1", 2).join_call(&city);
    let two = channel("Local/101@internal-0000000c;2", 3).join_call(&city);
    let phone = channel("PJSIP/101-00000002", 4).join_call(&city);
    let mut story = Story::new();
    story
        .at(0.0)
        .create(&city, Ring)
        .create(&one, Down)
        .create(&two, Ring)
        .create(&phone, Down);
    story
        .dial(&city, &one, "101@internal")
        .dial(&two, &phone, "101");
    // The queue's side is bridged immediately, and the phone's side once the phone answers.
    story.at(1.0).enter(&city, "b1").enter(&one, "b1");
    story.at(3.0).enter(&two, "b2").enter(&phone, "b2");
    story.at(7.0).hangups(&[&phone, &two, &one, &city]);
    let call = story.call();
    assert_eq!(
        (seconds(&call), extensions(&call)),
        ((4.0, 7.0), vec!["101"])
    );
}

#[test]
fn recorder_or_announcer_in_bridge_is_not_an_answer() {
    for name in [
        "Snoop/1795000000.1-00000001",
        "Recorder/ARI-00000001;2",
        "Announcer/ARI-00000001;2",
        "CBAnn/600-00000000;2",
        "UnicastRTP/127.0.0.1:4000-0x7f",
        "AudioSocket/127.0.0.1:4000-1",
        "Surrogate/PJSIP/101-00000002",
    ] {
        let (city, plumbing) = (customer(1), channel(name, 2));
        let mut story = Story::new();
        story
            .at(0.0)
            .create(&city, Ring)
            .at(1.0)
            .create(&plumbing, Up);
        story.enter(&city, "b1").enter(&plumbing, "b1");
        story.at(9.0).hangups(&[&plumbing, &city]);
        let call = story.call();
        assert!(!call.answered, "{name}");
        assert_eq!(call.employee, None, "{name}");
    }
}

#[test]
fn mobile_talk_begins_when_its_key_is_pressed() {
    let city = customer(1);
    let mobile = channel("PJSIP/gsm-00000002", 2).join_call(&city);
    let mut story = Story::new();
    story
        .at(0.0)
        .create(&city, Ring)
        .create(&mobile, Down)
        .dial(&city, &mobile, "998935550000@gsm");
    story.at(1.0).state(&mobile, Up);
    story.at(4.0).enter(&mobile, "b1").enter(&city, "b1");
    story.at(6.0).hangups(&[&mobile, &city]);
    assert_eq!(seconds(&story.call()), (2.0, 6.0));
}

#[test]
fn parking_lot_music_is_not_talk() {
    let (mut story, city, phone) = answered_by_101();
    story
        .at(3.0)
        .leave(&city, "b1")
        .enter_kind(&city, "lot", "holding_bridge");
    story.leave(&phone, "b1").hangup(&phone);
    story
        .at(8.0)
        .leave_kind(&city, "lot", "holding_bridge")
        .hangup(&city);
    assert_eq!(seconds(&story.call()), (2.0, 8.0));
}

#[test]
fn time_of_two_colleagues_at_once_counts_once() {
    let (mut story, city, phone) = answered_by_101();
    let colleague = channel("PJSIP/102-00000003", 3).join_call(&city);
    story
        .at(2.0)
        .create(&colleague, Down)
        .enter(&colleague, "b1");
    story.at(4.0).leave(&phone, "b1").hangup(&phone);
    story.at(6.0).hangups(&[&colleague, &city]);
    let call = story.call();
    assert_eq!(
        (seconds(&call), extensions(&call)),
        ((5.0, 6.0), vec!["101", "102"])
    );
}

#[test]
fn returning_extension_repeats_only_after_other_extension() {
    let (mut story, city, phone) = answered_by_101();
    let colleague = channel("PJSIP/102-00000003", 3).join_call(&city);
    story
        .at(2.0)
        .leave(&phone, "b1")
        .at(3.0)
        .enter(&phone, "b1");
    story
        .at(4.0)
        .leave(&phone, "b1")
        .create(&colleague, Down)
        .enter(&colleague, "b1");
    story
        .at(5.0)
        .leave(&colleague, "b1")
        .hangup(&colleague)
        .enter(&phone, "b1");
    story.at(6.0).hangups(&[&phone, &city]);
    assert_eq!(extensions(&story.call()), ["101", "102", "101"]);
}

#[test]
fn bridge_stay_without_end_ends_at_next_bridge_or_hangup() {
    let (mut story, city, phone) = answered_by_101();
    // The phone moves from b1 to another bridge, and its exit from b1 isn't received.
    story.at(3.0).enter(&phone, "b2");
    story.at(9.0).hangups(&[&phone, &city]);
    assert_eq!(seconds(&story.call()), (2.0, 9.0));
    let (mut story, city, phone) = answered_by_101();
    story.at(4.0).hangup(&phone).at(9.0).hangup(&city);
    assert_eq!(seconds(&story.call()), (3.0, 9.0));
}

#[test]
fn ami_and_cel_events_a_millisecond_apart_are_one_talk() {
    let (mut story, city, phone) = answered_by_101();
    let colleague = channel("PJSIP/102-00000003", 3).join_call(&city);
    story
        .at(2.0)
        .create(&colleague, Down)
        .enter(&colleague, "b1");
    for (origin, off) in [(Origin::Channel, 0.0), (Origin::Cel, -0.001)] {
        story.set_origin(origin);
        story.at(1.0 + off).enter(&phone, "b1").enter(&city, "b1");
        story.at(2.0 + off).enter(&colleague, "b1");
        story
            .at(3.0 + off)
            .leave(&phone, "b1")
            .at(3.0005 + off)
            .enter(&phone, "b1");
        story.at(6.0 + off).leave(&phone, "b1").leave(&city, "b1");
        story.at(6.0).hangups(&[&phone, &city, &colleague]);
    }
    story.events.sort_by_key(|&(at, _)| at);
    let call = story.call();
    assert_eq!(extensions(&call), ["101", "102", "101"]);
    assert_eq!(seconds(&call), (5.0, 6.0));
}

#[test]
fn ringing_in_an_answered_queue_is_not_talk() {
    let city = customer(1);
    let phone = channel("PJSIP/101-00000002", 2).join_call(&city);
    let mut story = Story::new();
    story.at(0.0).create(&city, Ring).state(&city, Up);
    story
        .at(1.0)
        .create(&phone, Down)
        .dial(&city, &phone, "PJSIP/101")
        .state(&phone, Ringing);
    story.at(9.0).hangups(&[&phone, &city]);
    let call = story.call();
    assert!(!call.answered);
    assert_eq!(seconds(&call), (0.0, 9.0));
}
