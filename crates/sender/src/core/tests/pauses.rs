//! Tests of pauses, refused calls, and endpoints that fail or are not granted.

use super::*;

fn rejection(status: u16) -> ApiResult {
    Err(ApiError::Rejected {
        status,
        message: "xato".to_owned(),
        errors: serde_json::Value::Null,
    })
}

fn failed_status() -> ApiResult {
    status_answer(WriteStatus::Failed(
        FailureWord::Failed,
        "the lead is gone".to_owned(),
        serde_json::Value::Null,
    ))
}

/// Returns the rows that go back to `ready`.
fn reopened_rows(ops: &[Op]) -> Vec<i64> {
    let mut rows = Vec::new();
    for op in ops {
        if let Op::Step {
            row,
            step: Step::Reopened { .. },
            ..
        } = op
        {
            rows.push(row.0);
        }
    }
    rows
}

/// Makes a sender that met five refused calls in a row.
fn core_with_refused_calls() -> Core {
    let mut core = ready_core(Settings::default());
    for id in 1..=5 {
        assert_eq!(pause_reason(&core, now_at(1)), None);
        exchange(&mut core, now_at(1), &live_queue(id), rejection(400));
    }
    core
}

#[test]
fn five_refused_calls_pause_sending_until_probe_an_hour_later() {
    let mut core = core_with_refused_calls();
    assert_eq!(
        pause_reason(&core, now_at(1)).as_deref(),
        Some("calls_refused")
    );
    assert_eq!(
        lane(&mut core, now_at(3_600), &live_queue(6)),
        Some(Lane::Token)
    );
    exchange(&mut core, now_at(3_600), &live_queue(6), token_record());
    assert_eq!(lane(&mut core, now_at(3_600), &live_queue(6)), None);
    let (request, answered) = exchange(&mut core, now_at(3_601), &live_queue(6), accepted_answer());
    assert!(matches!(request, Request::Submit(_)));
    assert_eq!(pause_reason(&core, now_at(3_601)), None);
    assert_eq!(reopened_rows(&answered.ops), [1, 2, 3, 4, 5]);
}

