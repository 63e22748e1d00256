//! Tests the whole core, from a head to a request and from a response to operations.

use super::*;
use crate::queue::Task;
use crate::testing::{T0, fingerprint, info, now_at, row, submitted_call, uuid};
use callbridge_crm::{ApiError, ApiReply, ApiResult, FailureWord, Page, TokenInfo, WriteStatus};
use callbridge_model::CallUuid;
use callbridge_spool::{Confirmable, Due, OutcomeSource};

mod leads;
mod limited;
mod pauses;
mod refused;
mod restart;
mod tokens;

pub(super) fn due_call(id: i64) -> Due {
    Due {
        row: RowId(id),
        uuid: uuid(id),
        since: T0,
    }
}

pub(super) fn live_queue(id: i64) -> WorkQueue {
    WorkQueue {
        live: Some(due_call(id)),
        ready: 1,
        ..WorkQueue::default()
    }
}

/// Creates a head with one accepted call that's due for a poll.
pub(super) fn unconfirmed_queue(call: &Unconfirmed) -> WorkQueue {
    WorkQueue {
        polls: vec![call.clone()],
        oldest_submitted: vec![call.clone()],
        submitted: 1,
        confirmable: Confirmable {
            calls: 1,
            oldest: Some(call.submitted_at),
        },
        ..WorkQueue::default()
    }
}

/// Creates a sender whose token has been verified.
pub(super) fn ready_core(settings: Settings) -> Core {
    let (mut core, ops) = Core::start(settings, Known::default(), now_at(0));
    assert!(matches!(&ops[..], [Op::Meta { .. }]), "{ops:?}");
    core.token(now_at(0), Some(fingerprint()));
    let (request, answered) = exchange(&mut core, now_at(0), &WorkQueue::default(), token_record());
    assert_eq!(request, Request::TokenInfo);
    let bind = Op::BindCompany {
        company: "12".to_owned(),
        application: "7".to_owned(),
    };
    assert!(answered.ops.contains(&bind));
    core
}

pub(super) fn token_record() -> ApiResult {
    Ok(ApiReply::TokenInfo(info()))
}

pub(super) fn status_answer(status: WriteStatus) -> ApiResult {
    Ok(ApiReply::Status(status))
}

pub(super) fn page_answer(calls: &[CallUuid]) -> ApiResult {
    Ok(ApiReply::Page(Page {
        rows: 1,
        uuids: calls.to_vec(),
        current: Some(1),
        total: Some(1),
        ..Page::default()
    }))
}

pub(super) fn forbidden_answer() -> ApiResult {
    Err(ApiError::Forbidden("yo'q".to_owned()))
}

/// Launches the next request for this head, returning its slot, its task, and the launch.
pub(super) fn launch_next(core: &mut Core, now: Now, head: &WorkQueue) -> (u32, Task, Launch) {
    let Decision::Send(plan) = core.next(now, head) else {
        panic!("something is sent at {now:?}");
    };
    let (slot, task) = (plan.slot, plan.task.clone());
    let inputs = RequestInputs {
        row: task.work.row().map(|id| row(id, 0)),
        unconfirmed: head.polls.clone(),
        ..RequestInputs::default()
    };
    let launch = core.launch(now, plan, inputs);
    assert!(launch.request.is_some(), "a request is sent: {task:?}");
    (slot, task, launch)
}

/// Sends the next request and responds to it.
pub(super) fn exchange(
    core: &mut Core,
    now: Now,
    head: &WorkQueue,
    answer: ApiResult,
) -> (Request, Answered) {
    let (slot, _, launch) = launch_next(core, now, head);
    let (request, _) = launch.request.expect("a request");
    let answered = core.judge_answer(now, slot, answer.into());
    (request, answered.expect("under way"))
}

/// Returns the next request's lane without sending it.
pub(super) fn lane(core: &mut Core, now: Now, head: &WorkQueue) -> Option<Lane> {
    match core.next(now, head) {
        Decision::Send(plan) => {
            core.abort(plan.slot);
            Some(plan.task.lane)
        }
        Decision::Settle(_) | Decision::Commit(_) => None,
        Decision::WaitUntil(_) | Decision::Idle => None,
    }
}

