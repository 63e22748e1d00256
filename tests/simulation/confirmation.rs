//! Tests how many requests confirmations need and how long they take, in every shape that the
//! document allows.

use crate::simulation::trouble::{MINUTE, faults, shaped_world, world};
use crate::simulation::way::Network;
use crate::simulation::world::World;
use crate::support::simulated_calls::call;
use callbridge_sandbox as sandbox;
use callbridge_sandbox::ViolationKind;
use callbridge_sender::Settings;
use callbridge_spool::{State, tables};
use std::time::Duration;

/// Runs a backlog of this many calls until all are confirmed. Returns requests and minutes.
fn run_backlog(world: &mut World, calls: u32) -> (usize, u64) {
    world.network = Network {
        delay: Duration::from_millis(100),
        ..Network::default()
    };
    for n in 0..calls {
        world.finish(call(n, world.now.wall, 4001 + i64::from(n % 50), false));
    }
    let began = world.now.wall;
    while world.disk.store.books().journaled < u64::from(calls) {
        world.run_for(MINUTE / 6);
        let waited = world.now.wall.since(began);
        let books = world.disk.store.books();
        assert!(waited < 120 * MINUTE, "{books:?} {:?}", world.pause());
    }
    let minutes = world.now.wall.since(began).as_secs() / 60;
    (world.sent.len(), minutes)
}

/// Checks that 600 calls in this shape need at most this many requests.
fn check_cost(shape: &str, most: usize) {
    let mut world = shaped_world(shape);
    let (requests, minutes) = run_backlog(&mut world, 600);
    println!("{shape}: {requests} requests for 600 calls, {minutes} minutes");
    assert!(requests <= most, "{shape}: {requests} requests");
    assert_eq!(world.disk.store.books().dead, 0);
    // A page size or a range that is refused is tried once.
    world.assert_never_wrong(&[ViolationKind::Invalid]);
    let refused = world.sandbox.violations().all();
    assert!(refused.len() <= 2, "{refused:?}");
}

#[test]
fn page_confirms_many_calls_in_every_answer_shape() {
    check_cost("shape rows strings", 620);
    check_cost("shape page beside", 620);
    check_cost(
        "shape rows strings; shape page beside; shape status bare",
        620,
    );
    check_cost("shape size-max 50", 630);
    check_cost("shape size-max 30", 640);
}

/// A page or a poll confirms each call, also if the filter ignores or refuses a range.
#[test]
fn calls_are_confirmed_in_every_filter_shape() {
    check_cost("shape range refused", 1250);
    check_cost("shape range ignored", 1250);
    check_cost("shape registered started", 1250);
    check_cost("call-history hold 30s", 1250);
}

#[test]
fn calls_without_the_filter_grant_are_polled_one_by_one() {
    check_cost("filter status 403", 1210);
    // The filter is tried occasionally to find out whether it works again.
    check_cost("filter status 500", 1250);
    check_cost("filter broken", 1250);
}

#[test]
fn call_on_idle_day_is_confirmed_within_five_seconds() {
    let mut world = World::new(3, Settings::default(), sandbox::Settings::default());
    for n in 0..20 {
        world.finish(call(n, world.now.wall, 4001, true));
        world.run_for(20 * MINUTE);
    }
    let records = world.sandbox.records();
    assert_eq!(records.len(), 20);
    for record in records {
        let uuid = record
            .uuid
            .trim_start_matches("oapi-")
            .parse()
            .expect("a uuid");
        let row = tables::calls::row_of(&world.disk.store, callbridge_model::CallUuid(uuid));
        let row = row.expect("readable").expect("ours");
        let row = tables::calls::row(&world.disk.store, row)
            .expect("readable")
            .expect("a row");
        assert_eq!(row.state, State::Journaled);
        let late = row.since.since(record.registered_at);
        assert!(
            late <= Duration::from_secs(5),
            "{late:?} after it was written"
        );
    }
    assert_eq!(world.disk.store.books().journaled, 20);
    println!("idle day: {} requests", world.sent.len());
    world.assert_never_wrong(&[] as &[ViolationKind]);
}

#[test]
fn three_calls_on_idle_line_are_confirmed_by_one_page() {
    let crm = sandbox::Settings {
        persist_after: Duration::from_secs(1),
        ..sandbox::Settings::default()
    };
    let mut world = World::new(7, Settings::default(), crm);
    world.run_for(MINUTE);
    for n in 0..3 {
        world.finish(call(n, world.now.wall, 4001, true));
    }
    world.run_for(MINUTE / 4);
    let kinds: Vec<&str> = world.sent.iter().map(|(_, endpoint)| *endpoint).collect();
    assert_eq!(
        kinds,
        ["token_info", "submit", "submit", "submit", "filter"]
    );
    assert_eq!(world.disk.store.books().journaled, 3);
}

#[test]
fn failed_call_among_many_is_found_by_an_individual_poll() {
    let mut world = world();
    for n in 0..300 {
        let lead = if n == 77 { 9999 } else { 4001 };
        world.finish(call(n, world.now.wall, lead, false));
    }
    world.run_for(10 * MINUTE);
    let books = world.disk.store.books();
    assert_eq!((books.journaled, books.dead), (299, 1), "{books:?}");
    assert_eq!(world.pause(), None);
    assert!(world.sent.len() <= 320, "{}", world.sent.len());
}

/// Of every 100 requests and answers, 14 fail.
#[test]
fn backlog_under_errors_needs_at_most_2_requests_per_call() {
    let (mut confirmed, mut all) = (0, 0);
    for seed in 1..=8 {
        let settings = sandbox::Settings {
            seed,
            ..sandbox::Settings::default()
        };
        let mut world = World::new(seed, Settings::default(), settings);
        let bad = "any chance 5% lost; any chance 4% status-after 503; any chance 3% broken; \
                   any chance 2% status 503";
        faults(&mut world, bad);
        let (requests, _) = run_backlog(&mut world, 300);
        confirmed += 300;
        all += requests;
    }
    let share = confirmed as f64 / all as f64;
    println!("{confirmed} calls by {all} requests: {share:.3} calls per request");
    assert!(share >= 0.5, "{confirmed} calls by {all} requests");
}
