//! The command line, read and checked before anything is opened.
//!
//! ```text
//! arguments ─▶ Options (texts) ─▶ Command (checked; all faults at once, exit 64)
//! ```
//!
//! | module | what lives there |
//! |---|---|
//! | [`options`] | the flags as typed, with their help |
//! | [`arguments`] | `@FILE`, environment, clap and its faults |
//! | [`faults`] | all that is wrong with one command line |
//! | [`variables`] | those that nothing reads; [`doubts`]: what is likely to be a mistake |
//! | [`checked`] | the flags of `run`, `explain`, `check`, checked |
//! | [`command`] | every command, checked; `checking` is the way there |
//! | [`manual`] | `man` and `completions` |

pub mod arguments;
pub mod checked;
mod checking;
pub mod command;
pub mod doubts;
pub mod faults;
pub mod manual;
mod manual_sections;
pub mod options;
pub mod variables;

pub use checked::Config;
pub use command::Command;
pub use faults::Faults;
