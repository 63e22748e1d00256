//! Sends calls from the spool to the CRM, confirms them, and sends requests about leads.
//!
//! ```text
//! spool ─▶ View ─▶ queue::next ─▶ Task ─▶ commit slot and step ─▶ client ─▶ answer
//!   ▲               ▲   budget: can it go now?                              │
//!   └── commit ◀── Effects ◀── outcome: Verdict ◀───────────────────────────┘
//! ```
//! One loop owns the budget, and every request to the CRM passes it. Five pure modules decide:
//! events and `now` go in, actions come out. `docs/design/sender.md` has the rules of these
//! modules.
//!
//! | module | question |
//! |---|---|
//! | `budget` | can a request go now? |
//! | [`breaker`] | which endpoints can be asked? What pauses everything? |
//! | [`confirm`] | how does it become known that a call is journaled? |
//! | [`queue`] | which request is next? |
//! | [`outcome`] | what does an answer mean, and what does it change? |
//!
//! The other modules serve these five. [`core`] holds the state and applies the effects. [`run`] is
//! the loop with spool, clock, token, and client. `tokens`, [`token`], and [`token_update`] are
//! about the token, and `lead_requests` about requests for leads. [`token_probe`] and [`new_state`]
//! serve commands without a daemon, and [`crm_proxy`] serves commands while a daemon runs.
//! [`memory`] is kept over restarts. [`status`] and `log` show the sender to people.

pub mod breaker;
mod budget;
pub mod confirm;
pub mod core;
pub mod crm_proxy;
mod in_flight;
pub mod jitter;
mod lead_requests;
mod log;
pub mod memory;
pub mod new_state;
pub mod outcome;
pub mod plan;
pub mod queue;
pub mod run;
pub mod status;
#[cfg(test)]
mod testing;
pub mod token;
pub mod token_probe;
pub mod token_update;
mod tokens;

pub use self::core::Core;
pub use budget::rate::{Rate, RateError};
pub use budget::{pacer, rate};
pub use crm_proxy::{CrmProxy, ProxyReply, Questions, question_channel};
pub use plan::Settings;
pub use run::Sender;
pub use status::SenderStatus;
pub use token::{TokenError, TokenSource};
pub use token_update::{TokenUpdate, Tokens};
pub use tokens::Before;
