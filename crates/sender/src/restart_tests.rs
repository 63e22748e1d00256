//! What a sender knows again after a restart, and what it must not take for known.

use super::tests::{T0, at, due, lane, print, ready, stored};
use crate::core::Core;
use crate::plan::{About, Decision, Known, Lane, Launch, Settings};
use callbridge_call::EventTime;
use callbridge_crm::{ApiError, ApiResponse};
use callbridge_model::{Now, TokenFingerprint};
use callbridge_spool::{Op, SlotRow, WorkQueue};
use std::time::Duration;

#[test]
fn slots_of_another_boot_move_to_this_boot_with_silence() {
    let row = SlotRow {
        slot: 4,
        token: print(),
        boot_id: "before".to_owned(),
        sent: Duration::from_secs(77_000),
        answered: None,
        wall_sent: T0,
    };
    let known = Known {
        slots: vec![row],
        boot_id: Some("now".to_owned()),
        ..Known::default()
    };
    let (mut core, ops) = Core::start(Settings::default(), known, at(0));
    let [Op::Slot(stored), Op::Meta { .. }] = ops.as_slice() else {
        panic!("{ops:?}");
    };
    assert_eq!((stored.boot_id.as_str(), stored.sent), ("now", at(0).boot));
    core.token(Some(print()));
    let Decision::WaitUntil(until) = core.next(at(0), &WorkQueue::default()) else {
        panic!("not silent");
    };
    assert!(until >= at(60).boot);
}

#[test]
fn silence_outlives_a_restart() {
    let known = |restored, memory| Known {
        boot_id: Some("now".to_owned()),
        restored,
        memory,
        ..Known::default()
    };
    let (_, ops) = Core::start(Settings::default(), known(true, None), at(0));
    let memory = stored(&ops);
    for (boot, until) in [("now", 65), ("another", 75)] {
        let known = Known {
            boot_id: Some(boot.to_owned()),
            ..known(false, memory.clone())
        };
        let (mut core, _) = Core::start(Settings::default(), known, at(10));
        core.token(Some(print()));
        let Decision::WaitUntil(silent) = core.next(at(10), &WorkQueue::default()) else {
            panic!("not silent");
        };
        assert!(silent >= at(until).boot, "{boot}");
        assert!(matches!(
            core.next(at(until + 1), &WorkQueue::default()),
            Decision::Send(_)
        ));
    }
}

#[test]
fn another_window_over_a_restart_begins_with_silence() {
    let start = |rate: &str, memory| {
        let settings = Settings {
            rate: rate.parse().expect("a rate"),
            ..Settings::default()
        };
        let known = Known {
            memory,
            ..Known::default()
        };
        Core::start(settings, known, at(0))
    };
    let (_, ops) = start("10/30s", None);
    for (rate, silent) in [("20/60s", true), ("5/30s", false), ("5/10s", true)] {
        let (mut core, _) = start(rate, stored(&ops));
        core.token(Some(print()));
        let waits = matches!(
            core.next(at(0), &WorkQueue::default()),
            Decision::WaitUntil(_)
        );
        assert_eq!(waits, silent, "{rate}");
    }
}

#[test]
fn a_clock_set_forward_makes_what_was_sent_doubtful() {
    let mut core = ready(Settings::default());
    let head = WorkQueue {
        live: Some(due(1)),
        ..WorkQueue::default()
    };
    let set = |by: i64| Now {
        wall: EventTime::from_micros(at(10).wall.micros() + by * 1_000_000),
        boot: at(10).boot,
    };
    assert_eq!(lane(&mut core, set(1), &head), Some(Lane::Live));
    assert_eq!(lane(&mut core, set(-3600), &head), Some(Lane::Live));
    let Decision::WaitUntil(until) = core.next(set(0), &head) else {
        panic!("not silent");
    };
    assert!(until >= at(70).boot);
}

