//! Tests how many requests a flaky CRM costs and how soon an outage is over. Prints the promised
//! table and checks it.
//!
//! `CALLBRIDGE_SIM_SEEDS=400 cargo test --test models simulation::table -- --nocapture`

use crate::simulation::trouble::{MINUTE, faults, finish_calls};
use crate::simulation::way::Network;
use crate::simulation::world::World;
use crate::support::simulated_calls::{Dice, call};
use callbridge_sandbox as sandbox;
use callbridge_sandbox::{Action, Rule};
use callbridge_sender::Settings;
use std::time::Duration;

/// Calls that wait at the start.
const CALLS: u32 = 300;

/// A run must end within this time.
const LONGEST: Duration = Duration::from_secs(4 * 3600);

const SECOND: Duration = Duration::from_secs(1);

/// Returns this many seeds, or a few more if the campaign has hundreds.
fn seeds(few: u64) -> std::ops::Range<u64> {
    let many = std::env::var("CALLBRIDGE_SIM_SEEDS").ok();
    let many = many.and_then(|text| text.parse().ok());
    1..1 + many.map_or(few, |many: u64| many / 50).clamp(few, 8)
}

fn world(seed: u64, rate: &str) -> World {
    let settings = Settings {
        seed,
        rate: rate.parse().expect("a rate"),
        ..Settings::default()
    };
    let crm = sandbox::Settings {
        seed,
        rate: sandbox::window::parse_rate(rate).expect("a rate"),
        ..sandbox::Settings::default()
    };
    let mut world = World::new(seed, settings, crm);
    world.network = Network {
        delay: Duration::from_millis(50),
        ..Network::default()
    };
    world
}

/// Returns faults for `permille` of all requests: a 500 (half of them), a reset before or after the
/// request is processed (a third), or a timeout (the others).
fn flaky(permille: u32) -> Vec<Rule> {
    let sixth = permille * 1000 / 6;
    let kinds = [
        (Action::Status(500), 3 * sixth),
        (Action::Cut, sixth),
        (Action::Lost, sixth),
        (Action::Delay(MINUTE), sixth),
    ];
    let mut spared: u64 = 1_000_000;
    let rules = kinds.into_iter().map(|(action, ppm)| {
        // Only the first matching rule applies, so this rule applies to the requests to which the
        // other rules did not apply.
        let chance = u64::from(ppm) * 1_000_000 / spared;
        spared -= u64::from(ppm);
        Rule {
            endpoint: None,
            with: None,
            after: 0,
            times: None,
            chance_ppm: u32::try_from(chance).expect("a chance"),
            action,
        }
    });
    rules.collect()
}

/// The result of a backlog.
#[derive(Clone, Copy, Debug, Default)]
struct BacklogResult {
    seconds: f64,
    requests: usize,
    paused: f64,
    dead: u64,
}

/// Runs a backlog of this many calls until the last one is journaled.
fn run_backlog(seed: u64, rate: &str, permille: u32, calls: u32) -> BacklogResult {
    let mut world = world(seed, rate);
    world.run_for(SECOND);
    world.sandbox.set_faults(flaky(permille));
    for n in 0..calls {
        let lead = 4001 + i64::from(n % 50);
        world.finish(call(n, world.now.wall, lead, false));
    }
    let (began, step) = (world.truth, Duration::from_millis(100));
    let mut drained = BacklogResult::default();
    loop {
        let books = world.disk.store.books();
        let since = world.truth.since(began);
        drained.seconds = since.as_secs_f64();
        drained.dead = books.dead;
        drained.requests = world.sent.len();
        if books.journaled + books.dead == u64::from(calls) || since > LONGEST {
            return drained;
        }
        if world.pause().is_some() {
            drained.paused += step.as_secs_f64();
        }
        world.run_for(step);
    }
}

/// Returns the sum of a figure of each run.
fn sum(runs: &[BacklogResult], figure: impl Fn(&BacklogResult) -> f64) -> f64 {
    runs.iter().map(figure).sum()
}

/// The pace with failing requests is only shown. Only the pace without errors is promised.
#[test]
fn calls_without_errors_need_no_time_beyond_budget() {
    let rate = "60/60s";
    let whole = run_backlog(0, rate, 0, CALLS);
    println!("| requests that fail | pace | slowest | requests | paused | dead |");
    for permille in [0, 50, 150, 300] {
        let runs: Vec<BacklogResult> = seeds(4)
            .map(|backlog| run_backlog(backlog, rate, permille, CALLS))
            .collect();
        let count = runs.len() as f64;
        let pace = whole.seconds * count / sum(&runs, |run| run.seconds);
        let slowest = runs.iter().map(|run| run.seconds).fold(0.0, f64::max);
        let dead: u64 = runs.iter().map(|run| run.dead).sum();
        println!(
            "| {} % | {pace:.3} | {:.3} | {:.0} | {:.1} s | {dead} |",
            permille / 10,
            whole.seconds / slowest,
            sum(&runs, |run| run.requests as f64) / count,
            sum(&runs, |run| run.paused) / count,
        );
    }
    // One second for each call and page, and ten seconds until the last calls are old enough for a
    // page.
    assert!(whole.seconds <= 312.0, "{whole:?}");
    assert_eq!(whole.dead, 0);
    let confirmed = f64::from(CALLS) / whole.requests as f64;
    println!("confirmed calls per request without errors: {confirmed:.3}");
    assert!(confirmed >= 0.97, "{whole:?}");
}

