//! Tests of channels whose technology callbridge doesn't know. They're phones if they dial or were
//! dialed, and may or may not be phones if they only share a bridge.

use crate::story::{Channel, Story, channel, customer, employee, seconds};
use callbridge_call::ChannelState::{Down, Ring, Ringing, Unknown, Up};
use callbridge_call::{Direction, FinishedCall};

/// A customer's 30-second call that the phone `TAPI/1` answers after four seconds.
fn dialed_phone(mut story: Story) -> FinishedCall {
    let city = customer(1);
    let phone = channel("TAPI/1-00000002", 2).join_call(&city).exten("s");
    story.at(0.0).create(&city, Ring);
    story.at(1.0).create(&phone, Down);
    story.dial(&city, &phone, "1").state(&phone, Ringing);
    story.at(5.0).state(&phone, Up).state(&city, Up);
    story.enter(&phone, "b1").enter(&city, "b1");
    story.at(30.0).leave(&phone, "b1").leave(&city, "b1");
    story.hangups(&[&phone, &city]);
    story.call()
}

#[test]
fn dialed_channel_of_unknown_technology_is_a_phone() {
    for story in [Story::new(), Story::from_cel()] {
        let call = dialed_phone(story);
        assert!(call.answered && call.incomplete.is_none(), "{call:?}");
        assert_eq!(employee(&call), Some("1"));
        assert_eq!(seconds(&call), (25.0, 30.0));
        assert!(call.unknown_channels.is_empty());
    }
}

#[test]
fn calling_channel_of_unknown_technology_is_a_phone() {
    let phone = channel("TAPI/2", 1).caller("102").exten("998901110002");
    let city = channel("PJSIP/city-00000002", 2).join_call(&phone);
    let mut story = Story::new();
    story.at(0.0).create(&phone, Ring);
    story.at(1.0).create(&city, Down);
    story.dial(&phone, &city, "998901110002@city");
    story.at(5.0).state(&city, Up).state(&phone, Up);
    story.enter(&city, "b1").enter(&phone, "b1");
    story.at(30.0).leave(&city, "b1").leave(&phone, "b1");
    story.hangups(&[&city, &phone]);
    let call = story.call();
    assert_eq!(call.direction, Direction::Outbound);
    assert_eq!(employee(&call), Some("2"));
    assert!(call.answered && call.incomplete.is_none());
}

/// Starts a customer's call and a channel that nobody dialed, and connects the two from second 5 to
/// second 30.
fn media_in_bridge(technology: &str) -> (Story, Channel, Channel) {
    let city = customer(1);
    let media = channel(&format!("{technology}/x-00000002"), 2).exten("s");
    let mut story = Story::new();
    story.at(0.0).create(&city, Ring);
    story.at(4.0).state(&city, Up).create(&media, Unknown);
    story.at(5.0).enter(&city, "b1").enter(&media, "b1");
    story.at(30.0).leave(&media, "b1").leave(&city, "b1");
    (story, city, media)
}

#[test]
fn channel_that_only_shares_a_bridge_may_be_a_phone() {
    let (mut story, city, media) = media_in_bridge("BRCM");
    story.hangups(&[&media, &city]);
    let call = story.call();
    let why = call.incomplete.expect("a reason");
    assert!(why.contains("whether BRCM channels are phones"), "{why}");
    assert_eq!(call.unknown_channels, ["BRCM/x"]);
}

#[test]
fn known_plumbing_in_a_bridge_leaves_the_call_missed() {
    for technology in ["UnicastRTP", "AudioSocket", "Recorder", "Announcer"] {
        let (mut story, city, media) = media_in_bridge(technology);
        story.hangups(&[&media, &city]);
        let call = story.call();
        assert!(!call.answered && call.incomplete.is_none(), "{technology}");
        assert!(call.unknown_channels.is_empty());
    }
}

#[test]
fn unknown_channel_beside_a_known_phone_changes_nothing() {
    let (mut story, city, media) = media_in_bridge("BRCM");
    let phone = channel("PJSIP/101-00000003", 3).join_call(&city);
    story
        .at(4.0)
        .create(&phone, Down)
        .dial(&city, &phone, "101");
    story.at(5.0).state(&phone, Up).enter(&phone, "b1");
    story.at(30.0).leave(&phone, "b1");
    story.hangups(&[&phone, &media, &city]);
    let call = story.call();
    assert!(call.answered && call.incomplete.is_none(), "{call:?}");
    assert_eq!(employee(&call), Some("101"));
}
