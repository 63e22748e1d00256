//! From a source's frames to what the spool stores, and back with the verdict on each frame.
//!
//! | module | what lives there |
//! |---|---|
//! | [`core`] | pure: frames and `now` in, spool operations and verdicts out |
//! | [`run`] | the loop around it: takes a group, commits it, gives the verdicts |
//! | [`identity`] | which PBX a source's calls belong to |

pub mod core;
pub mod identity;
pub mod run;
#[cfg(test)]
mod tests;

pub use self::core::{Batch, Intake, Settings, SourceSettings};
