//! Tests of AMI 1.x, which has neither linkedids nor bridges, and where masquerades move phones
//! from one unique ID to another.

use crate::durability::check_restarts;
use crate::story::{Channel, EPOCH, Story, channel, extensions};
use callbridge_call::ChannelState::{Down, Ring, Ringing, Unknown, Up};
use callbridge_call::{Direction, FinishedCall, Kind};
use std::borrow::Cow;

/// Returns a channel without a linkedid, as reported by AMI 1.x.
fn channel_without_linkedid(name: &str, number: u32) -> Channel {
    let mut channel = channel(name, number);
    channel.0.linkedid = Cow::Borrowed("");
    channel
}

/// Returns a copy of `channel` with a different name but the same unique ID.
fn channel_with_name(channel: &Channel, name: &str) -> Channel {
    let mut channel = channel.clone();
    channel.0.name = Cow::Owned(name.to_owned());
    channel
}

/// Events that only AMI 1.x reports.
trait OldStory {
    fn link(&mut self, one: &Channel, two: &Channel) -> &mut Self;
    fn unlink(&mut self, one: &Channel, two: &Channel) -> &mut Self;
    fn rename(&mut self, channel: &Channel, to: &str) -> &mut Self;
    /// Adds the events that Asterisk 1.6 to 11 send for a masquerade. The phone of `clone`
    /// continues under the unique ID of `original`, and the phone of `original` becomes a zombie.
    fn masquerade(&mut self, clone: &Channel, original: &Channel) -> &mut Self;
}

impl OldStory for Story {
    fn link(&mut self, one: &Channel, two: &Channel) -> &mut Self {
        let with = Box::new(two.0.clone());
        self.add_event(one, Kind::Linked { with })
    }

    fn unlink(&mut self, one: &Channel, two: &Channel) -> &mut Self {
        let with = Box::new(two.0.clone());
        self.add_event(one, Kind::Unlinked { with })
    }

    fn rename(&mut self, channel: &Channel, to: &str) -> &mut Self {
        let (to, holder) = (Cow::Owned(to.to_owned()), Cow::Borrowed(""));
        self.add_event(channel, Kind::Renamed { to, holder })
    }

    fn masquerade(&mut self, clone: &Channel, original: &Channel) -> &mut Self {
        let (mask, zombie) = (
            format!("{}<MASQ>", clone.0.name),
            format!("{}<ZOMBIE>", original.0.name),
        );
        self.rename(clone, &mask)
            .rename(original, &clone.0.name)
            .rename(&channel_with_name(clone, &mask), &zombie)
            .hangup(&channel_with_name(clone, &zombie))
    }
}

fn single_customer_call(story: &Story) -> FinishedCall {
    let mut calls = story.calls();
    calls.retain(|call| call.direction != Direction::Internal);
    assert_eq!(calls.len(), 1, "{calls:#?}");
    calls.remove(0)
}

/// Returns a call in progress, along with the customer's and 101's channels. The customer calls at
/// 0 s and talks to 101 from 2 s on.
fn answered_call() -> (Story, Channel, Channel) {
    let city = channel_without_linkedid("SIP/carrier-00000001", 1)
        .caller("998901110001")
        .exten("7001");
    let agent = channel_without_linkedid("SIP/101-00000002", 2);
    let mut story = Story::new();
    story.at(0.0).create(&city, Down).state(&city, Ring);
    story
        .at(0.1)
        .create(&agent, Down)
        .dial(&city, &agent, "101");
    story.state(&agent, Ringing);
    story.at(2.0).state(&agent, Up).state(&city, Up);
    story.link(&city, &agent);
    (story, city, agent)
}