pub(super) fn pause_reason(core: &Core, now: Now) -> Option<String> {
    let status = core.status(now, &WorkQueue::default());
    status.pause.map(|pause| pause.reason)
}

/// Returns the only step among the operations.
pub(super) fn only_step(answered: &Answered) -> Step {
    let mut steps = answered.ops.iter().filter_map(|op| match op {
        Op::Step { step, .. } => Some(step.clone()),
        _ => None,
    });
    steps.next().expect("a step")
}

fn accepted_answer() -> ApiResult {
    Ok(ApiReply::Accepted("r1".to_owned()))
}

#[test]
fn nothing_is_sent_before_the_token_is_known() {
    let (mut core, _) = Core::start(Settings::default(), Known::default(), now_at(0));
    assert_eq!(core.next(now_at(0), &live_queue(1)), Decision::Idle);
    assert_eq!(
        pause_reason(&core, now_at(0)).as_deref(),
        Some("token_missing")
    );
    core.token(now_at(0), Some(fingerprint()));
    assert_eq!(
        lane(&mut core, now_at(0), &live_queue(1)),
        Some(Lane::Token)
    );
    assert_eq!(pause_reason(&core, now_at(0)), None);
    assert!(core.is_asking());
}

/// Promise: A request is written within five seconds after its slot was taken, or not at all.
#[test]
fn late_request_keeps_its_slot_and_is_sent_again() {
    let mut core = ready_core(Settings::default());
    let (_, answered) = exchange(
        &mut core,
        now_at(10),
        &live_queue(1),
        Err(ApiError::TooLate),
    );
    let Step::Returned {
        not_before,
        failures,
        ..
    } = only_step(&answered)
    else {
        panic!("{:?}", answered.ops);
    };
    assert_eq!((not_before, failures), (now_at(10).wall, 0));
    assert!(answered.again);
    assert!(matches!(&answered.ops[0], Op::Slot(row) if row.answered == Some(now_at(10).boot)));
    assert_eq!(core.budget.used(now_at(69)), 1, "the slot stays taken");
    assert_eq!(core.budget.used(now_at(71)), 0);
    assert_eq!(
        pause_reason(&core, now_at(10)),
        None,
        "it says nothing about the CRM"
    );
    assert_eq!(
        lane(&mut core, now_at(10), &live_queue(1)),
        Some(Lane::Live)
    );
}

#[test]
fn late_request_does_not_end_the_wait_after_a_429() {
    let mut core = ready_core(Settings::default());
    let limited: ApiResult = Err(ApiError::TooMany(true));
    let (first, _, _) = launch_next(&mut core, now_at(10), &live_queue(1));
    let (second, _, _) = launch_next(&mut core, now_at(10), &live_queue(2));
    core.judge_answer(now_at(10), first, limited.into());
    core.judge_answer(now_at(10), second, Err(ApiError::TooLate).into());
    assert_eq!(
        pause_reason(&core, now_at(10)).as_deref(),
        Some("rate_limited")
    );
}

#[test]
fn poll_of_an_expiring_request_id_precedes_live_calls() {
    let mut core = ready_core(Settings::default());
    let head = WorkQueue {
        ending: vec![submitted_call(3, now_at(0))],
        ..live_queue(1)
    };
    let end = 3600 * 24 - 900;
    exchange(
        &mut core,
        now_at(end - 2),
        &WorkQueue::default(),
        token_record(),
    );
    assert_eq!(lane(&mut core, now_at(end - 1), &head), Some(Lane::Live));
    assert_eq!(lane(&mut core, now_at(end), &head), Some(Lane::Deadline));
}

#[test]
fn request_id_is_lost_after_24_hours() {
    let mut core = ready_core(Settings::default());
    let call = submitted_call(3, now_at(0));
    let day = now_at(24 * 3600);
    exchange(&mut core, day, &WorkQueue::default(), token_record());
    let settle = Decision::Settle(Box::new(call.clone()));
    assert_eq!(core.next(day, &unconfirmed_queue(&call)), settle);
    let step = core.settle(day, &call);
    assert!(matches!(step, Step::Unresolved { .. }), "{step:?}");
}

