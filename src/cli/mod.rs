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
//! | [`config`], [`values`] | the flags of `run`, `explain`, `check`, checked |
//! | [`command`] | every command, checked |
//! | [`secrets`] | files, systemd credentials, variables |
//! | [`logging`] | stderr, text or JSON |
//! | [`exit`] | sysexits codes |

pub mod arguments;
pub mod command;
pub mod config;
pub mod dispatch;
pub mod environment;
pub mod exit;
pub mod faults;
pub mod logging;
pub mod manual;
pub mod options;
pub mod secrets;
mod trunks;
pub mod values;

pub use command::Command;
pub use config::{Config, Logging};
pub use environment::Environment;
pub use exit::{Code, ExitCode, Failure};
pub use faults::Faults;
