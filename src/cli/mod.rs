//! The command line: one binary, `callbridge`.
//!
//! ```text
//! arguments ─▶ Options (texts) ─▶ Command (checked; all faults at once, exit 64) ─▶ dispatch
//! ```
//!
//! | module | what lives there |
//! |---|---|
//! | [`options`] | the flags as typed, with their help |
//! | [`arguments`] | `@FILE`, environment, clap and its faults |
//! | [`faults`] | all that is wrong with one command line |
//! | [`values`] | single values: times, dates, words, numbers |
//! | [`variables`] | those that nothing reads; [`doubts`]: what is likely to be a mistake |
//! | [`config`] | the flags of `run`, `explain`, `check`, checked |
//! | [`command`] | every command, checked; `checking` is the way there |
//! | [`dispatch`] | each command to the part that does it |
//! | [`logging`], `log_lines` | stderr, text or JSON; `log_writer`: also when nobody reads it |
//! | [`manual`] | `man` and `completions` |
//! | [`failure`] | why a command ended |

pub mod arguments;
mod checking;
pub mod command;
pub mod config;
pub mod dispatch;
pub mod doubts;
pub mod failure;
pub mod faults;
mod log_limit;
mod log_lines;
mod log_writer;
pub mod logging;
pub mod manual;
mod manual_sections;
pub mod options;
pub mod values;
pub mod variables;

pub use command::Command;
pub use config::{Config, Logging};
pub use failure::Failure;
pub use faults::Faults;
