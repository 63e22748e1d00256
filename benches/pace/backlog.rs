//! The requests that a call needs, and the speed of the simulation: the sender, the spool, and the
//! CRM of `tests/simulation`, with its virtual clock.

use crate::simulation::scenario::{Length, Run};
use crate::simulation::world::World;
use crate::support::simulated_calls::call;
use crate::table;
use callbridge_sandbox as sandbox;
use callbridge_sender::Settings;
use std::time::{Duration, Instant};

/// The calls of an hour, all finished before the first request.
const BACKLOG: u32 = 3600;
/// Number of seeds for an hour of 600 calls.
const SEEDS: u64 = 20;

/// Measures the requests for an hour's backlog, with and without reading the journal.
pub fn measure_confirmations() {
    println!(
        "\n{:<44} {:>8} {:>9} {:>12} {:>12}   to reach",
        "a backlog of 3,600 calls, confirmed by",
        "requests",
        "journaled",
        "records each",
        "a minute"
    );
    let mut without = sandbox::Settings::default();
    without
        .company
        .grants
        .retain(|grant| !grant.as_str().ends_with(":READ"));
    let swept = row(
        "sweeps of the journal",
        "0.98",
        sandbox::Settings::default(),
    );
    let polled = row("polls alone (the filter is not granted)", "", without);
    let plain = format!("by polls alone: {polled}");
    table::row(
        "pace",
        "a backlog's records for a request",
        &swept,
        "0.98",
        &plain,
    );
}

fn row(name: &str, goal: &str, crm: sandbox::Settings) -> String {
    let mut world = World::new(1, Settings::default(), crm);
    let began = world.now.wall;
    for n in 0..BACKLOG {
        world.finish(call(n, began, 4001, false));
    }
    let mut minutes = 0;
    while !world.disk.store.books().settled() && minutes < 600 {
        world.run_for(Duration::from_secs(60));
        minutes += 1;
    }
    world.assert_never_wrong(&[]);
    let (requests, journaled) = (world.sent.len(), world.disk.store.books().journaled);
    let each = journaled as f64 / requests as f64;
    let a_minute = journaled as f64 / f64::from(minutes);
    println!("{name:<44} {requests:>8} {journaled:>9} {each:>12.3} {a_minute:>12.1}   {goal}");
    format!("{each:.3}, {a_minute:.1} a minute")
}

/// Measures how long an hour and a day take. `plain` is the reference: the time of only the pacer.
pub fn measure_simulations(plain: &str) {
    println!(
        "\n{:<44} {:>8} {:>9} {:>12}   to reach",
        "simulated, with faults and crashes", "runs", "seconds", "worst"
    );
    let hour = Length::default();
    let day = Length {
        hours: 24,
        calls_an_hour: 3600,
    };
    for (name, length, seeds, goal) in [
        ("an hour of 600 calls", hour, SEEDS, "0.5 s"),
        ("a saturated day of 86,400 calls", day, 1, "30 s"),
    ] {
        let mut times: Vec<f64> = (0..seeds).map(|seed| seconds(seed, length)).collect();
        times.sort_by(f64::total_cmp);
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let worst = times[times.len() - 1];
        println!("{name:<44} {seeds:>8} {mean:>9.2} {worst:>12.2}   {goal}");
        let figure = format!("{worst:.2} s");
        table::row("pace", &format!("simulated: {name}"), &figure, goal, plain);
    }
}

fn seconds(seed: u64, length: Length) -> f64 {
    let began = Instant::now();
    let mut run = Run::new(seed, length);
    run.faults();
    run.drain();
    run.judge();
    began.elapsed().as_secs_f64()
}
