//! Turns frames from the sources into spool operations, and returns a verdict on each frame to its
//! source.
//!
//! | module | contents |
//! |---|---|
//! | [`run`] | the loop, which takes a group of frames, commits it, and sends the verdicts |
//! | [`core`] | the pure core, which turns frames and `now` into spool operations and verdicts |
//! | [`settings`] | the settings of the assembler and each source |
//! | `source` | a source's decoder and state |
//! | `sources` | the state of each source, as reported by its connection and shown in `status` |
//! | `pbx` | a PBX's assembler and call detail records |
//! | `catch_up` | the second record of its calls (`--catch-up`), merged into the first by `pbx` |
//! | [`mod@under_way`] | calls in progress, and the names that the spool keeps them under |
//! | `proof` | evidence that a source receives events, and its account's missing permissions |
//! | `clocks` | the PBX's clock, and its offset from ours |
//! | `gaps` | where each gap starts and ends, and whose calls it affects |
//! | [`gap_log`] | the most recent gaps, kept for `status` |
//! | [`unmatched`] | channels with outside numbers that don't match any trunk, kept for `status` |
//! | [`read_again`] | rereads unreadable messages |
//! | [`release`] | releases waiting calls once their lead becomes known, or ends the wait |
//! | [`report`] | log messages about each connection |
//! | [`written`] | whether a source is in the configured format |
//! | [`identity`] | the ID of the PBX for sources without `pbx=` |

mod catch_up;
#[cfg(test)]
mod catch_up_tests;
#[cfg(test)]
mod clock_tests;
mod clocks;
pub mod core;
pub mod gap_log;
#[cfg(test)]
mod gap_tests;
mod gaps;
pub mod identity;
#[cfg(test)]
mod late_tests;
mod pbx;
mod proof;
pub mod read_again;
#[cfg(test)]
mod records_tests;
pub mod release;
pub mod report;
#[cfg(test)]
mod restart_tests;
pub mod run;
pub mod settings;
mod source;
mod sources;
#[cfg(test)]
mod tests;
pub mod under_way;
pub mod unmatched;
#[cfg(test)]
mod unread_tests;
pub mod whole_calls;
#[cfg(test)]
mod whole_calls_tests;
pub mod written;

pub use self::core::{Batch, Intake};
pub use gap_log::Gap;
pub use pbx::{begins_another, known_call, server_key};
pub use settings::{Memory, Settings, SourceSettings, label_all};

pub(crate) use pbx::Pbx;
pub(crate) use source::IntakeSource;
