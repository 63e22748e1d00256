//! Tests of three-party calls, in which an employee joins a call without a bridge.

use crate::expected::{Ended, finished_calls, finished_calls_by, finished_calls_when};
use crate::metamorphic::{Chance, shuffle};
use crate::switch::{Switch, line};

const CUSTOMER: &str = "998901110001";
const OTHER: &str = "998901110002";

/// Plays a conversation between the customer and 101 that starts at second 1 and doesn't end.
fn play_talk(switch: &mut Switch) {
    switch.at(0).call_in("cust", CUSTOMER);
    switch.ring("p101", "101", ("cust", "cust")).at(1000);
    switch.answer("p101").answer("cust");
    switch.bridge("cust", "p101");
}

fn lines(switch: &Switch) -> Vec<String> {
    let calls = finished_calls_when(&switch.messages, Ended::Everything);
    calls.iter().map(line).collect()
}

#[test]
fn three_way_with_either_side_adds_the_employee() {
    for target in ["cust", "p101"] {
        let mut switch = Switch::default();
        play_talk(&mut switch);
        switch.at(3000).dial("p104", "104").answer("p104");
        switch.execute("p104", ("three_way", target), true).at(6000);
        switch.execute("p104", ("three_way", target), false);
        switch
            .hang_up("p104")
            .at(8000)
            .hang_up("cust")
            .hang_up("p101");
        let wanted = format!("cust in city {CUSTOMER} [101 104] 104 talk 7.0 of 8.0, whole");
        let wanted = std::slice::from_ref(&wanted);
        assert_eq!(lines(&switch), wanted, "{target}");
        for seed in 0..50 {
            let calls = finished_calls(&shuffle(&switch.messages, &mut Chance::new(seed)));
            assert_eq!(
                calls.iter().map(line).collect::<Vec<_>>(),
                wanted,
                "{target} {seed}"
            );
        }
    }
}

