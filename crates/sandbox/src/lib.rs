//! The CRM of the Open API document, to try things on: requests in, answers out, and a list of
//! what the client did against the document. Stricter than the real one, never kinder.
//!
//! The core ([`Sandbox`]) is handed `now` with each request; [`start`] puts it behind a socket.
//!
//! | module | what lives there |
//! |---|---|
//! | [`envelope`] | requests, answers, the two envelopes and the refusals (§2.1, §7) |
//! | [`token`] | tokens, grants, companies, the expiry warning (§2.2, §2.3, §3.1, §5) |
//! | [`window`] | the fixed window of a token (Limits) |
//! | [`routes`] | paths to endpoints (§4) |
//! | [`call_history`], [`filter`] | the rules of a submission and of a page (§2.6, §4.5, §4.7) |
//! | [`journal`] | accepted writes, their outcome, the records (§3.2, §4.6) |
//! | [`oauth`] | applications, consent, codes, refresh tokens (§4.1, §4.2, §5.6, §7.6) |
//! | [`violations`], [`client_rules`], [`repeats`] | what clients do wrong |
//! | [`faults`], `apply_fault`, [`shapes`] | what the service does wrong, or leaves unpublished |
//! | [`core`], `settle` | the state; the end of accepted writes |
//! | `answer`, `endpoints` | the way of a request |
//! | [`webhook`] | events, deliveries, their journal (§6) |
//! | [`lead`] | leads and their endpoints (§4.4, §4.7) |
//! | [`admin`], `company` | what a person does in the CRM |
//! | [`config`], [`options`], `duration` | settings; the flags of the command |
//! | [`server`], `shared`, `http`, [`state_file`], `pairs` | the shell: clock, sockets, file |

pub mod admin;
mod answer;
mod apply_fault;
mod body;
pub mod call_history;
pub mod client_rules;
mod company;
pub mod config;
pub mod core;
mod duration;
mod endpoints;
pub mod envelope;
pub mod error;
pub mod faults;
pub mod filter;
mod http;
pub mod journal;
pub mod lead;
pub mod oauth;
pub mod options;
mod page;
mod pairs;
pub mod repeats;
pub mod routes;
pub mod server;
mod settle;
pub mod shapes;
mod shared;
pub mod state_file;
pub mod token;
mod token_gen;
pub mod violations;
pub mod webhook;
pub mod window;

#[cfg(test)]
mod tests;

pub use self::config::{Config, Settings};
pub use self::core::Sandbox;
pub use self::envelope::{Delivery, Request, Response, Role};
pub use self::error::Error;
pub use self::faults::{Action, Rule};
pub use self::journal::Record;
pub use self::options::{Options, run};
pub use self::routes::Endpoint;
pub use self::server::{Server, start, start_with};
pub use self::shared::{SandboxClock, SharedSandbox, steady_clock};
pub use self::violations::{Violation, ViolationKind};
