//! Tests that a replaced token is used to read its own requestIds as long as it's valid (§4.6).

use super::*;
use crate::tokens::Standing;

fn second_token() -> TokenFingerprint {
    TokenFingerprint::of("svc_at_two")
}

/// Creates a sender whose first token was replaced at 100 s and expires at 400 s, and whose second
/// token has been verified.
fn core_with_two_tokens() -> Core {
    let mut core = ready_core(Settings::default());
    core.token(now_at(100), Some(second_token()));
    core.set_previous_token(Some((fingerprint(), now_at(400).wall.floor_seconds())));
    let (request, token) = exchange_with_token(
        &mut core,
        now_at(100),
        &WorkQueue::default(),
        token_record(),
    );
    assert_eq!((request, token), (Request::TokenInfo, second_token()));
    core
}

fn queue_with_call(accepted: Now) -> WorkQueue {
    unconfirmed_queue(&submitted_call(3, accepted))
}

/// Sends the next request, responds to it, and returns its token.
fn exchange_with_token(
    core: &mut Core,
    now: Now,
    head: &WorkQueue,
    answer: ApiResult,
) -> (Request, TokenFingerprint) {
    let (slot, _, launch) = launch_next(core, now, head);
    core.judge_answer(now, slot, answer.into())
        .expect("under way");
    launch.request.expect("a request")
}

#[test]
fn poll_uses_submitting_token_until_token_expires() {
    let mut core = core_with_two_tokens();
    assert_eq!(
        core.ask(now_at(101)).tokens,
        [second_token(), fingerprint()]
    );
    let (request, token) = exchange_with_token(
        &mut core,
        now_at(101),
        &queue_with_call(now_at(90)),
        Ok(ApiReply::Status(WriteStatus::Success)),
    );
    let request_id = "r3".to_owned();
    assert_eq!(
        (request, token),
        (Request::Poll { request_id }, fingerprint())
    );
    assert_eq!(
        core.ask(now_at(399)).tokens,
        [second_token(), fingerprint()]
    );
    assert_eq!(core.ask(now_at(400)).tokens, [second_token()]);
}

#[test]
fn previous_token_polls_go_first_in_their_last_quarter() {
    let mut core = core_with_two_tokens();
    let head = WorkQueue {
        live: Some(due_call(1)),
        polls: vec![submitted_call(3, now_at(90))],
        ..WorkQueue::default()
    };
    assert_eq!(lane(&mut core, now_at(322), &head), Some(Lane::Live));
    assert_eq!(lane(&mut core, now_at(323), &head), Some(Lane::Deadline));
    assert_eq!(lane(&mut core, now_at(400), &head), Some(Lane::Live));
}

#[test]
fn poll_401_for_previous_token_ends_only_that_token() {
    let mut core = core_with_two_tokens();
    exchange_with_token(
        &mut core,
        now_at(101),
        &queue_with_call(now_at(90)),
        Err(ApiError::UNAUTHORIZED),
    );
    assert_eq!(core.ask(now_at(102)).tokens, [second_token()]);
    let live = WorkQueue {
        live: Some(due_call(1)),
        ..WorkQueue::default()
    };
    assert_eq!(lane(&mut core, now_at(102), &live), Some(Lane::Live));
}

#[test]
fn short_lived_request_id_is_polled_first_in_its_last_quarter() {
    let mut core = ready_core(Settings::default());
    core.token(now_at(100), Some(second_token()));
    let until = now_at(120).wall.floor_seconds();
    let short = Ok(ApiReply::TokenInfo(TokenInfo {
        expires_at: Some(until),
        ..info()
    }));
    exchange_with_token(&mut core, now_at(100), &WorkQueue::default(), short);
    let call = Unconfirmed {
        token: second_token(),
        ..submitted_call(3, now_at(101))
    };
    let head = WorkQueue {
        live: Some(due_call(1)),
        polls: vec![call],
        ..WorkQueue::default()
    };
    assert_eq!(lane(&mut core, now_at(115), &head), Some(Lane::Live));
    assert_eq!(lane(&mut core, now_at(116), &head), Some(Lane::Deadline));
}

