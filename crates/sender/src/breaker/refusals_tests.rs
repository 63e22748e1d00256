//! Tests how refused calls are suspended and released.

use super::*;
use callbridge_model::{EmployeeId, LeadId};

const S: Duration = Duration::from_secs(1);

/// Creates a call from a branch, with this lead and this employee.
fn call_of(branch: &str, row: i64, lead: i64, employee: i64) -> SentCall {
    SentCall {
        row: RowId(row),
        branch: branch.to_owned(),
        parties: parties(lead, employee),
    }
}

fn parties(lead: i64, employee: i64) -> Parties {
    Parties {
        lead: LeadId::new(lead),
        employee: EmployeeId::new(employee),
    }
}

fn call(row: i64, lead: i64, employee: i64) -> SentCall {
    call_of("", row, lead, employee)
}

fn refuse(refusals: &mut Refusals, call: SentCall) {
    refusals.note_refusal(S, Reason::Rejected, "400", call, S);
}

/// Creates a series of five refused calls for lead 9999 and employee 7.
fn five_of(branch: &str) -> Refusals {
    let mut refusals = Refusals::default();
    refuse_five(&mut refusals, branch);
    refusals
}

fn refuse_five(refusals: &mut Refusals, branch: &str) {
    for row in 1..=5 {
        refuse(refusals, call_of(branch, row, 9999, 7));
    }
}

fn rows(rows: impl IntoIterator<Item = i64>) -> Vec<RowId> {
    rows.into_iter().map(RowId).collect()
}

/// Returns each suspended branch's trial while no call is in flight.
fn trials(refusals: &Refusals, now: Duration) -> Vec<(String, Trial)> {
    let suspended = refusals.suspended(now, |_| false);
    let branches = suspended.branches.into_iter();
    branches.map(|branch| (branch.turn, branch.trial)).collect()
}

fn trial(refusals: &Refusals, now: Duration) -> Trial {
    trials(refusals, now)[0].1
}

#[test]
fn four_refusals_suspend_nothing_and_reopen_no_call() {
    let mut refusals = Refusals::default();
    for row in 1..=4 {
        refuse(&mut refusals, call(row, 9999, 7));
    }
    assert!(!refusals.suspends());
    assert_eq!(refusals.take(), []);
    refuse(&mut refusals, call(4, 9999, 7));
    assert!(!refusals.suspends(), "the same call");
    refuse(&mut refusals, call(5, 9999, 7));
    assert!(refusals.suspends(), "the row goes on");
}

#[test]
fn refusal_of_another_kind_begins_another_series() {
    let mut refusals = Refusals::default();
    for row in 1..=4 {
        refuse(&mut refusals, call(row, 9999, 7));
    }
    for row in 5..=9 {
        assert!(!refusals.suspends());
        refusals.note_refusal(S, Reason::Conflict, "409", call(row, 9999, 7), S);
    }
    assert_eq!(refusals.take(), rows(5..=9));
    assert_eq!(refusals, Refusals::default());
}

#[test]
fn five_refusals_allow_a_call_that_shares_nothing() {
    let refusals = five_of("");
    let suspended = refusals.suspended(S, |_| false);
    assert!(suspended.all);
    let [branch] = &suspended.branches[..] else {
        panic!("{suspended:?}");
    };
    assert_eq!(branch.trial, Trial::OtherCall);
    assert_eq!(branch.refused, [parties(9999, 7); 5]);
    let busy = refusals.suspended(S, |_| true);
    assert_eq!(busy.branches[0].trial, Trial::None, "one call at a time");
}

#[test]
fn accepted_other_call_leaves_the_refused_calls_dead() {
    let mut refusals = five_of("");
    assert_eq!(refusals.note_accepted(&call(6, 4001, 8), 2 * S), []);
    assert_eq!(refusals, Refusals::default());
}

#[test]
fn accepted_call_of_the_same_lead_reopens_the_refused_calls() {
    for accepted in [call(6, 9999, 8), call(6, 4001, 7)] {
        let mut refusals = five_of("");
        assert_eq!(refusals.note_accepted(&accepted, 2 * S), rows(1..=5));
        assert!(!refusals.suspends());
    }
}

#[test]
fn refused_other_call_is_confirmation_until_an_hourly_call() {
    let mut refusals = five_of("");
    refuse(&mut refusals, call(6, 4001, 8));
    assert_eq!(trial(&refusals, 2 * S), Trial::None);
    assert_eq!(refusals.next_trial(), Some(3601 * S));
    assert_eq!(trial(&refusals, 3601 * S), Trial::AnyCall);
    refusals.note_sent("", 3601 * S);
    assert_eq!(trial(&refusals, 3602 * S), Trial::None);
    assert_eq!(refusals.next_trial(), Some(7201 * S));
    assert_eq!(
        refusals.note_accepted(&call(7, 4002, 9), 3601 * S),
        rows(1..=6)
    );
}

#[test]
fn refused_call_of_the_same_lead_confirms_nothing() {
    let mut refusals = five_of("");
    refuse(&mut refusals, call(6, 9999, 8));
    assert_eq!(trial(&refusals, 2 * S), Trial::OtherCall);
    refusals.note_sent("", 3601 * S);
    assert_eq!(trial(&refusals, 3602 * S), Trial::OtherCall);
}

