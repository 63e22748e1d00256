//! The circuit breaker of an installation (§6.9.3).

use super::webhook_dispatch::{create, dead, end};
use super::webhook_recording::{configure, install, subscribed};
use super::{NOW, after};
use crate::Sandbox;
use crate::webhook::breaker::{Breaker, BreakerGate, PAUSE};
use crate::webhook::dispatch;
use std::time::Duration;

/// Ends so many deliveries, one a second from this one on, with a status.
fn ends(core: &mut Sandbox, from: u64, statuses: &[u16]) {
    create(
        core,
        after(from),
        i64::try_from(statuses.len()).expect("few"),
    );
    let mut left = statuses.iter();
    for second in from..from + 10 {
        for dispatch in dispatch::deliveries(core, after(second)) {
            end(
                core,
                after(second),
                &dispatch,
                *left.next().expect("as many"),
            );
        }
    }
    assert!(left.next().is_none(), "all went");
}

fn paused(core: &Sandbox) -> bool {
    core.webhooks()
        .breakers()
        .values()
        .any(|breaker| breaker.paused_until().is_some())
}

#[test]
fn ten_retryable_failures_among_the_last_twenty_pause_it_and_nine_do_not() {
    let mut core = subscribed(&["LEAD"]);
    ends(&mut core, 0, &[503; 9]);
    assert!(!paused(&core));
    let mut core = subscribed(&["LEAD"]);
    ends(&mut core, 0, &[503; 10]);
    assert!(paused(&core));
    let mut breaker = Breaker::default();
    for number in 0..200 {
        // Nine of each twenty, however they lie.
        breaker.note(after(number), false, number % 20 < 9);
    }
    assert_eq!(breaker.gate(after(200)), BreakerGate::Open);
}

#[test]
fn refusals_that_are_not_retried_do_not_open_it() {
    let mut core = subscribed(&["LEAD"]);
    ends(&mut core, 0, &[401; 30]);
    assert!(!paused(&core));
    assert_eq!(dead(&core).len(), 30);
}

#[test]
fn a_paused_installation_blocks_for_30_seconds_and_a_blocked_delivery_counts_as_retryable() {
    let mut core = subscribed(&["LEAD"]);
    ends(&mut core, 0, &[500; 10]);
    create(&mut core, after(10), 1);
    let retries = core.webhooks().rows().len() - 1;
    assert!(
        dispatch::deliveries(&mut core, after(10)).is_empty(),
        "blocked"
    );
    let attempt = core
        .webhooks()
        .attempts()
        .iter()
        .last()
        .expect("journaled")
        .clone();
    assert!(attempt.tried.blocked && attempt.tried.retryable && attempt.tried.status.is_none());
    assert_eq!(
        core.webhooks().rows().len(),
        retries + 1,
        "it is tried again"
    );
    let due = core.webhooks().rows()[&attempt.id].due;
    assert_eq!(due, after(40), "30 s after it was blocked");
}

#[test]
fn after_the_pause_one_probe_leaves_and_the_others_wait_for_it() {
    let mut core = subscribed(&["LEAD"]);
    ends(&mut core, 0, &[500; 10]);
    let probes = dispatch::deliveries(&mut core, after(31));
    assert_eq!(probes.len(), 1, "one of ten retries");
    assert!(
        dispatch::deliveries(&mut core, after(32)).is_empty(),
        "the probe is under way"
    );
    end(&mut core, after(33), &probes[0], 500);
    assert!(
        dispatch::deliveries(&mut core, after(34)).is_empty(),
        "paused again, the rest is blocked"
    );
    let blocked = core
        .webhooks()
        .attempts()
        .iter()
        .filter(|one| one.tried.blocked)
        .count();
    assert_eq!(blocked, 9);
    // All ten wait five minutes now; another event is the next probe.
    create(&mut core, after(64), 1);
    let probes = dispatch::deliveries(&mut core, after(64));
    assert_eq!(probes.len(), 1);
    end(&mut core, after(64), &probes[0], 204);
    assert!(!paused(&core), "closed by a probe that was answered");
    assert_eq!(
        dispatch::deliveries(&mut core, after(334)).len(),
        10,
        "the rest follows"
    );
}

#[test]
fn a_probe_that_dies_on_its_way_leaves_the_next_one_room() {
    let mut breaker = Breaker::default();
    (0..10).for_each(|second| breaker.note(after(second), false, true));
    assert_eq!(breaker.gate(after(10)), BreakerGate::Blocked);
    let over = after(9).plus(PAUSE);
    assert_eq!(
        breaker.gate(over.minus(Duration::from_micros(1))),
        BreakerGate::Blocked
    );
    assert_eq!(breaker.gate(over), BreakerGate::Probe);
    breaker.probe_leaves();
    assert_eq!(breaker.gate(over), BreakerGate::Probing);
    breaker.probe_is_back();
    assert_eq!(breaker.gate(over), BreakerGate::Probe);
}

#[test]
fn one_installation_that_fails_does_not_pause_another() {
    let mut core = subscribed(&["LEAD"]);
    ends(&mut core, 0, &[500; 10]);
    configure(&mut core, 2, &["LEAD"]);
    let other = install(&mut core, 1, 2);
    create(&mut core, after(10), 1);
    let left = dispatch::deliveries(&mut core, after(10));
    assert_eq!(
        left.iter()
            .map(|one| one.id.installation)
            .collect::<Vec<_>>(),
        [other]
    );
}

#[test]
fn what_was_under_way_when_it_opened_does_not_open_it_longer() {
    let mut core = subscribed(&["LEAD"]);
    create(&mut core, NOW, 20);
    let under_way: Vec<_> = (0..2)
        .flat_map(|second| dispatch::deliveries(&mut core, after(second)))
        .collect();
    assert_eq!(under_way.len(), 20);
    for (number, dispatch) in (2..).zip(&under_way) {
        end(&mut core, after(number), dispatch, 500);
    }
    let breaker = core.webhooks().breakers().values().next().expect("one");
    assert_eq!(
        breaker.paused_until(),
        Some(after(11).plus(PAUSE)),
        "from the tenth failure on"
    );
}
