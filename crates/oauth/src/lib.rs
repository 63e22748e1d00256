//! Tokens by consent: an application connected to a company, and kept connected.
//!
//! ```text
//! connect ─▶ consent page ─▶ redirect ─▶ code ─▶ pair ─▶ state ◀─▶ keeper ─▶ sender
//!                                                                    │
//!                                      refresh: 5 minutes early, or once on 401
//! ```
//! | module | what lives there |
//! |---|---|
//! | [`connection`] | what one consent gave; [`store`]: its place in the state |
//! | [`shown_once`] | secrets that outlive a connection |
//! | [`scope`] | the grants that are needed and useful |
//! | [`consent`] | pure: the consent page and the way back |
//! | [`revoke`] | every token of a connection is revoked |
//! | [`exchange`] | the OAuth endpoints: forms out, pairs back |
//! | [`refresh`] | pure: when a refresh is due, and what its end means |
//! | [`keeper`] | the shell around it: state, endpoints, sender |
//! | [`command`] | `--token-command`: a token that a command prints |

pub mod command;
pub mod connection;
pub mod consent;
pub mod exchange;
pub mod keeper;
pub mod refresh;
pub mod revoke;
pub mod scope;
#[cfg(test)]
pub(crate) mod scripted;
pub mod shown_once;
pub mod store;

pub use connection::Connection;
