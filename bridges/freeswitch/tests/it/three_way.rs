//! Tests of calls of three, in which an employee joins a call without a bridge.

use crate::expected::{Ended, finished, finished_by, finished_when};
use crate::metamorphic::{Chance, shuffled};
use crate::switch::{Switch, line};

const CUSTOMER: &str = "998901110001";
const OTHER: &str = "998901110002";

/// 101 talks with the customer from second 1 on.
fn talking(switch: &mut Switch) {
    switch.at(0).comes_in("cust", CUSTOMER);
    switch.rings("p101", "101", ("cust", "cust")).at(1000);
    switch.answers("p101").answers("cust");
    switch.bridges("cust", "p101");
}

fn lines(switch: &Switch) -> Vec<String> {
    let calls = finished_when(&switch.told, Ended::Everything);
    calls.iter().map(line).collect()
}

#[test]
fn three_way_with_either_side_adds_the_employee() {
    for target in ["cust", "p101"] {
        let mut it = Switch::default();
        talking(&mut it);
        it.at(3000).dials("p104", "104").answers("p104");
        it.executes("p104", ("three_way", target), true).at(6000);
        it.executes("p104", ("three_way", target), false);
        it.hangs_up("p104")
            .at(8000)
            .hangs_up("cust")
            .hangs_up("p101");
        let wanted = format!("cust in city {CUSTOMER} [101 104] 104 talk 7.0 of 8.0, whole");
        let wanted = std::slice::from_ref(&wanted);
        assert_eq!(lines(&it), wanted, "{target}");
        for seed in 0..50 {
            let calls = finished(&shuffled(&it.told, &mut Chance::new(seed)));
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
fn zero_during_attended_transfer_adds_whom_it_consulted() {
    let mut it = Switch::default();
    talking(&mut it);
    it.at(3000).consults("p101", true);
    it.rings("p102", "102", ("p101", "cust")).at(4000);
    it.answers("p102").bridges("p101", "p102").at(6000);
    it.executes("p102", ("three_way", "p101"), true);
    it.unbridges("p101", "p102").consults("p101", false);
    it.at(6020).unbridges("cust", "p101");
    it.at(6060).bridges("p101", "cust");
    it.at(9000).hangs_up("cust").at(9020);
    it.executes("p102", ("three_way", "p101"), false);
    it.unbridges("p101", "cust").bridges("p102", "p101");
    it.at(10_000).hangs_up("p101").hangs_up("p102");
    let wanted = format!("cust in city {CUSTOMER} [101 102] 102 talk 5.0 of 9.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn joined_employee_stays_when_the_first_one_leaves() {
    let mut it = Switch::default();
    talking(&mut it);
    it.at(3000).consults("p101", true);
    it.rings("p102", "102", ("p101", "cust")).at(4000);
    it.answers("p102").bridges("p101", "p102").at(6000);
    it.executes("p102", ("three_way", "p101"), true);
    it.unbridges("p101", "p102").consults("p101", false);
    it.at(8000).hangs_up("p101").unbridges("cust", "p101");
    it.executes("p102", ("three_way", "p101"), false);
    it.bridges("p102", "cust");
    it.at(9000).hangs_up("cust").hangs_up("p102");
    let wanted = format!("cust in city {CUSTOMER} [101 102] 102 talk 5.0 of 9.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

/// 104 eavesdrops from second 2 on, presses these keys a second apart, and leaves a second later.
fn eavesdropped(target: &str, keys: &[&str], more: &[(&str, &str)]) -> Switch {
    let mut it = Switch::default();
    talking(&mut it);
    it.at(2000).dials("p104", "104").answers("p104");
    for (variable, value) in more {
        it.learns("p104", variable, value);
    }
    it.executes("p104", ("eavesdrop", target), true);
    let mut at = 2000;
    for key in keys {
        at += 1000;
        it.at(at).presses("p104", key);
    }
    it.at(at + 1000)
        .executes("p104", ("eavesdrop", target), false);
    it.hangs_up("p104");
    it.at(9000).hangs_up("cust").hangs_up("p101");
    it
}

/// The monitored channel, the keys pressed, and whether the eavesdropper talks with the customer.
type KeyCase = (&'static str, &'static [&'static str], bool);

#[test]
fn eavesdropper_counts_when_the_customer_hears_it() {
    let cases: [KeyCase; 11] = [
        ("p101", &[], false),
        ("p101", &["3"], true),
        ("cust", &["3"], true),
        ("cust", &["3", "0"], true),
        ("p101", &["7", "0"], false),
        // The target hears `2`, and its partner hears `1`.
        ("p101", &["2"], false),
        ("p101", &["1"], true),
        ("cust", &["2"], true),
        ("cust", &["1"], false),
        ("all", &["3"], false),
        ("gone", &["3"], false),
    ];
    for (target, keys, counts) in cases {
        let it = eavesdropped(target, keys, &[]);
        let employees = if counts { "[101 104] 104" } else { "[101] 101" };
        let wanted = format!("cust in city {CUSTOMER} {employees} talk 8.0 of 9.0, whole");
        let calls: Vec<String> = finished(&it.told).iter().map(line).collect();
        assert_eq!(calls, [wanted], "{target} {keys:?}");
    }
}

/// The monitored channel, the key pressed, the eavesdropper's variables, and whether it talks with
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
        let it = eavesdropped(target, &[key], variables);
        let employees = if counts { "[101 104] 104" } else { "[101] 101" };
        let wanted = format!("cust in city {CUSTOMER} {employees} talk 8.0 of 9.0, whole");
        let calls: Vec<String> = finished(&it.told).iter().map(line).collect();
        assert_eq!(calls, [wanted], "{target} {key} {variables:?}");
    }
}

/// A supervisor who speaks in two calls, one after the other, does not join them, like an agent.
#[test]
fn supervisor_of_two_calls_keeps_them_apart() {
    let mut it = Switch::default();
    it.at(0).dials("p104", "104").answers("p104");
    for (from, cust, phone, number) in [(1000, "one", "p1", CUSTOMER), (21_000, "two", "p2", OTHER)]
    {
        it.at(from).comes_in(cust, number);
        it.rings(phone, "101", (cust, cust)).at(from + 1000);
        it.answers(phone).answers(cust).bridges(cust, phone);
        it.at(from + 2000);
        it.executes("p104", ("eavesdrop", phone), true);
        it.at(from + 3000).presses("p104", "3");
        it.at(from + 5000).hangs_up(cust).hangs_up(phone);
        it.executes("p104", ("eavesdrop", phone), false);
    }
    let wanted = [
        format!("one in city {CUSTOMER} [101 104] 104 talk 4.0 of 5.0, whole"),
        format!("two in city {OTHER} [101 104] 104 talk 4.0 of 5.0, whole"),
    ];
    let calls = finished_by(&it.told, 30_000);
    assert_eq!(calls.iter().map(line).collect::<Vec<_>>(), wanted);
    it.at(40_000).hangs_up("p104");
    let calls = finished(&it.told);
    assert_eq!(calls.iter().map(line).collect::<Vec<_>>(), wanted);
}

/// A caller's keys in a menu have no effect on a call, and are not stored.
#[test]
fn keys_of_a_caller_are_not_kept() {
    let mut plain = Switch::default();
    plain.at(0).comes_in("cust", CUSTOMER).answers("cust");
    let mut keyed = Switch::default();
    keyed.at(0).comes_in("cust", CUSTOMER).answers("cust");
    for at in 1..9 {
        keyed.at(at * 100).presses("cust", "3");
    }
    let [plain, keyed] = [plain, keyed].map(|it| crate::expected::snapshots(&it.told));
    assert_eq!(plain.len(), 1);
    assert_eq!(plain, keyed);
}
