//! Tests what a sender still knows after a restart, and what it doesn't.

use super::*;
use callbridge_call::EventTime;
use callbridge_spool::{Silence, SilenceReason, SlotRow};

/// Returns the silence stored at startup or by a response.
fn stored_silence(ops: &[Op]) -> Option<Silence> {
    ops.iter().find_map(|op| match op {
        Op::Silence(silence) => Some(silence.clone()),
        _ => None,
    })
}

/// Returns the memory stored at startup or by a response.
fn stored_memory(ops: &[Op]) -> Option<String> {
    ops.iter().find_map(|op| match op {
        Op::Meta { value, .. } => Some(value.clone()),
        _ => None,
    })
}

#[test]
fn slots_of_another_boot_are_moved_and_start_silence() {
    let row = SlotRow {
        slot: 4,
        token: fingerprint(),
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
    let (mut core, ops) = Core::start(Settings::default(), known, now_at(0));
    // The silence comes last, because storing a slot removes an expired silence.
    let [Op::Slot(stored), Op::Silence(_), Op::Meta { .. }] = ops.as_slice() else {
        panic!("{ops:?}");
    };
    assert_eq!(
        (stored.boot_id.as_str(), stored.sent),
        ("now", now_at(0).boot)
    );
    core.token(now_at(0), Some(fingerprint()));
    let Decision::WaitUntil(until) = core.next(now_at(0), &WorkQueue::default()) else {
        panic!("not silent");
    };
    assert!(until >= now_at(60).boot);
}

fn known_with_silence(silence: Option<Silence>) -> Known {
    Known {
        boot_id: Some("now".to_owned()),
        silence,
        ..Known::default()
    }
}

#[test]
fn silence_survives_restart_and_begins_anew_after_reboot() {
    let copied = Silence::to_begin(SilenceReason::Copied);
    let known = known_with_silence(Some(copied));
    let (_, ops) = Core::start(Settings::default(), known, now_at(0));
    let stored = stored_silence(&ops);
    for (boot, until) in [("now", 105), ("another", 115)] {
        let known = Known {
            boot_id: Some(boot.to_owned()),
            ..known_with_silence(stored.clone())
        };
        let (mut core, _) = Core::start(Settings::default(), known, now_at(10));
        core.token(now_at(0), Some(fingerprint()));
        let Decision::WaitUntil(silent) = core.next(now_at(10), &WorkQueue::default()) else {
            panic!("not silent");
        };
        assert!(silent >= now_at(until).boot, "{boot}");
        assert!(matches!(
            core.next(now_at(until + 1), &WorkQueue::default()),
            Decision::Send(_)
        ));
    }
}

fn start_with_rate(rate: &str, memory: Option<String>) -> (Core, Vec<Op>) {
    let settings = Settings {
        rate: rate.parse().expect("a rate"),
        ..Settings::default()
    };
    let known = Known {
        memory,
        ..Known::default()
    };
    Core::start(settings, known, now_at(0))
}

#[test]
fn changed_rate_window_after_restart_begins_with_silence() {
    let (_, ops) = start_with_rate("10/30s", None);
    for (rate, silent) in [("20/60s", true), ("5/30s", false), ("5/10s", true)] {
        let (mut core, _) = start_with_rate(rate, stored_memory(&ops));
        core.token(now_at(0), Some(fingerprint()));
        let waits = matches!(
            core.next(now_at(0), &WorkQueue::default()),
            Decision::WaitUntil(_)
        );
        assert_eq!(waits, silent, "{rate}");
    }
}

/// Returns second 10, with the clock set forward by `seconds`.
fn now_with_clock_set(seconds: i64) -> Now {
    Now {
        wall: EventTime::from_micros(now_at(10).wall.micros() + seconds * 1_000_000),
        boot: now_at(10).boot,
    }
}

#[test]
fn clock_set_forward_pauses_sending_for_a_window() {
    let mut core = ready_core(Settings::default());
    let head = WorkQueue {
        live: Some(due_call(1)),
        ..WorkQueue::default()
    };
    assert_eq!(
        lane(&mut core, now_with_clock_set(1), &head),
        Some(Lane::Live)
    );
    assert_eq!(
        lane(&mut core, now_with_clock_set(-3600), &head),
        Some(Lane::Live)
    );
    let Decision::WaitUntil(until) = core.next(now_with_clock_set(0), &head) else {
        panic!("not silent");
    };
    assert!(until >= now_at(70).boot);
}

/// Returns the operations of a sender whose token is refused at this second.
fn ops_of_refusal(seconds: u64) -> Vec<Op> {
    let (mut core, _) = Core::start(Settings::default(), Known::default(), now_at(seconds));
    core.token(now_at(0), Some(fingerprint()));
    let Decision::Send(plan) = core.next(now_at(seconds), &WorkQueue::default()) else {
        panic!("the token is asked for first");
    };
    let slot = plan.slot;
    core.launch(now_at(seconds), plan, RequestInputs::default());
    let response = ApiResponse::from(Err(ApiError::UNAUTHORIZED));
    core.judge_answer(now_at(seconds), slot, response)
        .expect("under way")
        .ops
}

/// Restarts a sender with the same token after an earlier sender's operations. Also returns the
/// operations at startup.
fn restart(ops: &[Op], slots: Vec<SlotRow>, seconds: u64) -> (Core, Vec<Op>) {
    let known = Known {
        memory: stored_memory(ops),
        slots,
        ..Known::default()
    };
    let (mut core, kept) = Core::start(Settings::default(), known, now_at(seconds));
    core.token(now_at(0), Some(fingerprint()));
    (core, kept)
}

/// Returns a restarted sender's operations before it sends a probe for the refused token.
fn ops_of_probe() -> Vec<Op> {
    let (mut core, _) = restart(&ops_of_refusal(0), Vec::new(), 3);
    let Decision::Send(probe) = core.next(now_at(60), &WorkQueue::default()) else {
        panic!("no probe");
    };
    let Launch {
        request: Some(_),
        ops,
    } = core.launch(now_at(60), probe, RequestInputs::default())
    else {
        panic!("not sent");
    };
    ops
}

#[test]
fn refused_token_waits_across_restart_but_new_token_does_not() {
    let (mut core, _) = restart(&ops_of_refusal(0), Vec::new(), 3);
    let head = WorkQueue::default();
    let pause = core.status(now_at(3), &head).pause.expect("a pause");
    assert_eq!(pause.reason, "token_refused");
    assert_eq!(
        core.next(now_at(3), &head),
        Decision::WaitUntil(now_at(60).boot)
    );
    assert_eq!(lane(&mut core, now_at(60), &head), Some(Lane::Token));
    core.token(now_at(0), Some(TokenFingerprint::of("svc_pat_after_it")));
    assert_eq!(lane(&mut core, now_at(4), &head), Some(Lane::Token));
}

#[test]
fn probe_of_refused_token_is_stored_before_it_is_sent() {
    let ops = ops_of_probe();
    // The process is killed, so the response is lost.
    let (mut core, _) = restart(&ops, Vec::new(), 65);
    let waits = core.next(now_at(65), &WorkQueue::default());
    assert_eq!(waits, Decision::WaitUntil(now_at(120).boot));
}

#[test]
fn probe_lost_in_a_kill_counts_from_latest_possible_arrival() {
    let ops = ops_of_probe();
    // The machine stopped before the request was sent, and the process was killed along with it.
    let slots = ops.iter().filter_map(|op| match op {
        Op::Slot(row) => Some(row.clone()),
        _ => None,
    });
    let (mut core, kept) = restart(&ops, slots.collect(), 90);
    let Decision::WaitUntil(until) = core.next(now_at(90), &WorkQueue::default()) else {
        panic!("it is asked about again at once");
    };
    assert!(until >= now_at(195).boot, "{until:?}");
    assert!(
        stored_memory(&kept).is_some(),
        "another kill must not forget it"
    );
    let (mut core, _) = restart(&kept, Vec::new(), 100);
    let waits = core.next(now_at(100), &WorkQueue::default());
    assert_eq!(waits, Decision::WaitUntil(now_at(195).boot));
}

/// Starts a sender that knows this. Returns the end of its silence, the operations at startup, and
/// the parts of the memory that it can't read.
fn start_with(known: Known, now: Now) -> (Option<Duration>, Vec<Op>, Vec<String>) {
    let (mut core, ops) = Core::start(Settings::default(), known, now);
    core.token(now, Some(fingerprint()));
    let until = match core.next(now, &WorkQueue::default()) {
        Decision::WaitUntil(until) => Some(until),
        _ => None,
    };
    (until, ops, core.doubts.clone())
}

fn known_with_memory(memory: &str, silence: Option<Silence>) -> Known {
    Known {
        memory: Some(memory.to_owned()),
        ..known_with_silence(silence)
    }
}

/// After a rollback, a renamed field, or a truncated text, 60 requests may have been sent just
/// before startup.
#[test]
fn unreadable_memory_starts_silence_that_survives_restart() {
    let (_, ops) = Core::start(Settings::default(), Known::default(), now_at(0));
    let whole = stored_memory(&ops).expect("remembered");
    assert_eq!(
        start_with(known_with_memory(&whole, None), now_at(0)),
        (None, Vec::new(), Vec::new())
    );
    let torn = &whole[..whole.len() / 2];
    let renamed = whole.replace("\"window\"", "\"frame\"");
    for memory in [torn, &renamed] {
        let (until, ops, doubts) = start_with(known_with_memory(memory, None), now_at(0));
        assert!(until.is_some_and(|until| until >= now_at(105).boot && until < now_at(106).boot));
        assert_eq!(doubts.len(), 1);
        let memory = stored_memory(&ops).expect("stored again");
        let known = known_with_memory(&memory, stored_silence(&ops));
        let (again, _, doubts) = start_with(known, now_at(10));
        assert_eq!((again, doubts), (until, Vec::new()));
    }
}

#[test]
fn impossibly_long_silence_begins_anew() {
    let longest = Silence {
        boot_id: "now".to_owned(),
        until: Duration::MAX,
        why: SilenceReason::LostCommits,
    };
    let (until, _, _) = start_with(known_with_silence(Some(longest)), now_at(0));
    assert!(
        until.is_some_and(|until| until < now_at(106).boot),
        "{until:?}"
    );
}

/// Creates a sender that took over the state from another process. Also returns the operations at
/// startup.
fn take_over(by_proxy: bool, memory: Option<String>) -> (Core, Vec<Op>) {
    let settings = Settings {
        by_proxy,
        ..Settings::default()
    };
    let known = Known {
        boot_id: Some("boot".to_owned()),
        silence: Some(Silence::to_begin(SilenceReason::TakenOver(
            "hub2".to_owned(),
        ))),
        memory,
        ..Known::default()
    };
    let (mut core, ops) = Core::start(settings, known, now_at(0));
    core.token(now_at(0), Some(fingerprint()));
    (core, ops)
}

/// Promise: A hub that takes over sends nothing for a window and 45 seconds.
#[test]
fn takeover_starts_silence_of_a_window_plus_45_seconds() {
    let head = WorkQueue::default();
    for (by_proxy, seconds) in [(false, 105), (true, 240)] {
        let (mut core, ops) = take_over(by_proxy, None);
        let Decision::WaitUntil(until) = core.next(now_at(0), &head) else {
            panic!("not silent");
        };
        assert_eq!(until, now_at(seconds).boot + Duration::from_millis(30));
        let pause = core.status(now_at(seconds), &head).pause.expect("a pause");
        assert_eq!(pause.reason, "takeover");
        let text = "took over from hub2; no request until 2026-";
        assert!(pause.fix.starts_with(text), "{}", pause.fix);
        assert_eq!(core.status(now_at(seconds + 1), &head).pause, None);
        assert_eq!(
            lane(&mut core, now_at(seconds + 1), &head),
            Some(Lane::Token)
        );
        // The silence survives a restart of this process.
        let known = Known {
            boot_id: Some("boot".to_owned()),
            silence: stored_silence(&ops),
            ..Known::default()
        };
        let (mut core, _) = Core::start(Settings::default(), known, now_at(20));
        core.token(now_at(20), Some(fingerprint()));
        assert_eq!(core.next(now_at(20), &head), Decision::WaitUntil(until));
        let pause = core.status(now_at(20), &head).pause.expect("a pause");
        assert_eq!(pause.reason, "takeover");
    }
}

#[test]
fn takeover_silence_covers_longer_window_of_other_process() {
    let settings = Settings {
        rate: "60/120s".parse().expect("a rate"),
        ..Settings::default()
    };
    let (_, ops) = Core::start(settings, Known::default(), now_at(0));
    let (mut core, _) = take_over(false, stored_memory(&ops));
    let Decision::WaitUntil(until) = core.next(now_at(0), &WorkQueue::default()) else {
        panic!("not silent");
    };
    assert_eq!(until, now_at(165).boot + Duration::from_millis(60));
}

fn silence_of_lost_commits(boot_id: &str, until: u64) -> Silence {
    Silence {
        boot_id: boot_id.to_owned(),
        until: now_at(until).boot,
        why: SilenceReason::LostCommits,
    }
}

#[test]
fn hub_silence_delays_requests_only_in_its_boot() {
    let known = Known {
        boot_id: Some("boot".to_owned()),
        ..Known::default()
    };
    let (mut core, _) = Core::start(Settings::default(), known, now_at(0));
    core.token(now_at(0), Some(fingerprint()));
    let mut head = WorkQueue {
        silence: Some(silence_of_lost_commits("another boot", 500)),
        ..WorkQueue::default()
    };
    assert_eq!(lane(&mut core, now_at(0), &head), Some(Lane::Token));
    core.abort(0);
    head.silence = Some(silence_of_lost_commits("boot", 105));
    assert_eq!(
        core.next(now_at(1), &head),
        Decision::WaitUntil(now_at(105).boot)
    );
    assert_eq!(lane(&mut core, now_at(105), &head), Some(Lane::Token));
}

#[test]
fn second_database_stops_requests_until_silence_after_resume() {
    let known = Known {
        boot_id: Some("boot".to_owned()),
        ..Known::default()
    };
    let (mut core, _) = Core::start(Settings::default(), known, now_at(0));
    core.token(now_at(0), Some(fingerprint()));
    let mut head = WorkQueue {
        split_by: Some("a, b".to_owned()),
        ..WorkQueue::default()
    };
    assert_eq!(core.next(now_at(9_000), &head), Decision::Idle);
    let pause = core.status(now_at(9_000), &head).pause.expect("a pause");
    assert_eq!(pause.reason, "split_database");
    assert!(pause.fix.contains("collectors of a, b"), "{}", pause.fix);
    assert!(core.stops_commands(now_at(9_000)));
    // As `ResumeSending` leaves it.
    head.split_by = None;
    head.silence = Some(Silence::to_begin(SilenceReason::LostCommits));
    let Decision::Commit(ops) = core.next(now_at(9_001), &head) else {
        panic!("no silence");
    };
    let begun = stored_silence(&ops).expect("a silence");
    let until = now_at(9_106).boot + Duration::from_millis(30);
    assert_eq!((begun.boot_id.as_str(), begun.until), ("boot", until));
    head.silence = Some(begun);
    assert_eq!(core.next(now_at(9_002), &head), Decision::WaitUntil(until));
    assert!(!core.stops_commands(now_at(9_002)));
    assert_eq!(lane(&mut core, now_at(9_107), &head), Some(Lane::Token));
}

#[test]
fn memory_of_aborted_launch_is_stored_with_next_launch() {
    let (mut core, _) = restart(&ops_of_refusal(0), Vec::new(), 3);
    let (slot, task, launch) = launch_next(&mut core, now_at(60), &WorkQueue::default());
    let memory = stored_memory(&launch.ops);
    assert!(memory.is_some(), "{:?}", launch.ops);
    core.abort(slot);
    // Both launches happen at the same time, so the second memory has the same text as the first.
    let Decision::Send(plan) = core.budget.take(now_at(60), task) else {
        panic!("no slot");
    };
    let launch = core.launch(now_at(60), plan, RequestInputs::default());
    assert_eq!(stored_memory(&launch.ops), memory);
}

#[test]
fn page_rest_and_page_size_survive_a_restart() {
    let (mut core, _) = Core::start(Settings::default(), Known::default(), now_at(0));
    core.confirm.rest_pages(now_at(0).wall);
    core.confirm.page_size = PageSize::LARGEST.smaller().expect("50");
    let mut ops = Vec::new();
    core.remember(now_at(0), &mut ops);
    let known = Known {
        memory: stored_memory(&ops),
        ..Known::default()
    };
    let (core, _) = Core::start(Settings::default(), known, now_at(3));
    assert!(!core.confirm.reads_pages(now_at(3_599).wall));
    assert!(core.confirm.reads_pages(now_at(3_600).wall));
    assert_eq!(core.confirm.page_size.get(), 50);
}

/// The hub lost its session twice, and a request from before the first loss may still arrive.
#[test]
fn second_restart_knows_slots_that_the_first_interrupted() {
    let row = SlotRow {
        slot: 4,
        token: fingerprint(),
        boot_id: "now".to_owned(),
        sent: now_at(0).boot,
        answered: None,
        wall_sent: now_at(0).wall,
    };
    for by_proxy in [false, true] {
        let settings = Settings {
            by_proxy,
            ..Settings::default()
        };
        let mut known = Known {
            boot_id: Some("now".to_owned()),
            slots: vec![row.clone()],
            ..Known::default()
        };
        let (_, ops) = Core::start(settings.clone(), known.clone(), now_at(1));
        let [Op::Slot(kept), ..] = ops.as_slice() else {
            panic!("{ops:?}");
        };
        let ended = now_at(1).boot + settings.late();
        assert_eq!(kept.answered, Some(ended));
        known.slots = vec![kept.clone()];
        let (mut core, _) = Core::start(settings, known, now_at(11));
        assert_eq!(
            core.budget.pacer.silent(now_at(11).boot),
            None,
            "{by_proxy}"
        );
        let uses: Vec<_> = core.budget.pacer.uses(now_at(11).boot).collect();
        assert_eq!(uses.len(), 1);
        assert_eq!(uses[0].1.ended, Some(ended), "{by_proxy}");
        core.token(now_at(11), Some(fingerprint()));
        assert_eq!(
            lane(&mut core, now_at(11), &live_queue(1)),
            Some(Lane::Token)
        );
    }
}
