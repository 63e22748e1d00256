//! Tests of §7.7: repeats after a 5xx, also while other requests succeed.

use super::{NOW, call_with, filter, kinds, sandbox, submit};
use crate::{Action, Endpoint, Request, Rule, Sandbox, ViolationKind};
use callbridge_call::EventTime;
use serde_json::json;
use std::time::Duration;

/// Returns a submission of a call with this uuid.
fn write(uuid: &str) -> Request {
    submit(&call_with("uuid", json!(uuid)))
}

/// Handles a request at the time `at`, and applies the fault `action` to the request.
fn handle_with_fault(core: &mut Sandbox, at: EventTime, request: &Request, action: Action) {
    let (endpoint, _) = crate::routes::route(&request.path);
    core.faults.rules.clear();
    core.faults
        .rules
        .push((Rule::next(endpoint, 1, action), 0, 0));
    core.handle(at, request);
    assert_eq!(core.faults.rules.len(), 1);
    assert_eq!(core.faults.rules[0].2, 1);
}

const SERVER_ERROR: Action = Action::Status(500);

/// Returns the time this many milliseconds after [`NOW`].
fn now_plus_ms(ms: u64) -> EventTime {
    NOW.plus(Duration::from_millis(ms))
}

#[test]
fn write_repeated_within_second_of_5xx_is_violation() {
    for (request, action) in [
        (write("u-1"), SERVER_ERROR),
        (write("u-1"), Action::Gateway(502)),
        (write("u-1"), Action::StatusAfter(503)),
    ] {
        let mut core = sandbox();
        handle_with_fault(&mut core, now_plus_ms(0), &request, action);
        core.handle(now_plus_ms(200), &write("u-2"));
        core.handle(now_plus_ms(400), &request);
        assert_eq!(kinds(&core), [ViolationKind::SoonAfter5xx], "{action:?}");
        let mut core = sandbox();
        handle_with_fault(&mut core, now_plus_ms(0), &request, action);
        core.handle(now_plus_ms(200), &write("u-2"));
        core.handle(now_plus_ms(1_000), &request);
        assert_eq!(kinds(&core), [], "a second later");
    }
    let mut core = sandbox();
    handle_with_fault(&mut core, now_plus_ms(0), &write("u-1"), Action::Lost);
    core.handle(now_plus_ms(100), &write("u-1"));
    assert_eq!(kinds(&core), [], "no answer is no 5xx");
}

/// Returns a sandbox in which the write `u-1` has failed `times` times with `action`. After each
/// attempt, another write gets the fault `between`, or succeeds if `between` is `None`.
fn sandbox_after_failures(times: u64, action: Action, between: Option<Action>) -> Sandbox {
    let mut core = sandbox();
    for nth in 0..times {
        let at = NOW.plus(Duration::from_secs(nth * 10));
        handle_with_fault(&mut core, at, &write("u-1"), action);
        let other = write(&format!("other-{nth}"));
        let at = at.plus(Duration::from_secs(5));
        match between {
            Some(fault) => handle_with_fault(&mut core, at, &other, fault),
            None => assert_eq!(core.handle(at, &other).status, 200),
        }
    }
    core
}

#[test]
fn sixth_attempt_of_failing_write_is_violation_if_others_pass() {
    for action in [SERVER_ERROR, Action::Gateway(504), Action::Cut] {
        let mut core = sandbox_after_failures(5, action, None);
        assert_eq!(kinds(&core), [], "{action:?}: five attempts");
        let sixth = NOW.plus(Duration::from_secs(50));
        assert_eq!(core.handle(sixth, &write("u-1")).status, 200);
        assert_eq!(kinds(&core), [ViolationKind::RepeatAfter5xx], "{action:?}");
        core.handle(sixth.plus(Duration::from_secs(2)), &write("u-2"));
        assert_eq!(kinds(&core).len(), 1, "another write");
    }
}

#[test]
fn write_repeats_during_full_outage_are_no_violation() {
    let mut core = sandbox_after_failures(30, SERVER_ERROR, Some(SERVER_ERROR));
    let at = NOW.plus(Duration::from_secs(300));
    assert_eq!(core.handle(at, &write("u-1")).status, 200);
    assert_eq!(kinds(&core), []);
}

#[test]
fn write_repeated_an_hour_later_restarts_attempt_count() {
    let mut core = sandbox_after_failures(5, SERVER_ERROR, None);
    let later = NOW.plus(Duration::from_secs(40 + 3_600));
    handle_with_fault(&mut core, later, &write("u-1"), SERVER_ERROR);
    let again = later.plus(Duration::from_secs(10));
    core.handle(later.plus(Duration::from_secs(5)), &write("u-2"));
    core.handle(again, &write("u-1"));
    assert_eq!(kinds(&core), []);
}

#[test]
fn failed_page_read_repeats_are_no_violation() {
    let page = filter(&json!({ "page": 1, "size": 10 }));
    let mut core = sandbox();
    for nth in 0..20 {
        let at = NOW.plus(Duration::from_millis(nth * 400));
        handle_with_fault(&mut core, at, &page, SERVER_ERROR);
        let other = filter(&json!({ "page": 1, "size": 11 }));
        core.handle(at.plus(Duration::from_millis(200)), &other);
    }
    assert_eq!(kinds(&core), []);
    assert_eq!(core.counts().get(&(Endpoint::Filter, 500)), Some(&20));
}
