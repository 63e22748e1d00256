//! callbridge runs beside a PBX. It logs every finished customer call in a CRM's call journal,
//! exactly once, within 60 requests a minute, and without losing any.
//!
//! Data flows one way, through crates that each use only the crates before them. The cores (intake,
//! mapping, spool transitions, sender, sandbox) take events and `now`, and return actions. Only the
//! code around them does I/O. This crate reads the command line, opens everything, and connects it.
//!
//! ```text
//! source ─▶ decoder ─▶ assembler ─▶ intake ─▶ mapping ─▶ spool ─▶ sender ─▶ CRM
//! (bridges/source, asterisk, call)  (crates/intake, mapping, spool, sender, crm)
//! ```
//!
//! | module | what it contains. Each module uses only those above it |
//! |---|---|
//! | [`build_time`] | when this program was built |
//! | [`values`] | single values that people type: times, dates, words, numbers |
//! | [`failure`] | the error that ends a command, and its exit code |
//! | [`terminal`] | what is printed and typed: stdout, stdin, hidden input |
//! | [`state_owner`] | the error for root in another user's state folder |
//! | [`config`] | checked arguments, environment, and secrets |
//! | [`daemon`] | `run`: opens everything, connects it, and stops it in order |
//! | [`commands`] | what each command does |
//! | [`start`](mod@start) | the process: runtime, signals, exit code |

#![warn(unreachable_pub)]
// These docs are read with the private items that they link to.
#![allow(rustdoc::private_intra_doc_links)]

pub(crate) mod build_time;
pub(crate) mod commands;
pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod failure;
#[cfg(test)]
mod golden;
pub(crate) mod start;
pub(crate) mod state_owner;
pub(crate) mod terminal;
pub(crate) mod values;

// `main` and the tests use these items. All other items are private to this crate.
pub use callbridge_admin::{ControlReply, ControlRequest, socket};
pub use commands::dispatch;
pub use commands::explain::run as run_explain;
pub use config::command::{Command, read};
pub use failure::Failure;
pub(crate) use failure::{OrFail, Result};
pub use start::start;
pub(crate) use terminal::{print, wait_for_closed_stdout};

/// The version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit that this build was made from. `unknown` if it was built outside a Git checkout.
pub const COMMIT: &str = match option_env!("CALLBRIDGE_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// The version and commit of this build.
pub(crate) const RELEASE: callbridge_ops::Release = callbridge_ops::Release {
    version: VERSION,
    commit: COMMIT,
};
