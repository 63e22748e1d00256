//! Tests the head of the queue while a branch's calls are suspended.

use super::call::{ask, journal, time_at};
use crate::{
    Finished, Op, Parties, QueueQuery, RowId, Settings, Step, Store, SuspendedBranch,
    SuspendedCalls, Trial, WorkQueue, tables,
};
use callbridge_model::{EmployeeId, LeadId};

/// Creates a branch's `n`th call, with this lead and employee.
fn call_of(branch: &str, n: u32, lead: i64, employee: i64) -> Finished {
    let mut call = journal(n);
    call.branch = Some(branch.to_owned());
    call.judged.record.lead_id = LeadId::new(lead);
    call.judged.record.employee_id = EmployeeId::new(employee);
    call
}

fn store_with(calls: impl IntoIterator<Item = Finished>) -> Store {
    let mut store = super::store(Settings::default());
    let ops = calls.into_iter().map(|call| Op::Finish(Box::new(call)));
    store.write(ops.collect()).expect("stored");
    store
}

fn parties(lead: i64, employee: i64) -> Parties {
    Parties {
        lead: LeadId::new(lead),
        employee: EmployeeId::new(employee),
    }
}

/// Suspends this branch's calls, or all calls, because lead 9999 and employee 7 were refused.
fn suspended(turn: &str, trial: Trial, all: bool) -> QueueQuery {
    let branch = SuspendedBranch {
        turn: turn.to_owned(),
        refused: vec![parties(9999, 7), parties(9999, 7)],
        trial,
    };
    QueueQuery {
        suspended: SuspendedCalls {
            all,
            branches: vec![branch],
        },
        ..ask(time_at(10))
    }
}

fn head(store: &Store, query: &QueueQuery) -> WorkQueue {
    tables::work_queue::head(store, query).expect("a head")
}

/// Returns the rows of the live call, the call in the backlog, and the trial.
fn rows(head: &WorkQueue, turn: &str) -> [Option<i64>; 3] {
    let trial = head.trials.get(turn);
    [head.live.as_ref(), head.backlog.as_ref(), trial].map(|due| due.map(|due| due.row.0))
}

#[test]
fn suspended_branch_lets_other_branches_pass() {
    let mut calls = vec![call_of("east", 1, 4001, 1), call_of("north", 2, 4002, 2)];
    calls.extend((3..=12).map(|n| call_of("west", n, 9999, 7)));
    let mut store = store_with(calls);
    let query = suspended("west", Trial::OtherCall, false);
    for row in [1, 2] {
        let head = head(&store, &query);
        assert_eq!(rows(&head, "west")[2], None);
        assert_eq!(head.live.map(|due| due.row), Some(RowId(row)));
        let send = Op::step(RowId(row), Step::Send, time_at(10));
        store.write(vec![send]).expect("sent");
    }
    assert_eq!(rows(&head(&store, &query), "west"), [None; 3]);
    let usual = head(&store, &ask(time_at(10)));
    assert_eq!(usual.live.map(|due| due.row), Some(RowId(12)));
}

#[test]
fn suspended_branch_lets_held_back_calls_of_others_pass() {
    let calls = [call_of("east", 1, 4001, 1), call_of("west", 2, 4002, 2)];
    let mut store = store_with(calls);
    for row in [1, 2] {
        let returned = Step::Returned {
            not_before: time_at(5 + row),
            why: "503".to_owned(),
            failures: 1,
        };
        let steps = [Step::Send, returned].map(|step| Op::step(RowId(row), step, time_at(5)));
        store.write(steps.into()).expect("returned");
    }
    let query = suspended("west", Trial::OtherCall, false);
    assert_eq!(
        rows(&head(&store, &query), "west"),
        [Some(1), None, Some(2)]
    );
    let query = suspended("", Trial::None, true);
    assert_eq!(rows(&head(&store, &query), ""), [None; 3]);
}

#[test]
fn trial_shares_neither_lead_nor_employee_if_possible() {
    let calls = [
        call_of("west", 1, 9999, 1),
        call_of("west", 2, 4001, 7),
        call_of("west", 3, 4002, 2),
        call_of("west", 4, 9999, 7),
        call_of("east", 5, 4003, 3),
    ];
    let mut store = store_with(calls);
    for (trial, wanted) in [
        (Trial::OtherCall, Some(3)),
        (Trial::AnyCall, Some(3)),
        (Trial::None, None),
    ] {
        let head = head(&store, &suspended("west", trial, false));
        assert_eq!(rows(&head, "west")[2], wanted, "{trial:?}");
    }
    let send = Op::step(RowId(3), Step::Send, time_at(10));
    store.write(vec![send]).expect("sent");
    for (trial, wanted) in [(Trial::OtherCall, None), (Trial::AnyCall, Some(4))] {
        let head = head(&store, &suspended("west", trial, false));
        assert_eq!(rows(&head, "west")[2], wanted, "{trial:?}");
    }
    let head = head(&store, &suspended("", Trial::OtherCall, true));
    assert_eq!(rows(&head, ""), [None, None, Some(5)], "of any branch");
}

/// If there's no call with a different lead and employee, a trial may share an employee that only
/// some of the refused calls have, since that employee can't be the cause.
#[test]
fn trial_shares_an_employee_that_only_some_refused_calls_have() {
    let store = store_with([
        call_of("west", 1, 4001, 8),
        call_of("west", 2, 4002, 7),
        call_of("west", 3, 9999, 9),
    ]);
    let mut query = suspended("west", Trial::OtherCall, false);
    assert_eq!(rows(&head(&store, &query), "west")[2], Some(1));
    query.suspended.branches[0].refused = vec![parties(9999, 7), parties(9999, 8)];
    assert_eq!(rows(&head(&store, &query), "west")[2], Some(2));
    query.suspended.branches[0].refused = vec![parties(4001, 7), parties(4002, 8)];
    assert_eq!(rows(&head(&store, &query), "west")[2], Some(3));
    query.suspended.branches[0].refused = [4001, 4002, 9999].map(|lead| parties(lead, 7)).into();
    assert_eq!(rows(&head(&store, &query), "west")[2], None);
}

#[test]
fn trial_that_shares_nothing_precedes_newer_ones() {
    let store = store_with([
        call_of("west", 1, 4001, 1),
        call_of("west", 2, 4002, 7),
        call_of("west", 3, 9999, 8),
    ]);
    let mut query = suspended("west", Trial::OtherCall, false);
    query.suspended.branches[0].refused = vec![parties(9999, 7), parties(9999, 8)];
    assert_eq!(rows(&head(&store, &query), "west")[2], Some(1));
}
