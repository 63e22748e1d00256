//! From a source's frames to what the spool stores, and back with the verdict on each frame.
//!
//! | module | what lives there |
//! |---|---|
//! | [`run`] | the loop: takes a group of frames, commits it, gives the verdicts |
//! | [`core`] | pure: frames and `now` in, spool operations and verdicts out |
//! | [`settings`] | what the flags say of assembling and of each source |
//! | `source` | one source: its decoder, and where it stands |
//! | `pbx` | one PBX: the assembler of its calls |
//! | `records` | its call detail records, where no events tell of a call |
//! | [`identity`] | which PBX a source's calls belong to |

#[cfg(test)]
mod clock_tests;
pub mod core;
pub mod identity;
mod pbx;
mod records;
#[cfg(test)]
mod records_tests;
pub mod run;
pub mod settings;
mod source;
#[cfg(test)]
mod tests;

pub use self::core::{Batch, Intake};
pub use settings::{Settings, SourceSettings};
