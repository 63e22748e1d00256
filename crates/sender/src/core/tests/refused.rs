//! Tests of refused calls.

use super::*;
use callbridge_model::LeadId;
use callbridge_spool::{Parties, Trial};
use std::collections::BTreeMap;

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

/// Returns the rows that become `ready` again.
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

/// Creates the head that the spool returns when this call is ready. All calls have the same lead.
fn ready_queue(core: &Core, now: Now, id: i64) -> WorkQueue {
    let suspended = core.ask(now).suspended;
    let Some(branch) = suspended.branches.first() else {
        return live_queue(id);
    };
    let mut head = WorkQueue {
        ready: 1,
        ..WorkQueue::default()
    };
    if branch.trial == Trial::AnyCall {
        head.trials.insert(branch.turn.clone(), due_call(id));
    }
    head
}

/// Sends the `token/info` request that is due before a trial call, and has it succeed.
fn confirm_token(core: &mut Core, now: Now) {
    exchange(core, now, &WorkQueue::default(), token_record());
}

/// Sends a call with another lead, which the spool returns as the trial, and responds to it.
fn try_other_lead(core: &mut Core, now: Now, id: i64, answer: ApiResult) -> Answered {
    let suspended = core.ask(now).suspended;
    assert_eq!(suspended.branches[0].trial, Trial::OtherCall);
    let other = Parties {
        lead: LeadId::new(4002),
        employee: None,
    };
    assert!(!other.are_suspected_with(&suspended.branches[0].refused));
    let head = WorkQueue {
        trials: BTreeMap::from([(String::new(), due_call(id))]),
        ready: 1,
        ..WorkQueue::default()
    };
    assert_eq!(core.status(now, &head).pause, None, "not decided yet");
    let Decision::Send(plan) = core.next(now, &head) else {
        panic!("the call is tried");
    };
    let slot = plan.slot;
    let mut other = row(RowId(id), 0);
    other.record.lead_id = LeadId::new(4002);
    let inputs = RequestInputs {
        row: Some(other),
        ..RequestInputs::default()
    };
    core.launch(now, plan, inputs);
    assert_eq!(
        core.status(now, &WorkQueue::default()).pause,
        None,
        "in flight"
    );
    core.judge_answer(now, slot, answer.into())
        .expect("in flight")
}

/// Creates a sender that has had five calls in a row refused.
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
    let head = ready_queue(&core, now_at(3_600), 6);
    assert_eq!(lane(&mut core, now_at(3_600), &head), Some(Lane::Token));
    exchange(&mut core, now_at(3_600), &head, token_record());
    let wait = core.next(now_at(3_600), &head);
    assert_eq!(wait, Decision::WaitUntil(now_at(3_601).boot));
    let head = ready_queue(&core, now_at(3_601), 6);
    let (request, answered) = exchange(&mut core, now_at(3_601), &head, accepted_answer());
    assert!(matches!(request, Request::Submit(_)));
    assert_eq!(pause_reason(&core, now_at(3_601)), None);
    assert_eq!(reopened_rows(&answered.ops), [1, 2, 3, 4, 5]);
}

