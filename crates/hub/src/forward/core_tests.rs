//! Tests how a collector reacts to each of a hub's responses.

use super::core::*;
use crate::protocol::LINES_MAX;
use callbridge_model::CallUuid;
use callbridge_spool::{HubPosition, RowId};
use serde_json::json;
use std::time::Duration;

fn time_at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn core(hubs: usize) -> ForwardCore {
    let names = (1..=hubs).map(|n| format!("https://hub{n}"));
    let mut core = ForwardCore::new(names.collect(), None, 7, time_at(0));
    assert_eq!(core.next(time_at(0), true), Next::Report { hub: 0 });
    core.report_answered(time_at(0), report("A", 1));
    core
}

fn call(n: u128) -> BatchCall {
    BatchCall {
        row: RowId(i64::try_from(n).expect("small")),
        uuid: CallUuid(uuid::Uuid::from_u128(n)),
    }
}

fn status(status: u16) -> Reply {
    Reply::Answer {
        status,
        retry_after: None,
        body: br#"{"error":"no"}"#.to_vec(),
    }
}

fn answer_ok(body: &serde_json::Value) -> Reply {
    Reply::Answer {
        status: 200,
        retry_after: None,
        body: body.to_string().into_bytes(),
    }
}

fn report(incarnation: &str, seq: u64) -> Reply {
    answer_ok(&json!({"incarnation": incarnation, "seq": seq}))
}

fn batch_answer(incarnation: &str, seq: u64, calls: &[BatchCall]) -> Reply {
    let uuids: Vec<CallUuid> = calls.iter().map(|call| call.uuid).collect();
    answer_ok(&json!({"incarnation": incarnation, "seq": seq, "taken": uuids, "refused": []}))
}

#[test]
fn calls_are_sent_when_ready_and_reports_every_minute() {
    let mut core = core(1);
    assert_eq!(core.next(time_at(1), false), Next::WaitUntil(REQUEST_EVERY));
    assert_eq!(core.next(time_at(2), false), Next::WaitUntil(time_at(60)));
    let lines = LINES_MAX;
    assert_eq!(core.next(time_at(3), true), Next::Calls { hub: 0, lines });
    let spaced = time_at(3) + REQUEST_EVERY;
    assert_eq!(core.next(time_at(3), true), Next::WaitUntil(spaced));
    assert_eq!(core.next(time_at(60), true), Next::Report { hub: 0 });
}

#[test]
fn accepted_calls_are_forwarded_and_refused_ones_reported() {
    let mut core = core(1);
    let batch = [call(1), call(2), call(3)];
    let answer = answer_ok(&json!({
        "incarnation": "A", "seq": 9, "taken": [batch[0].uuid],
        "refused": [{"line": 2, "id": "2", "error": "durationSec: it is -1"}],
    }));
    let outcome = core.calls_answered(time_at(5), &batch, answer);
    assert_eq!(outcome.forwarded, [RowId(1)]);
    let message = "the hub refused the call: durationSec: it is -1".to_owned();
    assert_eq!(outcome.refused, [(RowId(2), message)]);
    let problem = core.problem().expect("one call is left out");
    assert_eq!(problem.reason, "hub_refuses");
    assert_eq!(
        core.next(time_at(6), true),
        Next::WaitUntil(time_at(5) + PAUSE)
    );
}

#[test]
fn answer_that_needs_a_person_pauses_forwarding_a_minute() {
    for (code, reason) in [
        (401, "hub_token_refused"),
        (403, "hub_token_refused"),
        (404, "hub_refuses"),
        (408, "hub_refuses"),
        (301, "hub_refuses"),
        (204, "hub_refuses"),
        (415, "hub_older"),
    ] {
        let mut core = core(1);
        let outcome = core.calls_answered(time_at(5), &[call(1)], status(code));
        assert_eq!(outcome, Outcome::default(), "{code}");
        assert_eq!(core.problem().expect("paused").reason, reason, "{code}");
        assert_eq!(
            core.next(time_at(6), true),
            Next::WaitUntil(time_at(65)),
            "{code}"
        );
    }
    let mut core = core(1);
    core.calls_answered(time_at(5), &[call(1)], answer_ok(&json!("hello")));
    assert_eq!(core.problem().expect("paused").reason, "hub_refuses");
    core.calls_answered(time_at(65), &[call(1)], batch_answer("A", 2, &[call(1)]));
    assert_eq!(core.problem(), None);
}

#[test]
fn batch_is_halved_after_413_and_restored_after_success() {
    let mut core = core(1);
    let batch: Vec<BatchCall> = (1..=500).map(call).collect();
    core.calls_answered(time_at(2), &batch, status(413));
    assert_eq!(
        core.next(time_at(4), true),
        Next::Calls { hub: 0, lines: 250 }
    );
    core.calls_answered(
        time_at(4),
        &batch[..250],
        batch_answer("A", 2, &batch[..250]),
    );
    assert_eq!(
        core.next(time_at(6), true),
        Next::Calls { hub: 0, lines: 500 }
    );
    let mut now = time_at(6);
    let mut sent = 500;
    for lines in [250, 125, 62, 31, 15, 7, 3, 1] {
        core.calls_answered(now, &batch[..sent], status(413));
        assert_eq!(core.problem(), None);
        now += REQUEST_EVERY;
        assert_eq!(core.next(now, true), Next::Calls { hub: 0, lines });
        sent = lines;
    }
    // A request with a single call can't be made any smaller.
    core.calls_answered(now, &batch[..1], status(413));
    assert_eq!(core.problem().expect("paused").reason, "hub_refuses");
}