#[test]
fn link_and_unlink_events_delimit_talk() {
    let (mut story, city, agent) = answered_call();
    story.at(5.0).unlink(&city, &agent);
    story.at(5.0).hangup(&agent);
    story.at(6.0).hangup(&city);
    let call = single_customer_call(&story);
    assert_eq!(call.direction, Direction::Inbound);
    assert_eq!(call.linkedid.as_str(), format!("{EPOCH}.1"));
    assert_eq!((call.answered, call.talk.as_secs_f64()), (true, 3.0));
    assert_eq!(call.ended.since(call.started).as_secs_f64(), 6.0);
    assert_eq!(extensions(&call), ["101"]);
    assert_eq!(call.incomplete, None);
}

#[test]
fn attended_transfer_moves_customer_to_colleague() {
    let (mut story, city, agent) = answered_call();
    let asks = channel_without_linkedid("SIP/101-00000003", 3).exten("102");
    let colleague = channel_without_linkedid("SIP/102-00000004", 4);
    story.at(3.0).create(&asks, Down).state(&asks, Ring);
    story
        .create(&colleague, Down)
        .dial(&asks, &colleague, "102");
    story.at(4.0).state(&colleague, Up).link(&asks, &colleague);
    // The customer continues under the unique ID of 101's second call.
    story.at(6.0).unlink(&city, &agent);
    story.masquerade(&city, &asks);
    story.hangup(&agent);
    let city = channel_with_name(&asks, "SIP/carrier-00000001");
    story.at(9.0).unlink(&city, &colleague).hangup(&colleague);
    story.hangup(&city);
    let call = single_customer_call(&story);
    assert_eq!((call.answered, call.talk.as_secs_f64()), (true, 7.0));
    assert_eq!(extensions(&call), ["101", "102"]);
    assert_eq!(call.ended.since(call.started).as_secs_f64(), 9.0);
    assert_eq!(call.incomplete, None);
}

#[test]
fn employee_is_the_phone_that_picked_up_not_the_one_rung() {
    let city = channel_without_linkedid("SIP/carrier-00000001", 1).caller("998901110001");
    let rang = channel_without_linkedid("SIP/101-00000002", 2);
    let picks = channel_without_linkedid("SIP/102-00000003", 3).exten("*8");
    let mut story = Story::new();
    story.at(0.0).create(&city, Down).state(&city, Ring);
    story.create(&rang, Down).dial(&city, &rang, "101");
    story.state(&rang, Ringing);
    story.at(2.0).create(&picks, Down).state(&picks, Ring);
    story.at(2.5).masquerade(&picks, &rang);
    let picks = channel_with_name(&rang, "SIP/102-00000003");
    story.at(2.6).link(&city, &picks);
    story
        .at(7.6)
        .unlink(&city, &picks)
        .hangup(&picks)
        .hangup(&city);
    let call = single_customer_call(&story);
    assert_eq!((call.answered, call.talk.as_secs_f64()), (true, 5.0));
    assert_eq!(extensions(&call), ["102"]);
}

#[test]
fn optimized_local_channel_does_not_interrupt_talk() {
    let city = channel_without_linkedid("SIP/carrier-00000001", 1).caller("998901110001");
    let near = channel_without_linkedid("Local/101@agents-0001;1", 2);
    let far = channel_without_linkedid("Local/101@agents-0001;2", 3);
    let agent = channel_without_linkedid("SIP/101-00000002", 4);
    let mut story = Story::new();
    story.at(0.0).create(&city, Ring);
    story.at(1.0).create(&near, Down).create(&far, Ring);
    story.create(&agent, Down).dial(&far, &agent, "101");
    story.at(3.0).state(&agent, Up).link(&far, &agent);
    story.at(3.1).link(&city, &near);
    story.at(3.2).masquerade(&agent, &near).hangup(&far);
    let agent = channel_with_name(&near, "SIP/101-00000002");
    story
        .at(8.1)
        .unlink(&city, &agent)
        .hangup(&agent)
        .hangup(&city);
    let call = single_customer_call(&story);
    assert_eq!((call.answered, call.talk.as_secs_f64()), (true, 5.0));
    assert_eq!(extensions(&call), ["101"]);
}

