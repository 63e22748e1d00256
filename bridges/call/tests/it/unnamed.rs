//! Tests of bridges without IDs, as reported by CEL without `Extra`.

use crate::story::{Story, channel, customer, extensions, seconds};
use callbridge_call::ChannelState::{Unknown, Up};
use callbridge_call::Direction::{Inbound, Outbound};
use callbridge_call::Origin;

/// A Local channel dials a mobile phone over a trunk, then the user's phone, and is optimized away.
/// The events are like those in the CEL tables of wazo-call-logd's tests, which have neither
/// `extra` nor `peer`.
#[test]
fn phone_replacing_local_channel_talks_with_waiting_party() {
    let one = channel("Local/mobile@out-00000005;1", 20);
    let two = channel("Local/mobile@out-00000005;2", 21).join_call(&one);
    let city = channel("SIP/carrier-00000008", 22).join_call(&one);
    let phone = channel("SIP/103-00000009", 23).join_call(&one);
    let mut story = Story::new();
    story.set_origin(Origin::Cel);
    story.at(0.0).create(&one, Unknown).create(&two, Unknown);
    story
        .at(0.2)
        .create(&city, Unknown)
        .at(5.6)
        .create(&phone, Unknown);
    story.at(4.85).enter(&city, "?").at(4.86).enter(&two, "?");
    story.at(8.65).enter(&phone, "?").at(8.67).enter(&one, "?");
    story.at(8.68).leave(&phone, "?").leave(&two, "?");
    story.at(8.69).enter(&phone, "?").leave(&one, "?");
    story.at(8.70).hangups(&[&one, &two]);
    story.at(10.9).leave(&phone, "?").hangup(&phone);
    story.at(11.0).leave(&city, "?").hangup(&city);
    let call = story.call();
    let (talk, length) = seconds(&call);
    assert!((talk - 2.25).abs() < 0.1, "{talk}");
    assert_eq!(length, 11.0);
    assert_eq!(extensions(&call), ["103"]);
}

#[test]
fn waiting_customer_does_not_talk_during_consultation() {
    for is_peer_named in [true, false] {
        let (city, first) = (customer(1), channel("PJSIP/101-00000002", 2));
        let (first, second) = (
            first.join_call(&city),
            channel("PJSIP/102-00000003", 3).join_call(&city),
        );
        let mut story = Story::new();
        story.set_origin(Origin::Cel);
        story
            .at(0.0)
            .create(&city, Unknown)
            .at(0.1)
            .create(&first, Unknown);
        story.at(1.0).enter(&first, "?");
        let with_first = bridge_with_peer("PJSIP/101-00000002", is_peer_named);
        let with_city = bridge_with_peer(&city.0.name, is_peer_named);
        story.at(1.01).enter(&city, &with_first);
        story.at(3.0).leave(&first, "?").at(3.01).enter(&first, "?");
        story.at(3.5).create(&second, Unknown);
        story.at(3.6).enter(&second, &with_first);
        story.at(8.0).leave(&second, "?").hangup(&second);
        story.at(8.1).leave(&first, "?");
        story.at(8.11).enter(&first, &with_city);
        story.at(10.0).leave(&first, "?").leave(&city, "?");
        story.hangups(&[&first, &city]);
        let call = story.call();
        assert!(
            (seconds(&call).0 - 3.88).abs() < 0.1,
            "{is_peer_named} {:?}",
            seconds(&call)
        );
        assert_eq!(extensions(&call), ["101"]);
    }
}

/// Returns the name of a bridge without an ID, including the channel name `peer` if the PBX reports
/// it.
fn bridge_with_peer(peer: &str, is_peer_named: bool) -> String {
    format!("?{}", if is_peer_named { peer } else { "" })
}

