//! A token that was replaced and is still valid reads the requestIds that it received (§4.6).

use super::*;
use crate::tokens::Standing;

fn second() -> TokenFingerprint {
    TokenFingerprint::of("svc_at_two")
}

/// Makes a sender whose first token was replaced at 100 s and expires at 400 s. The second one is
/// verified.
fn refreshed() -> Core {
    let mut core = ready(Settings::default());
    core.token(at(100), Some(second()));
    core.set_previous_token(Some((print(), at(400).wall.floor_seconds())));
    let (request, token) = answered(&mut core, at(100), &WorkQueue::default(), record());
    assert_eq!((request, token), (Request::TokenInfo, second()));
    core
}

fn waits(accepted: Now) -> WorkQueue {
    unconfirmed(&submitted(3, accepted))
}

/// Sends the next request, answers it, and returns its token.
fn answered(
    core: &mut Core,
    now: Now,
    head: &WorkQueue,
    answer: ApiResult,
) -> (Request, TokenFingerprint) {
    let (slot, _, launch) = sent(core, now, head);
    core.judge_answer(now, slot, answer.into())
        .expect("under way");
    launch.request.expect("it goes")
}

#[test]
fn poll_uses_submitting_token_until_token_expires() {
    let mut core = refreshed();
    assert_eq!(core.ask(at(101)).tokens, [second(), print()]);
    let (request, token) = answered(
        &mut core,
        at(101),
        &waits(at(90)),
        Ok(ApiReply::Status(WriteStatus::Success)),
    );
    let request_id = "r3".to_owned();
    assert_eq!((request, token), (Request::Poll { request_id }, print()));
    assert_eq!(core.ask(at(399)).tokens, [second(), print()]);
    assert_eq!(core.ask(at(400)).tokens, [second()]);
}

#[test]
fn previous_token_polls_go_first_in_last_minute() {
    let mut core = refreshed();
    let head = WorkQueue {
        live: Some(due(1)),
        oldest_submitted: vec![submitted(3, at(90))],
        ..WorkQueue::default()
    };
    assert_eq!(lane(&mut core, at(339), &head), Some(Lane::Live));
    assert_eq!(lane(&mut core, at(340), &head), Some(Lane::Deadline));
    assert_eq!(lane(&mut core, at(400), &head), Some(Lane::Live));
}

#[test]
fn a_401_for_the_older_token_ends_that_one_alone() {
    let mut core = refreshed();
    answered(
        &mut core,
        at(101),
        &waits(at(90)),
        Err(ApiError::UNAUTHORIZED),
    );
    assert_eq!(core.ask(at(102)).tokens, [second()]);
    let live = WorkQueue {
        live: Some(due(1)),
        ..WorkQueue::default()
    };
    assert_eq!(lane(&mut core, at(102), &live), Some(Lane::Live));
}

#[test]
fn last_quarter_of_a_short_life_is_its_end() {
    let mut core = ready(Settings::default());
    core.token(at(100), Some(second()));
    let until = at(120).wall.floor_seconds();
    let short = Ok(ApiReply::TokenInfo(TokenInfo {
        expires_at: Some(until),
        ..info()
    }));
    answered(&mut core, at(100), &WorkQueue::default(), short);
    let call = Unconfirmed {
        token: second(),
        ..submitted(3, at(101))
    };
    let head = WorkQueue {
        live: Some(due(1)),
        oldest_submitted: vec![call],
        ..WorkQueue::default()
    };
    assert_eq!(lane(&mut core, at(114), &head), Some(Lane::Live));
    assert_eq!(lane(&mut core, at(115), &head), Some(Lane::Deadline));
}

#[test]
fn new_token_without_the_older_one_reads_nothing_of_it() {
    let mut core = ready(Settings::default());
    core.token(at(100), Some(second()));
    assert_eq!(core.ask(at(101)).tokens, [second()]);
    core.set_previous_token(Some((second(), at(400).wall.floor_seconds())));
    assert_eq!(
        core.ask(at(101)).tokens,
        [second()],
        "itself is none before"
    );
    let poll = Task {
        lane: Lane::Deadline,
        work: Work::Poll(Box::new(submitted(3, at(90)))),
    };
    let Decision::Send(plan) = core.budget.take(at(101), poll) else {
        panic!("room");
    };
    let launch = core.launch(at(101), plan, RequestInputs::default());
    assert_eq!(
        launch,
        Launch {
            request: None,
            ops: Vec::new()
        }
    );
}

