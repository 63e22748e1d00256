//! The collector: ready calls to a hub, until the hub has stored them.
//!
//! | module | contents |
//! |---|---|
//! | [`core`] | which request is next, and what an answer means; pure |
//! | [`batch`] | calls to the body of a request |
//! | [`client`] | one request to a hub, and its answer |
//! | [`run`](mod@run) | the loop with spool, clock, token, and client |

pub mod batch;
pub mod client;
pub mod core;
#[cfg(test)]
mod core_tests;
pub mod run;
