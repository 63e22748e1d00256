//! A token that was replaced and lives on reads the requestIds that it was given (§4.6).

use super::tests::{at, due, lane, print, ready, submitted};
use crate::Known;
use crate::core::Core;
use crate::memory::Memory;
use crate::plan::{About, Decision, Lane, Launch, Settings, Task};
use crate::tokens::{KnownTokens, Standing};
use callbridge_crm::{ApiError, ApiReply, ApiResponse, ApiResult, Request, TokenInfo, WriteStatus};
use callbridge_model::{Now, TokenFingerprint};
use callbridge_spool::{Op, Unconfirmed, WorkQueue};

fn second() -> TokenFingerprint {
    TokenFingerprint::of("svc_at_two")
}

/// The first token was replaced at 100 s and ends at 400 s; the second one is known to be good.
fn refreshed() -> Core {
    let mut core = ready(Settings::default());
    core.token(Some(second()));
    core.before(Some((print(), at(400).wall.floor_seconds())));
    let (request, token) = sent(&mut core, at(100), &WorkQueue::default(), info());
    assert_eq!((request, token), (Request::TokenInfo, second()));
    core
}

fn info() -> ApiResult {
    Ok(ApiReply::TokenInfo(super::tests::info()))
}

/// Sends the next request, and answers it; with which token it went.
fn sent(
    core: &mut Core,
    now: Now,
    head: &WorkQueue,
    answer: ApiResult,
) -> (Request, TokenFingerprint) {
    let Decision::Send(plan) = core.next(now, head) else {
        panic!("something is sent");
    };
    let slot = plan.slot;
    let Launch {
        request: Some((request, token)),
        ..
    } = core.launch(now, plan, About::default())
    else {
        panic!("it goes");
    };
    let heard = ApiResponse::from(answer);
    core.answered(now, slot, heard).expect("under way");
    (request, token)
}

fn waits(accepted: Now) -> WorkQueue {
    let call = submitted(3, accepted);
    WorkQueue {
        polls: vec![call.clone()],
        oldest_submitted: vec![call],
        submitted: 1,
        ..WorkQueue::default()
    }
}

#[test]
fn poll_uses_submitting_token_until_token_expires() {
    let mut core = refreshed();
    assert_eq!(core.ask(at(101)).tokens, [second(), print()]);
    let (request, token) = sent(
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
        ..waits(at(90))
    };
    assert_eq!(lane(&mut core, at(339), &head), Some(Lane::Live));
    assert_eq!(lane(&mut core, at(340), &head), Some(Lane::Deadline));
    assert_eq!(lane(&mut core, at(400), &head), Some(Lane::Live));
}

#[test]
fn a_401_for_the_older_token_ends_that_one_alone() {
    let mut core = refreshed();
    sent(
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
fn the_last_quarter_of_a_short_life_is_its_end() {
    let mut core = ready(Settings::default());
    core.token(Some(second()));
    let until = at(120).wall.floor_seconds();
    let short = Ok(ApiReply::TokenInfo(TokenInfo {
        expires_at: Some(until),
        ..super::tests::info()
    }));
    sent(&mut core, at(100), &WorkQueue::default(), short);
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
fn a_new_token_without_the_older_one_reads_nothing_of_it() {
    let mut core = ready(Settings::default());
    core.token(Some(second()));
    assert_eq!(core.ask(at(101)).tokens, [second()]);
    core.before(Some((second(), at(400).wall.floor_seconds())));
    assert_eq!(
        core.ask(at(101)).tokens,
        [second()],
        "itself is none before"
    );
    let poll = Task::Poll(Box::new(submitted(3, at(90))));
    let Decision::Send(plan) = core.budget.take(at(101), Lane::Deadline, poll) else {
        panic!("room");
    };
    let launch = core.launch(at(101), plan, About::default());
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
    core.confirmation
        .reconciliation
        .page_strategy
        .off(at(300).wall);
    let Decision::Send(plan) = core.next(at(399), &waits(at(390))) else {
        panic!("a poll");
    };
    let slot = plan.slot;
    core.launch(at(399), plan, About::default());
    let over = WorkQueue {
        unresolved: Some(submitted(3, at(390))),
        submitted: 1,
        ..WorkQueue::default()
    };
    assert!(!matches!(core.next(at(401), &over), Decision::Revive(_)));
    let heard = ApiResponse::from(Err(ApiError::TimedOut));
    core.answered(at(401), slot, heard).expect("under way");
    assert!(matches!(core.next(at(403), &over), Decision::Revive(_)));
}

#[test]
fn token_of_unexpected_company_is_foreign_and_not_bound() {
    let own = super::tests::info();
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
