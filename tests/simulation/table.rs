//! What a flaky CRM costs, and how soon an outage is over: the table that is promised, printed
//! and held to.
//!
//! `CALLBRIDGE_SIM_SEEDS=400 cargo test --test models simulation::table -- --nocapture`

use crate::simulation::trouble::{MINUTE, calls_for, faults};
use crate::simulation::way::Network;
use crate::simulation::world::World;
use crate::support::simulated_calls::{Dice, call};
use callbridge_sandbox as sandbox;
use callbridge_sandbox::{Action, Rule};
use callbridge_sender::Settings;
use std::time::Duration;

/// Calls that wait at the beginning.
const CALLS: u32 = 300;

/// Nobody waits longer for a run.
const LONGEST: Duration = Duration::from_secs(4 * 3600);

const SECOND: Duration = Duration::from_secs(1);

/// As many seeds as this; more, within reason, where the campaign has hundreds.
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

/// So many in a thousand of all requests end in a 500 (half of them), in a reset before or after
/// they are done (a third), or in a time-out (the others).
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
        // the first rule that strikes is the one: what the others spared is struck by this
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

/// How a backlog fared.
#[derive(Clone, Copy, Debug, Default)]
struct Drained {
    seconds: f64,
    requests: usize,
    paused: f64,
    dead: u64,
}

/// A backlog of so many calls, until the last is journaled.
fn drained(seed: u64, rate: &str, permille: u32) -> Drained {
    let mut world = world(seed, rate);
    world.run_for(SECOND);
    world.sandbox.set_faults(flaky(permille));
    for n in 0..CALLS {
        let lead = 4001 + i64::from(n % 50);
        world.finish(call(n, world.now.wall, lead, false));
    }
    let (began, step) = (world.truth, Duration::from_millis(100));
    let mut drained = Drained::default();
    loop {
        let books = world.disk.store.books();
        let since = world.truth.since(began);
        drained.seconds = since.as_secs_f64();
        drained.dead = books.dead;
        drained.requests = world.sent.len();
        if books.journaled + books.dead == u64::from(CALLS) || since > LONGEST {
            return drained;
        }
        if world.status().pause.is_some() {
            drained.paused += step.as_secs_f64();
        }
        world.run_for(step);
    }
}

/// Pace where requests fail is shown for information. Only the pace without errors is promised.
#[test]
fn three_hundred_calls_without_errors_need_no_time_beyond_budget() {
    let rate = "60/60s";
    let whole = drained(0, rate, 0);
    println!("| requests that fail | pace | slowest | requests | paused | dead |");
    for permille in [0, 50, 150, 300] {
        let runs: Vec<Drained> = seeds(4).map(|it| drained(it, rate, permille)).collect();
        let sum = |of: fn(&Drained) -> f64| runs.iter().map(of).sum::<f64>();
        let count = runs.len() as f64;
        let pace = whole.seconds * count / sum(|it| it.seconds);
        let slowest = runs.iter().map(|it| it.seconds).fold(0.0, f64::max);
        let dead: u64 = runs.iter().map(|it| it.dead).sum();
        println!(
            "| {} % | {pace:.3} | {:.3} | {:.0} | {:.1} s | {dead} |",
            permille / 10,
            whole.seconds / slowest,
            sum(|it| it.requests as f64) / count,
            sum(|it| it.paused) / count,
        );
    }
    // a request for each call, one for a hundred to confirm them, and no time lost
    assert!(whole.seconds <= 308.0, "{whole:?}");
    assert_eq!(whole.dead, 0);
}

/// How everything fails.
const KINDS: [&str; 6] = [
    "refused",
    "mistrusted",
    "any gateway 502",
    "any status 500",
    "any cut",
    "any broken",
];

fn begin(world: &mut World, kind: &str) {
    match kind {
        "refused" => world.network.refuses = true,
        "mistrusted" => world.network.mistrusted = true,
        rule => faults(world, rule),
    }
}

fn end(world: &mut World) {
    world.network.refuses = false;
    world.network.mistrusted = false;
    faults(world, "");
}

