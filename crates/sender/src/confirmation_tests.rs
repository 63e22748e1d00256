//! What the journal's silence means for a call, and what one that was confirmed says of others.

use super::tests::{at, due, lane, print, ready, submitted};
use crate::core::Core;
use crate::memory;
use crate::memory::Memory;
use crate::plan::{About, Decision, Known, Lane, Launch, Settings};
use crate::reconciliation::Findings;
use callbridge_crm::{ApiReply, ApiResponse, ApiResult, FailureWord, Page, WriteStatus};
use callbridge_model::{Now, TokenFingerprint};
use callbridge_spool::{Confirmable, Op, OutcomeSource, Step, Unconfirmed, WorkQueue};

fn conclusive(complete: bool) -> Findings {
    Findings {
        conclusive: true,
        complete,
        ..Findings::default()
    }
}

fn absent(core: &Core, now: Now, call: &Unconfirmed, findings: &Findings) -> Step {
    core.absent(now, call, findings)
}

fn times(step: Step) -> u32 {
    match step {
        Step::NotYet {
            absent: Some(times),
            ..
        } => times,
        other => panic!("{other:?}"),
    }
}

#[test]
fn second_absence_counts_only_a_minute_later_if_conclusive() {
    let core = ready(Settings::default());
    let missed_at = |seconds| Unconfirmed {
        absent: 1,
        absent_at: Some(at(seconds).wall),
        ..submitted(3, at(0))
    };
    let call = missed_at(100);
    assert_eq!(times(absent(&core, at(159), &call, &conclusive(true))), 1);
    assert_eq!(times(absent(&core, at(160), &call, &conclusive(true))), 2);
    let silent = Findings::default();
    assert_eq!(times(absent(&core, at(160), &call, &silent)), 1);
    // the clock was set back since
    let ahead = missed_at(9_000);
    assert_eq!(times(absent(&core, at(160), &ahead, &conclusive(true))), 2);
}

#[test]
fn unresolved_call_absent_from_full_journal_is_sent_again() {
    let core = ready(Settings::default());
    let unresolved = Unconfirmed {
        token: TokenFingerprint::none(),
        request_id: None,
        ..submitted(3, at(0))
    };
    // persisting is taken to last two seconds, and five are waited beyond that
    assert_eq!(
        times(absent(&core, at(6), &unresolved, &conclusive(true))),
        1
    );
    let sent_again = |step| assert!(matches!(step, Step::Resubmit { .. }), "{step:?}");
    sent_again(absent(&core, at(7), &unresolved, &conclusive(true)));
    let blind = Findings {
        complete: true,
        ..Findings::default()
    };
    assert_eq!(times(absent(&core, at(7), &unresolved, &blind)), 0);
    // where not all of it could be read: a second time, a minute apart
    assert_eq!(
        times(absent(&core, at(7), &unresolved, &conclusive(false))),
        1
    );
    let missed = Unconfirmed {
        absent: 1,
        absent_at: Some(at(7).wall),
        ..unresolved.clone()
    };
    assert_eq!(times(absent(&core, at(66), &missed, &conclusive(false))), 1);
    // and not looked for meanwhile: each time would take all pages that are read at most
    for (now, call) in [(7, &unresolved), (11, &missed), (66, &missed)] {
        match absent(&core, at(now), call, &conclusive(false)) {
            Step::NotYet { next_check, .. } => assert_eq!(next_check, at(67).wall),
            other => panic!("{other:?}"),
        }
    }
    sent_again(absent(&core, at(67), &missed, &conclusive(false)));
    // never left to the polls, which cannot ask for it
    let young = Unconfirmed {
        absent: 1,
        absent_at: Some(at(9_000).wall),
        ..unresolved
    };
    assert_eq!(times(absent(&core, at(6), &young, &conclusive(true))), 1);
}

/// Polls this call, and hears that.
fn polled(core: &mut Core, now: Now, call: Unconfirmed, answer: ApiResult) {
    let head = WorkQueue {
        polls: vec![call],
        ..WorkQueue::default()
    };
    let Decision::Send(plan) = core.next(now, &head) else {
        panic!("polled");
    };
    let slot = plan.slot;
    let launch = core.launch(now, plan, About::default());
    assert!(matches!(
        launch,
        Launch {
            request: Some(_),
            ..
        }
    ));
    let on_page = ApiResponse::from(answer);
    core.answered(now, slot, on_page).expect("under way");
}

