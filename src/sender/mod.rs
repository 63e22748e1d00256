//! From the spool to the CRM: what is sent when, and what its answer means.
//!
//! ```text
//! Head (spool) ─▶ core: next ─▶ Plan ─▶ commit slot and step ─▶ Client ─▶ Answer
//!                   ▲   pacer: may it go now?                              │
//!                   └───────────── commit ◀── ops ◀── core ◀── verdict ◀───┘
//! ```
//! One loop owns the budget: every byte to the CRM passes it. Pacer, verdict and core are pure;
//! the loop alone reads the clock, the token and the spool.

pub mod core;
pub mod line;
pub mod outcome;
pub mod pacer;
pub mod plan;
pub mod rate;
pub mod run;
pub mod schedule;
pub mod status;
pub mod token;
pub mod verdict;

pub use self::core::Core;
pub use plan::Settings;
pub use rate::{Rate, RateError};
pub use run::Sender;
pub use status::SenderStatus;
pub use token::{TokenError, TokenSource};
