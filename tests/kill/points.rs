//! Kills the program, or makes its disk fail, at the n-th operation. n grows until a run has no
//! fault.
//!
//! By default, only some of the points are tried. `CALLBRIDGE_KILL_POINTS=all` tries each.

use crate::kill::fault::{Action, Fault};
use crate::kill::scenario;
use std::io::Write as _;
use tokio::task::JoinSet;

/// Number of points of each kind that are tried by default.
const POINTS: u64 = 8;
/// Number of scenarios that run at the same time. Scenarios mostly wait.
const AT_ONCE: usize = 6;

/// Returns how many points of each kind to try, or `None` for all.
fn points_per_kind() -> Option<u64> {
    match std::env::var("CALLBRIDGE_KILL_POINTS") {
        Ok(all) if all == "all" => None,
        Ok(some) => Some(
            some.parse()
                .expect("CALLBRIDGE_KILL_POINTS: all, or a number"),
        ),
        Err(_) => Some(POINTS),
    }
}

/// Runs the scenario with `faults(n)` for n = 1, 2, …, until a run has no fault. `on` is only
/// printed: the fault lasts from its operation on.
async fn try_at_every_operation(action: Action, on: bool, faults: impl Fn(u64) -> Vec<Fault>) {
    let (writes, syncs) = scenario::count_operations().await;
    let many = if action.is_counted_by_syncs() {
        syncs
    } else {
        writes
    };
    let stride = points_per_kind().map_or(1, |points| many.div_ceil(points));
    let (mut tried, mut next, mut spared) = (0, 1, false);
    let mut second = 0;
    let mut runs = JoinSet::new();
    while !spared || !runs.is_empty() {
        while !spared && runs.len() < AT_ONCE {
            let faults = faults(next);
            runs.spawn(async move { (next, scenario::run(&faults).await) });
            next += stride;
        }
        let Some(run) = runs.join_next().await else {
            break;
        };
        let (n, met) = run.expect("a scenario that holds");
        assert!(met > 0 || n > many / 2, "{action:?} {n} was never met");
        spared |= met == 0;
        tried += u64::from(met > 0);
        second += u64::from(met > 1);
    }
    let kind = if action.is_counted_by_syncs() {
        "syncs"
    } else {
        "writes"
    };
    let how = if on { "from then on" } else { "once" };
    // Written to stderr directly, because the test harness hides the output of passing tests.
    let line = format!(
        "{action:?} {how}: {tried} points of about {many} {kind}, {second} more in the recovery\n"
    );
    std::io::stderr()
        .write_all(line.as_bytes())
        .expect("stderr");
}

async fn kill_at_every_operation(action: Action) {
    let unit = if action.is_counted_by_syncs() { 1 } else { 6 };
    try_at_every_operation(action, false, |first| {
        // The second kill comes early in the recovery, at a different point each time.
        let second = 1 + first * 7 % 13 * unit;
        let faults = [first, second].map(|nth| Fault {
            action,
            nth,
            on: false,
        });
        faults.to_vec()
    })
    .await;
}

async fn fail_at_every_operation(action: Action, on: bool) {
    try_at_every_operation(action, on, |nth| vec![Fault { action, nth, on }]).await;
}

#[tokio::test]
async fn kill_before_any_sync_still_journals_every_call_once() {
    kill_at_every_operation(Action::KillBeforeSync).await;
}

/// Promise: `kill -9` loses no call and doubles none.
#[tokio::test]
async fn kill_after_any_commit_still_journals_every_call_once() {
    kill_at_every_operation(Action::KillAfterSync).await;
}

#[tokio::test]
async fn kill_in_any_write_still_journals_every_call_once() {
    kill_at_every_operation(Action::KillInWrite).await;
}

#[tokio::test]
async fn write_that_fails_once_loses_no_call() {
    fail_at_every_operation(Action::FailWrite, false).await;
}

#[tokio::test]
async fn writes_that_fail_for_a_while_are_reported_and_lose_no_call() {
    fail_at_every_operation(Action::FailWrite, true).await;
}

#[tokio::test]
async fn sync_that_fails_once_loses_no_call() {
    fail_at_every_operation(Action::FailSync, false).await;
}

#[tokio::test]
async fn syncs_that_fail_for_a_while_are_reported_and_lose_no_call() {
    fail_at_every_operation(Action::FailSync, true).await;
}

#[tokio::test]
async fn disk_that_is_full_for_a_moment_loses_no_call() {
    fail_at_every_operation(Action::NoRoom, false).await;
}

#[tokio::test]
async fn disk_that_is_full_for_a_while_is_reported_and_loses_no_call() {
    fail_at_every_operation(Action::NoRoom, true).await;
}