/// Whether the line stands still after five failures, of calls accepted from then on.
fn stopped_by_failures(core: &mut Core, accepted: u64) -> bool {
    for n in 0..5 {
        let call = submitted(100 + n, at(accepted + n.unsigned_abs()));
        let failed = Ok(ApiReply::Status(WriteStatus::Failed(
            FailureWord::Failed,
            "the lead is gone".to_owned(),
            serde_json::Value::Null,
        )));
        polled(core, at(300 + 10 * n.unsigned_abs()), call, failed);
    }
    core.status(at(400), &WorkQueue::default()).pause.is_some()
}

#[test]
fn failed_calls_before_polled_journaled_call_do_not_pause() {
    for (accepted, stops) in [(40, false), (50, true), (60, true)] {
        let mut core = ready(Settings::default());
        let journaled = submitted(1, at(50));
        polled(
            &mut core,
            at(200),
            journaled,
            Ok(ApiReply::Status(WriteStatus::Success)),
        );
        assert_eq!(
            stopped_by_failures(&mut core, accepted),
            stops,
            "{accepted}"
        );
    }
}

#[test]
fn failed_calls_before_reconciled_call_do_not_pause() {
    for (accepted, stops) in [(40, false), (60, true)] {
        let mut core = ready(Settings::default());
        let (now, call) = (at(200), submitted(1, at(50)));
        let page = Page {
            rows: 1,
            uuids: vec![call.uuid],
            shown: Vec::new(),
            current: Some(1),
            total: Some(1),
        };
        core.confirmation
            .reconciliation
            .page(now.wall, now.wall, &[print()], vec![call]);
        let steps = core.swept(now, &page);
        assert!(matches!(
            steps[..],
            [(_, Step::Journaled(OutcomeSource::Confirmation))]
        ));
        assert_eq!(
            stopped_by_failures(&mut core, accepted),
            stops,
            "{accepted}"
        );
    }
}

#[test]
fn under_load_ninety_ripe_calls_are_worth_a_page_of_a_hundred() {
    let mut core = ready(Settings::default());
    let confirmable = |calls| WorkQueue {
        backlog: Some(due(1)),
        confirmable: Confirmable {
            calls,
            oldest: Some(at(100).wall),
        },
        ..WorkQueue::default()
    };
    assert_eq!(
        lane(&mut core, at(110), &confirmable(89)),
        Some(Lane::Backlog)
    );
    assert_eq!(
        lane(&mut core, at(110), &confirmable(90)),
        Some(Lane::Reconcile)
    );
}

#[test]
fn confirmation_precedes_live_calls_after_five_minutes() {
    let mut core = ready(Settings::default());
    let head = WorkQueue {
        live: Some(due(1)),
        backlog: Some(due(2)),
        confirmable: Confirmable {
            calls: 100,
            oldest: Some(at(100).wall),
        },
        ..WorkQueue::default()
    };
    assert_eq!(lane(&mut core, at(399), &head), Some(Lane::Live));
    let Decision::Send(plan) = core.next(at(400), &head) else {
        panic!("something is sent");
    };
    assert_eq!(plan.lane, Lane::Reconcile);
    let about = About {
        unconfirmed: vec![submitted(3, at(100))],
        ..About::default()
    };
    assert!(core.launch(at(400), plan, about).request.is_some());
    assert_eq!(
        lane(&mut core, at(400), &head),
        Some(Lane::Live),
        "one page at a time"
    );
}

#[test]
fn page_reading_resumes_only_with_different_token() {
    let mut core = ready(Settings::default());
    core.token(Some(print()));
    core.confirmation
        .reconciliation
        .page_strategy
        .off(at(0).wall);
    core.token(None);
    core.token(Some(print()));
    assert!(
        !core.confirmation.page_strategy().is_on(at(1).wall),
        "the same one again"
    );
    core.token(Some(TokenFingerprint::of("svc_pat_two")));
    assert!(core.confirmation.page_strategy().is_on(at(1).wall));
}

#[test]
fn memory_of_aborted_launch_is_stored_with_next_launch() {
    let refused = memory::Refused {
        token: print(),
        at: at(0).wall,
    };
    let remembered = Memory {
        token: Some(print()),
        refused: Some(refused),
        ..Memory::default()
    };
    let known = Known {
        memory: Some(remembered.text()),
        ..Known::default()
    };
    let (mut core, _) = Core::start(Settings::default(), known, at(3));
    core.token(Some(print()));
    for _ in 0..2 {
        let Decision::Send(probe) = core.next(at(60), &WorkQueue::default()) else {
            panic!("no probe");
        };
        let slot = probe.slot;
        let Launch {
            request: Some(_),
            ops,
        } = core.launch(at(60), probe, About::default())
        else {
            panic!("not sent");
        };
        let stored = |op: &Op| matches!(op, Op::Meta { key, .. } if key == memory::KEY);
        assert!(ops.iter().any(stored), "{ops:?}");
        core.aborted(slot);
    }
}
