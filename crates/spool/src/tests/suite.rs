//! The tests that run on both engines. This list is included by `sqlite.rs` and `postgres.rs`.

pub mod acts;
pub mod acts_hub;
pub mod acts_lead_requests;
pub mod acts_listed;
pub mod acts_queue;
mod audited;
mod claims;
mod connection_change;
mod correct;
mod deliveries;
mod directory;
mod doubt;
mod every_act;
mod fields;
mod finish;
mod given;
mod handle;
mod hub;
mod lead_requests;
mod letters;
mod listed;
mod lost;
pub mod missed;
mod model;
mod record_files;
mod round_trip;
mod search;
mod sender;
mod silence;
mod split;
mod stored;
mod trials;
mod turns;
mod walk;
mod words;

use super::ENGINE;
use crate::tests::place::Place;
use crate::tests::{call, table};
use crate::{Settings, Store};

/// Creates a store for this engine whose rows are deleted when it's dropped.
fn store(settings: Settings) -> Store {
    ENGINE.store(settings)
}

/// Creates a state for this engine that can be opened more than once.
fn place() -> Place {
    Place::new(ENGINE)
}

/// Returns the number of random test cases for this engine, given the number for SQLite.
const fn cases(on_sqlite: u32) -> u32 {
    ENGINE.cases(on_sqlite)
}
