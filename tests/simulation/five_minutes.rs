//! Tests each way in which the CRM can fail for five virtual minutes. No call is lost, the problem
//! and its fix are shown, few probes are sent, and sending continues automatically.

use crate::simulation::trouble::{ALLOWED, MINUTE, faults, finish_calls, world};
use crate::simulation::way::Network;
use crate::simulation::world::World;
use callbridge_model::status::Books;
use callbridge_sandbox::token::TokenKind;
use std::time::Duration;

/// Requests that were under way when the failure began, and those that detected it.
const FINDING_OUT: usize = 6;

/// Requests in the first minute of an outage, and in each of the next four. An hour has at most 90.
const OUTAGE: (usize, usize) = (18, 6);

/// Runs without problems, then with a problem for five minutes, then without problems again.
/// Returns when each submission left during the problem, in seconds since its beginning.
fn trouble(
    begin: impl FnOnce(&mut World),
    end: impl FnOnce(&mut World),
    reason: &str,
    fix: &str,
) -> Vec<u64> {
    let mut world = world();
    finish_calls(&mut world, 0, MINUTE);
    begin(&mut world);
    let before = world.sent.len();
    let began = world.now.wall;
    finish_calls(&mut world, 100, 5 * MINUTE);

    let pause = world.pause().expect("a pause");
    assert_eq!(pause.reason, reason);
    assert!(pause.fix.contains(fix), "{}", pause.fix);
    let Books {
        finished,
        dead,
        discarded,
        ..
    } = world.disk.store.books();
    assert_eq!((finished, dead, discarded), (36, 0, 0));
    let sent = &world.sent[before..];
    let times: Vec<u64> = sent
        .iter()
        .map(|(at, _)| at.since(began).as_secs())
        .collect();
    let (first, then) = match reason {
        "failing" | "unreachable" => OUTAGE,
        // The CRM answered, so there is one `token/info` per minute, and a call if it succeeds.
        _ => (FINDING_OUT, 2),
    };
    assert!(count_in_minutes(&times, 0, 1) <= first, "{sent:?}");
    for minute in 1..5 {
        assert!(
            count_in_minutes(&times, minute, minute + 1) <= then,
            "minute {minute}: {sent:?}"
        );
    }
    assert!(
        count_in_minutes(&times, 1, 5) >= 3,
        "it no longer looks whether it is over: {sent:?}"
    );
    let submissions: Vec<u64> = sent
        .iter()
        .filter(|(_, endpoint)| *endpoint == "submit")
        .map(|(at, _)| at.since(began).as_secs())
        .collect();

    end(&mut world);
    world.run_for(10 * MINUTE);
    let Books {
        finished,
        journaled,
        ..
    } = world.disk.store.books();
    assert_eq!((finished, journaled), (36, 36), "{:?}", world.pause());
    assert_eq!(world.pause(), None);
    assert_eq!(world.sandbox.records().len(), 36);
    world.assert_never_wrong(&ALLOWED);
    submissions
}

/// Counts the times, in seconds, that are within the minutes `from..to`.
fn count_in_minutes(times: &[u64], from: u64, to: u64) -> usize {
    let seconds = from * 60..to * 60;
    times.iter().filter(|time| seconds.contains(*time)).count()
}

#[test]
fn status_401_keeps_all_calls_until_a_new_token_sends_them() {
    trouble(
        |world| world.sandbox.revoke_all(),
        |world| {
            world.token = "svc_pat_two".to_owned();
            let token = world.token.clone();
            world.sandbox.issue_pat(world.now.wall, &token, None);
            world.use_token();
        },
        "token_refused",
        "--token-file",
    );
}

#[test]
fn company_unblocked_again_needs_no_new_token() {
    trouble(
        |world| {
            world
                .sandbox
                .company(world.now.wall, |company| company.blocked = true)
        },
        |world| {
            world
                .sandbox
                .company(world.now.wall, |company| company.blocked = false)
        },
        "token_refused",
        "whether the company is blocked",
    );
}

#[test]
fn status_406_keeps_all_calls() {
    trouble(
        |world| faults(world, "any status 406"),
        |world| faults(world, ""),
        "token_refused",
        "406",
    );
}

