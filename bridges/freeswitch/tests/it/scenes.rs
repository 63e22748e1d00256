//! Tests of scenes that are in no recording. Their events are those of a live switch.

use crate::expected::{Ended, finished, finished_by, finished_when};
use crate::metamorphic::{Chance, shuffled};
use crate::switch::{Switch, line};

const CUSTOMER: &str = "998901110001";
const OTHER: &str = "998901110002";

fn lines(switch: &Switch) -> Vec<String> {
    finished(&switch.told).iter().map(line).collect()
}

/// 101 answers the customer after a second, on the channels `cust` and `p101`.
fn talking(switch: &mut Switch) {
    let call = ("cust", "cust");
    switch.at(0).comes_in("cust", CUSTOMER);
    switch.rings("p101", "101", call).at(1000);
    switch
        .answers("p101")
        .answers("cust")
        .bridges("cust", "p101");
}

#[test]
fn agent_waiting_in_a_queue_is_not_the_root_of_the_call() {
    let mut it = Switch::default();
    it.at(0).dials("agent", "101").answers("agent");
    it.at(5000).comes_in("cust", CUSTOMER).answers("cust");
    it.at(7000).bridges("agent", "cust");
    it.at(10_000).hangs_up("cust").unbridges("agent", "cust");
    it.at(12_000).hangs_up("agent");
    let wanted = format!("cust in city {CUSTOMER} [101] 101 talk 3.0 of 5.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn agent_serving_two_customers_in_turn_is_in_two_calls() {
    let mut it = Switch::default();
    it.at(0).dials("agent", "101").answers("agent");
    it.at(1000).comes_in("one", CUSTOMER).answers("one");
    it.bridges("agent", "one").at(4000).hangs_up("one");
    it.unbridges("agent", "one");
    it.at(5000).comes_in("two", OTHER).answers("two");
    it.at(6000).bridges("agent", "two").at(8000).hangs_up("two");
    it.unbridges("agent", "two").at(9000).hangs_up("agent");
    let wanted = [
        format!("one in city {CUSTOMER} [101] 101 talk 3.0 of 3.0, whole"),
        format!("two in city {OTHER} [101] 101 talk 2.0 of 3.0, whole"),
    ];
    assert_eq!(lines(&it), wanted);
}

#[test]
fn agent_staying_in_a_queue_delays_no_call() {
    let mut it = Switch::default();
    it.at(0).dials("agent", "101").answers("agent");
    for (n, cust) in ["one", "two", "three"].iter().enumerate() {
        let from = 60_000 * u64::try_from(n).expect("few");
        it.at(from + 1000).comes_in(cust, CUSTOMER).answers(cust);
        it.at(from + 2000).bridges("agent", cust);
        it.at(from + 5000).hangs_up(cust).unbridges("agent", cust);
    }
    // Meanwhile, another customer calls the agent's colleague.
    it.at(200_000).comes_in("other", OTHER).hangs_up("other");
    let told: Vec<String> = finished_by(&it.told, 201_000).iter().map(line).collect();
    let served = |cust| format!("{cust} in city {CUSTOMER} [101] 101 talk 3.0 of 4.0, whole");
    let unserved = format!("other in city {OTHER} [] - talk 0.0 of 0.0, whole");
    assert_eq!(
        told,
        [served("one"), served("two"), served("three"), unserved]
    );
    // The agent hangs up, which is not a call.
    it.at(300_000).hangs_up("agent");
    assert_eq!(finished_when(&it.told, Ended::Everything).len(), 4);
}

#[test]
fn colleagues_staying_in_the_room_delay_no_call() {
    let mut it = Switch::default();
    it.at(0).dials("p101", "101").answers("p101");
    it.in_room("p101", "room", true);
    it.at(1000).comes_in("cust", CUSTOMER).answers("cust");
    it.in_room("cust", "room", true);
    it.at(2000).dials("p102", "102").answers("p102");
    it.in_room("p102", "room", true);
    it.at(4000).hangs_up("cust").in_room("cust", "room", false);
    it.at(9000).comes_in("late", OTHER).answers("late");
    it.in_room("late", "room", true);
    it.at(10_000).hangs_up("p101");
    it.in_room("p101", "room", false);
    it.at(12_000).hangs_up("late");
    let told: Vec<String> = finished_by(&it.told, 13_000).iter().map(line).collect();
    let wanted = [
        format!("cust in city {CUSTOMER} [101 102] 102 talk 3.0 of 3.0, whole"),
        format!("late in city {OTHER} [101 102] 102 talk 3.0 of 3.0, whole"),
    ];
    assert_eq!(told, wanted);
}

#[test]
fn employee_dials_the_next_customer_after_a_transfer() {
    let mut switch = Switch::default();
    switch.at(0).dials("near", "101");
    switch.dials_out("one", ("city", CUSTOMER), ("near", "near"));
    switch.at(600).answers("one").answers("near");
    switch.bridges("near", "one");
    switch.at(1200).dials("asking", "101").answers("asking");
    switch.rings("third", "102", ("asking", "asking"));
    switch.at(1800).answers("third").bridges("asking", "third");
    switch.at(2400).unbridges("near", "one");
    switch.unbridges("asking", "third").bridges("third", "one");
    switch.hangs_up("near").hangs_up("asking");
    switch.at(3000).unbridges("third", "one").hangs_up("one");
    switch.dials_out("two", ("city", OTHER), ("third", "third"));
    switch.at(4000).hangs_up("two").hangs_up("third");
    let wanted = [
        format!("near out city {CUSTOMER} [101 102] 102 talk 2.4 of 3.0, whole"),
        format!("two out city {OTHER} [] 101 talk 0.0 of 2.8, whole"),
    ];
    assert_eq!(lines(&switch), wanted);
}

/// The clock of a switch advances in steps of 20 ms. Both halves and the channel that they dial can
/// be created at one time. Then only their names show which half belongs to which channel.
#[test]
fn loopback_to_phone_is_one_call_in_any_event_order() {
    let mut it = Switch::default();
    let call = ("cust", "cust");
    it.at(0).comes_in("cust", CUSTOMER);
    it.half("a", "loopback/101-a", (false, ""), call);
    it.half("b", "loopback/101-b", (true, "a"), ("", ""));
    it.rings("p101", "101", ("b", "b")).at(1000);
    it.answers("p101").answers("b").bridges("b", "p101");
    it.answers("a").answers("cust").bridges("cust", "a");
    it.at(3000).unbridges("b", "p101").unbridges("cust", "a");
    it.hangs_up("a").hangs_up("b").bridges("cust", "p101");
    it.at(6000).hangs_up("cust").hangs_up("p101");
    let wanted = format!("cust in city {CUSTOMER} [101] 101 talk 5.0 of 6.0, whole");
    let wanted = std::slice::from_ref(&wanted);
    assert_eq!(lines(&it), wanted);
    for seed in 0..100 {
        let told = finished(&shuffled(&it.told, &mut Chance::new(seed)));
        let told: Vec<String> = told.iter().map(line).collect();
        assert_eq!(told, wanted, "seed {seed}");
    }
}

/// A caller from an address that no trunk names, or a number that is called over such a gateway, is
/// still outside. It is no employee, and there is no outbound call.
#[test]
fn caller_from_an_unmatched_address_is_not_an_employee() {
    let mut it = Switch::default();
    it.at(0).comes_in_from("cust", CUSTOMER, "16055");
    it.dials_out("mobile", ("city", OTHER), ("cust", "cust"));
    it.at(2000).answers("mobile").answers("cust");
    it.bridges("cust", "mobile").at(6000);
    it.hangs_up("cust").hangs_up("mobile");
    let calls = finished(&it.told);
    let wanted = format!(
        "cust out city {OTHER} [] - talk 4.0 of 6.0, it began with a call from outside on \
         sofia/external/{CUSTOMER}@127.0.0.1, which no --trunk matches: name its gateway, address \
         or profile as a trunk's endpoint"
    );
    assert_eq!(calls.iter().map(line).collect::<Vec<_>>(), [wanted]);
    assert_eq!(calls[0].unmatched, ["profile/external"]);
    let mut it = Switch::default();
    it.at(0).comes_in("cust", CUSTOMER);
    it.dials_out("mobile", ("misspelt", "1055"), ("cust", "cust"));
    it.at(2000).answers("mobile").answers("cust");
    it.bridges("cust", "mobile").at(6000);
    it.hangs_up("cust").hangs_up("mobile");
    let wanted = format!("cust in city {CUSTOMER} [] - talk 4.0 of 6.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn two_loopbacks_to_one_telephone_lead_to_two_calls() {
    let mut it = Switch::default();
    for (cust, a, b, phone, number) in [
        ("cust1", "a1", "b1", "p1", CUSTOMER),
        ("cust2", "a2", "b2", "p2", OTHER),
    ] {
        it.at(0).comes_in(cust, number);
        it.half(a, "loopback/101-a", (false, ""), (cust, cust));
        it.half(b, "loopback/101-b", (true, a), ("", ""));
        it.rings(phone, "101", (b, b));
    }
    it.at(2000);
    for (cust, a, b, phone) in [("cust1", "a1", "b1", "p1"), ("cust2", "a2", "b2", "p2")] {
        it.answers(phone).answers(b).bridges(b, phone);
        it.answers(a).answers(cust).bridges(cust, a);
    }
    it.at(5000);
    for id in ["cust1", "a1", "b1", "p1", "cust2", "a2", "b2", "p2"] {
        it.hangs_up(id);
    }
    let wanted = [
        format!("cust1 in city {CUSTOMER} [101] 101 talk 3.0 of 5.0, whole"),
        format!("cust2 in city {OTHER} [101] 101 talk 3.0 of 5.0, whole"),
    ];
    assert_eq!(lines(&it), wanted);
}

#[test]
fn attended_refer_transfer_joins_unrelated_call() {
    let mut it = Switch::default();
    talking(&mut it);
    it.at(4000).dials("p101b", "101");
    it.rings("p102", "102", ("p101b", "p101b")).at(5000);
    it.answers("p102").answers("p101b").bridges("p101b", "p102");
    it.at(7000)
        .unbridges("p101b", "p102")
        .unbridges("cust", "p101");
    it.bridges("cust", "p102")
        .hangs_up("p101")
        .hangs_up("p101b");
    it.at(9000).hangs_up("cust").hangs_up("p102");
    let wanted = format!("cust in city {CUSTOMER} [101 102] 102 talk 8.0 of 9.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn unanswered_consultation_returns_customer_to_agent() {
    let mut it = Switch::default();
    talking(&mut it);
    it.at(3000).consults("p101", true);
    it.rings("p102", "102", ("p101", "cust"));
    it.at(6000).hangs_up("p102").consults("p101", false);
    it.at(8000).hangs_up("cust").hangs_up("p101");
    let wanted = format!("cust in city {CUSTOMER} [101] 101 talk 4.0 of 8.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn abandoned_consultation_leaves_call_answered() {
    let mut it = Switch::default();
    talking(&mut it);
    it.at(4000).consults("p101", true);
    it.rings("p102", "102", ("p101", "cust"));
    it.at(5000)
        .hangs_up("p101")
        .hangs_up("p102")
        .hangs_up("cust");
    let wanted = format!("cust in city {CUSTOMER} [101] 101 talk 3.0 of 5.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn announcement_before_the_answer_is_not_talk() {
    let mut it = Switch::default();
    it.at(0).dials("p101", "101");
    it.dials_out("far", ("city", CUSTOMER), ("p101", "p101"));
    it.at(1000).bridges("p101", "far");
    it.at(5000).hangs_up("far").hangs_up("p101");
    let wanted = format!("p101 out city {CUSTOMER} [] 101 talk 0.0 of 5.0, whole");
    assert_eq!(lines(&it), [wanted]);
    // The carrier is the same, and the customer answers after it.
    let mut it = Switch::default();
    it.at(0).dials("p101", "101");
    it.dials_out("far", ("city", CUSTOMER), ("p101", "p101"));
    it.at(1000).bridges("p101", "far");
    it.at(3000).answers("far").answers("p101");
    it.at(5000).hangs_up("far").hangs_up("p101");
    let wanted = format!("p101 out city {CUSTOMER} [101] 101 talk 2.0 of 5.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn mobile_that_has_to_press_a_key_talks_only_after_it() {
    let mut it = Switch::default();
    it.at(0).comes_in("cust", CUSTOMER);
    it.dials_out("mobile", ("gsm", "998935550000"), ("cust", "cust"));
    it.at(2000).answers("mobile");
    it.at(6000).hangs_up("mobile").hangs_up("cust");
    let wanted = format!("cust in city {CUSTOMER} [] - talk 0.0 of 6.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn customer_may_be_called_first() {
    let mut it = Switch::default();
    it.at(0).dials_out("far", ("city", CUSTOMER), ("", ""));
    it.at(2000)
        .answers("far")
        .rings("p101", "101", ("far", "far"));
    it.at(3000).answers("p101").bridges("far", "p101");
    it.at(6000).hangs_up("p101").hangs_up("far");
    let wanted = format!("far out city {CUSTOMER} [101] 101 talk 3.0 of 6.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn called_customer_stays_in_the_call_after_the_caller_leaves() {
    let mut it = Switch::default();
    it.at(0).dials("p101", "101");
    it.dials_out("far", ("city", CUSTOMER), ("p101", "p101"));
    it.at(1000)
        .answers("far")
        .answers("p101")
        .bridges("p101", "far");
    it.at(3000).hangs_up("p101").unbridges("p101", "far");
    it.rings("p102", "102", ("far", "far")).at(4000);
    it.answers("p102").bridges("far", "p102");
    it.at(7000).hangs_up("far").hangs_up("p102");
    let wanted = format!("p101 out city {CUSTOMER} [101 102] 102 talk 5.0 of 7.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn listening_supervisor_is_not_counted_in_the_call() {
    let mut it = Switch::default();
    talking(&mut it);
    it.at(2000).dials("p104", "104").answers("p104");
    it.at(4000).hangs_up("p104");
    it.at(6000).hangs_up("cust").hangs_up("p101");
    let wanted = format!("cust in city {CUSTOMER} [101] 101 talk 5.0 of 6.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn ringing_callcenter_agent_belongs_to_customer_call() {
    let mut it = Switch::default();
    let member = [("variable_cc_member_session_uuid", "cust")];
    it.at(0).comes_in("cust", CUSTOMER).answers("cust");
    it.rings_with("p102", "102", ("", ""), &member);
    it.at(4000).hangs_up("p102");
    it.at(5000).hangs_up("cust");
    let wanted = format!("cust in city {CUSTOMER} [] 102 talk 0.0 of 5.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn two_customers_in_one_room_are_two_calls() {
    let mut it = Switch::default();
    it.at(0).dials("p101", "101").answers("p101");
    it.in_room("p101", "room", true);
    it.at(1000).comes_in("one", CUSTOMER).answers("one");
    it.in_room("one", "room", true);
    it.at(3000).comes_in("two", OTHER).answers("two");
    it.in_room("two", "room", true);
    it.at(6000).in_room("one", "room", false).hangs_up("one");
    it.at(7000).hangs_up("two").in_room("two", "room", false);
    it.at(9000).hangs_up("p101");
    // Customers hear each other, too: a room is one bridge.
    let wanted = [
        format!("one in city {CUSTOMER} [101] 101 talk 5.0 of 5.0, whole"),
        format!("two in city {OTHER} [101] 101 talk 4.0 of 4.0, whole"),
    ];
    assert_eq!(lines(&it), wanted);
}

#[test]
fn bridge_with_a_late_end_ends_when_the_next_begins() {
    let mut it = Switch::default();
    talking(&mut it);
    it.at(3000).rings("p102", "102", ("cust", "cust"));
    it.answers("p102")
        .bridges("cust", "p102")
        .unbridges("cust", "p101");
    it.hangs_up("p101").at(5000);
    it.hangs_up("p102")
        .unbridges("cust", "p102")
        .hangs_up("cust");
    let wanted = format!("cust in city {CUSTOMER} [101 102] 102 talk 4.0 of 5.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn ten_calls_at_once_are_ten() {
    let mut it = Switch::default();
    let ids: Vec<[String; 2]> = (0..10)
        .map(|n| [format!("c{n}"), format!("p{n}")])
        .collect();
    it.at(0);
    for ([cust, phone], n) in ids.iter().zip(0..) {
        it.comes_in(cust, &format!("99890111000{n}"));
        it.rings(phone, "101", (cust, cust));
    }
    it.at(1000);
    for [cust, phone] in &ids {
        it.answers(phone).answers(cust).bridges(cust, phone);
    }
    it.at(4000);
    for [cust, phone] in &ids {
        it.hangs_up(phone).hangs_up(cust);
    }
    let told = lines(&it);
    assert_eq!(told.len(), 10);
    for (told, n) in told.iter().zip(0..) {
        let wanted = format!("c{n} in city 99890111000{n} [101] 101 talk 3.0 of 4.0, whole");
        assert_eq!(*told, wanted);
    }
}

#[test]
fn unmatched_gateway_or_profile_is_reported() {
    let mut it = Switch::default();
    it.at(0).dials("p101", "101");
    it.dials_out("far", ("gone", CUSTOMER), ("p101", "p101"));
    it.at(3000).hangs_up("far").hangs_up("p101");
    let calls = finished_when(&it.told, Ended::Everything);
    assert_eq!(calls[0].unmatched, ["gateway/gone"]);
    let mut it = Switch::default();
    it.at(0).comes_in_from("cust", CUSTOMER, "16099");
    it.rings("p101", "101", ("cust", "cust"));
    it.at(3000).hangs_up("p101").hangs_up("cust");
    let calls = finished_when(&it.told, Ended::Everything);
    assert_eq!(calls[0].unmatched, ["profile/external"]);
}

#[test]
fn trunk_and_a_telephone_may_have_one_name() {
    let mut it = Switch::default();
    it.at(0).dials("p101", "101");
    it.dials_out("far", ("101", CUSTOMER), ("p101", "p101"));
    it.at(1000)
        .answers("far")
        .answers("p101")
        .bridges("p101", "far");
    it.at(3000).hangs_up("far").hangs_up("p101");
    let wanted = format!("p101 out one-o-one {CUSTOMER} [101] 101 talk 2.0 of 3.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

/// The variables that name the caller of a channel that was dialed without a session.
const NAMED_IN: [&str; 2] = [
    "variable_ent_originate_aleg_uuid",
    "variable_fifo_bridge_uuid",
];

/// Makes a customer and the three legs of a ring group, each dialed without a session.
fn dialed_without_session(switch: &mut Switch, variable: &str) {
    let caller = [(variable, "cust")];
    switch.at(0).comes_in("cust", CUSTOMER);
    switch.rings_with("p101", "101", ("", ""), &caller);
    switch.rings_with("p102", "102", ("", ""), &caller);
    switch.dials_out_with("mobile", ("gsm", "998935550000"), ("", ""), &caller);
}

#[test]
fn losing_legs_without_session_are_not_calls() {
    for variable in NAMED_IN {
        let mut it = Switch::default();
        dialed_without_session(&mut it, variable);
        it.at(5000).answers("p102").answers("cust");
        it.bridges("cust", "p102");
        it.hangs_up("p101").hangs_up("mobile");
        it.at(9000).hangs_up("p102").hangs_up("cust");
        let wanted = format!("cust in city {CUSTOMER} [102] 102 talk 4.0 of 9.0, whole");
        let calls = finished_when(&it.told, Ended::Everything);
        assert_eq!(calls.iter().map(line).collect::<Vec<_>>(), [wanted]);
    }
}

#[test]
fn missed_call_keeps_the_one_phone_dialed_without_session() {
    for variable in NAMED_IN {
        let mut it = Switch::default();
        let caller = [(variable, "cust")];
        it.at(0).comes_in("cust", CUSTOMER);
        it.rings_with("p101", "101", ("", ""), &caller);
        it.at(4000).hangs_up("cust").at(4500).hangs_up("p101");
        let wanted = format!("cust in city {CUSTOMER} [] 101 talk 0.0 of 4.0, whole");
        let calls = finished_when(&it.told, Ended::Everything);
        assert_eq!(calls.iter().map(line).collect::<Vec<_>>(), [wanted]);

        let mut it = Switch::default();
        dialed_without_session(&mut it, variable);
        it.at(4000).hangs_up("p101").hangs_up("p102");
        it.hangs_up("mobile").hangs_up("cust");
        let wanted = format!("cust in city {CUSTOMER} [] - talk 0.0 of 4.0, whole");
        let calls = finished_when(&it.told, Ended::Everything);
        assert_eq!(calls.iter().map(line).collect::<Vec<_>>(), [wanted]);
    }
}

/// An agent of mod_fifo is the side that joins: the bridge is reported by the agent's channel.
#[test]
fn fifo_agent_dialed_for_customer_is_in_the_call() {
    let mut it = Switch::default();
    dialed_without_session(&mut it, "variable_fifo_bridge_uuid");
    it.answers("cust").at(3000).answers("mobile");
    it.bridges("mobile", "cust").hangs_up("p101");
    it.hangs_up("p102").at(8000).hangs_up("cust");
    it.unbridges("mobile", "cust").hangs_up("mobile");
    let wanted = format!("cust in city {CUSTOMER} [] - talk 5.0 of 8.0, whole");
    let calls = finished_when(&it.told, Ended::Everything);
    assert_eq!(calls.iter().map(line).collect::<Vec<_>>(), [wanted]);
}

/// Any event of a channel can name its caller, and the events can arrive in any order.
#[test]
fn caller_named_after_the_birth_of_a_leg_counts() {
    for variable in NAMED_IN {
        let mut it = Switch::default();
        it.at(0).comes_in("cust", CUSTOMER);
        it.rings("p101", "101", ("", ""))
            .rings("p102", "102", ("", ""));
        it.dials_out("mobile", ("gsm", "998935550000"), ("", ""));
        for leg in ["p101", "p102", "mobile"] {
            it.learns(leg, variable, "cust");
        }
        it.at(5000).answers("p102").answers("cust");
        it.bridges("cust", "p102");
        it.hangs_up("p101").hangs_up("mobile");
        it.at(9000).hangs_up("p102").hangs_up("cust");
        let wanted = format!("cust in city {CUSTOMER} [102] 102 talk 4.0 of 9.0, whole");
        let wanted = std::slice::from_ref(&wanted);
        for seed in 0..50 {
            let told = shuffled(&it.told, &mut Chance::new(seed));
            let calls = finished_when(&told, Ended::Everything);
            assert_eq!(calls.iter().map(line).collect::<Vec<_>>(), wanted);
        }
    }
}
