//! Tests of channel variables and user fields.

use crate::story::{Story, answered_by_101, channel, customer};
use callbridge_call::ChannelState::{Down, Ring};
use callbridge_call::FinishedCall;

fn leads(call: &FinishedCall) -> Vec<&str> {
    let lead = call
        .variables
        .iter()
        .find(|variable| variable.name == "LEAD_ID");
    lead.map_or(Vec::new(), |lead| {
        lead.values.iter().map(String::as_str).collect()
    })
}

/// Returns a call with one channel for each item of `values`, starting with the customer's. The
/// item is the channel's `LEAD_ID`.
fn call_with_leads(values: &[&str]) -> FinishedCall {
    let city = customer(1);
    let mut story = Story::new();
    for (number, lead) in (1..).zip(values) {
        let name = format!("PJSIP/10{number}-{number:08x}");
        let leg = if number == 1 {
            city.clone()
        } else {
            channel(&name, number).join_call(&city)
        };
        let state = if number == 1 { Ring } else { Down };
        story
            .at(f64::from(number))
            .create(&leg.clone().variable("LEAD_ID", lead), state);
        story.mention(&leg);
    }
    for number in 1..=values.len() as u32 {
        story.at(20.0).hangup(&channel("", number).join_call(&city));
    }
    story.call()
}

#[test]
fn empty_value_never_overwrites_a_variable() {
    let city = customer(1);
    let mut story = Story::new();
    story
        .at(0.0)
        .create(&city.clone().variable("LEAD_ID", "4001"), Ring);
    story
        .at(1.0)
        .mention(&city.clone().variable("LEAD_ID", ""))
        .at(2.0)
        .hangup(&city);
    assert_eq!(leads(&story.call()), ["4001"]);
}

#[test]
fn root_legs_value_wins_over_another_legs() {
    assert_eq!(leads(&call_with_leads(&["4001", "4002"])), ["4001"]);
}

#[test]
fn value_of_another_leg_counts_if_the_root_leg_has_none() {
    assert_eq!(leads(&call_with_leads(&["", "4002", "4002"])), ["4002"]);
}

#[test]
fn differing_values_of_equally_ranked_legs_are_both_kept() {
    assert_eq!(
        leads(&call_with_leads(&["", "4001", "4002"])),
        ["4001", "4002"]
    );
}

#[test]
fn last_value_of_channel_variable_wins_in_any_order() {
    let city = customer(1);
    let mut story = Story::new();
    story.at(0.0).create(&city, Ring);
    story
        .at(1.0)
        .mention(&city.clone().variable("LEAD_ID", "1"));
    story
        .at(2.0)
        .mention(&city.clone().variable("LEAD_ID", "4001"));
    story.at(3.0).hangup(&city);
    story.events.swap(1, 2);
    assert_eq!(leads(&story.call()), ["4001"]);
}

#[test]
fn conference_customers_keep_separate_leads() {
    let (mut story, city, phone) = answered_by_101();
    let second = channel("PJSIP/gsm-00000003", 3).caller("998901110002");
    story.mention(&city.clone().variable("LEAD_ID", "4001"));
    story
        .at(2.0)
        .create(&second.clone().variable("LEAD_ID", "4002"), Ring);
    for channel in [&city, &phone, &second] {
        story.at(3.0).enter_kind(channel, "room", "softmix");
    }
    story.at(9.0).hangups(&[&second, &city, &phone]);
    let calls = story.calls();
    assert_eq!(
        (leads(&calls[0]), leads(&calls[1])),
        (vec!["4001"], vec!["4002"])
    );
}

#[test]
fn user_fields_of_cdrs_are_kept_in_order_without_repeats() {
    let (mut story, city, phone) = answered_by_101();
    story
        .at(4.0)
        .cdr(&city, "lead=4001")
        .cdr(&city, "")
        .hangup(&phone);
    story
        .at(4.1)
        .cdr(&city, "lead=4001")
        .cdr(&phone, "b")
        .hangup(&city);
    assert_eq!(story.call().userfields, ["lead=4001", "b"]);
}
