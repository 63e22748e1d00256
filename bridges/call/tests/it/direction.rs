//! Tests of a call's direction, which depends on who started it.

use crate::story::{Story, channel, customer, employee, extensions, seconds};
use callbridge_call::ChannelState::{Down, PreRing, Ring, Ringing, Unknown, Up};
use callbridge_call::Direction::{Inbound, Internal, Outbound};

#[test]
fn chan_sip_trunk_born_down_gets_direction_from_first_state() {
    for (state, direction) in [(Ring, Inbound), (Ringing, Outbound)] {
        let trunk = channel("SIP/carrier-00000001", 1).caller("998901110001");
        let mut story = Story::new();
        story
            .at(0.0)
            .create(&trunk, Down)
            .at(0.1)
            .state(&trunk, state)
            .at(5.0)
            .hangup(&trunk);
        assert_eq!(story.call().direction, direction, "{state:?}");
    }
}

#[test]
fn dahdi_channel_in_pre_ring_is_inbound() {
    let trunk = channel("DAHDI/i1/998901110001-1", 1).caller("998901110001");
    let mut story = Story::new();
    story
        .at(0.0)
        .create(&trunk, Down)
        .state(&trunk, PreRing)
        .at(5.0)
        .hangup(&trunk);
    let call = story.call();
    assert_eq!(
        (call.direction, call.trunk.as_deref()),
        (Inbound, Some("span"))
    );
}

#[test]
fn dial_destination_without_state_counts_as_dialed() {
    let phone = channel("SIP/101-00000001", 1);
    let trunk = channel("SIP/carrier-00000002", 2).join_call(&phone);
    let mut story = Story::new();
    story
        .at(0.0)
        .create(&phone, Down)
        .state(&phone, Ring)
        .create(&trunk, Down);
    story.dial(&phone, &trunk, "carrier/998901110001");
    story.at(5.0).hangups(&[&trunk, &phone]);
    let call = story.call();
    assert_eq!((call.direction, employee(&call)), (Outbound, Some("101")));
}

#[test]
fn click_to_call_is_outbound_by_first_rung_extension() {
    let phone = channel("PJSIP/101-00000001", 1);
    let trunk = channel("PJSIP/city-00000002", 2).join_call(&phone);
    let mut story = Story::new();
    story
        .at(0.0)
        .create(&phone, Down)
        .originate(&phone, "101")
        .at(1.0)
        .state(&phone, Up);
    story
        .create(&trunk, Down)
        .dial(&phone, &trunk, "998901110001@city");
    story
        .at(3.0)
        .enter(&trunk, "b1")
        .enter(&phone, "b1")
        .at(6.0)
        .hangups(&[&trunk, &phone]);
    let call = story.call();
    assert_eq!((call.direction, extensions(&call)), (Outbound, vec!["101"]));
    assert_eq!(seconds(&call), (3.0, 6.0));
}

#[test]
fn campaign_that_dials_the_customer_first_is_outbound() {
    let trunk = channel("PJSIP/city-00000001", 1).caller("712000000");
    let phone = channel("PJSIP/101-00000002", 2).join_call(&trunk);
    let mut story = Story::new();
    story
        .at(0.0)
        .create(&trunk, Down)
        .originate(&trunk, "998901110001@city");
    story
        .at(1.0)
        .state(&trunk, Up)
        .create(&phone, Down)
        .dial(&trunk, &phone, "101");
    story
        .at(3.0)
        .enter(&trunk, "b1")
        .enter(&phone, "b1")
        .at(6.0)
        .hangups(&[&trunk, &phone]);
    let call = story.call();
    assert_eq!((call.direction, employee(&call)), (Outbound, Some("101")));
    assert_eq!(call.number.expect("a number").text, "998901110001");
}

#[test]
fn unanswered_campaign_call_has_no_employee() {
    let trunk = channel("PJSIP/city-00000001", 1);
    let mut story = Story::new();
    story
        .at(0.0)
        .create(&trunk, Down)
        .originate(&trunk, "998901110001@city");
    story.at(4.0).hangup(&trunk);
    let call = story.call();
    assert_eq!(
        (call.direction, call.answered, employee(&call)),
        (Outbound, false, None)
    );
}

#[test]
fn call_forwarded_out_is_inbound_and_answered_by_talk() {
    for talks in [true, false] {
        let city = customer(1);
        let mobile = channel("PJSIP/gsm-00000002", 2).join_call(&city);
        let mut story = Story::new();
        story.at(0.0).create(&city, Ring).create(&mobile, Down);
        story.dial(&city, &mobile, "998935550000@gsm");
        if talks {
            story.at(2.0).enter(&mobile, "b1").enter(&city, "b1");
        }
        story.at(6.0).hangups(&[&mobile, &city]);
        let call = story.call();
        assert_eq!((call.direction, call.answered), (Inbound, talks));
        assert_eq!(
            (call.trunk.as_deref(), employee(&call)),
            (Some("city"), None)
        );
        assert_eq!(call.number.expect("a number").text, "+998901110001");
    }
}

#[test]
fn call_without_a_trunk_is_internal() {
    let first = channel("PJSIP/101-00000001", 1).exten("102");
    let second = channel("PJSIP/102-00000002", 2).join_call(&first);
    let mut story = Story::new();
    story
        .at(0.0)
        .create(&first, Ring)
        .create(&second, Down)
        .dial(&first, &second, "102");
    story
        .at(1.0)
        .enter(&first, "b1")
        .enter(&second, "b1")
        .at(4.0)
        .hangups(&[&first, &second]);
    let call = story.call();
    assert_eq!((call.direction, call.trunk.as_deref()), (Internal, None));
}

