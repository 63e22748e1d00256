//! What is sent before what, with heads made by hand.

use crate::core::Core;
use crate::outcome::Outcome;
use crate::plan::{About, Decision, Known, Lane, Launch, Settings, Task};
use callbridge_call::EventTime;
use callbridge_crm::{ApiError, ApiReply, ApiResponse, TokenInfo, WriteStatus};
use callbridge_model::{Grant, Now, TokenFingerprint};
use callbridge_spool::{Due, FIRST_POLL, IfAbsent, Op, RowId, Step, Unconfirmed, WorkQueue};
use std::time::Duration;

pub(super) const T0: EventTime = EventTime::from_seconds(1_795_151_000);

pub(super) fn at(seconds: u64) -> Now {
    let since = Duration::from_secs(seconds);
    Now {
        wall: T0.plus(since),
        boot: Duration::from_secs(1000) + since,
    }
}

pub(super) fn print() -> TokenFingerprint {
    TokenFingerprint::of("svc_pat_one")
}

pub(super) fn due(id: i64) -> Due {
    let uuid = uuid::Uuid::from_u128(u128::from(id.unsigned_abs()));
    Due {
        row: RowId(id),
        uuid: callbridge_model::CallUuid(uuid),
        since: T0,
    }
}

pub(super) fn submitted(id: i64, accepted: Now) -> Unconfirmed {
    Unconfirmed {
        row: RowId(id),
        uuid: due(id).uuid,
        linkedid: id.to_string(),
        trunk: None,
        started: accepted.wall.floor_seconds(),
        request_id: Some(format!("r{id}")),
        token: print(),
        submitted_at: accepted.wall,
        first_sent: accepted.wall,
        polls: 0,
        next_poll: accepted.wall.plus(FIRST_POLL),
        absent: 0,
        absent_at: None,
        resubmits: 0,
        if_absent: IfAbsent::Resubmit,
        message: String::new(),
    }
}

pub(super) fn info() -> TokenInfo {
    let granted = [Grant::CallSave, Grant::LeadRead, Grant::LeadSave];
    TokenInfo {
        company: 12,
        company_name: "Uy".to_owned(),
        application: Some(7),
        application_name: String::new(),
        kind: "PAT".to_owned(),
        expires_at: None,
        expires_in_days: None,
        grants: Some(granted.map(|grant| grant.to_string()).to_vec()),
    }
}

/// A sender whose token is known to be good.
pub(super) fn ready(settings: Settings) -> Core {
    let (mut core, ops) = Core::start(settings, Known::default(), at(0));
    assert!(matches!(&ops[..], [Op::Meta { .. }]), "{ops:?}");
    core.token(Some(print()));
    let Decision::Send(plan) = core.next(at(0), &WorkQueue::default()) else {
        panic!("the token is asked for first");
    };
    assert_eq!((plan.lane, &plan.task), (Lane::Token, &Task::TokenInfo));
    let slot = plan.slot;
    assert!(matches!(
        core.launch(at(0), plan, About::default()),
        Launch {
            request: Some(_),
            ..
        }
    ));
    let heard = ApiResponse::from(Ok(ApiReply::TokenInfo(info())));
    let outcome = core.answered(at(0), slot, heard).expect("under way");
    assert_eq!((outcome.outcome, outcome.again), (Outcome::Known, false));
    let bind = Op::BindCompany {
        company: "12".to_owned(),
        application: "7".to_owned(),
    };
    assert!(outcome.ops.contains(&bind));
    core
}

/// The memory that a start, or an answer, has stored.
pub(super) fn stored(ops: &[Op]) -> Option<String> {
    ops.iter().find_map(|op| match op {
        Op::Meta { value, .. } => Some(value.clone()),
        _ => None,
    })
}

/// The lane of what goes next.
pub(super) fn lane(core: &mut Core, now: Now, head: &WorkQueue) -> Option<Lane> {
    match core.next(now, head) {
        Decision::Send(plan) => {
            core.aborted(plan.slot);
            Some(plan.lane)
        }
        Decision::Revive(_) | Decision::WaitUntil(_) | Decision::Idle => None,
    }
}

#[test]
fn nothing_goes_before_the_token_is_known() {
    let (mut core, _) = Core::start(Settings::default(), Known::default(), at(0));
    let head = WorkQueue {
        live: Some(due(1)),
        ready: 1,
        ..WorkQueue::default()
    };
    assert_eq!(core.next(at(0), &head), Decision::Idle);
    let pause = core.status(at(0), &head).pause.expect("a pause");
    assert_eq!(pause.reason, "token_missing");
    core.token(Some(print()));
    assert_eq!(lane(&mut core, at(0), &head), Some(Lane::Token));
}

