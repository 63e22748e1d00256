//! OAuth tokens: connects an application to a company with its consent, and keeps it connected.
//!
//! ```text
//! connect ─▶ consent page ─▶ redirect ─▶ code ─▶ pair ─▶ state ◀─▶ keeper ─▶ sender
//!                                                                    │
//!                                      refresh: 5 minutes early, or once on 401
//! ```
//! | module | contents |
//! |---|---|
//! | [`connection`], [`store`] | the result of one consent; reads it from the state |
//! | [`shown_once`] | secrets that outlive a connection |
//! | [`scope`] | the grants that are needed and useful |
//! | [`consent`] | the address of the consent page, and the redirect from it |
//! | [`revoke`] | revokes every token of a connection |
//! | [`exchange`] | the OAuth endpoints: form requests, and their answers |
//! | [`refresh`] | decides when a refresh is due, and what follows from its result |
//! | [`keeper`] | runs refreshes: state, endpoints, sender |
//! | [`pair_file`] | keeps a new pair while the database is away |
//! | [`command`] | `--token-command`: a token that a command prints |

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