#[test]
fn wrong_clock_stops_sending_and_is_shown_as_pause() {
    let mut core = ready_core(Settings::default());
    core.settings.clock_right_from = Some(now_at(10).wall);
    assert_eq!(
        core.next(now_at(9), &live_queue(1)),
        Decision::WaitUntil(now_at(10).boot)
    );
    assert_eq!(pause_reason(&core, now_at(9)).as_deref(), Some("clock"));
    assert_eq!(
        lane(&mut core, now_at(10), &live_queue(1)),
        Some(Lane::Live)
    );
    assert_eq!(pause_reason(&core, now_at(10)), None);
}

#[test]
fn dry_run_submits_nothing_and_is_shown_as_pause() {
    let mut core = ready_core(Settings {
        dry_run: true,
        ..Settings::default()
    });
    let hourly = Decision::WaitUntil(now_at(3_600).boot);
    assert_eq!(core.next(now_at(10), &live_queue(1)), hourly);
    assert_eq!(pause_reason(&core, now_at(10)).as_deref(), Some("dry_run"));
}

#[test]
fn call_of_other_token_is_searched_on_pages_then_resent() {
    let mut core = ready_core(Settings::default());
    let foreign = Unconfirmed {
        token: TokenFingerprint::of("svc_pat_old"),
        ..submitted_call(3, now_at(0))
    };
    let head = WorkQueue {
        unresolved: Some(foreign.clone()),
        polls: vec![foreign.clone()],
        submitted: 1,
        ..WorkQueue::default()
    };
    let settle = Decision::Settle(Box::new(foreign.clone()));
    assert_eq!(
        core.next(now_at(59), &head),
        settle,
        "it waits for its minute"
    );
    assert!(matches!(
        core.settle(now_at(59), &foreign),
        Step::NotYet { .. }
    ));
    let (request, answered) = exchange(&mut core, now_at(60), &head, page_answer(&[]));
    assert!(matches!(request, Request::Filter(_)), "{request:?}");
    assert!(matches!(only_step(&answered), Step::Resubmit { .. }));
    core.confirm.rest_pages(now_at(60).wall);
    assert_eq!(core.next(now_at(60), &head), settle, "pages cannot be read");
    assert!(matches!(
        core.settle(now_at(60), &foreign),
        Step::Resubmit { .. }
    ));
}

#[test]
fn call_that_a_page_shows_is_journaled() {
    let mut core = ready_core(Settings::default());
    core.confirm.refuse_polls(now_at(0), "403");
    let call = submitted_call(3, now_at(0));
    let (request, answered) = exchange(
        &mut core,
        now_at(20),
        &unconfirmed_queue(&call),
        page_answer(&[call.uuid]),
    );
    assert!(matches!(request, Request::Filter(_)), "{request:?}");
    let journaled = Step::Journaled(OutcomeSource::Confirmation);
    assert_eq!(only_step(&answered), journaled);
    assert_eq!(answered.steps, [(call, journaled)]);
}

#[test]
fn call_absent_from_pages_is_checked_again() {
    let mut core = ready_core(Settings::default());
    core.confirm.refuse_polls(now_at(0), "403");
    let call = submitted_call(3, now_at(0));
    let (_, answered) = exchange(
        &mut core,
        now_at(20),
        &unconfirmed_queue(&call),
        page_answer(&[]),
    );
    assert!(matches!(
        only_step(&answered),
        Step::NotYet {
            absent: Some(1),
            ..
        }
    ));
}

#[test]
fn call_has_at_most_one_poll_under_way() {
    let mut core = ready_core(Settings::default());
    let head = unconfirmed_queue(&submitted_call(3, now_at(0)));
    let (_, task, _) = launch_next(&mut core, now_at(10), &head);
    assert_eq!(task.lane, Lane::Confirmation);
    assert_eq!(
        core.next(now_at(10), &head),
        Decision::WaitUntil(now_at(3_600).boot)
    );
}

#[test]
fn pending_call_is_polled_again_by_the_schedule() {
    let mut core = ready_core(Settings::default());
    let head = unconfirmed_queue(&submitted_call(3, now_at(0)));
    let pending = status_answer(WriteStatus::Pending("PENDING".to_owned()));
    let (_, answered) = exchange(&mut core, now_at(2), &head, pending);
    let next_check = now_at(5).wall;
    let absent = None;
    assert_eq!(only_step(&answered), Step::NotYet { next_check, absent });
    assert!(!answered.again);
}

