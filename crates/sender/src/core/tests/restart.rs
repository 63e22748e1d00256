//! What a sender knows after a restart, and what it must treat as unknown.

use super::*;
use callbridge_call::EventTime;
use callbridge_spool::{HubSilence, Predecessor, SlotRow};

/// Returns the memory that a start or an answer has stored.
fn stored(ops: &[Op]) -> Option<String> {
    ops.iter().find_map(|op| match op {
        Op::Meta { value, .. } => Some(value.clone()),
        _ => None,
    })
}

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
    core.token(at(0), Some(print()));
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
        core.token(at(0), Some(print()));
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
        core.token(at(0), Some(print()));
        let waits = matches!(
            core.next(at(0), &WorkQueue::default()),
            Decision::WaitUntil(_)
        );
        assert_eq!(waits, silent, "{rate}");
    }
}

#[test]
fn clock_set_forward_pauses_sending_for_a_window() {
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

/// Returns what a sender stores whose token was refused at this second.
fn refused_at(seconds: u64) -> Vec<Op> {
    let (mut core, _) = Core::start(Settings::default(), Known::default(), at(seconds));
    core.token(at(0), Some(print()));
    let Decision::Send(plan) = core.next(at(seconds), &WorkQueue::default()) else {
        panic!("the token is asked for first");
    };
    let slot = plan.slot;
    core.launch(at(seconds), plan, RequestInputs::default());
    let heard = ApiResponse::from(Err(ApiError::UNAUTHORIZED));
    core.judge_answer(at(seconds), slot, heard)
        .expect("under way")
        .ops
}

/// Restarts a sender after these operations of an earlier one, with the same token.
fn restarted(ops: &[Op], slots: Vec<SlotRow>, seconds: u64) -> (Core, Vec<Op>) {
    let known = Known {
        memory: stored(ops),
        slots,
        ..Known::default()
    };
    let (mut core, kept) = Core::start(Settings::default(), known, at(seconds));
    core.token(at(0), Some(print()));
    (core, kept)
}

/// Returns what a restarted sender stores before it sends a probe of the refused token.
fn probed() -> Vec<Op> {
    let (mut core, _) = restarted(&refused_at(0), Vec::new(), 3);
    let Decision::Send(probe) = core.next(at(60), &WorkQueue::default()) else {
        panic!("no probe");
    };
    let Launch {
        request: Some(_),
        ops,
    } = core.launch(at(60), probe, RequestInputs::default())
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
    core.token(at(0), Some(TokenFingerprint::of("svc_pat_after_it")));
    assert_eq!(lane(&mut core, at(4), &head), Some(Lane::Token));
}

#[test]
fn probe_of_a_refused_token_is_remembered_before_it_leaves() {
    let ops = probed();
    // A kill loses the answer.
    let (mut core, _) = restarted(&ops, Vec::new(), 65);
    let waits = core.next(at(65), &WorkQueue::default());
    assert_eq!(waits, Decision::WaitUntil(at(120).boot));
}

#[test]
fn killed_probe_counts_from_its_latest_possible_arrival() {
    let ops = probed();
    // The machine stopped before the request was sent, and the process was killed during the stop.
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

/// Starts a sender with this memory. Returns the end of its silence, what it stores, and the parts
/// of the memory that it cannot read.
fn silence(memory: &str, now: Now) -> (Option<Duration>, Option<String>, Vec<String>) {
    let known = Known {
        boot_id: Some("now".to_owned()),
        memory: Some(memory.to_owned()),
        ..Known::default()
    };
    let (mut core, ops) = Core::start(Settings::default(), known, now);
    core.token(now, Some(print()));
    let until = match core.next(now, &WorkQueue::default()) {
        Decision::WaitUntil(until) => Some(until),
        _ => None,
    };
    (until, stored(&ops), core.doubts.clone())
}

/// With a rollback, a renamed word, or an incomplete text, 60 requests may have been sent just now.
#[test]
fn unreadable_memory_starts_silence_that_survives_restart() {
    let (_, ops) = Core::start(Settings::default(), Known::default(), at(0));
    let whole = stored(&ops).expect("remembered");
    assert_eq!(silence(&whole, at(0)), (None, None, Vec::new()));
    let torn = &whole[..whole.len() / 2];
    let renamed = whole.replace("\"silence\"", "\"quiet\"");
    let longest = r#"{"boot_id": "now", "until": {"secs": 18446744073709551615, "nanos": 0}}"#;
    let absurd = whole.replace("\"silence\":null", &format!("\"silence\":{longest}"));
    for (memory, is_reported) in [(torn, true), (&renamed, true), (&absurd, false)] {
        let (until, memory, doubts) = silence(memory, at(0));
        assert!(until.is_some_and(|until| until >= at(65).boot && until < at(66).boot));
        assert_eq!(!doubts.is_empty(), is_reported);
        let (again, _, doubts) = silence(&memory.expect("stored again"), at(10));
        assert_eq!((again, doubts), (until, Vec::new()));
    }
}

/// Makes a sender that took over the state from another process, and returns what it stores at its
/// start.
fn taken_over(by_proxy: bool, memory: Option<String>) -> (Core, Vec<Op>) {
    let settings = Settings {
        by_proxy,
        ..Settings::default()
    };
    let known = Known {
        boot_id: Some("boot".to_owned()),
        predecessor: Predecessor::Other("hub2".to_owned()),
        memory,
        ..Known::default()
    };
    let (mut core, ops) = Core::start(settings, known, at(0));
    core.token(at(0), Some(print()));
    (core, ops)
}

/// Promise: A hub that takes over sends nothing for a window and 45 seconds.
#[test]
fn takeover_begins_with_a_window_of_silence_and_45_seconds() {
    let head = WorkQueue::default();
    for (by_proxy, seconds) in [(false, 105), (true, 240)] {
        let (mut core, ops) = taken_over(by_proxy, None);
        let Decision::WaitUntil(until) = core.next(at(0), &head) else {
            panic!("not silent");
        };
        assert_eq!(until, at(seconds).boot + Duration::from_millis(30));
        let pause = core.status(at(seconds), &head).pause.expect("a pause");
        assert_eq!(pause.reason, "takeover");
        let text = "took over from hub2; no request until 2026-";
        assert!(pause.fix.starts_with(text), "{}", pause.fix);
        assert_eq!(core.status(at(seconds + 1), &head).pause, None);
        assert_eq!(lane(&mut core, at(seconds + 1), &head), Some(Lane::Token));
        // A restart of this process keeps the silence.
        let known = Known {
            boot_id: Some("boot".to_owned()),
            memory: stored(&ops),
            ..Known::default()
        };
        let (mut core, _) = Core::start(Settings::default(), known, at(20));
        core.token(at(20), Some(print()));
        assert_eq!(core.next(at(20), &head), Decision::WaitUntil(until));
    }
}

#[test]
fn takeover_silence_covers_longer_window_of_other_process() {
    let settings = Settings {
        rate: "60/120s".parse().expect("a rate"),
        ..Settings::default()
    };
    let (_, ops) = Core::start(settings, Known::default(), at(0));
    let (mut core, _) = taken_over(false, stored(&ops));
    let Decision::WaitUntil(until) = core.next(at(0), &WorkQueue::default()) else {
        panic!("not silent");
    };
    assert_eq!(until, at(165).boot + Duration::from_millis(60));
}

fn silence_of(boot_id: &str, until: u64) -> HubSilence {
    HubSilence {
        boot_id: boot_id.to_owned(),
        until: at(until).boot,
    }
}

#[test]
fn hub_that_lost_commits_keeps_silence() {
    let known = Known {
        boot_id: Some("boot".to_owned()),
        ..Known::default()
    };
    let (mut core, _) = Core::start(Settings::default(), known, at(0));
    core.token(at(0), Some(print()));
    let mut head = WorkQueue {
        silence: Some(silence_of("another boot", 500)),
        ..WorkQueue::default()
    };
    assert_eq!(lane(&mut core, at(0), &head), Some(Lane::Token));
    core.abort(0);
    head.silence = Some(silence_of("boot", 105));
    assert_eq!(core.next(at(1), &head), Decision::WaitUntil(at(105).boot));
    assert_eq!(lane(&mut core, at(105), &head), Some(Lane::Token));
}

#[test]
fn memory_of_aborted_launch_is_stored_with_next_launch() {
    let (mut core, _) = restarted(&refused_at(0), Vec::new(), 3);
    for seconds in [60, 120] {
        let (slot, _, launch) = sent(&mut core, at(seconds), &WorkQueue::default());
        assert!(stored(&launch.ops).is_some(), "{:?}", launch.ops);
        core.abort(slot);
    }
}

#[test]
fn rest_of_pages_and_their_size_survive_a_restart() {
    let (mut core, _) = Core::start(Settings::default(), Known::default(), at(0));
    core.confirm.rest_pages(at(0).wall);
    core.confirm.page_size = PageSize::LARGEST.smaller().expect("50");
    let mut ops = Vec::new();
    core.remember(at(0), &mut ops);
    let known = Known {
        memory: stored(&ops),
        ..Known::default()
    };
    let (core, _) = Core::start(Settings::default(), known, at(3));
    assert!(!core.confirm.reads_pages(at(3_599).wall));
    assert!(core.confirm.reads_pages(at(3_600).wall));
    assert_eq!(core.confirm.page_size.get(), 50);
}
