//! Sends calls from the spool to the CRM, confirms them, and sends requests about leads.
//!
//! ```text
//! spool ─▶ View ─▶ queue::next ─▶ Task ─▶ commit slot and step ─▶ client ─▶ answer
//!   ▲               ▲   budget: can it go now?                              │
//!   └── commit ◀── Effects ◀── outcome: Verdict ◀───────────────────────────┘
//! ```
//! A single loop owns the budget, and every request to the CRM goes through it. The decisions are
//! made by five pure modules, which take events and `now` and return actions. Their rules are
//! described in `docs/design/sender.md`.
//!
//! | module | question |
//! |---|---|
//! | `budget` | May a request be sent now? |
//! | [`breaker`] | Which endpoints are available, and what pauses everything? |
//! | [`confirm`] | How do we find out that a call was journaled? |
//! | [`queue`] | Which request is next? |
//! | [`outcome`] | What does a response mean, and what does it change? |
//!
//! The other modules support these five. [`core`] holds the state and applies the effects. [`run`]
//! is the loop that connects it to the spool, the clock, the token, and the client. `tokens`,
//! [`token`], and [`token_update`] deal with the token, and `lead_requests` with lead requests.
//! [`token_probe`] and [`new_state`] are for commands without a daemon, and [`crm_proxy`] is for
//! commands while one is running. [`memory`] survives restarts. [`status`] and `log` present the
//! sender's state to the operator.

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
