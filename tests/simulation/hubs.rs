//! Two hubs over one state, under a virtual clock. The lock is taken away between any two
//! statements.
//!
//! Each hub has its own machine: its boot clock, its wall clock, and what it holds in memory. The
//! lock is simulated: a statement of a hub without it fails, and its transaction is rolled back, as
//! in a lost session. Another hub, or the same one, takes the lock within 15 s. A request of the
//! hub that lost it can still leave for 5 s, and arrive up to 34 s later.
//!
//! The judge is in front of the CRM: no 60 s hold 61 requests, and no hub sends within 60 s after
//! another one. At the end, each call is in the journal once. Two negative controls break a rule
//! each, and the judge must find it.

mod world;

use callbridge_sandbox::ViolationKind;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use world::{Control, DRAINED, Met, TOO_MANY, TWO_SENDERS, UNREST, World};

/// Number of seeds in a plain `cargo test`.
const SEEDS: u64 = 8;

/// Runs this many seeds on all cores.
fn run_seeds<T: Send>(seeds: u64, run: fn(u64) -> T) -> Vec<T> {
    let (next, results) = (AtomicU64::new(1), Mutex::new(Vec::new()));
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed > seeds {
                        return;
                    }
                    let result = run(seed);
                    results.lock().expect("not poisoned").push(result);
                }
            });
        }
    });
    results.into_inner().expect("not poisoned")
}

/// Runs one seed to its end. The judge must find nothing.
fn run_and_judge(seed: u64) -> Met {
    let mut world = World::new(seed, Control::None);
    world.run(DRAINED, World::has_drained);
    assert!(world.has_drained(), "seed {seed} is not drained");
    assert_eq!(world.found, BTreeSet::new(), "seed {seed}");
    let breaches = world.sandbox.violations().all().iter();
    let mut over = breaches.filter(|breach| breach.kind == ViolationKind::WindowExceeded);
    assert_eq!(over.next(), None, "seed {seed}");
    world.judge_end();
    world.met
}

/// Promise: Two hubs over one state lose no call, log none twice, and keep the limit together.
#[test]
fn two_hubs_log_each_call_once_within_rate_limit() {
    // The same variable as in the campaign of one sender.
    let seeds = std::env::var("CALLBRIDGE_SIM_SEEDS").ok();
    let seeds = seeds.map_or(SEEDS, |text| text.parse().expect("a number"));
    let all = run_seeds(seeds, run_and_judge);
    let takeovers: u32 = all.iter().map(|met| met.takeovers).sum();
    let regained: u32 = all.iter().map(|met| met.regained).sum();
    let too_late: u32 = all.iter().map(|met| met.too_late).sum();
    println!("{seeds} seeds: {takeovers} takeovers, {regained} regained, {too_late} too late");
    assert!(u64::from(takeovers) > seeds && u64::from(regained) > seeds);
    assert!(u64::from(too_late) > seeds);
}

/// Returns what the judge finds in an hour with this control.
fn find_breaches(seed: u64, control: Control) -> BTreeSet<&'static str> {
    let mut world = World::new(seed, control);
    world.run(UNREST, |world| world.found.len() > 1);
    world.found
}

#[test]
fn judge_finds_two_senders_if_writes_need_no_lock() {
    let all = run_seeds(SEEDS, |seed| {
        find_breaches(seed, Control::WritesWithoutLock)
    });
    assert!(
        all.iter().all(|found| found.contains(TWO_SENDERS)),
        "{all:?}"
    );
}

#[test]
fn judge_finds_61_requests_without_silence_on_takeover() {
    let all = run_seeds(SEEDS, |seed| find_breaches(seed, Control::NoSilence));
    // If few calls wait at a takeover, 60 s have fewer requests.
    assert!(all.iter().any(|found| found.contains(TOO_MANY)), "{all:?}");
    assert!(
        all.iter().all(|found| found.contains(TWO_SENDERS)),
        "{all:?}"
    );
}
