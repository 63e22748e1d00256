//! The sender against the CRM of the document, under a virtual clock: hours in a second.

mod calls;
mod campaign;
mod chain;
mod chain_paths;
mod confirmation;
mod disk;
mod drain;
mod five_minutes;
mod fleet;
mod full;
mod hooked;
mod hooks;
mod log;
#[path = "../../crates/fleet/tests/lease/model.rs"]
#[allow(dead_code, reason = "the lease's own simulation uses the rest")]
mod model;
mod paths;
mod scenario;
mod senders;
mod single_calls;
mod stream;
mod strikes;
mod table;
mod tokens;
mod trouble;
mod way;
mod weather;
mod witness;
mod world;