#[test]
fn dead_letters_at_15_percent_failures_are_at_most_1_in_5000() {
    let (mut calls, mut dead) = (0, 0);
    for seed in 1..=5 {
        let drained = run_backlog(seed, "60/6s", 150, 1000);
        calls += 1000;
        dead += drained.dead;
        assert!(drained.seconds < LONGEST.as_secs_f64(), "{drained:?}");
    }
    println!("15 % of all requests fail: {dead} of {calls} calls given up");
    assert!(dead <= 1, "{dead} of {calls}");
}

/// The ways in which all requests fail, each with the reason of the pause.
const KINDS: [(&str, &str); 7] = [
    ("refused", "unreachable"),
    ("no name", "unreachable"),
    ("mistrusted", "unreachable"),
    ("silent", "failing"),
    ("any status 500", "failing"),
    ("any gateway 502", "failing"),
    ("any status 429", "rate_limited"),
];

fn begin(world: &mut World, kind: &str) {
    match kind {
        // The client reports both as a failed connection.
        "refused" | "no name" => world.network.refuses = true,
        "mistrusted" => world.network.mistrusted = true,
        "silent" => world.network.silent = true,
        rule => faults(world, rule),
    }
}

fn end(world: &mut World) {
    world.network.refuses = false;
    world.network.mistrusted = false;
    world.network.silent = false;
    faults(world, "");
}

/// The result of an outage.
struct Outage {
    /// Time from the end of the outage to the first accepted call.
    resumed: Duration,
    /// Number of requests in the first hour of the outage.
    requests: usize,
    reason: Option<String>,
}

/// Runs an outage after some calls: with one call if `alone` is set, or else with a backlog and
/// occasional calls. `kind` is an entry of [`KINDS`].
fn outage(seed: u64, kind: &str, lasts: Duration, alone: bool) -> Outage {
    let mut world = world(seed, "60/60s");
    let mut dice = Dice::new(seed ^ 0x007a_6e5e);
    finish_calls(&mut world, 0, MINUTE);
    world.run_for(Duration::from_millis(30_000 + dice.below(10_000)));
    begin(&mut world, kind);
    let (began, before) = (world.truth, world.sent.len());
    if alone {
        world.finish(call(1000, world.now.wall, 4001, true));
    } else {
        for n in 0..40 {
            world.finish(call(1000 + n, world.now.wall, 4001, n % 2 == 0));
        }
    }
    let ends = began.plus(lasts);
    let mut n = 2000;
    while world.truth < ends {
        let left = ends.since(world.truth);
        world.run_for(left.min(Duration::from_millis(1 + dice.below(20_000))));
        if !alone && world.truth < ends {
            world.finish(call(n, world.now.wall, 4001, true));
            n += 1;
        }
    }
    let reason = world.pause().map(|pause| pause.reason);
    let hour = began.plus(60 * MINUTE);
    let requests = world.sent[before..]
        .iter()
        .filter(|(at, _)| *at < hour.min(ends))
        .count();
    end(&mut world);
    let books = world.disk.store.books();
    let accepted_before = books.journaled + books.submitted;
    let mut resumed = Duration::ZERO;
    while resumed < 4 * MINUTE {
        let books = world.disk.store.books();
        if books.journaled + books.submitted > accepted_before {
            break;
        }
        world.run_for(Duration::from_millis(250));
        resumed = world.truth.since(ends);
    }
    world.run_for(90 * MINUTE);
    let books = world.disk.store.books();
    assert!(books.settled(), "{kind} {lasts:?} {alone}: {books:?}");
    assert_eq!(books.dead, 0, "{kind} {lasts:?} {alone}");
    assert_eq!(world.pause(), None, "{kind} {lasts:?} {alone}");
    Outage {
        resumed,
        requests,
        reason,
    }
}

