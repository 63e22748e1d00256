//! Turns the frames of the sources into operations of the spool, and returns a verdict on each
//! frame to its source.
//!
//! | module | contents |
//! |---|---|
//! | [`run`] | the loop: takes a group of frames, commits it, and sends the verdicts |
//! | [`core`] | pure: frames and `now` in, spool operations and verdicts out |
//! | [`settings`] | the settings of the assembler and of each source |
//! | `source` | one source: its decoder and its state |
//! | `sources` | the state of each source, as its connection reports it and `status` shows it |
//! | `pbx` | one PBX: the assembler of its calls, and its call detail records |
//! | `catch_up` | the second account of its calls (`--catch-up`), which `pbx` adds to the first |
//! | [`mod@under_way`] | calls in progress, and the names under which the spool keeps them |
//! | `proof` | evidence that a source receives events, and the rights that its account lacks |
//! | `clocks` | the PBX's clock, and its difference from ours |
//! | `gaps` | where each gap begins and ends, and whose calls it affects |
//! | [`gap_log`] | the newest gaps, kept for `status` |
//! | [`unmatched`] | channels of no trunk that carried outside numbers, kept for `status` |
//! | [`read_again`] | reads unreadable messages again |
//! | [`release`] | releases waiting calls when their lead becomes known, and ends the wait |
//! | [`report`] | log messages about each connection |
//! | [`written`] | whether a source has the configured format |
//! | [`identity`] | the id of the PBX whose sources have no `pbx=` |

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
