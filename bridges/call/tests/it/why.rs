//! Tests that each of a call's values comes with the event that determined it.

use crate::story::{Story, answered_by_101, channel, customer, moment};
use callbridge_call::ChannelState::{Down, Ring};
use callbridge_call::FinishedCall;

fn reasons(call: &FinishedCall) -> String {
    let lines = call.decided_by.iter().map(|because| {
        let after = because.at.since(moment(0.0)).as_secs_f64();
        format!(
            "{} {after:.1} {} {}",
            because.value, because.channel, because.message
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_value_names_its_event_and_channel() {
    let (mut story, city, phone) = answered_by_101();
    story
        .at(2.0)
        .mention(&city.clone().variable("LEAD_ID", "4001"));
    story.at(5.0).hangups(&[&phone, &city]);
    insta::assert_snapshot!(reasons(&story.call()), @r"
    direction 0.0 PJSIP/city-00000001 came in on trunk city: created in state Ring
    startedAt 0.0 PJSIP/city-00000001 the first event of the call
    durationSec 5.0 PJSIP/city-00000001 the last hang-up of the customer
    answered 1.0 PJSIP/101-00000002 in a bridge with the customer
    talkTimeSec 5.0 PJSIP/city-00000001 the last bridge with another party ended
    LEAD_ID 2.0 PJSIP/city-00000001 LEAD_ID of this channel
    clientPhone 0.0 PJSIP/city-00000001 the caller's number
    employee 1.0 PJSIP/101-00000002 the last to begin to talk
    trunk 0.0 PJSIP/city-00000001 the channel belongs to city
    ");
}

#[test]
fn missing_values_of_a_missed_call_have_reasons() {
    let city = customer(1).caller("anonymous");
    let mut story = Story::new();
    story.at(0.0).create(&city, Ring);
    for (number, name) in [(2, "PJSIP/101-00000002"), (3, "PJSIP/102-00000003")] {
        let phone = channel(name, number).join_call(&city);
        story
            .at(1.0)
            .create(&phone, Down)
            .dial(&city, &phone, "x")
            .at(4.0)
            .hangup(&phone);
    }
    story.at(5.0).hangup(&city);
    insta::assert_snapshot!(reasons(&story.call()), @r"
    direction 0.0 PJSIP/city-00000001 came in on trunk city: created in state Ring
    startedAt 0.0 PJSIP/city-00000001 the first event of the call
    durationSec 5.0 PJSIP/city-00000001 the last hang-up of the customer
    answered 5.0 PJSIP/city-00000001 never in a bridge with another party
    talkTimeSec 5.0 PJSIP/city-00000001 never in a bridge with another party
    clientPhone 0.0 PJSIP/city-00000001 no number was reported
    employee 5.0 PJSIP/city-00000001 several extensions were dialed, and none answered
    trunk 0.0 PJSIP/city-00000001 the channel belongs to city
    ");
}