#[test]
fn refused_probe_call_extends_the_pause_by_an_hour() {
    let mut core = core_with_refused_calls();
    confirm_token(&mut core, now_at(3_600));
    let head = ready_queue(&core, now_at(3_601), 6);
    let (_, answered) = exchange(&mut core, now_at(3_601), &head, rejection(400));
    assert!(reopened_rows(&answered.ops).is_empty());
    assert_eq!(
        pause_reason(&core, now_at(3_601)).as_deref(),
        Some("calls_refused")
    );
    confirm_token(&mut core, now_at(7_200));
    let head = ready_queue(&core, now_at(7_200), 7);
    assert_eq!(lane(&mut core, now_at(7_200), &head), None);
    let head = ready_queue(&core, now_at(7_201), 7);
    let (_, answered) = exchange(&mut core, now_at(7_201), &head, accepted_answer());
    assert_eq!(reopened_rows(&answered.ops), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn trial_calls_are_sent_one_at_a_time() {
    let mut core = core_with_refused_calls();
    confirm_token(&mut core, now_at(3_600));
    let head = ready_queue(&core, now_at(3_601), 6);
    launch_next(&mut core, now_at(3_601), &head);
    let head = ready_queue(&core, now_at(3_601), 7);
    assert_eq!(lane(&mut core, now_at(3_601), &head), None);
}

#[test]
fn accepted_call_of_another_lead_lets_sending_go_on() {
    let mut core = core_with_refused_calls();
    let answered = try_other_lead(&mut core, now_at(2), 6, accepted_answer());
    assert!(reopened_rows(&answered.ops).is_empty(), "they are at fault");
    assert_eq!(pause_reason(&core, now_at(2)), None);
    let head = ready_queue(&core, now_at(3), 7);
    assert_eq!(lane(&mut core, now_at(3), &head), Some(Lane::Live));
}

#[test]
fn refused_call_of_another_lead_pauses_sending() {
    let mut core = core_with_refused_calls();
    try_other_lead(&mut core, now_at(2), 6, rejection(400));
    assert_eq!(
        pause_reason(&core, now_at(2)).as_deref(),
        Some("calls_refused")
    );
    let suspended = core.ask(now_at(3)).suspended;
    assert_eq!(suspended.branches[0].trial, Trial::None);
    let head = ready_queue(&core, now_at(3_602), 7);
    confirm_token(&mut core, now_at(3_602));
    let (_, answered) = exchange(&mut core, now_at(3_602), &head, accepted_answer());
    assert_eq!(reopened_rows(&answered.ops), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn refused_branch_of_a_hub_is_paused_alone() {
    let hub = Settings {
        is_hub: true,
        ..Settings::default()
    };
    let mut core = ready_core(hub);
    for id in 1..=5 {
        exchange(&mut core, now_at(1), &live_queue(id), rejection(400));
    }
    let suspended = core.ask(now_at(1)).suspended;
    assert!(!suspended.all);
    assert_eq!(suspended.branches[0].turn, "pbx1");
    let head = WorkQueue {
        branches: 2,
        ..live_queue(6)
    };
    let status = core.status(now_at(1), &head);
    assert_eq!(status.pause, None);
    let fix = &status.paused_branches["pbx1"];
    assert!(fix.contains("no call with another lead"), "{fix}");
    assert_eq!(lane(&mut core, now_at(1), &head), Some(Lane::Live));
    let only_one = WorkQueue {
        branches: 1,
        ..live_queue(6)
    };
    let status = core.status(now_at(1), &only_one);
    assert_eq!(
        status.pause.map(|pause| pause.reason).as_deref(),
        Some("calls_refused")
    );
    assert!(status.paused_branches.is_empty());
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
    confirm_token(&mut core, now_at(3_600));
    let unauthorized = Err(ApiError::UNAUTHORIZED);
    let head = ready_queue(&core, now_at(3_601), 6);
    exchange(&mut core, now_at(3_601), &head, unauthorized);
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

/// Creates a sender that has had five FAILED calls in a row.
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
            turn: String::new(),
            at: now_at(21).wall,
            after: Duration::from_secs(1),
            usual: Duration::from_secs(1),
        }),
        ..live_queue(7)
    };
    // There's no telling which call was confirmed, so the FAILED calls aren't resent.
    assert_eq!(lane(&mut core, now_at(22), &head), Some(Lane::Live));
    assert_eq!(pause_reason(&core, now_at(22)), None);
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
    confirm_token(&mut core, now_at(3_602));
    let head = ready_queue(&core, now_at(3_602), 6);
    let (_, answered) = exchange(&mut core, now_at(3_602), &head, accepted_answer());
    assert_eq!(reopened_rows(&answered.ops), [1, 2, 3, 4, 5]);
}
