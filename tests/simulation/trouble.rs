//! A world with live calls, and rules that make its CRM fail.

use crate::simulation::world::World;
use crate::support::simulated_calls::call;
use callbridge_sandbox as sandbox;
use callbridge_sandbox::ViolationKind;
use callbridge_sandbox::faults::parse;
use callbridge_sender::Settings;
use std::time::Duration;

pub const MINUTE: Duration = Duration::from_secs(60);

/// A uuid that is sent again after a 200 that the sender could not read.
pub const ALLOWED: [ViolationKind; 1] = [ViolationKind::RepeatAfter200];

pub fn world() -> World {
    World::new(7, Settings::default(), sandbox::Settings::default())
}

/// Finishes one live call every ten seconds for this time. The first call has the number `first`.
pub fn finish_calls(world: &mut World, first: u32, time: Duration) {
    let count = u32::try_from(time.as_secs() / 10).expect("few");
    for n in first..first + count {
        world.finish(call(n, world.now.wall, 4001 + i64::from(n % 50), true));
        world.run_for(Duration::from_secs(10));
    }
}

pub fn faults(world: &mut World, text: &str) {
    let (rules, _) = parse(text).expect("faults that can be read");
    world.sandbox.set_faults(rules);
}

/// Returns a world whose CRM has these faults and shapes.
pub fn shaped_world(text: &str) -> World {
    let (rules, shapes) = parse(text).expect("faults and shapes that can be read");
    let crm = sandbox::Settings {
        shapes,
        ..sandbox::Settings::default()
    };
    let mut world = World::new(7, Settings::default(), crm);
    world.sandbox.set_faults(rules);
    world
}
