//! Tokens by consent: an application connected to a company, and kept connected.
//!
//! ```text
//! connect ─▶ consent page ─▶ redirect ─▶ code ─▶ pair ─▶ connection.json ◀─▶ keeper ─▶ sender
//!                                                                              │
//!                                              refresh: 5 minutes early, or once on 401
//! ```
//! | module | what lives there |
//! |---|---|
//! | [`connection`] | what one consent gave; [`store`]: its file |
//! | [`scope`] | the grants that are needed and useful |
//! | [`exchange`] | the OAuth endpoints: forms out, pairs back |
//! | [`refresh`] | pure: when a refresh is due, and what its end means |
//! | [`keeper`] | the shell around it: file, lock, endpoints, sender |

pub mod connection;
pub mod exchange;
pub mod keeper;
pub mod refresh;
pub mod scope;
#[cfg(test)]
pub(crate) mod scripted;
pub mod store;

pub use connection::Connection;
