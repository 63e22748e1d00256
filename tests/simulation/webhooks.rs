//! Tests how many requests webhooks save, and the cost of their failures.

use crate::simulation::trouble::MINUTE;
use crate::simulation::world::World;
use crate::support::simulated_calls::call;
use callbridge_sandbox as sandbox;
use callbridge_sandbox::ViolationKind;
use callbridge_sender::Settings;
use std::time::Duration;

/// Returns a world whose CRM reports each call that it journals.
fn world_with_webhooks() -> World {
    let mut world = World::new(7, Settings::default(), sandbox::Settings::default());
    world.hook();
    world
}

/// Finishes this many calls at once, and runs until all are journaled. Returns requests and
/// minutes.
fn run_backlog(world: &mut World, calls: u32) -> (usize, u64) {
    for n in 0..calls {
        world.finish(call(n, world.now.wall, 4001 + i64::from(n % 50), false));
    }
    let began = world.now.wall;
    while world.disk.store.books().journaled < u64::from(calls) {
        world.run_for(MINUTE / 6);
        let books = world.disk.store.books();
        assert!(world.now.wall.since(began) < 120 * MINUTE, "{books:?}");
    }
    world.assert_never_wrong(&[] as &[ViolationKind]);
    let minutes = world.now.wall.since(began).as_secs() / 60;
    (world.sent.len(), minutes)
}

#[test]
fn calls_confirmed_by_webhook_need_one_request_each() {
    let mut world = world_with_webhooks();
    let (requests, _) = run_backlog(&mut world, 300);
    assert_eq!(requests, 301, "token/info and the submissions");
}

#[test]
fn late_duplicate_or_broken_webhooks_need_few_more_requests() {
    let mut world = world_with_webhooks();
    if let Some(hooks) = &mut world.hooks {
        (hooks.broken, hooks.doubled) = (5, 30);
        hooks.late = (20, Duration::from_secs(45));
    }
    let (requests, minutes) = run_backlog(&mut world, 300);
    println!("5 % broken, 30 % twice, 20 % late: {requests} requests, {minutes} minutes");
    assert!(requests <= 303, "{requests} requests");
}

#[test]
fn journal_reading_confirms_calls_when_webhooks_stop() {
    let mut world = world_with_webhooks();
    run_backlog(&mut world, 100);
    let before = world.sent.len();
    if let Some(hooks) = &mut world.hooks {
        hooks.cut = true;
    }
    for n in 1000..1300 {
        world.finish(call(n, world.now.wall, 4001, false));
    }
    let began = world.now.wall;
    while world.disk.store.books().journaled < 400 {
        world.run_for(MINUTE / 6);
        assert!(world.now.wall.since(began) < 20 * MINUTE);
    }
    let requests = world.sent.len() - before;
    println!("cut off: {requests} requests for 300 calls");
    assert!(requests <= 315, "{requests} requests");
}

#[test]
fn call_is_confirmed_by_webhook_or_soon_after_lost_webhook() {
    let mut world = world_with_webhooks();
    for n in 0..20 {
        let lost = n % 5 == 4;
        if let Some(hooks) = &mut world.hooks {
            hooks.cut = lost;
        }
        let before = world.sent.len();
        world.finish(call(n, world.now.wall, 4001, true));
        world.run_for(Duration::from_secs(if lost { 150 } else { 10 }));
        assert_eq!(world.disk.store.books().journaled, u64::from(n) + 1, "{n}");
        let requests = world.sent.len() - before;
        assert!(
            n == 0 || requests == if lost { 2 } else { 1 },
            "{n}: {requests}"
        );
        world.run_for(2 * MINUTE);
    }
    world.assert_never_wrong(&[] as &[ViolationKind]);
}