#[test]
fn poll_is_not_sent_if_its_token_is_gone() {
    let mut core = ready_core(Settings::default());
    core.token(now_at(100), Some(second_token()));
    assert_eq!(core.ask(now_at(101)).tokens, [second_token()]);
    core.set_previous_token(Some((second_token(), now_at(400).wall.floor_seconds())));
    assert_eq!(
        core.ask(now_at(101)).tokens,
        [second_token()],
        "itself is none before"
    );
    let poll = Task {
        lane: Lane::Deadline,
        work: Work::Poll(Box::new(submitted_call(3, now_at(90)))),
    };
    let Decision::Send(plan) = core.budget.take(now_at(101), poll) else {
        panic!("room");
    };
    let launch = core.launch(now_at(101), plan, RequestInputs::default());
    assert_eq!(
        launch,
        Launch {
            request: None,
            ops: Vec::new()
        }
    );
}

#[test]
fn call_of_expired_token_is_not_settled_before_poll_answer() {
    let mut core = core_with_two_tokens();
    core.confirm.rest_pages(now_at(300).wall);
    let Decision::Send(plan) = core.next(now_at(399), &queue_with_call(now_at(390))) else {
        panic!("a poll");
    };
    let slot = plan.slot;
    core.launch(now_at(399), plan, RequestInputs::default());
    let over = WorkQueue {
        unresolved: Some(submitted_call(3, now_at(390))),
        submitted: 1,
        ..WorkQueue::default()
    };
    assert!(!matches!(
        core.next(now_at(401), &over),
        Decision::Settle(_)
    ));
    let response = ApiResponse::from(Err(ApiError::TimedOut));
    core.judge_answer(now_at(401), slot, response)
        .expect("under way");
    assert!(matches!(core.next(now_at(403), &over), Decision::Settle(_)));
}

#[test]
fn token_of_unexpected_company_is_foreign_and_not_bound() {
    let own = info();
    for (named, foreign) in [(None, false), (Some(own.company), false), (Some(13), true)] {
        let mut tokens = KnownTokens::new(
            &Known::default(),
            &Memory::default(),
            now_at(0),
            crate::budget::pacer::LOST_ARRIVE,
        );
        tokens.company = named;
        let mut ops = Vec::new();
        let standing = tokens.read(now_at(0), own.clone(), &mut ops);
        assert_eq!(matches!(standing, Standing::Foreign(_)), foreign);
        let binds = ops.iter().any(|op| matches!(op, Op::BindCompany { .. }));
        assert_eq!(binds, !foreign, "{named:?}");
    }
}

#[test]
fn poll_with_an_expiring_token_precedes_live_calls() {
    let mut core = ready_core(Settings::default());
    core.tokens.info = Some(TokenInfo {
        expires_at: Some(now_at(3000).wall.floor_seconds()),
        ..info()
    });
    let call = Unconfirmed {
        submitted_at: now_at(0).wall.minus(Duration::from_secs(600)),
        ..submitted_call(3, now_at(0))
    };
    let head = WorkQueue {
        polls: vec![call],
        ..live_queue(1)
    };
    assert_eq!(lane(&mut core, now_at(3000 - 901), &head), Some(Lane::Live));
    assert_eq!(
        lane(&mut core, now_at(3000 - 900), &head),
        Some(Lane::Deadline)
    );
    assert_eq!(lane(&mut core, now_at(2999), &head), Some(Lane::Deadline));
    // The token has expired, so any request with it would be refused.
    assert_eq!(lane(&mut core, now_at(3000), &head), None);
}

/// Promise: A new token brings no new budget.
#[test]
fn another_token_has_no_fresh_budget() {
    let mut core = ready_core(Settings {
        rate: "3/60s".parse().expect("a rate"),
        ..Settings::default()
    });
    for id in 1..=2 {
        exchange(
            &mut core,
            now_at(1),
            &live_queue(id),
            Ok(ApiReply::Accepted("r".to_owned())),
        );
    }
    core.token(now_at(41), Some(second_token()));
    // The response to the first request arrived in second 0.
    for second in 41..60 {
        assert_eq!(lane(&mut core, now_at(second), &WorkQueue::default()), None);
    }
    assert_eq!(
        lane(&mut core, now_at(61), &WorkQueue::default()),
        Some(Lane::Token)
    );
}

