//! Tests of scenes that aren't in any recording, using events like those of a live switch.

use crate::expected::{Ended, finished_calls, finished_calls_by, finished_calls_when};
use crate::metamorphic::{Chance, shuffle};
use crate::switch::{Switch, line};

const CUSTOMER: &str = "998901110001";
const OTHER: &str = "998901110002";

fn lines(switch: &Switch) -> Vec<String> {
    finished_calls(&switch.messages).iter().map(line).collect()
}

/// Plays a conversation that doesn't end, in which 101 answers the customer after a second. The
/// channels are `cust` and `p101`.
fn play_talk(switch: &mut Switch) {
    let call = ("cust", "cust");
    switch.at(0).call_in("cust", CUSTOMER);
    switch.ring("p101", "101", call).at(1000);
    switch.answer("p101").answer("cust").bridge("cust", "p101");
}

#[test]
fn agent_waiting_in_a_queue_is_not_the_root_of_the_call() {
    let mut switch = Switch::default();
    switch.at(0).dial("agent", "101").answer("agent");
    switch.at(5000).call_in("cust", CUSTOMER).answer("cust");
    switch.at(7000).bridge("agent", "cust");
    switch.at(10_000).hang_up("cust").unbridge("agent", "cust");
    switch.at(12_000).hang_up("agent");
    let wanted = format!("cust in city {CUSTOMER} [101] 101 talk 3.0 of 5.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn agent_serving_two_customers_in_turn_is_in_two_calls() {
    let mut switch = Switch::default();
    switch.at(0).dial("agent", "101").answer("agent");
    switch.at(1000).call_in("one", CUSTOMER).answer("one");
    switch.bridge("agent", "one").at(4000).hang_up("one");
    switch.unbridge("agent", "one");
    switch.at(5000).call_in("two", OTHER).answer("two");
    switch
        .at(6000)
        .bridge("agent", "two")
        .at(8000)
        .hang_up("two");
    switch.unbridge("agent", "two").at(9000).hang_up("agent");
    let wanted = [
        format!("one in city {CUSTOMER} [101] 101 talk 3.0 of 3.0, whole"),
        format!("two in city {OTHER} [101] 101 talk 2.0 of 3.0, whole"),
    ];
    assert_eq!(lines(&switch), wanted);
}

#[test]
fn agent_waiting_in_a_queue_delays_no_call() {
    let mut switch = Switch::default();
    switch.at(0).dial("agent", "101").answer("agent");
    for (n, cust) in ["one", "two", "three"].iter().enumerate() {
        let from = 60_000 * u64::try_from(n).expect("few");
        switch.at(from + 1000).call_in(cust, CUSTOMER).answer(cust);
        switch.at(from + 2000).bridge("agent", cust);
        switch.at(from + 5000).hang_up(cust).unbridge("agent", cust);
    }
    // Meanwhile, another customer calls the agent's colleague.
    switch.at(200_000).call_in("other", OTHER).hang_up("other");
    let calls: Vec<String> = finished_calls_by(&switch.messages, 201_000)
        .iter()
        .map(line)
        .collect();
    let [one, two, three] = ["one", "two", "three"]
        .map(|cust| format!("{cust} in city {CUSTOMER} [101] 101 talk 3.0 of 4.0, whole"));
    let unserved = format!("other in city {OTHER} [] - talk 0.0 of 0.0, whole");
    assert_eq!(calls, [one, two, three, unserved]);
    // The agent hangs up, which doesn't count as a call.
    switch.at(300_000).hang_up("agent");
    assert_eq!(
        finished_calls_when(&switch.messages, Ended::Everything).len(),
        4
    );
}

#[test]
fn colleagues_remaining_in_the_room_delay_no_call() {
    let mut switch = Switch::default();
    switch.at(0).dial("p101", "101").answer("p101");
    switch.enter_or_leave_room("p101", "room", true);
    switch.at(1000).call_in("cust", CUSTOMER).answer("cust");
    switch.enter_or_leave_room("cust", "room", true);
    switch.at(2000).dial("p102", "102").answer("p102");
    switch.enter_or_leave_room("p102", "room", true);
    switch
        .at(4000)
        .hang_up("cust")
        .enter_or_leave_room("cust", "room", false);
    switch.at(9000).call_in("late", OTHER).answer("late");
    switch.enter_or_leave_room("late", "room", true);
    switch.at(10_000).hang_up("p101");
    switch.enter_or_leave_room("p101", "room", false);
    switch.at(12_000).hang_up("late");
    let calls: Vec<String> = finished_calls_by(&switch.messages, 13_000)
        .iter()
        .map(line)
        .collect();
    let wanted = [
        format!("cust in city {CUSTOMER} [101 102] 102 talk 3.0 of 3.0, whole"),
        format!("late in city {OTHER} [101 102] 102 talk 3.0 of 3.0, whole"),
    ];
    assert_eq!(calls, wanted);
}

#[test]
fn call_dialed_after_a_transfer_is_a_separate_call() {
    let mut switch = Switch::default();
    switch.at(0).dial("near", "101");
    switch.dial_out("one", ("city", CUSTOMER), ("near", "near"));
    switch.at(600).answer("one").answer("near");
    switch.bridge("near", "one");
    switch.at(1200).dial("asking", "101").answer("asking");
    switch.ring("third", "102", ("asking", "asking"));
    switch.at(1800).answer("third").bridge("asking", "third");
    switch.at(2400).unbridge("near", "one");
    switch.unbridge("asking", "third").bridge("third", "one");
    switch.hang_up("near").hang_up("asking");
    switch.at(3000).unbridge("third", "one").hang_up("one");
    switch.dial_out("two", ("city", OTHER), ("third", "third"));
    switch.at(4000).hang_up("two").hang_up("third");
    let wanted = [
        format!("near out city {CUSTOMER} [101 102] 102 talk 2.4 of 3.0, whole"),
        format!("two out city {OTHER} [] 102 talk 0.0 of 1.0, whole"),
    ];
    assert_eq!(lines(&switch), wanted);
}

/// Since a switch's clock advances in steps of 20 ms, both halves of a loopback channel and the
/// channel they dial may have the same creation time. In that case, only the names show which half
/// belongs to which channel.
#[test]
fn loopback_to_phone_is_one_call_in_any_event_order() {
    let mut switch = Switch::default();
    let call = ("cust", "cust");
    switch.at(0).call_in("cust", CUSTOMER);
    switch.add_loopback_half("a", "loopback/101-a", (false, ""), call);
    switch.add_loopback_half("b", "loopback/101-b", (true, "a"), ("", ""));
    switch.ring("p101", "101", ("b", "b")).at(1000);
    switch.answer("p101").answer("b").bridge("b", "p101");
    switch.answer("a").answer("cust").bridge("cust", "a");
    switch.at(3000).unbridge("b", "p101").unbridge("cust", "a");
    switch.hang_up("a").hang_up("b").bridge("cust", "p101");
    switch.at(6000).hang_up("cust").hang_up("p101");
    let wanted = format!("cust in city {CUSTOMER} [101] 101 talk 5.0 of 6.0, whole");
    let wanted = std::slice::from_ref(&wanted);
    assert_eq!(lines(&switch), wanted);
    for seed in 0..100 {
        let calls = finished_calls(&shuffle(&switch.messages, &mut Chance::new(seed)));
        let calls: Vec<String> = calls.iter().map(line).collect();
        assert_eq!(calls, wanted, "seed {seed}");
    }
}

/// A caller whose address doesn't match any trunk is an outside party, and so is a number called
/// over such a gateway. Neither of them is an employee. Without a trunk for the caller, the
/// forwarded call counts as outbound, and the message lists the missing endpoint.
#[test]
fn caller_from_an_unmatched_address_is_not_an_employee() {
    let mut switch = Switch::default();
    switch.at(0).call_in_from("cust", CUSTOMER, "16055");
    switch.dial_out("mobile", ("city", OTHER), ("cust", "cust"));
    switch.at(2000).answer("mobile").answer("cust");
    switch.bridge("cust", "mobile").at(6000);
    switch.hang_up("cust").hang_up("mobile");
    let calls = finished_calls(&switch.messages);
    let wanted = format!(
        "cust out city {OTHER} [] - talk 4.0 of 6.0, it began with a call from outside on \
         sofia/external/{CUSTOMER}@127.0.0.1, which no --trunk matches: name its gateway, address \
         or profile as a trunk's endpoint"
    );
    assert_eq!(calls.iter().map(line).collect::<Vec<_>>(), [wanted]);
    assert_eq!(calls[0].unmatched, ["profile/external"]);
    let mut switch = Switch::default();
    switch.at(0).call_in("cust", CUSTOMER);
    switch.dial_out("mobile", ("misspelt", "1055"), ("cust", "cust"));
    switch.at(2000).answer("mobile").answer("cust");
    switch.bridge("cust", "mobile").at(6000);
    switch.hang_up("cust").hang_up("mobile");
    let wanted = format!("cust in city {CUSTOMER} [] - talk 4.0 of 6.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn two_loopbacks_to_one_telephone_lead_to_two_calls() {
    let mut switch = Switch::default();
    for (cust, a, b, phone, number) in [
        ("cust1", "a1", "b1", "p1", CUSTOMER),
        ("cust2", "a2", "b2", "p2", OTHER),
    ] {
        switch.at(0).call_in(cust, number);
        switch.add_loopback_half(a, "loopback/101-a", (false, ""), (cust, cust));
        switch.add_loopback_half(b, "loopback/101-b", (true, a), ("", ""));
        switch.ring(phone, "101", (b, b));
    }
    switch.at(2000);
    for (cust, a, b, phone) in [("cust1", "a1", "b1", "p1"), ("cust2", "a2", "b2", "p2")] {
        switch.answer(phone).answer(b).bridge(b, phone);
        switch.answer(a).answer(cust).bridge(cust, a);
    }
    switch.at(5000);
    for id in ["cust1", "a1", "b1", "p1", "cust2", "a2", "b2", "p2"] {
        switch.hang_up(id);
    }
    let wanted = [
        format!("cust1 in city {CUSTOMER} [101] 101 talk 3.0 of 5.0, whole"),
        format!("cust2 in city {OTHER} [101] 101 talk 3.0 of 5.0, whole"),
    ];
    assert_eq!(lines(&switch), wanted);
}

#[test]
fn attended_refer_transfer_joins_unrelated_call() {
    let mut switch = Switch::default();
    play_talk(&mut switch);
    switch.at(4000).dial("p101b", "101");
    switch.ring("p102", "102", ("p101b", "p101b")).at(5000);
    switch
        .answer("p102")
        .answer("p101b")
        .bridge("p101b", "p102");
    switch
        .at(7000)
        .unbridge("p101b", "p102")
        .unbridge("cust", "p101");
    switch
        .bridge("cust", "p102")
        .hang_up("p101")
        .hang_up("p101b");
    switch.at(9000).hang_up("cust").hang_up("p102");
    let wanted = format!("cust in city {CUSTOMER} [101 102] 102 talk 8.0 of 9.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn unanswered_consultation_returns_customer_to_agent() {
    let mut switch = Switch::default();
    play_talk(&mut switch);
    switch.at(3000).consult("p101", true);
    switch.ring("p102", "102", ("p101", "cust"));
    switch.at(6000).hang_up("p102").consult("p101", false);
    switch.at(8000).hang_up("cust").hang_up("p101");
    let wanted = format!("cust in city {CUSTOMER} [101] 101 talk 4.0 of 8.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn abandoned_consultation_leaves_call_answered() {
    let mut switch = Switch::default();
    play_talk(&mut switch);
    switch.at(4000).consult("p101", true);
    switch.ring("p102", "102", ("p101", "cust"));
    switch
        .at(5000)
        .hang_up("p101")
        .hang_up("p102")
        .hang_up("cust");
    let wanted = format!("cust in city {CUSTOMER} [101] 101 talk 3.0 of 5.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn announcement_before_the_answer_is_not_talk() {
    let mut switch = Switch::default();
    switch.at(0).dial("p101", "101");
    switch.dial_out("far", ("city", CUSTOMER), ("p101", "p101"));
    switch.at(1000).bridge("p101", "far");
    switch.at(5000).hang_up("far").hang_up("p101");
    let wanted = format!("p101 out city {CUSTOMER} [] 101 talk 0.0 of 5.0, whole");
    assert_eq!(lines(&switch), [wanted]);
    // The carrier is the same, and the customer answers after the bridge.
    let mut switch = Switch::default();
    switch.at(0).dial("p101", "101");
    switch.dial_out("far", ("city", CUSTOMER), ("p101", "p101"));
    switch.at(1000).bridge("p101", "far");
    switch.at(3000).answer("far").answer("p101");
    switch.at(5000).hang_up("far").hang_up("p101");
    let wanted = format!("p101 out city {CUSTOMER} [101] 101 talk 2.0 of 5.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn mobile_without_a_key_press_has_no_talk() {
    let mut switch = Switch::default();
    switch.at(0).call_in("cust", CUSTOMER);
    switch.dial_out("mobile", ("gsm", "998935550000"), ("cust", "cust"));
    switch.at(2000).answer("mobile");
    switch.at(6000).hang_up("mobile").hang_up("cust");
    let wanted = format!("cust in city {CUSTOMER} [] - talk 0.0 of 6.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn call_that_dials_the_customer_first_is_outbound() {
    let mut switch = Switch::default();
    switch.at(0).dial_out("far", ("city", CUSTOMER), ("", ""));
    switch
        .at(2000)
        .answer("far")
        .ring("p101", "101", ("far", "far"));
    switch.at(3000).answer("p101").bridge("far", "p101");
    switch.at(6000).hang_up("p101").hang_up("far");
    let wanted = format!("far out city {CUSTOMER} [101] 101 talk 3.0 of 6.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn outbound_call_continues_after_the_caller_leaves() {
    let mut switch = Switch::default();
    switch.at(0).dial("p101", "101");
    switch.dial_out("far", ("city", CUSTOMER), ("p101", "p101"));
    switch
        .at(1000)
        .answer("far")
        .answer("p101")
        .bridge("p101", "far");
    switch.at(3000).hang_up("p101").unbridge("p101", "far");
    switch.ring("p102", "102", ("far", "far")).at(4000);
    switch.answer("p102").bridge("far", "p102");
    switch.at(7000).hang_up("far").hang_up("p102");
    let wanted = format!("p101 out city {CUSTOMER} [101 102] 102 talk 5.0 of 7.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn supervisor_leg_without_a_bridge_is_not_part_of_the_call() {
    let mut switch = Switch::default();
    play_talk(&mut switch);
    switch.at(2000).dial("p104", "104").answer("p104");
    switch.at(4000).hang_up("p104");
    switch.at(6000).hang_up("cust").hang_up("p101");
    let wanted = format!("cust in city {CUSTOMER} [101] 101 talk 5.0 of 6.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn ringing_callcenter_agent_belongs_to_customer_call() {
    let mut switch = Switch::default();
    let member = [("variable_cc_member_session_uuid", "cust")];
    switch.at(0).call_in("cust", CUSTOMER).answer("cust");
    switch.ring_with("p102", "102", ("", ""), &member);
    switch.at(4000).hang_up("p102");
    switch.at(5000).hang_up("cust");
    let wanted = format!("cust in city {CUSTOMER} [] 102 talk 0.0 of 5.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn two_customers_in_one_room_are_two_calls() {
    let mut switch = Switch::default();
    switch.at(0).dial("p101", "101").answer("p101");
    switch.enter_or_leave_room("p101", "room", true);
    switch.at(1000).call_in("one", CUSTOMER).answer("one");
    switch.enter_or_leave_room("one", "room", true);
    switch.at(3000).call_in("two", OTHER).answer("two");
    switch.enter_or_leave_room("two", "room", true);
    switch
        .at(6000)
        .enter_or_leave_room("one", "room", false)
        .hang_up("one");
    switch
        .at(7000)
        .hang_up("two")
        .enter_or_leave_room("two", "room", false);
    switch.at(9000).hang_up("p101");
    // The two customers hear each other as well, because a room is a single bridge.
    let wanted = [
        format!("one in city {CUSTOMER} [101] 101 talk 5.0 of 5.0, whole"),
        format!("two in city {OTHER} [101] 101 talk 4.0 of 4.0, whole"),
    ];
    assert_eq!(lines(&switch), wanted);
}

/// 101 calls a second customer on another line, and puts both into a room.
#[test]
fn customer_dialed_on_another_line_keeps_a_call_in_a_room() {
    let mut switch = Switch::default();
    play_talk(&mut switch);
    switch.at(5000).dial("p101b", "101");
    switch.dial_out("far", ("city", OTHER), ("p101b", "p101b"));
    switch.at(7000).answer("far").answer("p101b");
    switch.bridge("p101b", "far").at(10_000);
    switch.unbridge("cust", "p101").unbridge("p101b", "far");
    for channel in ["cust", "p101", "far"] {
        switch.enter_or_leave_room(channel, "room", true);
    }
    switch.hang_up("p101b").at(14_000);
    switch
        .enter_or_leave_room("far", "room", false)
        .hang_up("far");
    switch.at(17_000);
    for channel in ["cust", "p101"] {
        switch.enter_or_leave_room(channel, "room", false);
        switch.hang_up(channel);
    }
    let wanted = [
        format!("cust in city {CUSTOMER} [101] 101 talk 16.0 of 17.0, whole"),
        format!("far out city {OTHER} [101] 101 talk 7.0 of 9.0, whole"),
    ];
    assert_eq!(lines(&switch), wanted);
}

#[test]
fn bridge_with_a_late_end_ends_when_the_next_begins() {
    let mut switch = Switch::default();
    play_talk(&mut switch);
    switch.at(3000).ring("p102", "102", ("cust", "cust"));
    switch
        .answer("p102")
        .bridge("cust", "p102")
        .unbridge("cust", "p101");
    switch.hang_up("p101").at(5000);
    switch
        .hang_up("p102")
        .unbridge("cust", "p102")
        .hang_up("cust");
    let wanted = format!("cust in city {CUSTOMER} [101 102] 102 talk 4.0 of 5.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn ten_simultaneous_calls_are_reported_separately() {
    let mut switch = Switch::default();
    let ids: Vec<[String; 2]> = (0..10)
        .map(|n| [format!("c{n}"), format!("p{n}")])
        .collect();
    switch.at(0);
    for ([cust, phone], n) in ids.iter().zip(0..) {
        switch.call_in(cust, &format!("99890111000{n}"));
        switch.ring(phone, "101", (cust, cust));
    }
    switch.at(1000);
    for [cust, phone] in &ids {
        switch.answer(phone).answer(cust).bridge(cust, phone);
    }
    switch.at(4000);
    for [cust, phone] in &ids {
        switch.hang_up(phone).hang_up(cust);
    }
    let calls = lines(&switch);
    assert_eq!(calls.len(), 10);
    for (call, n) in calls.iter().zip(0..) {
        let wanted = format!("c{n} in city 99890111000{n} [101] 101 talk 3.0 of 4.0, whole");
        assert_eq!(*call, wanted);
    }
}

#[test]
fn unmatched_gateway_or_profile_is_reported() {
    let mut switch = Switch::default();
    switch.at(0).dial("p101", "101");
    switch.dial_out("far", ("gone", CUSTOMER), ("p101", "p101"));
    switch.at(3000).hang_up("far").hang_up("p101");
    let calls = finished_calls_when(&switch.messages, Ended::Everything);
    assert_eq!(calls[0].unmatched, ["gateway/gone"]);
    let mut switch = Switch::default();
    switch.at(0).call_in_from("cust", CUSTOMER, "16099");
    switch.ring("p101", "101", ("cust", "cust"));
    switch.at(3000).hang_up("p101").hang_up("cust");
    let calls = finished_calls_when(&switch.messages, Ended::Everything);
    assert_eq!(calls[0].unmatched, ["profile/external"]);
}

#[test]
fn trunk_and_phone_with_the_same_name_are_kept_apart() {
    let mut switch = Switch::default();
    switch.at(0).dial("p101", "101");
    switch.dial_out("far", ("101", CUSTOMER), ("p101", "p101"));
    switch
        .at(1000)
        .answer("far")
        .answer("p101")
        .bridge("p101", "far");
    switch.at(3000).hang_up("far").hang_up("p101");
    let wanted = format!("p101 out one-o-one {CUSTOMER} [101] 101 talk 2.0 of 3.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

/// The variables that identify the caller of a channel that was dialed without a session.
const NAMED_IN: [&str; 2] = [
    "variable_ent_originate_aleg_uuid",
    "variable_fifo_bridge_uuid",
];

/// Plays a customer's call and the three legs of a ring group. Each leg is dialed without a
/// session, and its `variable` identifies its caller.
fn dial_without_session(switch: &mut Switch, variable: &str) {
    let caller = [(variable, "cust")];
    switch.at(0).call_in("cust", CUSTOMER);
    switch.ring_with("p101", "101", ("", ""), &caller);
    switch.ring_with("p102", "102", ("", ""), &caller);
    switch.dial_out_with("mobile", ("gsm", "998935550000"), ("", ""), &caller);
}

#[test]
fn losing_legs_without_session_are_not_calls() {
    for variable in NAMED_IN {
        let mut switch = Switch::default();
        dial_without_session(&mut switch, variable);
        switch.at(5000).answer("p102").answer("cust");
        switch.bridge("cust", "p102");
        switch.hang_up("p101").hang_up("mobile");
        switch.at(9000).hang_up("p102").hang_up("cust");
        let wanted = format!("cust in city {CUSTOMER} [102] 102 talk 4.0 of 9.0, whole");
        let calls = finished_calls_when(&switch.messages, Ended::Everything);
        assert_eq!(calls.iter().map(line).collect::<Vec<_>>(), [wanted]);
    }
}

#[test]
fn missed_call_keeps_the_one_phone_dialed_without_session() {
    for variable in NAMED_IN {
        let mut switch = Switch::default();
        let caller = [(variable, "cust")];
        switch.at(0).call_in("cust", CUSTOMER);
        switch.ring_with("p101", "101", ("", ""), &caller);
        switch.at(4000).hang_up("cust").at(4500).hang_up("p101");
        let wanted = format!("cust in city {CUSTOMER} [] 101 talk 0.0 of 4.0, whole");
        let calls = finished_calls_when(&switch.messages, Ended::Everything);
        assert_eq!(calls.iter().map(line).collect::<Vec<_>>(), [wanted]);

        let mut switch = Switch::default();
        dial_without_session(&mut switch, variable);
        switch.at(4000).hang_up("p101").hang_up("p102");
        switch.hang_up("mobile").hang_up("cust");
        let wanted = format!("cust in city {CUSTOMER} [] - talk 0.0 of 4.0, whole");
        let calls = finished_calls_when(&switch.messages, Ended::Everything);
        assert_eq!(calls.iter().map(line).collect::<Vec<_>>(), [wanted]);
    }
}

/// A mod_fifo agent joins the customer, so the bridge is reported by the agent's channel.
#[test]
fn fifo_agent_dialed_for_customer_is_in_the_call() {
    let mut switch = Switch::default();
    dial_without_session(&mut switch, "variable_fifo_bridge_uuid");
    switch.answer("cust").at(3000).answer("mobile");
    switch.bridge("mobile", "cust").hang_up("p101");
    switch.hang_up("p102").at(8000).hang_up("cust");
    switch.unbridge("mobile", "cust").hang_up("mobile");
    let wanted = format!("cust in city {CUSTOMER} [] - talk 5.0 of 8.0, whole");
    let calls = finished_calls_when(&switch.messages, Ended::Everything);
    assert_eq!(calls.iter().map(line).collect::<Vec<_>>(), [wanted]);
}

/// Any of a channel's events may identify its caller, and the events may arrive in any order.
#[test]
fn caller_named_after_a_leg_is_created_counts() {
    for variable in NAMED_IN {
        let mut switch = Switch::default();
        switch.at(0).call_in("cust", CUSTOMER);
        switch
            .ring("p101", "101", ("", ""))
            .ring("p102", "102", ("", ""));
        switch.dial_out("mobile", ("gsm", "998935550000"), ("", ""));
        for leg in ["p101", "p102", "mobile"] {
            switch.add_header(leg, variable, "cust");
        }
        switch.at(5000).answer("p102").answer("cust");
        switch.bridge("cust", "p102");
        switch.hang_up("p101").hang_up("mobile");
        switch.at(9000).hang_up("p102").hang_up("cust");
        let wanted = format!("cust in city {CUSTOMER} [102] 102 talk 4.0 of 9.0, whole");
        let wanted = std::slice::from_ref(&wanted);
        for seed in 0..50 {
            let shuffled = shuffle(&switch.messages, &mut Chance::new(seed));
            let calls = finished_calls_when(&shuffled, Ended::Everything);
            assert_eq!(calls.iter().map(line).collect::<Vec<_>>(), wanted);
        }
    }
}