/// The events are like those in the CEL tables of XiVO's acceptance tests (Asterisk 11 without
/// `Peer`).
#[test]
fn one_sided_bridge_connects_last_answered_channel() {
    let city = customer(1).caller("998901110001").exten("7001");
    let busy = channel("SIP/102-00000002", 2).join_call(&city);
    let phone = channel("SIP/101-00000003", 3).join_call(&city);
    let mut story = Story::new();
    story.set_origin(Origin::Cel);
    story
        .at(0.0)
        .create(&city, Unknown)
        .at(0.1)
        .create(&busy, Unknown)
        .create(&phone, Unknown);
    story.at(3.9).hangup(&busy);
    story.at(4.0).state(&phone, Up).at(4.1).state(&city, Up);
    story.at(4.2).enter(&city, "?*");
    story.at(7.0).leave(&city, "?*");
    story.at(7.1).hangup(&phone).at(7.3).hangup(&city);
    let call = story.call();
    let (talk, length) = seconds(&call);
    assert!((talk - 2.8).abs() < 1e-6, "{talk}");
    assert!((length - 7.3).abs() < 1e-6);
    assert_eq!(extensions(&call), ["101"]);
}

/// CEL events of Asterisk 11 without `Peer` and without fractional seconds.
#[test]
fn one_sided_bridges_join_through_local_channel() {
    let city = channel("SIP/carrier-0000000a", 10).caller("901112233");
    let one = channel("Local/202@ring-0001;1", 11).join_call(&city);
    let two = channel("Local/202@ring-0001;2", 12).join_call(&city);
    let phone = channel("SIP/202-0000000c", 13).join_call(&city);
    let mut story = Story::from_cel();
    story
        .at(0.0)
        .create(&city, Unknown)
        .at(0.1)
        .create(&one, Unknown);
    story.create(&two, Unknown).at(0.2).create(&phone, Unknown);
    // All events are in the same second, as in files without fractional seconds.
    story.at(3.0).state(&phone, Up).state(&two, Up);
    story.enter(&two, "?*").state(&one, Up).state(&city, Up);
    story.enter(&city, "?*");
    story.at(8.0).leave(&two, "?*").hangups(&[&phone, &two]);
    story.leave(&city, "?*").hangups(&[&one, &city]);
    let call = story.call();
    assert_eq!(seconds(&call), (5.0, 8.0));
    assert_eq!(extensions(&call), ["202"]);
}

/// Two parties are called, one after the other. Each bridge connects the phone to whichever party
/// is there at that time, and each party has its own call.
#[test]
fn consecutive_one_sided_bridges_each_count_for_their_own_call() {
    let phone = channel("SIP/201-0000000a", 10).caller("201").exten("0");
    let first = channel("SIP/carrier-0000000b", 11).join_call(&phone);
    let second = channel("SIP/carrier-0000000c", 12).join_call(&phone);
    let mut story = Story::from_cel();
    story
        .at(0.0)
        .create(&phone, Unknown)
        .at(0.1)
        .create(&first, Unknown);
    story.at(2.0).state(&first, Up).state(&phone, Up);
    story.enter(&phone, "?*").at(4.0).leave(&phone, "?*");
    story.hangup(&first).at(4.5).create(&second, Unknown);
    story.at(6.0).state(&second, Up).enter(&phone, "?*");
    story
        .at(9.0)
        .leave(&phone, "?*")
        .hangups(&[&second, &phone]);
    let calls = story.calls();
    assert!(calls.iter().all(|call| call.direction == Outbound));
    let talk: Vec<f64> = calls.iter().map(|call| seconds(call).0).collect();
    assert_eq!(talk, [2.0, 3.0]);
}

/// The CEL table only has the columns eventtype, eventtime, channame, uniqueid, and linkedid. A
/// call that starts on a trunk is considered inbound, because most such calls are.
#[test]
fn trunk_call_without_extensions_or_numbers_is_inbound() {
    let city = channel("PJSIP/city-00000001", 1);
    let phone = channel("PJSIP/101-00000002", 2).join_call(&city);
    let mut story = Story::from_cel();
    story
        .at(0.0)
        .create(&city, Unknown)
        .at(1.0)
        .create(&phone, Unknown);
    story.at(3.0).enter(&phone, "?").enter(&city, "?");
    story.at(5.0).hangups(&[&phone, &city]);
    let call = story.call();
    assert_eq!(call.direction, Inbound);
    assert_eq!(seconds(&call).0, 2.0);
}
