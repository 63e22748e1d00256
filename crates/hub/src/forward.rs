//! The collector, which sends ready calls to a hub and keeps trying until the hub has stored them.
//!
//! | module | contents |
//! |---|---|
//! | [`core`] | decides the next request, and applies answers; pure |
//! | [`batch`] | makes the body of a request from calls |
//! | [`client`] | sends one request to a hub, and reads its answer |
//! | [`run`](mod@run) | the loop with spool, clock, token, and client |

pub mod batch;
pub mod client;
pub mod core;
#[cfg(test)]
mod core_tests;
pub mod run;