#[test]
fn expired_token_call_is_not_resubmitted_before_poll_answer() {
    let mut core = refreshed();
    core.confirm.rest_pages(at(300).wall);
    let Decision::Send(plan) = core.next(at(399), &waits(at(390))) else {
        panic!("a poll");
    };
    let slot = plan.slot;
    core.launch(at(399), plan, RequestInputs::default());
    let over = WorkQueue {
        unresolved: Some(submitted(3, at(390))),
        submitted: 1,
        ..WorkQueue::default()
    };
    assert!(!matches!(core.next(at(401), &over), Decision::Settle(_)));
    let heard = ApiResponse::from(Err(ApiError::TimedOut));
    core.judge_answer(at(401), slot, heard).expect("under way");
    assert!(matches!(core.next(at(403), &over), Decision::Settle(_)));
}

#[test]
fn token_of_unexpected_company_is_foreign_and_not_bound() {
    let own = info();
    for (named, foreign) in [(None, false), (Some(own.company), false), (Some(13), true)] {
        let mut tokens = KnownTokens::new(&Known::default(), &Memory::default(), at(0));
        tokens.company = named;
        let mut ops = Vec::new();
        let standing = tokens.read(at(0), own.clone(), &mut ops);
        assert_eq!(matches!(standing, Standing::Foreign(_)), foreign);
        let binds = ops.iter().any(|op| matches!(op, Op::BindCompany { .. }));
        assert_eq!(binds, !foreign, "{named:?}");
    }
}

#[test]
fn poll_with_an_expiring_token_precedes_everything() {
    let mut core = ready(Settings::default());
    core.tokens.info = Some(TokenInfo {
        expires_at: Some(at(3600).wall.floor_seconds()),
        ..info()
    });
    let head = WorkQueue {
        oldest_submitted: vec![submitted(3, at(0))],
        ..live(1)
    };
    assert_eq!(lane(&mut core, at(3600 - 901), &head), Some(Lane::Live));
    assert_eq!(lane(&mut core, at(3600 - 900), &head), Some(Lane::Deadline));
    // The token has expired, so no request can use it any more.
    assert_eq!(lane(&mut core, at(3599), &head), Some(Lane::Deadline));
}

/// Promise: A new token brings no new budget.
#[test]
fn another_token_has_no_fresh_budget() {
    let mut core = ready(Settings {
        rate: "3/60s".parse().expect("a rate"),
        ..Settings::default()
    });
    for id in 1..=2 {
        exchange(
            &mut core,
            at(1),
            &live(id),
            Ok(ApiReply::Accepted("r".to_owned())),
        );
    }
    core.token(at(41), Some(second()));
    // The first request was answered in second 0.
    for second in 41..60 {
        assert_eq!(lane(&mut core, at(second), &WorkQueue::default()), None);
    }
    assert_eq!(
        lane(&mut core, at(61), &WorkQueue::default()),
        Some(Lane::Token)
    );
}

#[test]
fn answers_to_the_old_token_do_not_affect_the_new_one() {
    for answer in [
        Err(ApiError::UNAUTHORIZED),
        forbidden(),
        status(WriteStatus::Success),
    ] {
        let mut core = ready(Settings::default());
        let (slot, _, _) = sent(&mut core, at(10), &waits(at(0)));
        core.token(at(11), Some(second()));
        assert_eq!(lane(&mut core, at(11), &live(1)), None, "one is under way");
        core.judge_answer(at(12), slot, answer.into())
            .expect("under way");
        assert_eq!(pause(&core, at(12)), None);
        assert_eq!(lane(&mut core, at(12), &live(1)), Some(Lane::Token));
    }
}

#[test]
fn deadline_does_not_wait_for_webhooks() {
    let mut core = ready(Settings::default());
    core.tokens.info = Some(TokenInfo {
        expires_at: Some(at(900).wall.floor_seconds()),
        ..info()
    });
    let head = WorkQueue {
        webhook_pace: Some(callbridge_spool::WebhookPace {
            at: at(1).wall,
            after: Duration::from_secs(1),
            usual: Duration::from_secs(1),
        }),
        ..waits(at(0))
    };
    assert_eq!(lane(&mut core, at(2), &head), Some(Lane::Deadline));
}
