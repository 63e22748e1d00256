//! Tests pauses, and endpoints that fail or aren't granted.

use super::*;

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
