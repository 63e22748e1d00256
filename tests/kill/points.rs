//! Kills the program, or makes its disk fail, at the n-th operation. n grows until a run has no
//! fault.
//!
//! By default, only some of the points are tried. `CALLBRIDGE_KILL_POINTS=all` tries each.

use crate::kill::fault::{Action, Fault};
use crate::kill::scenario;
use std::io::Write as _;
use tokio::task::JoinSet;

/// Points of each kind that are tried by default.
const POINTS: u64 = 8;
/// Scenarios at the same time. They mostly wait.
const AT_ONCE: usize = 6;

/// Returns how many points of each kind to try, or `None` for all.
fn wanted() -> Option<u64> {
    match std::env::var("CALLBRIDGE_KILL_POINTS") {
        Ok(all) if all == "all" => None,
        Ok(some) => Some(
            some.parse()
                .expect("CALLBRIDGE_KILL_POINTS: all, or a number"),
        ),
        Err(_) => Some(POINTS),
    }
}

/// Runs the scenario with the faults for each n, until a run has no fault.
async fn at_every(action: Action, on: bool, faults: impl Fn(u64) -> Vec<Fault>) {
    let (writes, syncs) = scenario::counted().await;
    let many = if action.is_of_syncs() { syncs } else { writes };
    let stride = wanted().map_or(1, |points| many.div_ceil(points));
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
    let kind = if action.is_of_syncs() {
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

async fn killed_at_every(action: Action) {
    let faults = |n| {
        let once = |nth| Fault {
            action,
            nth,
            on: false,
        };
        // The second kill comes early in the recovery, at a different point each time.
        let unit = if action.is_of_syncs() { 1 } else { 6 };
        vec![once(n), once(1 + n * 7 % 13 * unit)]
    };
    at_every(action, false, faults).await;
}

async fn failing_at_every(action: Action, on: bool) {
    at_every(action, on, |nth| vec![Fault { action, nth, on }]).await;
}

#[tokio::test]
async fn killed_before_any_sync_every_call_is_journaled_once() {
    killed_at_every(Action::KillBeforeSync).await;
}

/// Promise: `kill -9` loses no call and doubles none.
#[tokio::test]
async fn killed_after_any_commit_every_call_is_journaled_once() {
    killed_at_every(Action::KillAfterSync).await;
}

#[tokio::test]
async fn kill_in_any_write_still_journals_every_call_once() {
    killed_at_every(Action::KillInWrite).await;
}

#[tokio::test]
async fn write_that_fails_once_loses_no_call() {
    failing_at_every(Action::FailWrite, false).await;
}

#[tokio::test]
async fn writes_that_fail_for_a_while_are_reported_and_lose_no_call() {
    failing_at_every(Action::FailWrite, true).await;
}

#[tokio::test]
async fn sync_that_fails_once_loses_no_call() {
    failing_at_every(Action::FailSync, false).await;
}

#[tokio::test]
async fn syncs_that_fail_for_a_while_are_reported_and_lose_no_call() {
    failing_at_every(Action::FailSync, true).await;
}

#[tokio::test]
async fn disk_that_is_full_for_a_moment_loses_no_call() {
    failing_at_every(Action::NoRoom, false).await;
}

#[tokio::test]
async fn disk_that_is_full_for_a_while_is_reported_and_loses_no_call() {
    failing_at_every(Action::NoRoom, true).await;
}
