//! Tests of which employee a call is credited to.

use crate::story::{Channel, Story, channel, customer, employee, extensions};
use callbridge_call::ChannelState::{Down, Ring, Ringing};

/// Returns a missed call for which each of these channels rang.
fn missed_call(names: &[&str]) -> Story {
    let city = customer(1);
    let mut story = Story::new();
    story.at(0.0).create(&city, Ring);
    let phones: Vec<Channel> = (2..)
        .zip(names)
        .map(|(number, name)| channel(name, number).join_call(&city))
        .collect();
    for phone in &phones {
        story
            .at(0.1)
            .create(phone, Down)
            .dial(&city, phone, "x")
            .state(phone, Ringing);
    }
    for phone in &phones {
        story.at(5.0).hangup(phone);
    }
    story.hangup(&city);
    story
}

#[test]
fn missed_call_belongs_to_single_dialed_extension() {
    assert_eq!(
        employee(&missed_call(&["PJSIP/101-00000002"]).call()),
        Some("101")
    );
    let twice = missed_call(&["PJSIP/101-00000002", "PJSIP/101-00000003"]);
    assert_eq!(employee(&twice.call()), Some("101"));
}

#[test]
fn missed_call_that_rang_several_phones_has_no_employee() {
    let group = missed_call(&["PJSIP/101-00000002", "PJSIP/102-00000003"]);
    assert_eq!(employee(&group.call()), None);
    assert_eq!(employee(&missed_call(&[]).call()), None);
}

#[test]
fn failed_pickup_does_not_count_as_dialed() {
    let mut story = missed_call(&["PJSIP/101-00000002"]);
    let city = customer(1);
    let picker = channel("PJSIP/103-00000009", 9)
        .join_call(&city)
        .exten("*8");
    story.at(4.0).create(&picker, Ring).hangup(&picker);
    story.events.sort_by_key(|&(at, _)| at);
    assert_eq!(employee(&story.call()), Some("101"));
}

#[test]
fn unanswered_outbound_call_has_the_caller_as_employee() {
    let phone = channel("PJSIP/101-00000001", 1).exten("9998901110001");
    let trunk = channel("PJSIP/city-00000002", 2).join_call(&phone);
    let mut story = Story::new();
    story.at(0.0).create(&phone, Ring).create(&trunk, Down);
    story
        .dial(&phone, &trunk, "998901110001@city")
        .at(4.0)
        .hangups(&[&trunk, &phone]);
    let call = story.call();
    assert_eq!(
        (employee(&call), call.employees_in_order.len()),
        (Some("101"), 0)
    );
}

/// Asterisk 13.1 with a transfer by the phone (REFER with Replaces), where 101 used to be wrongly
/// credited.
#[test]
fn employee_is_the_colleague_after_a_refer_with_replaces() {
    let city = customer(1);
    let agent = channel("SIP/101-00000002", 2).join_call(&city);
    let asks = channel("SIP/101-00000003", 3);
    let colleague = channel("SIP/102-00000004", 4).join_call(&asks);
    let mut story = Story::new();
    story.at(0.0).create(&city, Ring).create(&agent, Down);
    story.dial(&city, &agent, "101");
    story.at(1.0).enter(&agent, "one").enter(&city, "one");
    story.at(3.0).create(&asks, Ring).create(&colleague, Down);
    story.dial(&asks, &colleague, "102");
    story.at(4.0).enter(&colleague, "two").enter(&asks, "two");
    story.at(6.0).leave(&city, "one").enter(&city, "two");
    story.at(6.000_006).leave(&asks, "two").leave(&agent, "one");
    story.hangup(&agent).hangup(&asks);
    story.at(8.0).leave(&colleague, "two").leave(&city, "two");
    story.hangup(&colleague).hangup(&city);
    let call = story.call();
    assert_eq!(employee(&call), Some("102"));
    assert_eq!(extensions(&call), ["101", "102"]);
}