/// What a sender stores whose token was refused at this second of a first life.
fn refused_at(seconds: u64) -> Vec<Op> {
    let (mut core, _) = Core::start(Settings::default(), Known::default(), at(seconds));
    core.token(Some(print()));
    let Decision::Send(plan) = core.next(at(seconds), &WorkQueue::default()) else {
        panic!("the token is asked for first");
    };
    let slot = plan.slot;
    core.launch(at(seconds), plan, About::default());
    let heard = ApiResponse::from(Err(ApiError::UNAUTHORIZED));
    core.answered(at(seconds), slot, heard)
        .expect("under way")
        .ops
}

/// The life after these operations of another one, with the same token.
fn restarted(ops: &[Op], slots: Vec<SlotRow>, seconds: u64) -> (Core, Vec<Op>) {
    let known = Known {
        memory: stored(ops),
        slots,
        ..Known::default()
    };
    let (mut core, kept) = Core::start(Settings::default(), known, at(seconds));
    core.token(Some(print()));
    (core, kept)
}

/// What a probe of the refused token leaves behind before it goes out, in a second life.
fn probed() -> Vec<Op> {
    let (mut core, _) = restarted(&refused_at(0), Vec::new(), 3);
    let Decision::Send(probe) = core.next(at(60), &WorkQueue::default()) else {
        panic!("no probe");
    };
    let Launch {
        request: Some(_),
        ops,
    } = core.launch(at(60), probe, About::default())
    else {
        panic!("not sent");
    };
    ops
}

#[test]
fn refused_token_waits_across_restart_but_new_token_does_not() {
    let (mut core, _) = restarted(&refused_at(0), Vec::new(), 3);
    let head = WorkQueue::default();
    let pause = core.status(at(3), &head).pause.expect("a pause");
    assert_eq!(pause.reason, "token_refused");
    assert_eq!(core.next(at(3), &head), Decision::WaitUntil(at(60).boot));
    assert_eq!(lane(&mut core, at(60), &head), Some(Lane::Token));
    core.token(Some(TokenFingerprint::of("svc_pat_after_it")));
    assert_eq!(lane(&mut core, at(4), &head), Some(Lane::Token));
}

#[test]
fn a_probe_of_a_refused_token_is_remembered_before_it_leaves() {
    let ops = probed();
    // a kill keeps the answer from us
    let (mut core, _) = restarted(&ops, Vec::new(), 65);
    let waits = core.next(at(65), &WorkQueue::default());
    assert_eq!(waits, Decision::WaitUntil(at(120).boot));
}

#[test]
fn killed_probe_counts_from_its_latest_possible_arrival() {
    let ops = probed();
    // The machine stood still before it left, and the process was killed as it did.
    let slots = ops.iter().filter_map(|op| match op {
        Op::Slot(row) => Some(row.clone()),
        _ => None,
    });
    let (mut core, kept) = restarted(&ops, slots.collect(), 90);
    let Decision::WaitUntil(until) = core.next(at(90), &WorkQueue::default()) else {
        panic!("it is asked about again at once");
    };
    assert!(until >= at(155).boot, "{until:?}");
    assert!(stored(&kept).is_some(), "another kill must not forget it");
    let (mut core, _) = restarted(&kept, Vec::new(), 100);
    let waits = core.next(at(100), &WorkQueue::default());
    assert_eq!(waits, Decision::WaitUntil(at(155).boot));
}

#[test]
fn reconciliation_pause_of_an_hour_survives_restart() {
    let (mut core, _) = Core::start(Settings::default(), Known::default(), at(0));
    core.token(Some(print()));
    core.confirmation
        .reconciliation
        .page_strategy
        .off(at(0).wall);
    let mut ops = Vec::new();
    core.remember(at(0), &mut ops);
    let [Op::Meta { value, .. }] = ops.as_slice() else {
        panic!("{ops:?}");
    };
    let known = Known {
        memory: Some(value.clone()),
        ..Known::default()
    };
    let (mut core, _) = Core::start(Settings::default(), known, at(3));
    core.token(Some(print()));
    assert!(!core.confirmation.page_strategy().is_on(at(3).wall));
    assert!(core.confirmation.page_strategy().is_on(at(3_700).wall));
}