#[test]
fn live_calls_go_before_the_backlog_and_polls_wait_for_both() {
    let mut core = ready(Settings::default());
    let polls = vec![submitted(3, at(0))];
    let all = WorkQueue {
        live: Some(due(2)),
        backlog: Some(due(1)),
        polls: polls.clone(),
        ..WorkQueue::default()
    };
    assert_eq!(lane(&mut core, at(10), &all), Some(Lane::Live));
    let later = WorkQueue { live: None, ..all };
    assert_eq!(lane(&mut core, at(10), &later), Some(Lane::Backlog));
    let idle = WorkQueue {
        backlog: None,
        ..later
    };
    assert_eq!(lane(&mut core, at(10), &idle), Some(Lane::Confirm));
}

#[test]
fn where_no_sweep_will_do_old_polls_take_turns_with_submissions() {
    let mut core = ready(Settings::default());
    core.confirmation
        .reconciliation
        .page_strategy
        .off(at(0).wall);
    let head = WorkQueue {
        live: Some(due(1)),
        polls: vec![submitted(2, at(0))],
        ..WorkQueue::default()
    };
    assert_eq!(lane(&mut core, at(299), &head), Some(Lane::Live));
    let Decision::Send(plan) = core.next(at(300), &head) else {
        panic!("something is sent");
    };
    assert_eq!(plan.lane, Lane::OldPoll);
    let slot = plan.slot;
    assert!(matches!(
        core.launch(at(300), plan, About::default()),
        Launch {
            request: Some(_),
            ..
        }
    ));
    let heard = ApiResponse::from(Ok(ApiReply::Status(WriteStatus::Success)));
    let outcome = core.answered(at(300), slot, heard).expect("under way");
    assert_eq!(
        (outcome.outcome, outcome.again),
        (Outcome::Journaled, false)
    );
    assert_eq!(lane(&mut core, at(301), &head), Some(Lane::Live));
}

#[test]
fn a_poll_whose_request_id_ends_soon_goes_before_everything() {
    let mut core = ready(Settings::default());
    let ending = submitted(3, at(0));
    let head = WorkQueue {
        live: Some(due(1)),
        oldest_submitted: vec![ending],
        ..WorkQueue::default()
    };
    let hours = 3600 * 23;
    assert_eq!(lane(&mut core, at(hours - 1), &head), Some(Lane::Live));
    assert_eq!(lane(&mut core, at(hours), &head), Some(Lane::Deadline));
}

#[test]
fn while_our_clock_is_wrong_nothing_is_sent_and_that_is_said() {
    let mut core = ready(Settings::default());
    core.settings.clock_right_from = Some(at(10).wall);
    let head = WorkQueue {
        live: Some(due(1)),
        ..WorkQueue::default()
    };
    let Decision::WaitUntil(until) = core.next(at(9), &head) else {
        panic!("sent by a wrong clock");
    };
    assert_eq!(until, at(10).boot);
    let pause = core.status(at(9), &head).pause.expect("a pause");
    assert_eq!(pause.reason, "clock");
    assert_eq!(lane(&mut core, at(10), &head), Some(Lane::Live));
    assert_eq!(core.status(at(10), &head).pause, None);
}

#[test]
fn a_dry_run_submits_nothing_and_says_so() {
    let settings = Settings {
        dry_run: true,
        ..Settings::default()
    };
    let mut core = ready(settings);
    let head = WorkQueue {
        live: Some(due(1)),
        backlog: Some(due(2)),
        ready: 2,
        ..WorkQueue::default()
    };
    let hourly = Decision::WaitUntil(at(3_600).boot);
    assert_eq!(core.next(at(10), &head), hourly, "whose token is it?");
    assert_eq!(
        core.status(at(10), &head).pause.expect("a pause").reason,
        "dry_run"
    );
}

#[test]
fn call_of_other_token_is_reconciled_or_resubmitted() {
    let mut core = ready(Settings::default());
    let foreign = Unconfirmed {
        token: TokenFingerprint::of("svc_pat_old"),
        ..submitted(3, at(0))
    };
    let head = WorkQueue {
        unresolved: Some(foreign.clone()),
        ..WorkQueue::default()
    };
    let Decision::Send(plan) = core.next(at(10), &head) else {
        panic!("swept for");
    };
    assert_eq!(plan.task, Task::Reconcile { begins: true });
    core.aborted(plan.slot);
    let strategy = &mut core.confirmation.reconciliation.page_strategy;
    strategy.off(at(10).wall);
    strategy.poor = true;
    let still = core.next(at(10), &head);
    assert!(matches!(still, Decision::Send(plan) if plan.task == Task::Reconcile { begins: true }));
    core.confirmation
        .reconciliation
        .page_strategy
        .off(at(10).wall);
    let revive = Decision::Revive(Box::new(foreign.clone()));
    assert_eq!(core.next(at(10), &head), revive);
    assert!(matches!(
        core.revive(at(10), &foreign),
        Step::Resubmit { .. }
    ));
}

