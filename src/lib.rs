//! callbridge stands beside a PBX and puts every finished customer call into a CRM's call
//! journal: once, correctly, within 60 requests a minute, and with nothing lost.
//!
//! Data flows one way; each module can be tested alone. The cores (intake, journal, spool
//! transitions, sender, sandbox) take events and `now` and return actions; only shells touch the
//! world.
//!
//! ```text
//! source ─▶ decoder ─▶ assembler ─▶ journal ─▶ spool ─▶ sender ─▶ CRM
//! (bridges/source, asterisk, call)  (src/journal, spool, sender, crm)
//! ```
//!
//! | module | what lives there, in the order of the flow |
//! |---|---|
//! | [`cli`] | arguments, environment and secrets, checked; exit codes, logging |
//! | [`commands`] | what each command does, and with which answer |
//! | [`daemon`] | `run`: opens everything, joins it and stops it in order |
//! | [`intake`] | frames of the sources to finished calls; a verdict on each after the commit |
//! | [`dead_letter`] | calls that could not be journaled: shown, tried again, published |
//! | [`control`] | commands to the running daemon: `status`, `dead …`, `lead …` |
//! | [`ops`] | health, metrics, status, systemd |
//! | [`machine`] | which machine this is, hashed |
//! | [`privilege`] | root in a state folder of another's |

pub mod build_time;
pub mod commands;
pub mod config;
pub mod control;
pub mod daemon;
pub mod dead_letter;
pub mod explain;
pub mod failure;
#[cfg(test)]
mod golden;
pub mod intake;
pub mod log;
pub mod machine;
pub mod ops;
pub mod privilege;
pub mod stdout;
pub mod values;

/// The version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit it was built from; `unknown` outside a checkout.
pub const COMMIT: &str = match option_env!("CALLBRIDGE_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};