/// How long after its end an outage was over, and what it cost.
fn outage(seed: u64, kind: &str, lasts: Duration, alone: bool) -> (Duration, usize) {
    let mut world = world(seed, "60/60s");
    let mut dice = Dice::new(seed ^ 0x007a_6e5e);
    calls_for(&mut world, 0, MINUTE);
    world.run_for(Duration::from_millis(dice.below(10_000)));
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
    let pause = world.status().pause;
    let said = pause.as_ref().map(|it| it.reason.as_str());
    assert_eq!(said, Some("outage"), "{kind} {lasts:?} {alone}");
    let cost = world.sent.len() - before;
    end(&mut world);
    let books = world.disk.store.books();
    let before_end = books.journaled + books.submitted;
    world.run_for(3 * MINUTE);
    let resumed = world.sent.iter().find(|(at, _)| *at >= ends);
    let resumed = resumed.expect("it looks").0.since(ends);
    let books = world.disk.store.books();
    let taken = books.journaled + books.submitted;
    assert!(taken > before_end && books.dead == 0, "{books:?}");
    assert_eq!(world.status().pause, None, "{kind} {lasts:?} {alone}");
    (resumed, cost)
}

/// Promise: An hour of a CRM outage costs at most 90 requests and no call.
#[test]
fn outage_is_shown_ends_within_a_minute_and_costs_few_requests() {
    println!("| outage | resumed after, at most | to reach | requests, at most | to reach |");
    for (lasts, to_reach, most) in [(15, 90, 90), (300, 90, 90), (3600, 90, 90)] {
        let lasts = Duration::from_secs(lasts);
        let (mut longest, mut dearest) = (Duration::ZERO, 0);
        for kind in KINDS {
            let few = if lasts > 10 * MINUTE { 4 } else { 1 };
            for seed in seeds(2).step_by(few) {
                for alone in [false, true] {
                    let (resumed, cost) = outage(seed, kind, lasts, alone);
                    longest = longest.max(resumed);
                    dearest = dearest.max(cost);
                }
            }
        }
        println!("| {lasts:?} | {longest:.1?} | {to_reach} s | {dearest} | {most} |");
        assert!(longest <= Duration::from_secs(to_reach), "{longest:?}");
        assert!(dearest <= most, "{dearest}");
    }
}

/// A quarter of an hour in which a part fails while calls go on, and what was said meanwhile.
fn part_fails(seed: u64, rule: &str) -> (World, u64, u64) {
    let mut world = world(seed, "60/60s");
    let mut dice = Dice::new(seed);
    calls_for(&mut world, 0, MINUTE);
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

fn told(world: &World) -> Vec<(String, String)> {
    let degraded = world.status().degraded.into_iter();
    degraded.map(|it| (it.part, it.fallback)).collect()
}

#[test]
fn what_fails_alone_is_told_alone_and_others_do_its_work() {
    println!("| only these fail | said | calls confirmed meanwhile | requests |");
    for seed in seeds(1) {
        for fault in ["status 500", "gateway 503", "cut", "broken"] {
            let show = |what: &str, said: &str, world: &World, before: u64, after: u64| {
                if seed == 1 {
                    let (calls, requests) = (after - before, world.sent.len());
                    println!("| {what}: {fault} | {said} | {calls} of 45 | {requests} |");
                }
            };
            let (mut world, before, after) = part_fails(seed, &format!("call-history {fault}"));
            let pause = world.status().pause.expect("an outage");
            assert_eq!(pause.reason, "outage");
            assert!(pause.fix.contains("outage of submissions"), "{pause:?}");
            show(
                "submissions",
                "outage of submissions",
                &world,
                before,
                after,
            );
            recovers(&mut world);

            let (mut world, before, after) = part_fails(seed, &format!("request {fault}"));
            let polls = "pages of the CRM's journal are read instead";
            assert_eq!(told(&world), [("polls".to_owned(), polls.to_owned())]);
            assert_eq!(world.status().pause, None);
            assert!(after - before >= 44, "{before} {after}");
            show("polls", polls, &world, before, after);
            recovers(&mut world);

            let (mut world, before, after) = part_fails(seed, &format!("filter {fault}"));
            for n in 300..320 {
                world.finish(call(n, world.now.wall, 4001, false));
            }
            world.run_for(2 * MINUTE);
            let pages = "pages of the CRM's journal are not read: calls are asked for one by one";
            assert_eq!(
                told(&world),
                [("reconciliations".to_owned(), pages.to_owned())]
            );
            assert_eq!(world.status().pause, None);
            show("reconciliations", pages, &world, before, after);
            recovers(&mut world);
        }
    }
}

/// Once all is mended all is confirmed, and nothing is told any more.
fn recovers(world: &mut World) {
    faults(world, "");
    for n in 400..500 {
        let live = n % 2 == 0;
        world.finish(call(n, world.now.wall, 4001, live));
        world.run_for(20 * SECOND);
    }
    world.run_for(30 * MINUTE);
    let books = world.disk.store.books();
    assert!(books.settled() && books.dead == 0, "{books:?}");
    assert_eq!(world.status().pause, None);
}