#[test]
fn status_403_names_the_missing_grant_and_checks_it_again() {
    let grants = std::cell::RefCell::new(Vec::new());
    trouble(
        |world| {
            world.sandbox.company(world.now.wall, |company| {
                grants.replace(std::mem::take(&mut company.grants));
            });
        },
        |world| world.sandbox.set_grants(world.now.wall, grants.take()),
        "no_grant",
        "PERMISSION_OPEN_API_CALL:SAVE",
    );
}

#[test]
fn unexplained_403_is_retried_once_a_minute() {
    let submissions = trouble(
        |world| faults(world, "call-history status 403"),
        |world| faults(world, ""),
        "no_grant",
        "PERMISSION_OPEN_API_CALL:SAVE",
    );
    let retries: Vec<u64> = submissions.into_iter().filter(|at| *at >= 60).collect();
    assert!(retries.len() >= 3, "{retries:?}");
    for pair in retries.windows(2) {
        let seconds = pair[1] - pair[0];
        assert!((60..=62).contains(&seconds), "{retries:?}");
    }
}

#[test]
fn status_500_everywhere_keeps_all_calls() {
    trouble(
        |world| faults(world, "any status 500"),
        |world| faults(world, ""),
        "failing",
        "500",
    );
}

#[test]
fn status_503_on_submissions_only_makes_no_dead_letter() {
    trouble(
        |world| faults(world, "call-history status 503"),
        |world| faults(world, ""),
        "failing",
        "503",
    );
}

#[test]
fn gateway_outage_keeps_all_calls() {
    trouble(
        |world| faults(world, "any gateway 502"),
        |world| faults(world, ""),
        "failing",
        "502",
    );
}

#[test]
fn crm_timeouts_keep_all_calls() {
    trouble(
        |world| world.network.silent = true,
        |world| world.network.silent = false,
        "failing",
        "no answer in time",
    );
}

#[test]
fn refused_connections_keep_all_calls() {
    trouble(
        |world| world.network.refuses = true,
        |world| world.network.refuses = false,
        "unreachable",
        "connection refused",
    );
}

#[test]
fn unreadable_or_lost_answers_keep_all_calls() {
    for action in ["broken", "no-request-id", "accept-false", "lost", "cut"] {
        let rule = format!("call-history {action}");
        trouble(
            |world| faults(world, &rule),
            |world| faults(world, ""),
            "failing",
            "",
        );
    }
}

#[test]
fn wrong_address_keeps_all_calls() {
    for status in [404, 405, 415] {
        let rule = format!("any status {status}");
        trouble(
            |world| faults(world, &rule),
            |world| faults(world, ""),
            "wrong_address",
            "--crm-url",
        );
    }
}

#[test]
fn redirects_after_accepted_calls_count_as_failing_crm() {
    trouble(
        |world| faults(world, "any status 302"),
        |world| faults(world, ""),
        "failing",
        "302",
    );
}

#[test]
fn crm_down_from_the_start_is_probed_until_it_answers() {
    let mut world = world();
    world.network.refuses = true;
    finish_calls(&mut world, 0, 5 * MINUTE);
    assert!(world.sent.len() <= 26, "{:?}", world.sent);
    assert!(
        world
            .sent
            .iter()
            .all(|(_, endpoint)| *endpoint == "token_info")
    );
    world.network = Network {
        delay: Duration::from_millis(300),
        ..Network::default()
    };
    world.run_for(5 * MINUTE);
    assert_eq!(world.disk.store.books().journaled, 30);
    world.assert_never_wrong(&ALLOWED);
}

#[test]
fn other_company_token_is_checked_once_and_not_used() {
    let mut world = world();
    finish_calls(&mut world, 0, MINUTE);
    let right = std::mem::replace(&mut world.token, "svc_pat_other".to_owned());
    world
        .sandbox
        .issue(world.now.wall, "svc_pat_other", TokenKind::Pat, 2, None);
    world.use_token();
    let before = world.sent.len();
    finish_calls(&mut world, 100, 5 * MINUTE);
    assert_eq!(
        world.sent[before..]
            .iter()
            .map(|(_, endpoint)| *endpoint)
            .collect::<Vec<_>>(),
        ["token_info"]
    );
    let status = world.status();
    assert_eq!(status.token.state, "wrong_company");
    assert_eq!(status.pause.expect("a pause").reason, "wrong_company");
    world.token = right;
    world.use_token();
    world.run_for(5 * MINUTE);
    assert_eq!(world.disk.store.books().journaled, 36);
    world.assert_never_wrong(&ALLOWED);
}