#[test]
fn poll_404_loses_the_request_id() {
    let mut core = ready_core(Settings::default());
    let head = unconfirmed_queue(&submitted_call(3, now_at(0)));
    let missing = Err(ApiError::NotFound {
        own: true,
        message: String::new(),
    });
    let (_, answered) = exchange(&mut core, now_at(2), &head, missing);
    assert!(answered.again);
    assert_eq!(answered.request_id.as_deref(), Some("r3"));
    let Step::Unresolved { next_check, .. } = only_step(&answered) else {
        panic!("{:?}", answered.ops);
    };
    assert_eq!(next_check, now_at(60).wall);
}

#[test]
fn accepted_call_keeps_its_request_id_and_token() {
    let mut core = ready_core(Settings::default());
    let (slot, task, launch) = launch_next(&mut core, now_at(1), &live_queue(1));
    assert_eq!(task.work, Work::Submit(RowId(1)));
    let send = Op::step(RowId(1), Step::Send, now_at(1).wall);
    assert!(launch.ops.contains(&send), "{:?}", launch.ops);
    let answer = ApiResponse::from(Ok(ApiReply::Accepted("r1".to_owned())));
    let answered = core
        .judge_answer(now_at(2), slot, answer)
        .expect("under way");
    let accepted = Step::Accepted {
        request_id: "r1".to_owned(),
        token: fingerprint(),
    };
    assert_eq!(only_step(&answered), accepted);
    assert!(core.has_accepted());
    assert_eq!(
        core.judge_answer(now_at(2), slot, token_record().into()),
        None,
        "once"
    );
}

/// Sends call 1, which times out. Returns the number of seconds until it's resent, and the failures
/// that count against it.
fn time_out_call(core: &mut Core, seconds: u64) -> (u64, u32) {
    let now = now_at(seconds);
    let (_, answered) = exchange(core, now, &live_queue(1), Err(ApiError::TimedOut));
    let Step::Returned {
        not_before,
        failures,
        ..
    } = only_step(&answered)
    else {
        panic!("{:?}", answered.ops);
    };
    (not_before.since(now.wall).as_secs(), failures)
}

#[test]
fn failed_call_waits_longer_after_another_was_accepted() {
    let mut core = ready_core(Settings::default());
    let (wait, failures) = time_out_call(&mut core, 1);
    assert!((56..=60).contains(&wait) && failures == 1, "{wait}");
    let accepted = Ok(ApiReply::Accepted("r2".to_owned()));
    exchange(&mut core, now_at(30), &live_queue(2), accepted);
    let (wait, failures) = time_out_call(&mut core, 61);
    // The stored row isn't updated here, so this counts as the first failure again.
    assert!((225..=240).contains(&wait) && failures == 1, "{wait}");
}

