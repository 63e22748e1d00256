//! Tests of which channels form a single call, and which linkedid that call gets.

use crate::story::{
    Story, answered_by_101, assembler, channel, customer, employee, extensions, moment, seconds,
};
use callbridge_call::ChannelState::{Down, Ring, Ringing, Up};
use callbridge_call::Direction;
use callbridge_call::event::Kind;

fn assert_two_separate_calls(story: &Story) {
    let calls = story.calls();
    let alone = calls
        .iter()
        .filter(|call| !call.answered && call.also_known_as.is_empty());
    assert_eq!((alone.count(), calls.len()), (2, 2), "{calls:?}");
}

#[test]
fn bridged_calls_join_under_numerically_oldest_linkedid() {
    // 9 is older than 10, even though "10" sorts before "9".
    let city = customer(9);
    let phone = channel("PJSIP/101-00000002", 10).join_call(&city);
    let colleague = channel("PJSIP/102-00000003", 11);
    let mut story = Story::new();
    story
        .at(0.0)
        .create(&city, Ring)
        .create(&phone, Down)
        .dial(&city, &phone, "101");
    story.at(1.0).enter(&phone, "b1").enter(&city, "b1");
    story.at(2.0).create(&colleague, Ring);
    story
        .at(3.0)
        .leave(&phone, "b1")
        .hangup(&phone)
        .enter(&colleague, "b1");
    story.at(6.0).hangups(&[&city, &colleague]);
    let call = story.call();
    assert_eq!(call.linkedid.as_str(), city.id());
    let aliases: Vec<&str> = call.also_known_as.iter().map(|id| id.as_str()).collect();
    assert_eq!(aliases, [phone.id(), colleague.id()]);
    assert_eq!(extensions(&call), ["101", "102"]);
}

#[test]
fn colleague_in_conference_talks_and_gets_a_separate_call() {
    let (mut story, city, phone) = answered_by_101();
    let colleague = channel("PJSIP/102-00000003", 3);
    story.at(3.0).leave(&city, "b1").leave(&phone, "b1");
    story
        .enter_kind(&city, "room", "softmix")
        .enter_kind(&phone, "room", "softmix");
    story
        .at(5.0)
        .create(&colleague, Down)
        .originate(&colleague, "102");
    story.at(6.0).enter_kind(&colleague, "room", "softmix");
    story
        .at(9.0)
        .leave_kind(&city, "room", "softmix")
        .hangup(&city);
    story.at(30.0).hangups(&[&phone, &colleague]);
    let calls = story.calls();
    assert_eq!(calls.len(), 2, "{calls:?}");
    let (call, own) = (&calls[0], &calls[1]);
    assert_eq!(call.linkedid.as_str(), city.id());
    assert_eq!(own.linkedid.as_str(), colleague.id());
    assert_eq!(own.direction, Direction::Internal);
    assert_eq!(
        (employee(call), extensions(call)),
        (Some("102"), vec!["101", "102"])
    );
    // The colleagues stay, but the call is over when the customer leaves.
    assert_eq!(seconds(call), (8.0, 9.0));
}

#[test]
fn two_customers_in_one_conference_are_two_calls() {
    let (mut story, city, phone) = answered_by_101();
    let second = channel("PJSIP/gsm-00000003", 3).caller("998901110002");
    story.at(2.0).create(&second, Ring);
    for channel in [&city, &phone, &second] {
        story.at(3.0).enter_kind(channel, "room", "softmix");
    }
    story
        .at(8.0)
        .hangup(&second)
        .at(9.0)
        .hangups(&[&city, &phone]);
    let calls = story.calls();
    let ids: Vec<&str> = calls.iter().map(|call| call.linkedid.as_str()).collect();
    assert_eq!(ids, [city.id(), second.id()]);
    assert_eq!(calls[1].trunk.as_deref(), Some("gsm"));
    assert_eq!(
        (seconds(&calls[0]), seconds(&calls[1])),
        ((8.0, 9.0), (5.0, 6.0))
    );
    // Neither call has the other's ID, so late events of one don't end up in the other.
    assert!(!calls[0].also_known_as.contains(&calls[1].linkedid));
    assert!(!calls[1].also_known_as.contains(&calls[0].linkedid));
}

#[test]
fn customers_in_one_holding_bridge_are_not_joined() {
    let (first, second) = (customer(1), customer(2));
    let mut story = Story::new();
    story
        .at(0.0)
        .create(&first, Ring)
        .enter_kind(&first, "lot", "holding_bridge");
    story
        .at(1.0)
        .create(&second, Ring)
        .enter_kind(&second, "lot", "holding_bridge");
    story.at(4.0).hangup(&first).at(5.0).hangup(&second);
    assert_two_separate_calls(&story);
}

#[test]
fn bridge_used_by_two_calls_in_turn_does_not_join_them() {
    // Both calls are open the whole time, but they're never in the room together.
    let (first, second) = (customer(1), customer(2));
    let mut story = Story::new();
    story.at(0.0).create(&first, Ring).create(&second, Ring);
    story.at(1.0).enter_kind(&first, "room", "softmix");
    story.at(2.0).leave_kind(&first, "room", "softmix");
    story.at(3.0).enter_kind(&second, "room", "softmix");
    story.at(6.0).hangups(&[&first, &second]);
    assert_two_separate_calls(&story);
}

