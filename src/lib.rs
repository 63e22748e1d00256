//! callbridge stands beside a PBX and puts every finished customer call into a CRM's call
//! journal: once, correctly, within 60 requests a minute, and with nothing lost.
//!
//! Data flows one way; each module can be tested alone. The cores (journal, spool transitions,
//! sender, sandbox) take events and `now` and return actions; only shells touch the world.
//!
//! ```text
//! source ─▶ decoder ─▶ assembler ─▶ journal ─▶ spool ─▶ sender ─▶ CRM
//! (bridges/source, asterisk, call)  (src/journal, spool, sender, crm)
//! ```

pub mod check;
pub mod cli;
pub mod clock;
pub mod control;
pub mod crm;
pub mod daemon;
pub mod dead_letter;
pub mod demo;
pub mod explain;
pub mod intake;
pub mod journal;
pub mod ops;
pub mod people;
pub mod sandbox;
pub mod secret;
pub mod sender;
pub mod spool;
pub mod trunk;

/// The version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit it was built from; `unknown` outside a checkout.
pub const COMMIT: &str = match option_env!("CALLBRIDGE_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};
