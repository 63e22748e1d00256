//! Tests of calls that the switch no longer has, and whose end or first channel wasn't received.

use crate::expected::finished_calls_by;
use crate::switch::{Switch, line};

const CUSTOMER: &str = "998901110001";
const UNKNOWN: &str = "the beginning of the call was not received, so its direction is unknown";

/// Describes the calls finished within `seconds` of the start, one per line.
fn lines_finished_by(switch: &Switch, seconds: u64) -> Vec<String> {
    let calls = finished_calls_by(&switch.messages, seconds * 1000);
    calls.iter().map(line).collect()
}

/// Plays a leg over a gateway that belongs to the call of `gone`, a channel without any events.
fn lone_leg() -> Switch {
    let mut switch = Switch::default();
    switch.at(0).dial_out("leg", ("city", CUSTOMER), ("", ""));
    switch.add_header("leg", "variable_originator", "gone");
    switch.at(1000).answer("leg").at(5000).hang_up("leg");
    switch
}

#[test]
fn lone_leg_ends_when_the_switch_has_no_channel() {
    let mut switch = lone_leg();
    switch.at(20_000).send_heartbeat(0);
    assert!(lines_finished_by(&switch, 30).is_empty());
    switch.at(40_000).send_heartbeat(0);
    let wanted = format!("gone unknown city {CUSTOMER} [] - talk 0.0 of 5.0, {UNKNOWN}");
    assert_eq!(lines_finished_by(&switch, 50), [wanted]);
}

#[test]
fn lone_leg_ends_when_the_events_name_all_live_channels() {
    let mut switch = lone_leg();
    switch.at(10_000).dial("p101", "101");
    switch
        .at(20_000)
        .send_heartbeat(1)
        .at(40_000)
        .send_heartbeat(1);
    let wanted = format!("gone unknown city {CUSTOMER} [] - talk 0.0 of 5.0, {UNKNOWN}");
    assert_eq!(lines_finished_by(&switch, 50), [wanted]);
}

/// A heartbeat counts a channel that isn't in any event. It could be the call's first channel.
#[test]
fn lone_leg_waits_while_an_unknown_channel_lives() {
    let mut switch = lone_leg();
    switch.at(10_000).dial("p101", "101");
    for beat in 1..10 {
        switch.at(beat * 20_000).send_heartbeat(2);
    }
    assert!(lines_finished_by(&switch, 200).is_empty());
    // A single heartbeat may be sent before a new channel's event, so it's inconclusive.
    switch
        .at(200_000)
        .send_heartbeat(1)
        .at(220_000)
        .send_heartbeat(2);
    switch.at(240_000).send_heartbeat(1);
    assert!(lines_finished_by(&switch, 250).is_empty());
}

#[test]
fn leg_with_a_lost_hangup_ends_when_the_switch_has_no_channel() {
    let mut switch = Switch::default();
    switch.at(0).call_in("cust", CUSTOMER);
    switch.ring("p101", "101", ("cust", "cust")).at(1000);
    switch.answer("p101").answer("cust").bridge("cust", "p101");
    switch
        .at(20_000)
        .send_heartbeat(2)
        .at(40_000)
        .send_heartbeat(2);
    switch.at(60_000).send_heartbeat(0);
    assert!(lines_finished_by(&switch, 70).is_empty());
    switch.at(80_000).send_heartbeat(0);
    let calls = finished_calls_by(&switch.messages, 90_000);
    assert_eq!(calls.len(), 1);
    assert!(calls[0].incomplete.is_some());
}