#[test]
fn batch_is_halved_after_a_timeout_and_restored_after_success() {
    let mut core = core(2);
    let batch: Vec<BatchCall> = (1..=500).map(call).collect();
    let timed_out = Reply::TimedOut("hub1 does not answer".to_owned());
    core.calls_answered(time_at(40), &batch, timed_out.clone());
    assert_eq!(core.problem().expect("one").reason, "hub_unreachable");
    let next = core.next(time_at(40), true);
    assert_eq!(next, Next::Calls { hub: 1, lines: 250 });
    let half = batch_answer("A", 2, &batch[..250]);
    core.calls_answered(time_at(42), &batch[..250], half);
    let next = core.next(time_at(44), true);
    assert_eq!(next, Next::Calls { hub: 1, lines: 500 });
    // A single call can't be halved.
    core.calls_answered(time_at(50), &batch[..1], timed_out);
    let next = core.next(time_at(52), true);
    assert_eq!(next, Next::Calls { hub: 0, lines: 1 });
}

#[test]
fn next_hub_is_tried_after_a_failing_hub() {
    let mut core = core(2);
    for failure in [
        status(429),
        status(503),
        Reply::Lost("the connection was refused".to_owned()),
        Reply::TimedOut("does not answer".to_owned()),
    ] {
        let mut core = self::core(2);
        core.calls_answered(time_at(5), &[call(1)], failure);
        assert!(matches!(
            core.next(time_at(5), true),
            Next::Calls { hub: 1, .. }
        ));
    }
    core.calls_answered(time_at(5), &[call(1)], status(500));
    core.calls_answered(time_at(5), &[call(1)], status(500));
    let Next::WaitUntil(until) = core.next(time_at(5), true) else {
        panic!("a backoff after both hubs");
    };
    assert!(until > time_at(5) && until <= time_at(7), "{until:?}");
    assert_eq!(core.problem().expect("a problem").reason, "hub_unreachable");
}

#[test]
fn standby_that_responds_is_asked_before_a_frozen_hub() {
    let mut core = core(2);
    core.calls_answered(
        time_at(12),
        &[call(1)],
        Reply::TimedOut("does not answer".to_owned()),
    );
    core.calls_answered(time_at(12), &[call(1)], status(503));
    assert!(matches!(
        core.next(time_at(14), true),
        Next::Calls { hub: 1, .. }
    ));
    // Without a response from either, they're asked in turn.
    for _ in 0..2 {
        let lost = Reply::Lost("the connection was refused".to_owned());
        core.calls_answered(time_at(14), &[call(1)], lost);
    }
    assert!(matches!(
        core.next(time_at(20), true),
        Next::Calls { hub: 1, .. }
    ));
}

#[test]
fn backoff_grows_to_a_minute_and_follows_retry_after() {
    let mut core = core(1);
    let mut now = time_at(5);
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60, 60, 60] {
        core.calls_answered(now, &[call(1)], status(502));
        let Next::WaitUntil(until) = core.next(now, true) else {
            panic!("a backoff");
        };
        let wait = until - now;
        let most = time_at(seconds);
        // A backoff is shortened by up to a quarter, but never below the minimum time between
        // requests.
        assert!(wait >= most * 3 / 4, "{wait:?} of {most:?}");
        assert!(wait <= most.max(REQUEST_EVERY), "{wait:?} of {most:?}");
        now = until;
    }
    let busy = Reply::Answer {
        status: 503,
        retry_after: Some(time_at(90)),
        body: Vec::new(),
    };
    core.calls_answered(now, &[call(1)], busy);
    assert_eq!(core.next(now, true), Next::WaitUntil(now + time_at(90)));
}

fn hub_position(incarnation: &str, seq: u64) -> Option<HubPosition> {
    let incarnation = incarnation.to_owned();
    Some(HubPosition { incarnation, seq })
}

#[test]
fn new_incarnation_is_reported_once_and_top_position_is_kept() {
    let mut core = core(1);
    let outcome = core.report_answered(time_at(2), report("A", 40));
    assert!(!outcome.new_incarnation);
    assert_eq!(outcome.position, hub_position("A", 40));
    let outcome = core.report_answered(time_at(3), report("A", 30));
    assert_eq!(outcome.position, None);
    assert_eq!(core.seen().cloned(), hub_position("A", 40));
    let batch = [call(1)];
    let outcome = core.calls_answered(time_at(4), &batch, batch_answer("B", 3, &batch));
    assert!(outcome.new_incarnation);
    assert_eq!(outcome.forwarded, [RowId(1)]);
    let outcome = core.report_answered(time_at(5), report("B", 4));
    assert!(!outcome.new_incarnation);
    assert_eq!(core.seen().cloned(), hub_position("B", 4));
}

proptest::proptest! {
    #[test]
    fn any_answer_is_handled_without_panic(
        code in 100_u16..600,
        body in proptest::collection::vec(0_u8.., 0..60),
    ) {
        let mut core = core(2);
        let reply = Reply::Answer { status: code, retry_after: None, body };
        let outcome = core.calls_answered(time_at(9), &[call(1)], reply);
        proptest::prop_assert!(outcome.forwarded.is_empty());
    }
}