#[test]
fn refused_probe_call_extends_the_pause_by_an_hour() {
    let mut core = core_with_refused_calls();
    exchange(&mut core, now_at(3_600), &live_queue(6), token_record());
    let (_, answered) = exchange(&mut core, now_at(3_601), &live_queue(6), rejection(400));
    assert!(reopened_rows(&answered.ops).is_empty());
    assert_eq!(
        pause_reason(&core, now_at(3_601)).as_deref(),
        Some("calls_refused")
    );
    exchange(&mut core, now_at(7_200), &live_queue(6), token_record());
    assert_eq!(lane(&mut core, now_at(7_200), &live_queue(7)), None);
    let (_, answered) = exchange(&mut core, now_at(7_201), &live_queue(7), accepted_answer());
    assert_eq!(reopened_rows(&answered.ops), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn trial_calls_are_sent_one_at_a_time() {
    let mut core = core_with_refused_calls();
    exchange(&mut core, now_at(3_600), &live_queue(6), token_record());
    launch_next(&mut core, now_at(3_601), &live_queue(6));
    assert_eq!(lane(&mut core, now_at(3_601), &live_queue(7)), None);
}

#[test]
fn polls_continue_while_calls_are_refused() {
    let mut core = core_with_refused_calls();
    let head = unconfirmed_queue(&submitted_call(9, now_at(0)));
    assert_eq!(lane(&mut core, now_at(10), &head), Some(Lane::Confirmation));
}

#[test]
fn another_token_ends_a_pause_for_refused_calls() {
    for is_missing_first in [false, true] {
        let mut core = core_with_refused_calls();
        if is_missing_first {
            assert_eq!(
                core.token(now_at(2), None),
                [],
                "a missing token is no new token"
            );
        }
        let ops = core.token(now_at(3), Some(TokenFingerprint::of("svc_pat_two")));
        assert_eq!(ops.len(), 5);
        assert_eq!(reopened_rows(&ops), [1, 2, 3, 4, 5]);
        assert_eq!(pause_reason(&core, now_at(3)), None);
    }
}

#[test]
fn refused_calls_are_sent_again_when_a_missing_token_returns() {
    let mut core = core_with_refused_calls();
    assert_eq!(core.token(now_at(2), None), []);
    let ops = core.token(now_at(3), Some(fingerprint()));
    assert_eq!(reopened_rows(&ops), [1, 2, 3, 4, 5]);
    assert_eq!(pause_reason(&core, now_at(3)), None);
}

#[test]
fn refused_calls_are_sent_again_when_a_refused_token_works() {
    let mut core = core_with_refused_calls();
    exchange(&mut core, now_at(3_600), &live_queue(6), token_record());
    let unauthorized = Err(ApiError::UNAUTHORIZED);
    exchange(&mut core, now_at(3_601), &live_queue(6), unauthorized);
    assert_eq!(
        pause_reason(&core, now_at(3_601)).as_deref(),
        Some("token_refused")
    );
    let idle = WorkQueue::default();
    let (request, answered) = exchange(&mut core, now_at(3_661), &idle, token_record());
    assert_eq!(request, Request::TokenInfo);
    assert_eq!(reopened_rows(&answered.ops), [1, 2, 3, 4, 5]);
    assert_eq!(pause_reason(&core, now_at(3_661)), None);
}

#[test]
fn restart_ends_a_pause_for_refused_calls() {
    let mut core = core_with_refused_calls();
    let mut ops = Vec::new();
    core.memory.clear();
    core.remember(now_at(2), &mut ops);
    let [Op::Meta { value, .. }] = &ops[..] else {
        panic!("{ops:?}");
    };
    let known = Known {
        memory: Some(value.clone()),
        ..Known::default()
    };
    let (mut core, ops) = Core::start(Settings::default(), known, now_at(3));
    assert_eq!(reopened_rows(&ops), [1, 2, 3, 4, 5]);
    assert_eq!(
        pause_reason(&core, now_at(3)).as_deref(),
        Some("token_missing")
    );
    assert_eq!(core.token(now_at(3), Some(fingerprint())), []);
    assert_eq!(pause_reason(&core, now_at(3)), None);
}

/// Makes a sender that met five calls in a row that FAILED.
fn core_with_failed_calls() -> Core {
    let mut core = ready_core(Settings::default());
    for id in 1..=5 {
        let head = unconfirmed_queue(&submitted_call(id, now_at(0)));
        exchange(&mut core, now_at(20), &head, failed_status());
    }
    core
}

#[test]
fn failed_calls_pause_sending_until_one_is_journaled() {
    let mut core = core_with_failed_calls();
    assert_eq!(
        pause_reason(&core, now_at(20)).as_deref(),
        Some("calls_refused")
    );
    let head = unconfirmed_queue(&submitted_call(6, now_at(10)));
    let (_, answered) = exchange(
        &mut core,
        now_at(21),
        &head,
        status_answer(WriteStatus::Success),
    );
    assert_eq!(reopened_rows(&answered.ops), [1, 2, 3, 4, 5]);
    assert_eq!(pause_reason(&core, now_at(21)), None);
}

#[test]
fn webhook_ends_a_pause_for_failed_calls() {
    let mut core = core_with_failed_calls();
    let head = WorkQueue {
        webhook_pace: Some(callbridge_spool::WebhookPace {
            at: now_at(21).wall,
            after: Duration::from_secs(1),
            usual: Duration::from_secs(1),
        }),
        ..live_queue(7)
    };
    let Decision::Commit(ops) = core.next(now_at(22), &head) else {
        panic!("the refused calls are sent again");
    };
    assert_eq!((ops.len(), pause_reason(&core, now_at(22))), (5, None));
    assert_eq!(lane(&mut core, now_at(22), &head), Some(Lane::Live));
}

#[test]
fn failed_calls_cause_no_pause_once_a_later_one_is_journaled() {
    let mut core = ready_core(Settings::default());
    let journaled = unconfirmed_queue(&submitted_call(9, now_at(10)));
    exchange(
        &mut core,
        now_at(15),
        &journaled,
        status_answer(WriteStatus::Success),
    );
    for id in 1..=5 {
        let head = unconfirmed_queue(&submitted_call(id, now_at(0)));
        let (_, answered) = exchange(&mut core, now_at(20), &head, failed_status());
        assert!(
            answered
                .ops
                .iter()
                .any(|op| matches!(op, Op::FailedCall(_)))
        );
    }
    assert_eq!(pause_reason(&core, now_at(20)), None);
}

#[test]
fn missing_grant_is_checked_with_token_info_once_a_minute() {
    let mut core = ready_core(Settings::default());
    let (_, answered) = exchange(&mut core, now_at(1), &live_queue(1), forbidden_answer());
    assert!(matches!(only_step(&answered), Step::Returned { .. }));
    assert_eq!(pause_reason(&core, now_at(1)).as_deref(), Some("no_grant"));
    assert_eq!(lane(&mut core, now_at(60), &live_queue(1)), None);
    let without = TokenInfo {
        grants: Some(Vec::new()),
        ..info()
    };
    exchange(
        &mut core,
        now_at(61),
        &live_queue(1),
        Ok(ApiReply::TokenInfo(without)),
    );
    assert_eq!(pause_reason(&core, now_at(61)).as_deref(), Some("no_grant"));
    assert_eq!(lane(&mut core, now_at(120), &live_queue(1)), None);
    exchange(&mut core, now_at(121), &live_queue(1), token_record());
    assert_eq!(pause_reason(&core, now_at(121)), None);
    assert_eq!(
        lane(&mut core, now_at(121), &live_queue(1)),
        Some(Lane::Live)
    );
}

#[test]
fn unexplained_403_is_probed_with_one_call_a_minute() {
    let mut core = ready_core(Settings::default());
    exchange(&mut core, now_at(1), &live_queue(1), forbidden_answer());
    exchange(&mut core, now_at(61), &live_queue(1), token_record());
    assert_eq!(
        pause_reason(&core, now_at(61)),
        None,
        "token/info shows the grant"
    );
    let (request, _) = exchange(&mut core, now_at(61), &live_queue(1), forbidden_answer());
    assert!(matches!(request, Request::Submit(_)));
    assert_eq!(pause_reason(&core, now_at(61)).as_deref(), Some("no_grant"));
    assert_eq!(lane(&mut core, now_at(120), &live_queue(1)), None);
    exchange(&mut core, now_at(121), &live_queue(1), token_record());
    exchange(&mut core, now_at(121), &live_queue(1), accepted_answer());
    assert_eq!(
        lane(&mut core, now_at(122), &live_queue(2)),
        Some(Lane::Live)
    );
}

#[test]
fn wrong_address_is_probed_with_token_info_and_one_call() {
    let mut core = ready_core(Settings::default());
    for seconds in [1, 61] {
        let missing = ApiError::NotFound {
            own: true,
            message: String::new(),
        };
        exchange(&mut core, now_at(seconds), &live_queue(1), Err(missing));
        let paused = pause_reason(&core, now_at(seconds));
        assert_eq!(paused.as_deref(), Some("wrong_address"));
    }
    exchange(&mut core, now_at(121), &live_queue(1), token_record());
    exchange(&mut core, now_at(121), &live_queue(1), accepted_answer());
    assert_eq!(pause_reason(&core, now_at(121)), None);
}

#[test]
fn call_sent_before_a_403_does_not_end_its_pause() {
    let mut core = ready_core(Settings::default());
    let (earlier, ..) = launch_next(&mut core, now_at(1), &live_queue(1));
    exchange(&mut core, now_at(2), &live_queue(2), forbidden_answer());
    core.judge_answer(now_at(3), earlier, accepted_answer().into());
    assert_eq!(pause_reason(&core, now_at(3)).as_deref(), Some("no_grant"));
    assert_eq!(lane(&mut core, now_at(61), &live_queue(3)), None);
}

#[test]
fn call_sent_before_refused_calls_does_not_end_their_pause() {
    let mut core = ready_core(Settings::default());
    let (earlier, ..) = launch_next(&mut core, now_at(1), &live_queue(9));
    for id in 1..=5 {
        exchange(&mut core, now_at(2), &live_queue(id), rejection(400));
    }
    core.judge_answer(now_at(3), earlier, accepted_answer().into());
    assert_eq!(
        pause_reason(&core, now_at(3)).as_deref(),
        Some("calls_refused")
    );
    exchange(&mut core, now_at(3_602), &live_queue(6), token_record());
    let (_, answered) = exchange(&mut core, now_at(3_602), &live_queue(6), accepted_answer());
    assert_eq!(reopened_rows(&answered.ops), [1, 2, 3, 4, 5]);
}

#[test]
fn token_info_before_a_refused_token_does_not_end_its_pause() {
    let mut core = ready_core(Settings::default());
    let idle = WorkQueue::default();
    let (earlier, _, launch) = launch_next(&mut core, now_at(3_600), &idle);
    assert!(matches!(launch.request, Some((Request::TokenInfo, _))));
    let unauthorized = Err(ApiError::UNAUTHORIZED);
    exchange(&mut core, now_at(3_601), &live_queue(1), unauthorized);
    core.judge_answer(now_at(3_602), earlier, token_record().into());
    assert_eq!(
        pause_reason(&core, now_at(3_602)).as_deref(),
        Some("token_refused")
    );
}

#[test]
fn failed_token_info_refresh_does_not_stop_calls() {
    let mut core = ready_core(Settings::default());
    let address = ApiError::WrongAddress {
        status: 405,
        own: true,
    };
    for (n, answer) in (0..).zip([Err(ApiError::TimedOut), Err(address), forbidden_answer()]) {
        let now = now_at(3_600 + 60 * n);
        let (request, _) = exchange(&mut core, now, &WorkQueue::default(), answer);
        assert_eq!(request, Request::TokenInfo, "again after a minute");
        assert_eq!(pause_reason(&core, now), None);
        assert_eq!(lane(&mut core, now, &live_queue(1)), Some(Lane::Live));
    }
    let unauthorized = Err(ApiError::UNAUTHORIZED);
    exchange(
        &mut core,
        now_at(3_780),
        &WorkQueue::default(),
        unauthorized,
    );
    assert_eq!(
        pause_reason(&core, now_at(3_780)).as_deref(),
        Some("token_refused")
    );
}

#[test]
fn polls_without_grant_are_replaced_by_pages() {
    let mut core = ready_core(Settings::default());
    let call = submitted_call(3, now_at(0));
    let (request, answered) = exchange(
        &mut core,
        now_at(2),
        &unconfirmed_queue(&call),
        forbidden_answer(),
    );
    assert!(matches!(request, Request::Poll { .. }), "{request:?}");
    assert_eq!(
        (answered.verdict, pause_reason(&core, now_at(2))),
        ("no_grant", None)
    );
    let degraded = core.status(now_at(2), &unconfirmed_queue(&call)).degraded;
    assert_eq!((degraded.len(), degraded[0].part.as_str()), (1, "polls"));
    assert_eq!(degraded[0].reason, "403: yo'q");
    assert!(degraded[0].fallback.starts_with("pages"), "{degraded:?}");
    let (request, _) = exchange(
        &mut core,
        now_at(12),
        &unconfirmed_queue(&call),
        page_answer(&[call.uuid]),
    );
    assert!(matches!(request, Request::Filter(_)), "{request:?}");
    exchange(
        &mut core,
        now_at(3_600),
        &unconfirmed_queue(&call),
        token_record(),
    );
    let head = unconfirmed_queue(&call);
    let (request, _) = exchange(&mut core, now_at(3_600), &head, forbidden_answer());
    assert!(
        matches!(request, Request::Poll { .. }),
        "an hour later: {request:?}"
    );
}

/// Promise: Calls that nothing can confirm are sent once and listed under one problem.
#[test]
fn calls_that_nothing_can_confirm_are_sent_once() {
    let mut core = ready_core(Settings::default());
    let call = submitted_call(3, now_at(0));
    exchange(
        &mut core,
        now_at(2),
        &unconfirmed_queue(&call),
        forbidden_answer(),
    );
    exchange(
        &mut core,
        now_at(12),
        &unconfirmed_queue(&call),
        forbidden_answer(),
    );
    let head = WorkQueue {
        live: Some(due_call(9)),
        ..unconfirmed_queue(&call)
    };
    assert_eq!(lane(&mut core, now_at(13), &head), Some(Lane::Live));
    let status = core.status(now_at(13), &head);
    assert_eq!((status.pause, status.degraded.len()), (None, 1));
    assert!(status.degraded[0].fallback.contains("`unconfirmed`"));
    let lost = Unconfirmed {
        token: TokenFingerprint::none(),
        request_id: None,
        ..call.clone()
    };
    let gone = WorkQueue {
        unresolved: Some(lost.clone()),
        submitted: 1,
        ..WorkQueue::default()
    };
    let settle = Decision::Settle(Box::new(lost.clone()));
    assert_eq!(core.next(now_at(3_000), &gone), settle);
    assert!(
        matches!(core.settle(now_at(3_000), &lost), Step::NotYet { .. }),
        "not resent"
    );
    let Step::Died {
        reason, message, ..
    } = core.settle(now_at(24 * 3_600), &lost)
    else {
        panic!("listed");
    };
    assert_eq!(reason, Reason::Unconfirmed);
    assert!(message.contains("403: yo'q"), "{message}");
}

#[test]
fn unreachable_crm_is_shown_and_probed_by_one_request() {
    let mut core = ready_core(Settings::default());
    let refused = Err(ApiError::NotConnected("refused".to_owned()));
    let (_, answered) = exchange(&mut core, now_at(1), &live_queue(1), refused);
    let Step::Returned { not_before, .. } = only_step(&answered) else {
        panic!("{:?}", answered.ops);
    };
    assert_eq!(not_before, now_at(1).wall, "the call did not fail");
    assert_eq!(
        pause_reason(&core, now_at(1)).as_deref(),
        Some("unreachable")
    );
    assert!(core.ask(now_at(1)).untried_first);
    assert!(core.stops_commands(now_at(1)));
    let head = WorkQueue {
        backlog: Some(due_call(2)),
        ..live_queue(1)
    };
    let Decision::WaitUntil(until) = core.next(now_at(1), &head) else {
        panic!("it waits for the probe");
    };
    assert!(until > now_at(1).boot && until <= now_at(2).boot);
    launch_next(&mut core, now_at(2), &head);
    assert_eq!(
        lane(&mut core, now_at(2), &head),
        None,
        "one probe at a time"
    );
}

fn time_out_five_calls(core: &mut Core) {
    for id in 1..=5 {
        let head = WorkQueue {
            ready: 5,
            ..live_queue(id)
        };
        exchange(core, now_at(1), &head, Err(ApiError::TimedOut));
    }
}

#[test]
fn failing_submissions_do_not_stop_polls_or_commands() {
    let mut core = ready_core(Settings::default());
    time_out_five_calls(&mut core);
    assert_eq!(pause_reason(&core, now_at(1)).as_deref(), Some("failing"));
    assert!(!core.stops_commands(now_at(1)));
    let head = WorkQueue {
        live: Some(due_call(6)),
        ..unconfirmed_queue(&submitted_call(9, now_at(0)))
    };
    assert_eq!(
        lane(&mut core, now_at(2), &head),
        Some(Lane::Live),
        "the probe"
    );
    launch_next(&mut core, now_at(2), &head);
    assert_eq!(lane(&mut core, now_at(10), &head), Some(Lane::Confirmation));
}

#[test]
fn token_info_is_the_probe_if_no_call_waits() {
    let mut core = ready_core(Settings::default());
    time_out_five_calls(&mut core);
    let (request, _) = exchange(&mut core, now_at(2), &WorkQueue::default(), token_record());
    assert_eq!(request, Request::TokenInfo);
    assert_eq!(pause_reason(&core, now_at(2)), None);
}
