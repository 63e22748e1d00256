//! Tests of calls that are diverted, transferred, picked up, parked, queued, or dialed over several
//! carriers, using events like those of a live switch.

use crate::expected::{Ended, finished_calls, finished_calls_with_gap, snapshots};
use crate::switch::{Switch, line};

const CUSTOMER: &str = "998901110001";
const OTHER: &str = "998901110002";
const MOBILE: &str = "998935550000";

fn lines(switch: &Switch) -> Vec<String> {
    finished_calls(&switch.messages).iter().map(line).collect()
}

/// Plays a conversation that doesn't end, in which 101 answers the customer after a second. The
/// channels are `cust` and `p101`.
fn play_talk(switch: &mut Switch) {
    switch.at(0).call_in("cust", CUSTOMER);
    switch.ring("p101", "101", ("cust", "cust")).at(1000);
    switch.answer("p101").answer("cust").bridge("cust", "p101");
}

/// Plays an outbound call that doesn't end, in which 101 calls the customer over `city`, who
/// answers after a second. The channels are `p101` and `far`.
fn play_outbound_call(switch: &mut Switch) {
    switch.at(0).dial("p101", "101");
    switch.dial_out("far", ("city", CUSTOMER), ("p101", "p101"));
    switch.at(1000).answer("far").answer("p101");
    switch.bridge("p101", "far");
}