#[test]
fn local_channels_without_a_party_are_not_a_call() {
    let one = channel("Local/600@rooms-00000001;1", 1);
    let two = channel("Local/600@rooms-00000001;2", 2).join_call(&one);
    let mut story = Story::new();
    story
        .at(0.0)
        .create(&one, Down)
        .create(&two, Ring)
        .at(4.0)
        .hangups(&[&one, &two]);
    assert!(story.calls().is_empty());
}

#[test]
fn cel_direction_uses_extension_caller_and_application() {
    let city = customer(1);
    let phone = channel("PJSIP/101-00000002", 2)
        .join_call(&city)
        .exten("s")
        .caller("101");
    let mut story = Story::from_cel();
    story
        .at(0.0)
        .create(&city, Unknown)
        .app(&city, "Dial", "PJSIP/101,15")
        .create(&phone, Unknown);
    story.at(5.0).hangups(&[&phone, &city]);
    let call = story.call();
    assert_eq!((call.direction, employee(&call)), (Inbound, Some("101")));

    let phone = channel("PJSIP/101-00000001", 1)
        .exten("9998901110001")
        .caller("101");
    let trunk = channel("PJSIP/city-00000002", 2)
        .join_call(&phone)
        .exten("s");
    let mut story = Story::from_cel();
    story
        .at(0.0)
        .create(&phone, Unknown)
        .app(&phone, "Dial", "PJSIP/998901110001@city,20");
    story
        .create(&trunk, Unknown)
        .at(5.0)
        .hangups(&[&trunk, &phone]);
    let call = story.call();
    assert_eq!((call.direction, employee(&call)), (Outbound, Some("101")));

    // A campaign's channel starts a call on the s extension without a caller's number.
    let trunk = channel("PJSIP/city-00000001", 1).exten("s");
    let mut story = Story::from_cel();
    story.at(0.0).create(&trunk, Unknown).at(5.0).hangup(&trunk);
    assert_eq!(story.call().direction, Outbound);

    // A campaign's channel may have one of the company's numbers as its caller, but it runs an
    // application that only runs on dialed channels.
    let trunk = channel("PJSIP/city-00000001", 1)
        .exten("s")
        .caller("712000000");
    let mut story = Story::from_cel();
    story.at(0.0).create(&trunk, Unknown).at(1.0);
    story
        .state(&trunk.clone().running("AppDial2", "(Outgoing Line)"), Up)
        .at(5.0)
        .hangup(&trunk);
    assert_eq!(story.call().direction, Outbound);

    // Inbound calls can start on the s extension as well.
    let mut story = Story::from_cel();
    let city = customer(1).exten("s");
    story.at(0.0).create(&city, Unknown).at(5.0).hangup(&city);
    assert_eq!(story.call().direction, Inbound);
}

/// Returns the unmatched prefixes of two calls over the channel `name`, one inbound and one
/// outbound with this dial string.
fn unmatched_prefixes(name: &str, string: &str) -> [Vec<String>; 2] {
    let caller = channel(name, 1).caller("+998901110001");
    let mut story = Story::new();
    story.at(0.0).create(&caller, Ring);
    story.at(5.0).hangup(&caller);
    let came = story.call().unmatched;
    let phone = channel("PJSIP/101-00000001", 1);
    let line = channel(name, 2).join_call(&phone);
    let mut story = Story::new();
    story.at(0.0).create(&phone, Ring).create(&line, Down);
    story.dial(&phone, &line, string);
    story.at(5.0).hangups(&[&line, &phone]);
    [came, story.call().unmatched]
}

#[test]
fn channel_without_trunk_with_outside_number_is_unmatched() {
    let both = unmatched_prefixes("PJSIP/citty-00000002", "998901110001@citty");
    assert_eq!(both, [["PJSIP/citty"], ["PJSIP/citty"]]);
    let both = unmatched_prefixes("DAHDI/i7/998901110001-2", "i7/998901110001");
    assert_eq!(both, [["DAHDI/i7"], ["DAHDI/i7"]]);
    for (name, string) in [
        ("PJSIP/city-00000002", "998901110001@city"),
        ("PJSIP/102-00000002", "102/sip:4711471147@10.0.0.5:5060"),
        ("PJSIP/102-00000002", "102"),
    ] {
        assert_eq!(
            unmatched_prefixes(name, string),
            [[] as [&str; 0]; 2],
            "{name}"
        );
    }
}

#[test]
fn phone_with_outside_number_dialing_trunk_is_not_unmatched() {
    let phone = channel("PJSIP/reception-00000001", 1).caller("+998712000000");
    let trunk = channel("PJSIP/city-00000002", 2).join_call(&phone);
    let mut story = Story::new();
    story.at(0.0).create(&phone, Ring).create(&trunk, Down);
    story.dial(&phone, &trunk, "998901110001@city");
    story.at(5.0).hangups(&[&trunk, &phone]);
    assert_eq!(story.call().unmatched, [] as [&str; 0]);
}

#[test]
fn forwarded_call_lists_its_unmatched_channel() {
    let customer = customer(1);
    let line = channel("PJSIP/gsm2-00000002", 2).join_call(&customer);
    let mut story = Story::new();
    story.at(0.0).create(&customer, Ring).create(&line, Down);
    story.dial(&customer, &line, "998901110002@gsm2");
    story.at(5.0).hangups(&[&line, &customer]);
    let call = story.call();
    assert_eq!(call.direction, Inbound);
    assert_eq!(call.unmatched, ["PJSIP/gsm2"]);
}