#[test]
fn call_failed_five_times_is_searched_on_pages_or_given_up() {
    for pages in [true, false] {
        let mut core = ready_core(Settings::default());
        if !pages {
            core.confirm.rest_pages(now_at(1).wall);
        }
        core.failures.note_failure(now_at(0).boot, RowId(1), 4);
        core.failures.note_success(RowId(2));
        let Decision::Send(plan) = core.next(now_at(1), &live_queue(1)) else {
            panic!("sent");
        };
        let slot = plan.slot;
        let inputs = RequestInputs {
            row: Some(row(RowId(1), 4)),
            ..RequestInputs::default()
        };
        core.launch(now_at(1), plan, inputs);
        let answer = ApiResponse::from(Err(ApiError::TimedOut));
        let answered = core
            .judge_answer(now_at(1), slot, answer)
            .expect("under way");
        match only_step(&answered) {
            Step::Unresolved {
                if_absent: IfAbsent::ServerError,
                ..
            } if pages => {}
            Step::Died {
                reason: Reason::ServerError,
                message,
                ..
            } if !pages => assert!(message.contains("5 times"), "{message}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn sole_unsent_call_is_given_up_after_failing_for_a_day() {
    for (seconds, unsent, given_up) in [
        (24 * 3600 + 1, 1, true),
        (24 * 3600, 1, false),
        (24 * 3600 + 1, 2, false),
    ] {
        let mut core = ready_core(Settings::default());
        exchange(
            &mut core,
            now_at(1),
            &live_queue(1),
            Err(ApiError::TimedOut),
        );
        exchange(
            &mut core,
            now_at(seconds - 9),
            &WorkQueue::default(),
            token_record(),
        );
        let head = WorkQueue {
            ready: unsent,
            ..live_queue(1)
        };
        let (_, answered) = exchange(&mut core, now_at(seconds), &head, Err(ApiError::TimedOut));
        let is_given_up = matches!(only_step(&answered), Step::Unresolved { .. });
        assert_eq!(is_given_up, given_up, "{seconds} {unsent}");
    }
}

#[test]
fn failed_launch_returns_its_slot() {
    let mut core = ready_core(Settings::default());
    let Decision::Send(plan) = core.next(now_at(10), &live_queue(1)) else {
        panic!("submitted");
    };
    let before = core
        .status(now_at(10), &live_queue(1))
        .budget(now_at(10).boot)
        .used;
    let none = Launch {
        request: None,
        ops: Vec::new(),
    };
    assert_eq!(
        core.launch(now_at(10), plan, RequestInputs::default()),
        none
    );
    let after = core
        .status(now_at(10), &live_queue(1))
        .budget(now_at(10).boot)
        .used;
    assert_eq!(after, before - 1);
}

#[test]
fn drain_time_includes_pages_or_one_poll_per_call() {
    let mut core = ready_core(Settings::default());
    let head = WorkQueue {
        ready: 100,
        submitted: 60,
        ..WorkQueue::default()
    };
    let backlog = core.status(now_at(0), &head).backlog;
    assert_eq!((backlog.calls, backlog.drain_sec), (160, 104));
    core.confirm.rest_pages(now_at(0).wall);
    let backlog = core.status(now_at(0), &head).backlog;
    assert_eq!((backlog.calls, backlog.drain_sec), (160, 260));
}

#[test]
fn confirmation_waits_two_minutes_for_webhooks() {
    let mut core = ready_core(Settings::default());
    let head = WorkQueue {
        webhook_pace: Some(callbridge_spool::WebhookPace {
            turn: String::new(),
            at: now_at(1).wall,
            after: Duration::from_secs(1),
            usual: Duration::from_secs(1),
        }),
        ..unconfirmed_queue(&submitted_call(3, now_at(0)))
    };
    assert_eq!(
        core.next(now_at(100), &head),
        Decision::WaitUntil(now_at(120).boot)
    );
    assert_eq!(
        core.ask(now_at(100)).confirmable_before,
        T0.minus(Duration::from_secs(20))
    );
    assert_eq!(
        lane(&mut core, now_at(120), &head),
        Some(Lane::Confirmation)
    );
}

#[test]
fn requests_under_way_are_limited_to_four_unless_slow() {
    let mut core = ready_core(Settings::default());
    for id in 1..=4 {
        launch_next(&mut core, now_at(10), &live_queue(id));
    }
    assert_eq!(
        core.next(now_at(10), &live_queue(5)),
        Decision::WaitUntil(now_at(11).boot)
    );
    assert_eq!(
        lane(&mut core, now_at(15), &live_queue(5)),
        Some(Lane::Live)
    );
}

#[test]
fn interrupted_calls_are_searched_on_pages_before_resending() {
    let core = ready_core(Settings::default());
    let mut sending = row(RowId(1), 2);
    sending.progress.state = State::Sending;
    let ops = core.interrupted(&[sending, row(RowId(2), 0)], now_at(100));
    let [Op::Step { row, step, .. }, Op::Count { counter, by: 1 }] = &ops[..] else {
        panic!("{ops:?}");
    };
    assert_eq!((row, counter.as_str()), (&RowId(1), "interrupted_requests"));
    let Step::Unresolved {
        next_check,
        if_absent: IfAbsent::Interrupted,
        ..
    } = step
    else {
        panic!("{step:?}");
    };
    assert_eq!(*next_check, now_at(145).wall);
    assert_eq!(core.interrupted(&[], now_at(100)), []);
}