#[test]
fn a_call_is_polled_once_at_a_time() {
    let mut core = ready(Settings::default());
    let head = WorkQueue {
        polls: vec![submitted(3, at(0))],
        ..WorkQueue::default()
    };
    let Decision::Send(plan) = core.next(at(10), &head) else {
        panic!("polled");
    };
    assert!(matches!(
        core.launch(at(10), plan, About::default()),
        Launch {
            request: Some(_),
            ..
        }
    ));
    let hourly = Decision::WaitUntil(at(3_600).boot);
    assert_eq!(core.next(at(10), &head), hourly);
}

#[test]
fn what_goes_wrong_between_slot_and_request_gives_the_slot_back() {
    let mut core = ready(Settings::default());
    let head = WorkQueue {
        live: Some(due(1)),
        ready: 1,
        ..WorkQueue::default()
    };
    let Decision::Send(plan) = core.next(at(10), &head) else {
        panic!("submitted");
    };
    let used = core.status(at(10), &head).budget(at(10).boot).used;
    assert_eq!(
        core.launch(at(10), plan, About::default()),
        Launch {
            request: None,
            ops: Vec::new()
        }
    );
    assert_eq!(
        core.status(at(10), &head).budget(at(10).boot).used,
        used - 1
    );
}

#[test]
fn drain_time_includes_pages_or_one_poll_per_call() {
    let mut core = ready(Settings::default());
    let head = WorkQueue {
        ready: 100,
        submitted: 60,
        ..WorkQueue::default()
    };
    let backlog = core.status(at(0), &head).backlog;
    assert_eq!((backlog.calls, backlog.drain_sec), (160, 102));
    core.confirmation
        .reconciliation
        .page_strategy
        .off(at(0).wall);
    let backlog = core.status(at(0), &head).backlog;
    assert_eq!((backlog.calls, backlog.drain_sec), (160, 260));
}

#[test]
fn answers_to_the_token_before_it_open_no_line_for_another_one() {
    let heard = |answer| ApiResponse::from(answer);
    let accepted = || Ok(ApiReply::Status(WriteStatus::Success));
    for first in [
        Err(ApiError::TimedOut),
        Ok(ApiReply::Status(WriteStatus::Success)),
    ] {
        let mut core = ready(Settings::default());
        let mut slots = Vec::new();
        for id in [1, 2, 3] {
            let head = WorkQueue {
                polls: vec![submitted(id, at(0))],
                ..WorkQueue::default()
            };
            let Decision::Send(plan) = core.next(at(10), &head) else {
                panic!("not polled");
            };
            slots.push(plan.slot);
            core.launch(at(10), plan, About::default());
        }
        core.token(Some(TokenFingerprint::of("svc_pat_of_another_company")));
        core.answered(at(11), slots[0], heard(first));
        core.answered(at(12), slots[1], heard(accepted()));
        let head = WorkQueue {
            live: Some(due(4)),
            ..WorkQueue::default()
        };
        assert_eq!(lane(&mut core, at(79), &head), None, "one is under way");
        core.answered(at(79), slots[2], heard(accepted()));
        assert_eq!(lane(&mut core, at(80), &head), Some(Lane::Token));
    }
}

#[test]
fn a_poll_goes_before_everything_when_its_token_ends_soon() {
    let mut core = ready(Settings::default());
    let hour = at(3600).wall.floor_seconds();
    core.tokens.info = Some(TokenInfo {
        expires_at: Some(hour),
        ..info()
    });
    let head = WorkQueue {
        live: Some(due(1)),
        oldest_submitted: vec![submitted(3, at(0))],
        ..WorkQueue::default()
    };
    assert_eq!(lane(&mut core, at(3600 - 901), &head), Some(Lane::Live));
    assert_eq!(lane(&mut core, at(3600 - 900), &head), Some(Lane::Deadline));
    // it has ended: nothing can be asked with it any more
    assert_eq!(lane(&mut core, at(3600), &head), Some(Lane::Live));
}

/// Promise: A new token brings no new budget.
#[test]
fn another_token_has_no_fresh_budget() {
    let settings = Settings {
        rate: "3/60s".parse().expect("a rate"),
        ..Settings::default()
    };
    let mut core = ready(settings);
    // Polls go evenly: one in twenty seconds.
    for (id, now) in [(1, at(20)), (2, at(40))] {
        let head = WorkQueue {
            polls: vec![submitted(id, at(0))],
            ..WorkQueue::default()
        };
        let Decision::Send(plan) = core.next(now, &head) else {
            panic!("there is a slot");
        };
        let slot = plan.slot;
        assert!(matches!(
            core.launch(now, plan, About::default()),
            Launch {
                request: Some(_),
                ..
            }
        ));
        let heard = ApiResponse::from(Ok(ApiReply::Status(WriteStatus::Success)));
        core.answered(now, slot, heard).expect("under way");
    }
    core.token(Some(TokenFingerprint::of("svc_pat_two")));
    // The first was answered in the second 0.
    for second in 41..60 {
        assert_eq!(lane(&mut core, at(second), &WorkQueue::default()), None);
    }
    assert_eq!(
        lane(&mut core, at(61), &WorkQueue::default()),
        Some(Lane::Token)
    );
}
