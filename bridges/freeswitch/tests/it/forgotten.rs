//! Tests of calls whose end or first channel was missed, and which no longer exist on the switch.

use crate::expected::finished_by;
use crate::switch::{Switch, line};

const CUSTOMER: &str = "998901110001";
const UNKNOWN: &str = "the beginning of the call was not received, so its direction is unknown";

/// Returns the calls that are finished this many seconds after the start.
fn told_by(switch: &Switch, seconds: u64) -> Vec<String> {
    let calls = finished_by(&switch.told, seconds * 1000);
    calls.iter().map(line).collect()
}

/// Makes a leg over a gateway in the call of `gone`, a channel without events.
fn lone_leg() -> Switch {
    let mut it = Switch::default();
    it.at(0).dials_out("leg", ("city", CUSTOMER), ("", ""));
    it.learns("leg", "variable_originator", "gone");
    it.at(1000).answers("leg").at(5000).hangs_up("leg");
    it
}

#[test]
fn lone_leg_ends_when_the_switch_has_no_channel() {
    let mut it = lone_leg();
    it.at(20_000).counts(0);
    assert!(told_by(&it, 30).is_empty());
    it.at(40_000).counts(0);
    let wanted = format!("gone unknown city {CUSTOMER} [] - talk 0.0 of 5.0, {UNKNOWN}");
    assert_eq!(told_by(&it, 50), [wanted]);
}

#[test]
fn lone_leg_ends_when_the_events_name_all_live_channels() {
    let mut it = lone_leg();
    it.at(10_000).dials("p101", "101");
    it.at(20_000).counts(1).at(40_000).counts(1);
    let wanted = format!("gone unknown city {CUSTOMER} [] - talk 0.0 of 5.0, {UNKNOWN}");
    assert_eq!(told_by(&it, 50), [wanted]);
}

/// A channel that is counted but never named can be the first one of the call.
#[test]
fn lone_leg_waits_while_an_unknown_channel_lives() {
    let mut it = lone_leg();
    it.at(10_000).dials("p101", "101");
    for beat in 1..10 {
        it.at(beat * 20_000).counts(2);
    }
    assert!(told_by(&it, 200).is_empty());
    // A single count can miss an event that is on its way.
    it.at(200_000).counts(1).at(220_000).counts(2);
    it.at(240_000).counts(1);
    assert!(told_by(&it, 250).is_empty());
}

#[test]
fn leg_whose_end_was_lost_ends_when_the_switch_has_no_channel() {
    let mut it = Switch::default();
    it.at(0).comes_in("cust", CUSTOMER);
    it.rings("p101", "101", ("cust", "cust")).at(1000);
    it.answers("p101").answers("cust").bridges("cust", "p101");
    it.at(20_000).counts(2).at(40_000).counts(2);
    it.at(60_000).counts(0);
    assert!(told_by(&it, 70).is_empty());
    it.at(80_000).counts(0);
    let calls = finished_by(&it.told, 90_000);
    assert_eq!(calls.len(), 1);
    assert!(calls[0].incomplete.is_some());
}
