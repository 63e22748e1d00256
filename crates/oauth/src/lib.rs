//! OAuth tokens. This crate connects an application to a company with that company's consent, and
//! keeps it connected.
//!
//! ```text
//! connect ─▶ consent page ─▶ redirect ─▶ code ─▶ pair ─▶ state ◀─▶ keeper ─▶ sender
//!                                                                    │
//!                                      refresh: 5 minutes early, or once on 401
//! ```
//! | module | contents |
//! |---|---|
//! | [`connection`], [`store`] | the result of one consent, and how it's read from the state |
//! | [`shown_once`] | secrets that outlive a connection |
//! | [`scope`] | the grants that are required or useful |
//! | [`consent`] | the consent page's URL, and the redirect from it |
//! | [`revoke`] | revokes all of a connection's tokens |
//! | [`exchange`] | the OAuth endpoints, with form requests and their responses |
//! | [`refresh`] | decides when a refresh is due, and what follows from its result |
//! | [`keeper`] | runs refreshes, using the state, the endpoints, and the sender |
//! | [`pair_file`] | keeps a new pair while the database is unavailable |
//! | [`command`] | `--token-command`, a command that prints a token |

pub mod command;
pub mod connection;
pub mod consent;
pub mod exchange;
pub mod keeper;
pub mod pair_file;
pub mod refresh;
pub mod revoke;
pub mod scope;
#[cfg(test)]
pub(crate) mod scripted;
pub mod shown_once;
pub mod store;

pub use connection::Connection;