/// Promise: An hour of a CRM outage costs at most 90 requests and no call.
#[test]
fn outage_of_each_kind_uses_few_requests_and_ends_in_a_minute() {
    let most = MINUTE + crate::simulation::way::TIME_OUT;
    println!("| outage | lasts | requests in the first hour | resumed after |");
    for (kind, word) in KINDS {
        for lasts in [SECOND * 2, MINUTE * 2, MINUTE * 120] {
            let (mut longest, mut dearest) = (Duration::ZERO, 0);
            for seed in seeds(2) {
                for alone in [false, true] {
                    let outage = outage(seed, kind, lasts, alone);
                    longest = longest.max(outage.resumed);
                    dearest = dearest.max(outage.requests);
                    if lasts > MINUTE && !alone {
                        assert_eq!(outage.reason.as_deref(), Some(word), "{kind} {lasts:?}");
                    }
                }
            }
            println!("| {kind} | {lasts:?} | {dearest} | {longest:.1?} |");
            assert!(longest <= most, "{kind} {lasts:?}: {longest:?}");
            assert!(dearest <= 90, "{kind} {lasts:?}: {dearest}");
        }
    }
}

/// Lets an endpoint fail for a quarter of an hour while calls continue. Returns the world, and the
/// number of journaled calls before and after.
fn run_with_failing_endpoint(seed: u64, rule: &str) -> (World, u64, u64) {
    let mut world = world(seed, "60/60s");
    let mut dice = Dice::new(seed);
    finish_calls(&mut world, 0, MINUTE);
    for n in 100..110 {
        world.finish(call(n, world.now.wall, 4001, false));
    }
    world.run_for(Duration::from_millis(11_000 + dice.below(1000)));
    faults(&mut world, rule);
    let journaled = world.disk.store.books().journaled;
    for n in 200..245 {
        world.finish(call(n, world.now.wall, 4001, true));
        world.run_for(20 * SECOND);
    }
    let books = world.disk.store.books();
    assert_eq!(books.dead, 0);
    (world, journaled, books.journaled)
}

fn degraded_parts(world: &World) -> Vec<(String, String)> {
    let parts = world.status().degraded.into_iter();
    parts
        .map(|degraded| (degraded.part, degraded.fallback))
        .collect()
}

#[test]
fn failing_endpoint_is_reported_and_replaced_by_the_others() {
    println!("| only these fail | said | calls confirmed meanwhile | requests |");
    for seed in seeds(1) {
        for fault in ["status 500", "gateway 503", "cut", "broken"] {
            let (mut world, before, after) =
                run_with_failing_endpoint(seed, &format!("call-history {fault}"));
            let pause = world.pause().expect("no call is accepted");
            assert_eq!(pause.reason, "failing");
            assert!(
                pause.fix.starts_with("submissions failing since"),
                "{pause:?}"
            );
            let what = format!("submissions: {fault}");
            print_row(seed, &what, "submissions failing", &world, after - before);
            check_recovery(&mut world);

            let (mut world, before, after) =
                run_with_failing_endpoint(seed, &format!("request {fault}"));
            let polls = "pages of the CRM's journal are read instead";
            assert_eq!(
                degraded_parts(&world),
                [("polls".to_owned(), polls.to_owned())]
            );
            assert_eq!(world.pause(), None);
            assert!(after - before >= 44, "{before} {after}");
            let what = format!("polls: {fault}");
            print_row(seed, &what, polls, &world, after - before);
            check_recovery(&mut world);

            let (mut world, before, after) =
                run_with_failing_endpoint(seed, &format!("filter {fault}"));
            for n in 300..320 {
                world.finish(call(n, world.now.wall, 4001, false));
            }
            let pages = "calls are polled one by one instead";
            let expected = [("pages".to_owned(), pages.to_owned())];
            // Without calls to confirm, token/info is the probe, and its success ends the report.
            let mut is_reported = false;
            for _ in 0..480 {
                world.run_for(SECOND / 4);
                is_reported |= degraded_parts(&world) == expected;
            }
            assert!(is_reported, "{fault}");
            assert_eq!(world.pause(), None);
            let what = format!("pages: {fault}");
            print_row(seed, &what, pages, &world, after - before);
            check_recovery(&mut world);
        }
    }
}

/// Prints a row of the table for the seed 1, and nothing for the others.
fn print_row(seed: u64, what: &str, said: &str, world: &World, calls: u64) {
    if seed == 1 {
        let requests = world.sent.len();
        println!("| {what} | {said} | {calls} of 45 | {requests} |");
    }
}

/// Ends the faults, and checks that all calls are confirmed and no problem is shown.
fn check_recovery(world: &mut World) {
    faults(world, "");
    for n in 400..500 {
        let live = n % 2 == 0;
        world.finish(call(n, world.now.wall, 4001, live));
        world.run_for(20 * SECOND);
    }
    world.run_for(30 * MINUTE);
    let books = world.disk.store.books();
    assert!(books.settled() && books.dead == 0, "{books:?}");
    assert_eq!(world.pause(), None);
}