#[test]
fn phone_diverted_to_mobile_leaves_answered_inbound_call() {
    let mut switch = Switch::default();
    let call = ("cust", "cust");
    switch
        .at(0)
        .call_in("cust", CUSTOMER)
        .ring("p101", "101", call);
    switch.at(200).hang_up("p101");
    switch.dial_out("mobile", ("gsm", MOBILE), call).at(2000);
    switch
        .answer("mobile")
        .answer("cust")
        .bridge("cust", "mobile");
    switch.at(6000).hang_up("cust").hang_up("mobile");
    let wanted = format!("cust in city {CUSTOMER} [] - talk 4.0 of 6.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

/// With `origination_uuid`, the leg over the second gateway gets the same ID as the one over the
/// first.
#[test]
fn second_gateway_with_the_same_id_continues_the_call() {
    let mut switch = Switch::default();
    let dialed = ("p101", "p101");
    switch.at(0).dial("p101", "101");
    switch.dial_out("far", ("city", CUSTOMER), dialed);
    switch.at(2000).hang_up("far");
    switch.at(2100).dial_out("far", ("gsm", CUSTOMER), dialed);
    switch.at(13_000).answer("far").answer("p101");
    switch.bridge("p101", "far");
    switch.at(33_000).unbridge("p101", "far");
    switch.hang_up("far").hang_up("p101");
    let calls = lines(&switch);
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert!(
        calls[0].ends_with("[101] 101 talk 20.0 of 33.0, whole"),
        "{calls:?}"
    );
}

/// An API tries two gateways (`originate a|b`), whose legs have nothing but the number in common.
#[test]
fn number_dialed_by_an_api_over_two_gateways_is_one_call() {
    let nobody = ("", "");
    for (second, after, wanted) in [
        (("gsm", CUSTOMER), 30, 1),
        (("city", MOBILE), 30, 2),
        (("gsm", CUSTOMER), 7000, 2),
    ] {
        let mut switch = Switch::default();
        switch.at(0).dial_out("one", ("city", CUSTOMER), nobody);
        switch.at(4000).hang_up("one");
        switch.at(4000 + after).dial_out("two", second, nobody);
        switch.at(14_000).answer("two");
        switch.ring("p101", "101", ("two", "two")).at(15_000);
        switch.answer("p101").bridge("two", "p101");
        switch.at(25_000).unbridge("two", "p101");
        switch.hang_up("p101").hang_up("two");
        let calls = lines(&switch);
        assert_eq!(calls.len(), wanted, "{second:?} {after} {calls:?}");
        assert!(
            calls[wanted - 1].contains("[101] 101 talk 10.0 of"),
            "{calls:?}"
        );
    }
}

/// Two agents call a company's main number at the same time.
#[test]
fn two_calls_that_an_api_dials_to_one_number_stay_two() {
    let mut switch = Switch::default();
    switch.at(0).dial_out("one", ("city", CUSTOMER), ("", ""));
    switch.at(500).dial_out("two", ("city", CUSTOMER), ("", ""));
    let agents = [("one", "p101", "101"), ("two", "p102", "102")];
    switch.at(3000);
    for (far, phone, extension) in agents {
        switch.answer(far).ring(phone, extension, (far, far));
    }
    switch.at(4000);
    for (far, phone, _) in agents {
        switch.answer(phone).bridge(far, phone);
    }
    switch
        .at(20_000)
        .unbridge("one", "p101")
        .hang_up("p101")
        .hang_up("one");
    switch
        .at(30_000)
        .unbridge("two", "p102")
        .hang_up("p102")
        .hang_up("two");
    let wanted = [
        format!("one out city {CUSTOMER} [101] 101 talk 16.0 of 20.0, whole"),
        format!("two out city {CUSTOMER} [102] 102 talk 26.0 of 29.5, whole"),
    ];
    assert_eq!(lines(&switch), wanted);
}

/// The pause is set by `originate_retry_sleep_ms` or `originate_retry_min_period_ms`, and otherwise
/// is one second.
#[test]
fn number_dialed_again_by_one_command_is_one_attempt() {
    let retries = ("variable_originate_retries", "3");
    let sleep = ("variable_originate_retry_sleep_ms", "20000");
    let period = ("variable_originate_retry_min_period_ms", "20000");
    let once = ("variable_originate_retries", "1");
    for (headers, gap, wanted) in [
        (&[] as &[_], 19_000, 3),
        (&[retries, sleep], 19_000, 1),
        (&[retries, period], 19_000, 1),
        (&[retries], 19_000, 3),
        (&[retries], 5500, 1),
        (&[], 5500, 3),
        (&[once, sleep], 19_000, 3),
        (&[sleep], 19_000, 3),
    ] {
        for answered in [false, true] {
            let mut switch = Switch::default();
            let dialed = ("p101", "p101");
            switch.at(0).dial("p101", "101").answer("p101");
            for (n, far) in (0..).zip(["one", "two", "three"]) {
                switch.at(1000 + n * (3000 + gap));
                switch.dial_out_with(far, ("city", CUSTOMER), dialed, headers);
                switch.at(4000 + n * (3000 + gap));
                if answered && n == 2 {
                    switch.answer(far).bridge("p101", far);
                    switch.at(26_000 + n * (3000 + gap)).unbridge("p101", far);
                }
                switch.hang_up(far);
            }
            // The agent's leg stays up, so the calls are emitted before it ends.
            switch.at(300_000).hang_up("p101");
            let calls = lines(&switch);
            let case = format!("{headers:?} {gap} {answered}");
            assert_eq!(calls.len(), wanted, "{case} {calls:?}");
            let has_talk = calls[wanted - 1].contains("talk 22.0 of");
            assert_eq!(has_talk, answered, "{case} {calls:?}");
        }
    }
}

#[test]
fn number_that_an_api_dials_again_is_one_attempt() {
    let retries = ("variable_originate_retries", "3");
    let sleep = ("variable_originate_retry_sleep_ms", "20000");
    for (headers, gap, wanted) in [
        (&[retries, sleep] as &[_], 20_000, 1),
        (&[retries], 1000, 1),
        (&[retries], 20_000, 2),
        (&[], 1000, 2),
    ] {
        let mut switch = Switch::default();
        let nobody = ("", "");
        switch.at(0);
        switch.dial_out_with("one", ("city", CUSTOMER), nobody, headers);
        switch.at(4000).hang_up("one").at(4000 + gap);
        switch.dial_out_with("two", ("city", CUSTOMER), nobody, headers);
        switch.at(7000 + gap).answer("two");
        switch.ring("p101", "101", ("two", "two")).at(8000 + gap);
        switch.answer("p101").bridge("two", "p101");
        switch.at(18_000 + gap).unbridge("two", "p101");
        switch.hang_up("p101").hang_up("two");
        let calls = lines(&switch);
        assert_eq!(calls.len(), wanted, "{headers:?} {gap} {calls:?}");
        let last = &calls[wanted - 1];
        assert!(last.contains("[101] 101 talk 10.0 of"), "{last}");
    }
}

/// Calling the customer again doesn't extend a call by an agent whose leg stays up.
#[test]
fn number_that_an_api_dialed_before_ties_no_later_call() {
    let mut switch = Switch::default();
    for (n, far, phone) in [(0, "one", "p101"), (1, "two", "p102")] {
        switch.at(n * 3_600_000);
        switch.dial(phone, &phone[1..]).answer(phone);
        switch.at(n * 3_600_000 + 1000);
        switch.dial_out(far, ("city", CUSTOMER), ("", ""));
        switch.at(n * 3_600_000 + 4000);
        switch.answer(far).bridge(phone, far);
        switch.at(n * 3_600_000 + 20_000).unbridge(phone, far);
        switch.hang_up(far);
    }
    let open = snapshots(&switch.messages);
    assert_eq!(open.len(), 2, "one for each agent: {open:?}");
    switch.at(7_200_000).hang_up("p102").hang_up("p101");
    let calls = lines(&switch);
    assert_eq!(calls.len(), 2, "{calls:?}");
    for (call, phone) in calls.iter().zip(["101", "102"]) {
        let wanted = format!("[{phone}] {phone} talk 16.0 of 19.0, whole");
        assert!(call.ends_with(&wanted), "{calls:?}");
    }
}

#[test]
fn transfer_to_outside_number_is_talk_of_inbound_call() {
    let mut switch = Switch::default();
    play_talk(&mut switch);
    switch.at(4000).hang_up("p101").unbridge("cust", "p101");
    switch.dial_out("mobile", ("gsm", MOBILE), ("cust", "cust"));
    switch.at(6000).answer("mobile").bridge("cust", "mobile");
    switch.at(9000).hang_up("mobile").unbridge("cust", "mobile");
    switch.hang_up("cust");
    let wanted = format!("cust in city {CUSTOMER} [101] 101 talk 6.0 of 9.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn refer_transfer_during_ringing_joins_both_calls() {
    let mut switch = Switch::default();
    play_talk(&mut switch);
    switch.at(4000).dial("p101b", "101");
    switch.ring("p102", "102", ("p101b", "p101b"));
    switch.at(6000).unbridge("cust", "p101").hang_up("p101");
    switch.hang_up("p101b");
    switch.at(8000).answer("p102").bridge("cust", "p102");
    switch.at(11_000).hang_up("cust").hang_up("p102");
    let wanted = format!("cust in city {CUSTOMER} [101 102] 102 talk 8.0 of 11.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn transferred_outbound_call_excludes_consultation_from_talk() {
    let mut switch = Switch::default();
    play_outbound_call(&mut switch);
    switch.at(4000).consult("p101", true);
    switch.ring("p102", "102", ("p101", "p101")).at(5000);
    switch.answer("p102").bridge("p101", "p102").at(7000);
    switch.hang_up("p101").unbridge("p101", "p102");
    switch.unbridge("p101", "far").bridge("p102", "far");
    switch.at(10_000).hang_up("far").hang_up("p102");
    let wanted = format!("p101 out city {CUSTOMER} [101 102] 102 talk 6.0 of 10.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn call_refused_by_first_carrier_belongs_to_the_second() {
    let mut switch = Switch::default();
    let call = ("p101", "p101");
    switch.at(0).dial("p101", "101");
    switch.dial_out("first", ("gsm", CUSTOMER), call);
    switch.at(1000).hang_up("first");
    switch.dial_out("second", ("city", CUSTOMER), call).at(3000);
    switch
        .answer("second")
        .answer("p101")
        .bridge("p101", "second");
    switch.at(7000).hang_up("second").hang_up("p101");
    let wanted = format!("p101 out city {CUSTOMER} [101] 101 talk 4.0 of 7.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn call_tried_over_two_trunks_belongs_to_answering_trunk() {
    let mut switch = Switch::default();
    let call = ("p101", "p101");
    switch.at(0).dial("p101", "101");
    switch.dial_out("one", ("city", CUSTOMER), call);
    switch.dial_out("two", ("gsm", CUSTOMER), call).at(2000);
    switch.answer("one").hang_up("two").answer("p101");
    switch.bridge("p101", "one").at(5000);
    switch.hang_up("p101").hang_up("one");
    let wanted = format!("p101 out city {CUSTOMER} [101] 101 talk 3.0 of 5.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn ring_group_answered_by_mobile_names_no_employee() {
    let mut switch = Switch::default();
    let call = ("cust", "cust");
    switch
        .at(0)
        .call_in("cust", CUSTOMER)
        .ring("p101", "101", call);
    switch.dial_out("mobile", ("gsm", MOBILE), call).at(2000);
    switch.answer("mobile").hang_up("p101").answer("cust");
    switch.bridge("cust", "mobile").at(5000);
    switch.hang_up("cust").hang_up("mobile");
    let wanted = format!("cust in city {CUSTOMER} [] - talk 3.0 of 5.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn mobile_talk_begins_when_its_key_is_pressed() {
    let mut switch = Switch::default();
    switch.at(0).call_in("cust", CUSTOMER);
    switch.dial_out("mobile", ("gsm", MOBILE), ("cust", "cust"));
    switch.at(2000).answer("mobile").at(5000).answer("cust");
    switch.bridge("cust", "mobile").at(9000);
    switch
        .hang_up("mobile")
        .unbridge("cust", "mobile")
        .hang_up("cust");
    let wanted = format!("cust in city {CUSTOMER} [] - talk 4.0 of 9.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn missed_call_on_two_phones_names_extension_once() {
    let mut switch = Switch::default();
    let call = ("cust", "cust");
    switch.at(0).call_in("cust", CUSTOMER);
    switch.ring("desk", "101", call).ring("soft", "101", call);
    switch
        .at(8000)
        .hang_up("cust")
        .hang_up("desk")
        .hang_up("soft");
    let wanted = format!("cust in city {CUSTOMER} [] 101 talk 0.0 of 8.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn customers_parked_at_the_same_time_are_two_calls() {
    let mut switch = Switch::default();
    let both = [("one", "p101", CUSTOMER), ("two", "p102", OTHER)];
    for (cust, phone, number) in both {
        switch.at(0).call_in(cust, number);
        switch.ring(phone, &phone[1..], (cust, cust));
    }
    for (cust, phone, _) in both {
        switch.at(1000).answer(phone).answer(cust);
        switch.bridge(cust, phone);
    }
    for (cust, phone, _) in both {
        switch.at(3000).hang_up(phone).unbridge(cust, phone);
    }
    // Each customer is retrieved by another phone. The bridge is reported before the answer.
    switch
        .at(5000)
        .dial("p103", "103")
        .bridge("one", "p103")
        .answer("p103");
    switch
        .at(6000)
        .dial("p104", "104")
        .bridge("two", "p104")
        .answer("p104");
    switch
        .at(8000)
        .hang_up("p103")
        .unbridge("one", "p103")
        .hang_up("one");
    switch
        .at(9000)
        .hang_up("two")
        .unbridge("two", "p104")
        .hang_up("p104");
    let wanted = [
        format!("one in city {CUSTOMER} [101 103] 103 talk 5.0 of 8.0, whole"),
        format!("two in city {OTHER} [102 104] 104 talk 5.0 of 9.0, whole"),
    ];
    assert_eq!(lines(&switch), wanted);
}

#[test]
fn queue_agent_joins_the_customer_call_through_the_bridge() {
    let mut switch = Switch::default();
    switch.at(0).call_in("cust", CUSTOMER).answer("cust");
    switch.ring("p101", "101", ("", "")).at(3000);
    switch.answer("p101").bridge("p101", "cust").at(7000);
    switch
        .hang_up("p101")
        .unbridge("p101", "cust")
        .hang_up("cust");
    let wanted = format!("cust in city {CUSTOMER} [101] 101 talk 4.0 of 7.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn dialed_customer_waiting_in_queue_is_one_outbound_call() {
    let mut switch = Switch::default();
    let member = [("variable_cc_member_session_uuid", "far")];
    switch.at(0).dial_out("far", ("city", CUSTOMER), ("", ""));
    switch.at(2000).answer("far");
    switch.ring_with("p101", "101", ("", ""), &member).at(4000);
    switch.hang_up("p101");
    switch.ring_with("p102", "102", ("", ""), &member).at(5000);
    switch.answer("p102").bridge("far", "p102").at(8000);
    switch
        .hang_up("far")
        .unbridge("far", "p102")
        .hang_up("p102");
    let wanted = format!("far out city {CUSTOMER} [102] 102 talk 3.0 of 8.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn survey_after_the_talk_counts_as_duration_not_as_talk() {
    let mut switch = Switch::default();
    play_talk(&mut switch);
    switch.at(4000).hang_up("p101").unbridge("cust", "p101");
    switch.at(12_000).hang_up("cust");
    let wanted = format!("cust in city {CUSTOMER} [101] 101 talk 3.0 of 12.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn internal_call_transferred_outside_is_outbound() {
    let mut switch = Switch::default();
    let call = ("p101", "p101");
    switch.at(0).dial("p101", "101").ring("p102", "102", call);
    switch
        .at(1000)
        .answer("p102")
        .answer("p101")
        .bridge("p101", "p102");
    switch.at(4000).hang_up("p102").unbridge("p101", "p102");
    switch.dial_out("far", ("city", CUSTOMER), call).at(6000);
    switch.answer("far").bridge("p101", "far").at(9000);
    switch
        .hang_up("far")
        .unbridge("p101", "far")
        .hang_up("p101");
    let wanted = format!("p101 out city {CUSTOMER} [101] 101 talk 3.0 of 9.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn ring_group_over_loopbacks_names_the_phone_that_answers() {
    let mut switch = Switch::default();
    switch.at(0).call_in("cust", CUSTOMER);
    for (a, b, phone) in [("a1", "b1", "101"), ("a2", "b2", "102")] {
        switch.add_loopback_half(
            a,
            &format!("loopback/{phone}-a"),
            (false, ""),
            ("cust", "cust"),
        );
        switch.add_loopback_half(b, &format!("loopback/{phone}-b"), (true, a), ("", ""));
        switch.ring(phone, phone, (b, b));
    }
    switch
        .at(2000)
        .answer("102")
        .answer("b2")
        .bridge("b2", "102");
    switch.answer("a2").answer("cust").bridge("cust", "a2");
    switch.hang_up("a1").hang_up("b1").hang_up("101").at(4000);
    switch.unbridge("b2", "102").unbridge("cust", "a2");
    switch.hang_up("a2").hang_up("b2").bridge("cust", "102");
    switch.at(7000).hang_up("102").unbridge("cust", "102");
    switch.hang_up("cust");
    let wanted = format!("cust in city {CUSTOMER} [102] 102 talk 5.0 of 7.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn pickup_by_colleague_with_older_leg_keeps_customer_as_root() {
    let mut switch = Switch::default();
    // The colleague's phone (103) is off the hook before the customer calls.
    switch.at(0).dial("p103", "103");
    switch.at(1000).call_in("cust", CUSTOMER);
    switch.ring("p102", "102", ("cust", "cust")).at(3000);
    switch.hang_up("p102").answer("p103").answer("cust");
    switch.bridge("p103", "cust").at(6000);
    switch
        .hang_up("cust")
        .unbridge("p103", "cust")
        .hang_up("p103");
    let wanted = format!("cust in city {CUSTOMER} [103] 103 talk 3.0 of 5.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

#[test]
fn conference_with_customer_and_colleague_is_one_call() {
    let mut switch = Switch::default();
    play_talk(&mut switch);
    switch.at(3000).unbridge("cust", "p101");
    switch
        .enter_or_leave_room("cust", "room", true)
        .enter_or_leave_room("p101", "room", true);
    switch.ring("p102", "102", ("", "")).at(5000);
    switch
        .answer("p102")
        .enter_or_leave_room("p102", "room", true)
        .at(7000);
    switch
        .enter_or_leave_room("p101", "room", false)
        .hang_up("p101")
        .at(9000);
    switch
        .hang_up("cust")
        .enter_or_leave_room("cust", "room", false);
    switch.hang_up("p102");
    let wanted = format!("cust in city {CUSTOMER} [101 102] 102 talk 8.0 of 9.0, whole");
    assert_eq!(lines(&switch), [wanted]);
}

/// 101 calls the customer, and leaves before the connection is restored.
#[test]
fn call_whose_first_channel_was_missed_keeps_its_linkedid() {
    let mut switch = Switch::default();
    play_outbound_call(&mut switch);
    switch.at(3000).hang_up("p101").unbridge("p101", "far");
    let missed = switch.messages.len();
    switch.ring("a102", "102", ("far", "far")).at(4000);
    switch.answer("a102").bridge("far", "a102").at(7000);
    switch.hang_up("far").hang_up("a102");
    let calls = finished_calls_with_gap(&switch.messages, 0..missed, Ended::Recording);
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].linkedid.as_str(), "p101");
    assert!(calls[0].incomplete.is_some());
}
