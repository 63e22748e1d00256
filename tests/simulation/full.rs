//! Tests how much of the budget is used while calls are always waiting.

use crate::simulation::way::Network;
use crate::simulation::world::World;
use crate::support::simulated_calls::call;
use callbridge_sandbox as sandbox;
use callbridge_sandbox::ViolationKind;
use callbridge_sender::Settings;
use callbridge_spool::tables;
use std::time::Duration;

#[test]
fn saturated_hour_uses_budget_except_one_round_trip_a_minute() {
    let mut world = World::new(1, Settings::default(), sandbox::Settings::default());
    // Half a second for the request and its answer.
    world.network = Network {
        delay: Duration::from_millis(250),
        ..Network::default()
    };
    for n in 0..3600 {
        world.finish(call(n, world.now.wall, 4001, false));
    }
    let minutes = 60;
    world.run_for(Duration::from_secs(60 * minutes));
    let arrived = u64::try_from(world.witness.arrivals.len()).expect("few");
    // 3600 / (60 + 0.5 + 0.03) is 59.47 per minute, plus the burst of the first window.
    assert!(
        arrived * 100 >= 5940 * minutes,
        "{arrived} requests in {minutes} minutes"
    );
    let books = world.disk.store.books();
    println!("{arrived} requests in {minutes} minutes: {books:?}");
    assert_eq!(books.dead, 0);
    world.run_for(Duration::from_secs(300));
    let (books, requests) = (world.disk.store.books(), world.witness.arrivals.len());
    println!("{} confirmed by {requests} requests", books.journaled);
    assert_eq!(books.journaled, 3600);
    assert!(requests * 98 <= 3600 * 100, "{requests} requests");
    world.assert_never_wrong(&[] as &[ViolationKind]);
}

/// Promise: Calls that just ended are sent before the backlog.
#[test]
fn live_call_does_not_wait_behind_a_backlog() {
    let mut world = World::new(1, Settings::default(), sandbox::Settings::default());
    for n in 0..600 {
        world.finish(call(n, world.now.wall, 4001, false));
    }
    world.run_for(Duration::from_secs(300));
    let mut waits = Vec::new();
    for n in 600..630 {
        let finished = world.now.wall;
        world.finish(call(n, finished, 4001, true));
        world.run_for(Duration::from_secs(20));
        let uuid = call(n, finished, 4001, true)
            .judged
            .record
            .uuid
            .expect("a uuid");
        let row = tables::calls::row_of(&world.disk.store, uuid)
            .expect("readable")
            .expect("a row");
        let row = tables::calls::row(&world.disk.store, row)
            .expect("readable")
            .expect("a row");
        waits.push(row.submitted_at.expect("submitted").since(finished));
    }
    let longest = waits.iter().max().expect("some");
    println!("live calls waited {waits:?}");
    assert!(*longest <= Duration::from_secs(3), "{waits:?}");
    world.assert_never_wrong(&[] as &[ViolationKind]);
}
