//! Tests of calls that are diverted, transferred, picked up, parked, queued, or dialed over several
//! carriers. Their events are those of a live switch.

use crate::expected::{Ended, finished, finished_but_for};
use crate::switch::{Switch, line};

const CUSTOMER: &str = "998901110001";
const OTHER: &str = "998901110002";
const MOBILE: &str = "998935550000";

fn lines(switch: &Switch) -> Vec<String> {
    finished(&switch.told).iter().map(line).collect()
}

/// 101 answers the customer after a second, on the channels `cust` and `p101`.
fn talking(switch: &mut Switch) {
    switch.at(0).comes_in("cust", CUSTOMER);
    switch.rings("p101", "101", ("cust", "cust")).at(1000);
    switch
        .answers("p101")
        .answers("cust")
        .bridges("cust", "p101");
}

/// 101 calls the customer over `city`, who answers after a second: `p101` and `far`.
fn calling(switch: &mut Switch) {
    switch.at(0).dials("p101", "101");
    switch.dials_out("far", ("city", CUSTOMER), ("p101", "p101"));
    switch.at(1000).answers("far").answers("p101");
    switch.bridges("p101", "far");
}

#[test]
fn phone_diverted_to_mobile_leaves_answered_inbound_call() {
    let mut it = Switch::default();
    let call = ("cust", "cust");
    it.at(0)
        .comes_in("cust", CUSTOMER)
        .rings("p101", "101", call);
    it.at(200).hangs_up("p101");
    it.dials_out("mobile", ("gsm", MOBILE), call).at(2000);
    it.answers("mobile")
        .answers("cust")
        .bridges("cust", "mobile");
    it.at(6000).hangs_up("cust").hangs_up("mobile");
    let wanted = format!("cust in city {CUSTOMER} [] - talk 4.0 of 6.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn transfer_to_outside_number_is_talk_of_inbound_call() {
    let mut it = Switch::default();
    talking(&mut it);
    it.at(4000).hangs_up("p101").unbridges("cust", "p101");
    it.dials_out("mobile", ("gsm", MOBILE), ("cust", "cust"));
    it.at(6000).answers("mobile").bridges("cust", "mobile");
    it.at(9000).hangs_up("mobile").unbridges("cust", "mobile");
    it.hangs_up("cust");
    let wanted = format!("cust in city {CUSTOMER} [101] 101 talk 6.0 of 9.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn refer_transfer_during_ringing_joins_both_calls() {
    let mut it = Switch::default();
    talking(&mut it);
    it.at(4000).dials("p101b", "101");
    it.rings("p102", "102", ("p101b", "p101b"));
    it.at(6000).unbridges("cust", "p101").hangs_up("p101");
    it.hangs_up("p101b");
    it.at(8000).answers("p102").bridges("cust", "p102");
    it.at(11_000).hangs_up("cust").hangs_up("p102");
    let wanted = format!("cust in city {CUSTOMER} [101 102] 102 talk 8.0 of 11.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn transferred_outbound_call_excludes_consultation_from_talk() {
    let mut it = Switch::default();
    calling(&mut it);
    it.at(4000).consults("p101", true);
    it.rings("p102", "102", ("p101", "p101")).at(5000);
    it.answers("p102").bridges("p101", "p102").at(7000);
    it.hangs_up("p101").unbridges("p101", "p102");
    it.unbridges("p101", "far").bridges("p102", "far");
    it.at(10_000).hangs_up("far").hangs_up("p102");
    let wanted = format!("p101 out city {CUSTOMER} [101 102] 102 talk 6.0 of 10.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn second_carrier_takes_the_call_that_the_first_refused() {
    let mut it = Switch::default();
    let call = ("p101", "p101");
    it.at(0).dials("p101", "101");
    it.dials_out("first", ("gsm", CUSTOMER), call);
    it.at(1000).hangs_up("first");
    it.dials_out("second", ("city", CUSTOMER), call).at(3000);
    it.answers("second")
        .answers("p101")
        .bridges("p101", "second");
    it.at(7000).hangs_up("second").hangs_up("p101");
    let wanted = format!("p101 out city {CUSTOMER} [101] 101 talk 4.0 of 7.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn call_tried_over_two_trunks_belongs_to_answering_trunk() {
    let mut it = Switch::default();
    let call = ("p101", "p101");
    it.at(0).dials("p101", "101");
    it.dials_out("one", ("city", CUSTOMER), call);
    it.dials_out("two", ("gsm", CUSTOMER), call).at(2000);
    it.answers("one").hangs_up("two").answers("p101");
    it.bridges("p101", "one").at(5000);
    it.hangs_up("p101").hangs_up("one");
    let wanted = format!("p101 out city {CUSTOMER} [101] 101 talk 3.0 of 5.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn ring_group_answered_by_mobile_names_no_employee() {
    let mut it = Switch::default();
    let call = ("cust", "cust");
    it.at(0)
        .comes_in("cust", CUSTOMER)
        .rings("p101", "101", call);
    it.dials_out("mobile", ("gsm", MOBILE), call).at(2000);
    it.answers("mobile").hangs_up("p101").answers("cust");
    it.bridges("cust", "mobile").at(5000);
    it.hangs_up("cust").hangs_up("mobile");
    let wanted = format!("cust in city {CUSTOMER} [] - talk 3.0 of 5.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn mobile_that_pressed_the_key_talks_from_then_on() {
    let mut it = Switch::default();
    it.at(0).comes_in("cust", CUSTOMER);
    it.dials_out("mobile", ("gsm", MOBILE), ("cust", "cust"));
    it.at(2000).answers("mobile").at(5000).answers("cust");
    it.bridges("cust", "mobile").at(9000);
    it.hangs_up("mobile")
        .unbridges("cust", "mobile")
        .hangs_up("cust");
    let wanted = format!("cust in city {CUSTOMER} [] - talk 4.0 of 9.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn missed_call_on_two_phones_names_extension_once() {
    let mut it = Switch::default();
    let call = ("cust", "cust");
    it.at(0).comes_in("cust", CUSTOMER);
    it.rings("desk", "101", call).rings("soft", "101", call);
    it.at(8000)
        .hangs_up("cust")
        .hangs_up("desk")
        .hangs_up("soft");
    let wanted = format!("cust in city {CUSTOMER} [] 101 talk 0.0 of 8.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn two_parked_customers_share_a_lot_and_nothing_else() {
    let mut it = Switch::default();
    let both = [("one", "p101", CUSTOMER), ("two", "p102", OTHER)];
    for (cust, phone, number) in both {
        it.at(0).comes_in(cust, number);
        it.rings(phone, &phone[1..], (cust, cust));
    }
    for (cust, phone, _) in both {
        it.at(1000).answers(phone).answers(cust);
        it.bridges(cust, phone);
    }
    for (cust, phone, _) in both {
        it.at(3000).hangs_up(phone).unbridges(cust, phone);
    }
    // Each is retrieved by another telephone. The bridge is reported before the answer.
    it.at(5000)
        .dials("p103", "103")
        .bridges("one", "p103")
        .answers("p103");
    it.at(6000)
        .dials("p104", "104")
        .bridges("two", "p104")
        .answers("p104");
    it.at(8000)
        .hangs_up("p103")
        .unbridges("one", "p103")
        .hangs_up("one");
    it.at(9000)
        .hangs_up("two")
        .unbridges("two", "p104")
        .hangs_up("p104");
    let wanted = [
        format!("one in city {CUSTOMER} [101 103] 103 talk 5.0 of 8.0, whole"),
        format!("two in city {OTHER} [102 104] 104 talk 5.0 of 9.0, whole"),
    ];
    assert_eq!(lines(&it), wanted);
}

#[test]
fn queue_agent_is_tied_to_customer_by_bridge() {
    let mut it = Switch::default();
    it.at(0).comes_in("cust", CUSTOMER).answers("cust");
    it.rings("p101", "101", ("", "")).at(3000);
    it.answers("p101").bridges("p101", "cust").at(7000);
    it.hangs_up("p101")
        .unbridges("p101", "cust")
        .hangs_up("cust");
    let wanted = format!("cust in city {CUSTOMER} [101] 101 talk 4.0 of 7.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn dialed_customer_waiting_in_queue_is_one_outbound_call() {
    let mut it = Switch::default();
    let member = [("variable_cc_member_session_uuid", "far")];
    it.at(0).dials_out("far", ("city", CUSTOMER), ("", ""));
    it.at(2000).answers("far");
    it.rings_with("p101", "101", ("", ""), &member).at(4000);
    it.hangs_up("p101");
    it.rings_with("p102", "102", ("", ""), &member).at(5000);
    it.answers("p102").bridges("far", "p102").at(8000);
    it.hangs_up("far").unbridges("far", "p102").hangs_up("p102");
    let wanted = format!("far out city {CUSTOMER} [102] 102 talk 3.0 of 8.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn survey_after_the_talk_counts_as_duration_not_as_talk() {
    let mut it = Switch::default();
    talking(&mut it);
    it.at(4000).hangs_up("p101").unbridges("cust", "p101");
    it.at(12_000).hangs_up("cust");
    let wanted = format!("cust in city {CUSTOMER} [101] 101 talk 3.0 of 12.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn call_between_colleagues_that_is_handed_outside_is_outbound() {
    let mut it = Switch::default();
    let call = ("p101", "p101");
    it.at(0).dials("p101", "101").rings("p102", "102", call);
    it.at(1000)
        .answers("p102")
        .answers("p101")
        .bridges("p101", "p102");
    it.at(4000).hangs_up("p102").unbridges("p101", "p102");
    it.dials_out("far", ("city", CUSTOMER), call).at(6000);
    it.answers("far").bridges("p101", "far").at(9000);
    it.hangs_up("far").unbridges("p101", "far").hangs_up("p101");
    let wanted = format!("p101 out city {CUSTOMER} [101] 101 talk 3.0 of 9.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn two_loopbacks_of_a_group_ring_and_one_of_them_wins() {
    let mut it = Switch::default();
    it.at(0).comes_in("cust", CUSTOMER);
    for (a, b, phone) in [("a1", "b1", "101"), ("a2", "b2", "102")] {
        it.half(
            a,
            &format!("loopback/{phone}-a"),
            (false, ""),
            ("cust", "cust"),
        );
        it.half(b, &format!("loopback/{phone}-b"), (true, a), ("", ""));
        it.rings(phone, phone, (b, b));
    }
    it.at(2000)
        .answers("102")
        .answers("b2")
        .bridges("b2", "102");
    it.answers("a2").answers("cust").bridges("cust", "a2");
    it.hangs_up("a1").hangs_up("b1").hangs_up("101").at(4000);
    it.unbridges("b2", "102").unbridges("cust", "a2");
    it.hangs_up("a2").hangs_up("b2").bridges("cust", "102");
    it.at(7000).hangs_up("102").unbridges("cust", "102");
    it.hangs_up("cust");
    let wanted = format!("cust in city {CUSTOMER} [102] 102 talk 5.0 of 7.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn pickup_by_colleague_with_older_leg_keeps_customer_as_root() {
    let mut it = Switch::default();
    // Her telephone was off the hook before the customer called.
    it.at(0).dials("p103", "103");
    it.at(1000).comes_in("cust", CUSTOMER);
    it.rings("p102", "102", ("cust", "cust")).at(3000);
    it.hangs_up("p102").answers("p103").answers("cust");
    it.bridges("p103", "cust").at(6000);
    it.hangs_up("cust")
        .unbridges("p103", "cust")
        .hangs_up("p103");
    let wanted = format!("cust in city {CUSTOMER} [103] 103 talk 3.0 of 5.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

#[test]
fn conference_with_customer_and_colleague_is_one_call() {
    let mut it = Switch::default();
    talking(&mut it);
    it.at(3000).unbridges("cust", "p101");
    it.in_room("cust", "room", true)
        .in_room("p101", "room", true);
    it.rings("p102", "102", ("", "")).at(5000);
    it.answers("p102").in_room("p102", "room", true).at(7000);
    it.in_room("p101", "room", false).hangs_up("p101").at(9000);
    it.hangs_up("cust").in_room("cust", "room", false);
    it.hangs_up("p102");
    let wanted = format!("cust in city {CUSTOMER} [101 102] 102 talk 8.0 of 9.0, whole");
    assert_eq!(lines(&it), [wanted]);
}

/// 101 called the customer, and has left before the connection is back.
#[test]
fn call_whose_first_channel_was_missed_keeps_its_linkedid() {
    let mut it = Switch::default();
    calling(&mut it);
    it.at(3000).hangs_up("p101").unbridges("p101", "far");
    let missed = it.told.len();
    it.rings("a102", "102", ("far", "far")).at(4000);
    it.answers("a102").bridges("far", "a102").at(7000);
    it.hangs_up("far").hangs_up("a102");
    let calls = finished_but_for(&it.told, 0..missed, Ended::Recording);
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].linkedid.as_str(), "p101");
    assert!(calls[0].incomplete.is_some());
}