/// The switch ends the consultation, connects 102 to 101, and bridges 101 and the customer again.
#[test]
fn key_zero_in_attended_transfer_adds_consulted_employee() {
    let mut switch = Switch::default();
    play_talk(&mut switch);
    switch.at(3000).consult("p101", true);
    switch.ring("p102", "102", ("p101", "cust")).at(4000);
    switch.answer("p102").bridge("p101", "p102").at(6000);
    switch.execute("p102", ("three_way", "p101"), true);
    switch.unbridge("p101", "p102").consult("p101", false);
    switch.at(6020).unbridge("cust", "p101");
    switch.at(6060).bridge("p101", "cust");
    switch.at(9000).hang_up("cust").at(9020);
    switch.execute("p102", ("three_way", "p101"), false);
    switch.unbridge("p101", "cust").bridge("p102", "p101");
    switch.at(10_000).hang_up("p101").hang_up("p102");
    let wanted = format!("cust in city {CUSTOMER} [101 102] 102 talk 5.0 of 9.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn call_continues_with_joined_employee_after_first_leaves() {
    let mut switch = Switch::default();
    play_talk(&mut switch);
    switch.at(3000).consult("p101", true);
    switch.ring("p102", "102", ("p101", "cust")).at(4000);
    switch.answer("p102").bridge("p101", "p102").at(6000);
    switch.execute("p102", ("three_way", "p101"), true);
    switch.unbridge("p101", "p102").consult("p101", false);
    switch.at(8000).hang_up("p101").unbridge("cust", "p101");
    switch.execute("p102", ("three_way", "p101"), false);
    switch.bridge("p102", "cust");
    switch.at(9000).hang_up("cust").hang_up("p102");
    let wanted = format!("cust in city {CUSTOMER} [101 102] 102 talk 5.0 of 9.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

/// Plays a call in which 104 eavesdrops on the channel `target` from second 2 on, presses `keys`
/// one second apart, and leaves a second later. `more` lists variables of 104's channel.
fn play_eavesdropping(target: &str, keys: &[&str], more: &[(&str, &str)]) -> Switch {
    let mut switch = Switch::default();
    play_talk(&mut switch);
    switch.at(2000).dial("p104", "104").answer("p104");
    for (variable, value) in more {
        switch.add_header("p104", variable, value);
    }
    switch.execute("p104", ("eavesdrop", target), true);
    let mut at = 2000;
    for key in keys {
        at += 1000;
        switch.at(at).press("p104", key);
    }
    switch
        .at(at + 1000)
        .execute("p104", ("eavesdrop", target), false);
    switch.hang_up("p104");
    switch.at(9000).hang_up("cust").hang_up("p101");
    switch
}

/// The monitored channel, the keys pressed, and whether the eavesdropper talks to the customer.
type KeyCase = (&'static str, &'static [&'static str], bool);

#[test]
fn eavesdropper_heard_by_the_customer_counts() {
    let cases: [KeyCase; 11] = [
        ("p101", &[], false),
        ("p101", &["3"], true),
        ("cust", &["3"], true),
        ("cust", &["3", "0"], true),
        ("p101", &["7", "0"], false),
        // `2` lets the target hear the eavesdropper, and `1` its partner.
        ("p101", &["2"], false),
        ("p101", &["1"], true),
        ("cust", &["2"], true),
        ("cust", &["1"], false),
        ("all", &["3"], false),
        ("gone", &["3"], false),
    ];
    for (target, keys, counts) in cases {
        let switch = play_eavesdropping(target, keys, &[]);
        let employees = if counts { "[101 104] 104" } else { "[101] 101" };
        let wanted = format!("cust in city {CUSTOMER} {employees} talk 8.0 of 9.0, whole");
        let calls: Vec<String> = finished_calls(&switch.messages).iter().map(line).collect();
        assert_eq!(calls, [wanted], "{target} {keys:?}");
    }
}

/// The monitored channel, the key pressed, the eavesdropper's variables, and whether they talk to
/// the customer.
type VariableCase = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
    bool,
);

#[test]
fn eavesdrop_variables_decide_if_the_supervisor_counts() {
    const A: &str = "variable_eavesdrop_whisper_aleg";
    const B: &str = "variable_eavesdrop_whisper_bleg";
    const KEYS: &str = "variable_eavesdrop_enable_dtmf";
    let cases: [VariableCase; 5] = [
        ("p101", "", &[(A, "true"), (B, "true")], true),
        ("p101", "", &[(B, "true")], false),
        ("p101", "", &[(A, "true")], true),
        ("cust", "", &[(B, "1")], true),
        ("cust", "3", &[(KEYS, "false")], false),
    ];
    for (target, key, variables, counts) in cases {
        let switch = play_eavesdropping(target, &[key], variables);
        let employees = if counts { "[101 104] 104" } else { "[101] 101" };
        let wanted = format!("cust in city {CUSTOMER} {employees} talk 8.0 of 9.0, whole");
        let calls: Vec<String> = finished_calls(&switch.messages).iter().map(line).collect();
        assert_eq!(calls, [wanted], "{target} {key} {variables:?}");
    }
}

/// A supervisor who talks in two calls, one after the other, doesn't turn them into one call.
#[test]
fn supervisor_speaking_in_two_calls_does_not_join_them() {
    let mut switch = Switch::default();
    switch.at(0).dial("p104", "104").answer("p104");
    for (from, cust, phone, number) in [(1000, "one", "p1", CUSTOMER), (21_000, "two", "p2", OTHER)]
    {
        switch.at(from).call_in(cust, number);
        switch.ring(phone, "101", (cust, cust)).at(from + 1000);
        switch.answer(phone).answer(cust).bridge(cust, phone);
        switch.at(from + 2000);
        switch.execute("p104", ("eavesdrop", phone), true);
        switch.at(from + 3000).press("p104", "3");
        switch.at(from + 5000).hang_up(cust).hang_up(phone);
        switch.execute("p104", ("eavesdrop", phone), false);
    }
    let wanted = [
        format!("one in city {CUSTOMER} [101 104] 104 talk 4.0 of 5.0, whole"),
        format!("two in city {OTHER} [101 104] 104 talk 4.0 of 5.0, whole"),
    ];
    let calls = finished_calls_by(&switch.messages, 30_000);
    assert_eq!(calls.iter().map(line).collect::<Vec<_>>(), wanted);
    switch.at(40_000).hang_up("p104");
    let calls = finished_calls(&switch.messages);
    assert_eq!(calls.iter().map(line).collect::<Vec<_>>(), wanted);
}

/// A caller's key presses in an IVR have no effect on the call and aren't stored.
#[test]
fn keys_pressed_by_a_caller_are_not_stored() {
    let mut plain = Switch::default();
    plain.at(0).call_in("cust", CUSTOMER).answer("cust");
    let mut keyed = Switch::default();
    keyed.at(0).call_in("cust", CUSTOMER).answer("cust");
    for at in 1..9 {
        keyed.at(at * 100).press("cust", "3");
    }
    let [plain, keyed] = [plain, keyed].map(|switch| crate::expected::snapshots(&switch.messages));
    assert_eq!(plain.len(), 1);
    assert_eq!(plain, keyed);
}
