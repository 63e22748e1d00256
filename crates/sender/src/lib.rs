//! From the spool to the CRM: what is sent when, and what its answer means.
//!
//! ```text
//! Head (spool) ─▶ core: next ─▶ Plan ─▶ commit slot and step ─▶ Client ─▶ ApiResponse
//!                   ▲   pacer: may it go now?                              │
//!                   └───────────── commit ◀── ops ◀── core ◀── verdict ◀───┘
//! ```
//! One loop owns the budget: every byte to the CRM passes it. Pacer, verdict and core are pure;
//! the loop alone reads the clock, the token and the spool.
//!
//! | module | what lives there |
//! |---|---|
//! | [`run`] | the loop: spool, clock, token and client around the core |
//! | [`core`] | the state machine; `choice`: which request is next; [`answered`]: its answer |
//! | [`plan`] | what the core is told, and what it decides |
//! | `budget`, [`pacer`], [`rate`] | may a request go now? |
//! | `in_flight` | the requests under way |
//! | [`gate`] | the circuit breaker: flowing, paused or half open, and why |
//! | [`troubles`] | what fails, each part of the service by itself, and what may be asked of it |
//! | [`outage`] | whether failures are an outage, a call's own, or chance |
//! | [`reconciliation`], `confirmation` | confirming many calls with one request, and by webhooks |
//! | [`unresolved`] | what becomes of calls whose outcome nobody can ask for |
//! | [`memory`] | what is remembered over restarts |
//! | [`schedule`] | when a poll, a probe or a failed call is next; which calls failed |
//! | [`verdict`] | what an answer means; [`outcome`]: verdicts and lanes as lists |
//! | [`crm_proxy`] | the way for commands to ask something of the CRM |
//! | `launch` | the chosen request is made |
//! | `lead_requests` | requests about leads, beside the calls |
//! | `tokens` | the token in use and the one before it, and what is known of them |
//! | `rights` | what the token may do, looked at again and again |
//! | [`token_probe`] | `token/info` where no daemon runs; [`new_state`]: the slots of a new state |
//! | [`status`], `shown` | what is shown, and the lines of the log |
//! | [`token`] | where the token comes from, and whether it is another now |
//! | [`token_update`] | what a keeper tells of it |

pub mod answered;
mod budget;
mod choice;
mod confirmation;
pub mod core;
pub mod crm_proxy;
pub mod gate;
mod in_flight;
mod launch;
mod lead_requests;
pub mod memory;
pub mod new_state;
pub mod outage;
pub mod outcome;
pub mod pacer;
pub mod plan;
pub mod rate;
pub mod reconciliation;
mod rights;
pub mod run;
pub mod schedule;
mod shown;
pub mod status;
pub mod token;
pub mod token_probe;
pub mod token_update;
mod tokens;
pub mod troubles;
pub mod unresolved;
pub mod verdict;

pub use self::core::Core;
pub use crate::crm_proxy::{CrmProxy, ProxyReply, Questions, asking};
pub use plan::Settings;
pub use rate::{Rate, RateError};
pub use run::Sender;
pub use status::SenderStatus;
pub use token::{TokenError, TokenSource};
pub use token_update::{TokenUpdate, Tokens};
pub use tokens::Before;

pub(crate) use confirmation::Confirmation;
pub(crate) use gate::{Admission, Gate, Passed, PauseCause, Streak};
pub(crate) use in_flight::{InFlight, InFlightRequests};
pub(crate) use outage::{Failure, Failures, Fault, Share, by_chance};
pub(crate) use outcome::Outcome;
pub(crate) use pacer::{Pace, Pacer, STRAGGLER, Use};
pub(crate) use plan::{About, Decision, Known, Lane, Launch, Load, Plan, Task};
pub(crate) use reconciliation::page_strategy::PageStrategy;
pub(crate) use reconciliation::{Findings, JournalReconciliation, WORTH};
pub(crate) use rights::Rights;
pub(crate) use schedule::{DEADLINE, OLD_POLL, PROBE, PROBE_LEAST, Retry, TOGETHER, TOKEN_END};
pub(crate) use status::TokenPlace;
pub(crate) use tokens::{KnownTokens, Standing};
pub(crate) use troubles::{Extent, InFlightPart, Part, PartAdmission, SLOW, Troubles};
pub(crate) use verdict::{Bar, Context, StopReason, Verdict};