#[test]
fn masquerade_without_its_event_is_detected_by_channel_names() {
    let (mut story, city, agent) = answered_call();
    let asks = channel_without_linkedid("SIP/101-00000003", 3).exten("102");
    let colleague = channel_without_linkedid("SIP/102-00000004", 4);
    story.at(3.0).create(&asks, Down).state(&asks, Ring);
    story
        .create(&colleague, Down)
        .dial(&asks, &colleague, "102");
    story.at(4.0).state(&colleague, Up).link(&asks, &colleague);
    // Neither a `Rename` nor a `Masquerade` is received, but the names in the next events reveal
    // the change.
    let moved = channel_with_name(&asks, "SIP/carrier-00000001");
    story.at(6.0).unlink(&city, &agent).link(&moved, &colleague);
    story
        .hangup(&channel_with_name(&city, "SIP/101-00000003<ZOMBIE>"))
        .hangup(&agent);
    story.at(9.0).hangup(&colleague).hangup(&moved);
    let call = single_customer_call(&story);
    assert_eq!(extensions(&call), ["101", "102"]);
    assert_eq!(call.talk.as_secs_f64(), 7.0);
}

#[test]
fn unrelated_calls_without_linkedids_are_not_joined() {
    let (mut story, city, agent) = answered_call();
    let (other, colleague) = (
        channel_without_linkedid("SIP/carrier-00000009", 9).caller("998901110002"),
        channel_without_linkedid("SIP/102-0000000a", 10),
    );
    story.at(2.5).create(&other, Ring).create(&colleague, Down);
    story
        .dial(&other, &colleague, "102")
        .link(&other, &colleague);
    story.at(5.0).hangup(&agent).hangup(&city);
    story.at(6.0).hangup(&other).hangup(&colleague);
    let calls = story.calls();
    let ids: Vec<&str> = calls.iter().map(|call| call.linkedid.as_str()).collect();
    assert_eq!(ids, [format!("{EPOCH}.1"), format!("{EPOCH}.9")]);
}

#[test]
fn open_call_survives_a_restart_in_the_middle_of_a_transfer() {
    let (mut story, city, agent) = answered_call();
    let asks = channel_without_linkedid("SIP/101-00000003", 3).exten("102");
    let colleague = channel_without_linkedid("SIP/102-00000004", 4);
    story.at(3.0).create(&asks, Down).create(&colleague, Down);
    story.dial(&asks, &colleague, "102").link(&asks, &colleague);
    story.at(6.0).masquerade(&city, &asks).hangup(&agent);
    let moved = channel_with_name(&asks, "SIP/carrier-00000001");
    story.at(9.0).hangup(&colleague).hangup(&moved);
    assert_eq!(check_restarts(&story), 1);
}

/// Returns a copy of `channel` without any IDs, which is how old CEL reports a peer.
fn channel_without_ids(channel: &Channel) -> Channel {
    let mut channel = channel.clone();
    channel.0.uniqueid = Cow::Borrowed("");
    channel.0.linkedid = Cow::Borrowed("");
    channel
}

#[test]
fn cel_before_asterisk_12_joins_channels_by_peer_names() {
    let city = channel("SIP/carrier-00000001", 1)
        .caller("998901110001")
        .exten("7001");
    let agent = channel("SIP/101-00000002", 2).join_call(&city).exten("s");
    let asks = channel("SIP/101-00000003", 3).exten("102").caller("101");
    let colleague = channel("SIP/102-00000004", 4).join_call(&asks).exten("s");
    let [agent_peer, colleague_peer] = [&agent, &colleague].map(channel_without_ids);
    let mut story = Story::from_cel();
    story.at(0.0).create(&city, Unknown).create(&agent, Unknown);
    story.at(2.0).state(&agent, Up).link(&city, &agent_peer);
    story
        .at(3.0)
        .create(&asks, Unknown)
        .create(&colleague, Unknown);
    story.at(4.0).link(&asks, &colleague_peer);
    // CEL doesn't report masquerades. From now on, the rows of 101's second call have the name of
    // the customer's channel.
    let mut moved = channel_with_name(&asks, "SIP/carrier-00000001");
    moved.0.linkedid = city.0.linkedid.clone();
    story.at(6.0).unlink(&city, &agent_peer);
    story.join(&agent, &asks).hangup(&agent);
    story.hangup(&channel_with_name(&city, "SIP/101-00000003<ZOMBIE>"));
    story.at(9.0).unlink(&moved, &colleague_peer);
    story.hangup(&colleague).hangup(&moved);
    let call = single_customer_call(&story);
    assert_eq!(call.direction, Direction::Inbound);
    assert_eq!(extensions(&call), ["101", "102"]);
    assert_eq!(call.talk.as_secs_f64(), 7.0);
}

