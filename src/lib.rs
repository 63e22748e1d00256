//! callbridge stands beside a PBX and puts every finished customer call into a CRM's call
//! journal: once, correctly, within 60 requests a minute, and with nothing lost.
//!
//! Data flows one way, through crates that each use only those before them; the cores (intake,
//! mapping, spool transitions, sender, sandbox) take events and `now` and return actions, and only
//! shells touch the world. This crate reads the command line, opens everything and joins it.
//!
//! ```text
//! source ─▶ decoder ─▶ assembler ─▶ intake ─▶ mapping ─▶ spool ─▶ sender ─▶ CRM
//! (bridges/source, asterisk, call)  (crates/intake, mapping, spool, sender, crm)
//! ```
//!
//! | module | what lives there; each uses those above it alone |
//! |---|---|
//! | [`build_time`] | when this program was made |
//! | [`values`] | single values that people type: times, dates, words, numbers |
//! | [`failure`] | why a command ended, and with which code |
//! | [`terminal`] | what is printed and typed: stdout, stdin, a keyboard that shows nothing |
//! | [`state_owner`] | the error for root in another user's state folder |
//! | [`config`] | arguments, environment and secrets, checked |
//! | [`daemon`] | `run`: opens everything, joins it and stops it in order |
//! | [`commands`] | what each command does |
//! | [`start`](mod@start) | the process: runtime, signals, exit code |

#![warn(unreachable_pub)]
// Its documentation is read with the private items that it links to.
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

// What `main` and the tests use; all else is this crate's own.
pub use callbridge_admin::{ControlReply, ControlRequest, socket};
pub use commands::dispatch;
pub use commands::explain::run as run_explain;
pub use config::command::{Command, read};
pub use failure::Failure;
pub(crate) use failure::{OrFail, Result};
pub use start::start;
pub(crate) use terminal::{nobody_reads, print};

/// The version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit it was built from; `unknown` outside a checkout.
pub const COMMIT: &str = match option_env!("CALLBRIDGE_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// The version and commit of this build.
pub(crate) const RELEASE: callbridge_ops::Release = callbridge_ops::Release {
    version: VERSION,
    commit: COMMIT,
};
