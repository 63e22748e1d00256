//! From a source's frames to what the spool stores, and back with the verdict on each frame.
//!
//! | module | what lives there |
//! |---|---|
//! | [`run`] | the loop: takes a group of frames, commits it, gives the verdicts |
//! | [`core`] | pure: frames and `now` in, spool operations and verdicts out |
//! | [`settings`] | what the flags say of assembling and of each source |
//! | `source` | one source: its decoder, and where it stands |
//! | `pbx` | one PBX: the assembler of its calls; its call detail records, where no events tell |
//! | `catch_up` | the second account of its calls (`--catch-up`), which `pbx` joins to the first |
//! | [`mod@under_way`] | calls that go on: under which names the spool keeps them; what they are |
//! | `proof` | what proves that a source receives events, and what its account lacks |
//! | `clocks` | what a line reports of the PBX's clock, and its difference to ours |
//! | `gaps` | where each gap begins and ends, and whose calls it touches |
//! | [`gap_log`] | the last of them, kept for `status` |
//! | [`unmatched`] | channels of no trunk that carried outside numbers, kept for `status` |
//! | [`read_again`] | messages that could not be read, once more |
//! | [`release`] | waiting calls leave when their lead becomes known, and end after 30 days |
//! | [`report`] | what the log tells of each line |
//! | [`written`] | whether a source is written as it is said to be |
//! | [`identity`] | which PBX a source's calls belong to |

mod catch_up;
#[cfg(test)]
mod catch_up_tests;
#[cfg(test)]
mod clock_tests;
mod clocks;
pub mod core;
pub mod gap_log;
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
pub use pbx::{begins_another, remembered, server_key};
pub use settings::{Memory, Settings, SourceSettings, label_all};

pub(crate) use pbx::Pbx;
pub(crate) use source::IntakeSource;