#[test]
fn call_sent_before_the_fifth_refusal_decides_nothing() {
    let mut refusals = five_of("");
    assert_eq!(refusals.note_accepted(&call(6, 4001, 8), S / 2), []);
    assert!(refusals.suspends());
    refusals.note_refusal(2 * S, Reason::Rejected, "400", call(7, 4002, 9), S / 2);
    assert_eq!(trial(&refusals, 2 * S), Trial::OtherCall);
    refusals.note_refusal(2 * S, Reason::Failed, "FAILED", call(8, 4003, 9), S / 2);
    assert_eq!(refusals.take(), rows([1, 2, 3, 4, 5, 7]), "of one kind");
}

#[test]
fn trial_refused_for_another_reason_is_confirmation() {
    let mut refusals = five_of("");
    refusals.note_refusal(2 * S, Reason::Conflict, "409", call(6, 4001, 8), 2 * S);
    assert_eq!(trial(&refusals, 2 * S), Trial::None);
    assert_eq!(refusals.take(), rows(1..=6));
}

#[test]
fn only_a_journaled_call_ends_a_series_that_failed() {
    let mut refusals = Refusals::default();
    for row in 1..=5 {
        refusals.note_refusal(S, Reason::Failed, "FAILED", call(row, 9999, 7), S);
    }
    assert_eq!(refusals.note_accepted(&call(6, 9999, 8), 2 * S), []);
    assert!(refusals.suspends());
    assert_eq!(refusals.note_journaled(&call(6, 9999, 8)), rows(1..=5));
    let mut refusals = five_of("");
    assert_eq!(refusals.note_journaled(&call(6, 9999, 8)), []);
    assert!(refusals.suspends(), "a rejected call was never accepted");
}

#[test]
fn series_of_one_branch_suspends_that_branch_only() {
    let mut refusals = five_of("west");
    for row in 11..=14 {
        refuse(&mut refusals, call_of("east", row, 9999, 7));
    }
    assert!(!refusals.suspended(S, |_| false).all);
    let west = ("west".to_owned(), Trial::OtherCall);
    assert_eq!(trials(&refusals, S), [west]);
    assert_eq!(
        refusals.note_accepted(&call_of("east", 20, 4001, 8), 2 * S),
        []
    );
    assert!(refusals.suspends_branch("west"), "another branch's call");
}

#[test]
fn confirmed_refusals_of_two_branches_suspend_all() {
    let mut refusals = five_of("west");
    refuse_five(&mut refusals, "east");
    assert!(!refusals.stops_all_branches(), "no trial was refused");
    refuse(&mut refusals, call_of("west", 6, 4001, 8));
    assert!(!refusals.stops_all_branches(), "only one branch's trial");
    refuse(&mut refusals, call_of("east", 6, 4001, 8));
    assert!(refusals.stops_all_branches());
    assert!(refusals.suspended(S, |_| false).all);
    refusals.note_accepted(&call_of("west", 7, 4002, 9), 2 * S);
    assert!(!refusals.suspended(S, |_| false).all, "one branch is left");
}

#[test]
fn branches_refused_for_different_reasons_leave_others_alone() {
    let mut refusals = Refusals::default();
    for (branch, reason) in [("west", Reason::Rejected), ("east", Reason::Conflict)] {
        for row in 1..=6 {
            let refused = call_of(branch, row, 9000 + row, row);
            refusals.note_refusal(S, reason, "no", refused, S);
        }
    }
    assert_eq!(trials(&refusals, S).len(), 2);
    assert!(!refusals.stops_all_branches());
}

#[test]
fn branch_is_reported_once_no_trial_is_left() {
    let mut refusals = five_of("west");
    assert_eq!(refusals.refused_branches(|_| true), []);
    let [waiting] = &refusals.refused_branches(|_| false)[..] else {
        panic!("no call to try");
    };
    assert_eq!(
        (waiting.branch.as_str(), waiting.is_confirmed),
        ("west", false)
    );
    refuse(&mut refusals, call_of("west", 6, 4001, 8));
    let [refused] = &refusals.refused_branches(|_| true)[..] else {
        panic!("the trial was refused");
    };
    assert!(refused.is_confirmed);
}

#[test]
fn refusals_remember_at_most_a_hundred_calls() {
    let mut refusals = Refusals::default();
    for row in 0..150 {
        refuse(&mut refusals, call(row, 9999, 7));
    }
    assert_eq!(refusals.take().len(), 100);
}

#[test]
fn stored_series_goes_on_after_a_restart() {
    let mut refusals = Refusals::default();
    for row in 1..=4 {
        refuse(&mut refusals, call_of("west", row, 9999, 7));
    }
    let text = serde_json::to_string(&refusals).expect("JSON");
    let mut read: Refusals = serde_json::from_str(&text).expect("the same");
    refuse(&mut read, call_of("west", 5, 9999, 7));
    assert!(read.suspends_branch("west"));
    assert_eq!(read.take(), rows(1..=5));
}

#[test]
fn one_lead_or_one_employee_of_all_calls_is_suspected() {
    let same = [parties(9999, 7), parties(9999, 7)];
    let mixed = [parties(9999, 7), parties(9998, 8)];
    for (call, shared, suspected) in [
        (parties(9999, 9), [true, true], [true, true]),
        (parties(4001, 7), [true, true], [true, false]),
        (parties(4001, 9), [false, false], [false, false]),
        (Parties::default(), [false, false], [false, false]),
    ] {
        let all = [&same[..], &mixed[..]];
        assert_eq!(
            all.map(|refused| call.are_shared_with(refused)),
            shared,
            "{call:?}"
        );
        assert_eq!(
            all.map(|refused| call.are_suspected_with(refused)),
            suspected,
            "{call:?}"
        );
    }
}
