//! The collector, which sends ready calls to a hub and keeps trying until the hub has stored them.
//!
//! | module | contents |
//! |---|---|
//! | [`core`] | decides on the next request and applies responses, with no I/O of its own |
//! | [`batch`] | builds a request's body from calls |
//! | [`client`] | sends a single request to a hub, and reads the response |
//! | [`run`](mod@run) | the loop that connects the core to the spool, clock, token, and client |

pub mod batch;
pub mod client;
pub mod core;
#[cfg(test)]
mod core_tests;
pub mod run;