#[test]
fn answers_to_the_old_token_do_not_affect_the_new_one() {
    for answer in [
        Err(ApiError::UNAUTHORIZED),
        forbidden_answer(),
        status_answer(WriteStatus::Success),
    ] {
        let mut core = ready_core(Settings::default());
        let (slot, _, _) = launch_next(&mut core, now_at(10), &queue_with_call(now_at(0)));
        core.token(now_at(11), Some(second_token()));
        assert_eq!(
            lane(&mut core, now_at(11), &live_queue(1)),
            None,
            "one is under way"
        );
        core.judge_answer(now_at(12), slot, answer.into())
            .expect("under way");
        assert_eq!(pause_reason(&core, now_at(12)), None);
        assert_eq!(
            lane(&mut core, now_at(12), &live_queue(1)),
            Some(Lane::Token)
        );
    }
}

#[test]
fn deadline_poll_does_not_wait_for_webhooks() {
    let mut core = ready_core(Settings::default());
    core.tokens.info = Some(TokenInfo {
        expires_at: Some(now_at(900).wall.floor_seconds()),
        ..info()
    });
    let head = WorkQueue {
        webhook_pace: Some(callbridge_spool::WebhookPace {
            turn: String::new(),
            at: now_at(1).wall,
            after: Duration::from_secs(1),
            usual: Duration::from_secs(1),
        }),
        ..queue_with_call(now_at(0))
    };
    assert_eq!(lane(&mut core, now_at(675), &head), Some(Lane::Deadline));
}

#[test]
fn calls_near_their_end_are_polled_nearest_first() {
    let mut core = ready_core(Settings::default());
    let head = WorkQueue {
        ending: vec![
            submitted_call(5, now_at(200)),
            submitted_call(3, now_at(0)),
            submitted_call(4, now_at(100)),
        ],
        ..live_queue(1)
    };
    let now = now_at(24 * 3600 - 600);
    exchange(&mut core, now, &WorkQueue::default(), token_record());
    for wanted in ["r3", "r4", "r5"] {
        let (_, task, launch) = launch_next(&mut core, now, &head);
        let request_id = wanted.to_owned();
        let request = launch.request.map(|(request, _)| request);
        assert_eq!(task.lane, Lane::Deadline);
        assert_eq!(request, Some(Request::Poll { request_id }));
    }
    assert_eq!(lane(&mut core, now, &head), Some(Lane::Live));
}

#[test]
fn expired_token_is_only_used_for_token_info() {
    let mut core = ready_core(Settings::default());
    core.token(now_at(100), Some(second_token()));
    let expires_at = Some(now_at(3_000).wall.floor_seconds());
    let expiring = TokenInfo {
        expires_at,
        ..info()
    };
    let record = Ok(ApiReply::TokenInfo(expiring));
    let idle = WorkQueue::default();
    exchange(&mut core, now_at(100), &idle, record.clone());
    let call = Unconfirmed {
        token: second_token(),
        ..submitted_call(3, now_at(2_000))
    };
    let head = WorkQueue {
        live: Some(due_call(1)),
        ready: 1,
        ..unconfirmed_queue(&call)
    };
    assert_eq!(lane(&mut core, now_at(2_999), &head), Some(Lane::Deadline));
    assert_eq!(core.ask(now_at(2_999)).tokens, [second_token()]);
    assert_eq!(core.ask(now_at(3_000)).tokens, []);
    for seconds in [3_000, 3_060] {
        let (request, _) = exchange(&mut core, now_at(seconds), &head, record.clone());
        assert_eq!(request, Request::TokenInfo);
        assert_eq!(lane(&mut core, now_at(seconds + 59), &head), None);
        let reason = pause_reason(&core, now_at(seconds + 59));
        assert_eq!(reason.as_deref(), Some("token_refused"));
    }
    let fix = core
        .status(now_at(3_100), &head)
        .pause
        .expect("a pause")
        .fix;
    assert!(fix.contains("it has expired"), "{fix}");
    exchange(&mut core, now_at(3_120), &head, token_record());
    assert_eq!(pause_reason(&core, now_at(3_120)), None);
    let live = live_queue(1);
    assert_eq!(lane(&mut core, now_at(3_120), &live), Some(Lane::Live));
}