fn is_incomplete(story: &Story) -> bool {
    let call = single_customer_call(story);
    call.incomplete.is_some()
}

#[test]
fn link_with_a_lost_end_makes_the_call_incomplete() {
    let (mut story, city, agent) = answered_call();
    story.at(9.0).hangups(&[&agent, &city]);
    assert!(is_incomplete(&story));
}

#[test]
fn link_with_a_lost_start_makes_the_call_incomplete() {
    let (mut story, city, agent) = answered_call();
    story.at(3.0).unlink(&city, &agent);
    story.at(9.0).unlink(&city, &agent);
    story.hangups(&[&agent, &city]);
    assert!(is_incomplete(&story));
}

/// The customer is parked, which means that another unique ID takes on their name, but none of its
/// events arrive.
#[test]
fn telephone_that_goes_to_an_unknown_place_is_incomplete() {
    let (mut story, city, agent) = answered_call();
    story.at(3.0).unlink(&city, &agent);
    let zombie = "Parked/SIP/carrier-00000001<ZOMBIE>";
    story.rename(&city, zombie);
    story.hangups(&[&channel_with_name(&city, zombie), &agent]);
    assert!(is_incomplete(&story));
}

#[test]
fn name_that_was_not_taken_on_makes_the_call_incomplete() {
    let (mut story, city, agent) = answered_call();
    let asks = channel_without_linkedid("SIP/101-00000003", 3).exten("102");
    story.at(3.0).create(&asks, Down).state(&asks, Ring);
    story.at(4.0).unlink(&city, &agent).join(&asks, &city);
    story.hangup(&channel_with_name(&city, "SIP/101-00000003<ZOMBIE>"));
    let moved = channel_with_name(&asks, "SIP/carrier-00000001");
    story.at(9.0).state(&moved, Up).hangups(&[&moved, &agent]);
    assert!(is_incomplete(&story));
}

#[test]
fn picked_up_call_without_its_link_is_incomplete() {
    let city = channel_without_linkedid("SIP/carrier-00000001", 1)
        .caller("998901110001")
        .exten("7001");
    let rung = channel_without_linkedid("SIP/101-00000002", 2);
    let picker = channel_without_linkedid("SIP/103-00000003", 3).exten("*8");
    let mut story = Story::new();
    story.at(0.0).create(&city, Down).state(&city, Ring);
    story.create(&rung, Down).dial(&city, &rung, "101");
    story.state(&rung, Ringing);
    story.at(3.0).create(&picker, Down).state(&picker, Ring);
    story.masquerade(&picker, &rung).state(&city, Up);
    let picker = channel_with_name(&rung, "SIP/103-00000003");
    story.at(9.0).hangups(&[&picker, &city]);
    assert!(is_incomplete(&story));
}

#[test]
fn trunk_without_a_state_makes_the_call_incomplete() {
    let city = channel_without_linkedid("SIP/carrier-00000001", 1);
    let mut story = Story::new();
    story.at(0.0).create(&city, Down).at(9.0).hangup(&city);
    assert!(is_incomplete(&story));
}