#[test]
fn linkedid_changed_by_last_event_still_joins_calls() {
    let (mut story, city, phone) = answered_by_101();
    let colleague = channel("PJSIP/102-00000003", 3);
    story.at(2.0).create(&colleague, Ring);
    story.at(4.0).hangups(&[&city, &phone]);
    story.at(4.1).hangup(&colleague.clone().join_call(&city));
    let call = story.call();
    assert_eq!(call.linkedid.as_str(), city.id());
    assert!(
        call.also_known_as
            .iter()
            .any(|id| id.as_str() == colleague.id())
    );
}

#[test]
fn pickup_joins_the_call_that_was_picked_up() {
    let city = customer(1);
    let phone = channel("PJSIP/101-00000002", 2).join_call(&city);
    let colleague = channel("PJSIP/102-00000003", 3).exten("*8");
    let mut story = Story::new();
    story
        .at(0.0)
        .create(&city, Ring)
        .create(&phone, Down)
        .dial(&city, &phone, "101");
    story.state(&phone, Ringing);
    story
        .at(2.0)
        .create(&colleague, Ring)
        .join(&colleague, &phone)
        .hangup(&phone);
    story
        .at(2.1)
        .state(&colleague, Up)
        .enter(&colleague, "b1")
        .enter(&city, "b1");
    story.at(5.0).hangups(&[&colleague, &city]);
    let call = story.call();
    assert_eq!(call.direction, Direction::Inbound);
    assert_eq!(
        (employee(&call), extensions(&call)),
        (Some("102"), vec!["102"])
    );
}

#[test]
fn linkedid_end_does_not_end_the_call() {
    let (mut story, city, phone) = answered_by_101();
    story.at(2.0).add_event(&phone, Kind::LinkedidEnd);
    story.at(9.0).hangups(&[&phone, &city]);
    assert_eq!(seconds(&story.call()), (8.0, 9.0));
}

/// The events are those of a FreePBX CEL table that contains the customer's hangup, but not the
/// hangups of a queue's Local channels. The table's last row is `LINKEDID_END`.
#[test]
fn recorded_call_is_complete_once_its_customer_left() {
    for (leaves, cut) in [(true, false), (false, false), (true, true)] {
        let (mut story, city, phone) = answered_by_101();
        if leaves {
            story.at(8.0).leave(&phone, "b1");
        }
        story.at(8.0).leave(&city, "b1").hangup(&city);
        if !cut {
            story.at(8.0).add_event(&city, Kind::LinkedidEnd);
        }
        let mut assembler = assembler();
        for (at, event) in &story.events {
            assembler.on_event(event, *at);
        }
        assembler.finish_all(moment(8.0));
        let calls = assembler.take_finished();
        assert_eq!(calls.len(), 1);
        assert_eq!(seconds(&calls[0]), (7.0, 8.0));
        assert_eq!(calls[0].incomplete, None);
    }
}

#[test]
fn early_colleague_in_room_does_not_start_customer_call() {
    let colleague = channel("PJSIP/101-00000001", 1).exten("600");
    let city = customer(2);
    let mut story = Story::new();
    story
        .at(0.0)
        .create(&colleague, Ring)
        .enter_kind(&colleague, "room", "softmix");
    story
        .at(60.0)
        .create(&city, Ring)
        .at(61.0)
        .enter_kind(&city, "room", "softmix");
    story.at(66.0).hangups(&[&city, &colleague]);
    let calls = story.calls();
    let [own, call] = calls.as_slice() else {
        panic!("{calls:?}");
    };
    assert_eq!(
        (own.linkedid.as_str(), own.direction),
        (colleague.id(), Direction::Internal)
    );
    assert_eq!(
        (call.direction, employee(call)),
        (Direction::Inbound, Some("101"))
    );
    assert_eq!(call.linkedid.as_str(), city.id());
    assert_eq!(seconds(call), (5.0, 6.0));
}

#[test]
fn events_without_linkedids_are_joined_by_dials_and_bridges() {
    let mut phone = channel("SIP/314-00000733", 1).exten("89172812810");
    phone.0.linkedid = Default::default();
    let mut trunk = channel("SIP/carrier-00000734", 2);
    trunk.0.linkedid = Default::default();
    let mut story = Story::new();
    story
        .at(0.0)
        .create(&phone, Down)
        .state(&phone, Ring)
        .create(&trunk, Down);
    story
        .dial(&phone, &trunk, "carrier/89172812810")
        .state(&trunk, Ringing);
    story.at(2.0).enter(&phone, "b1").enter(&trunk, "b1");
    story.at(6.0).hangups(&[&phone, &trunk]);
    let call = story.call();
    assert_eq!(
        (call.direction, employee(&call)),
        (Direction::Outbound, Some("314"))
    );
    assert_eq!(call.linkedid.as_str(), phone.id());
}
