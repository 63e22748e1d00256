//! `--notify-command`: a command that is run when kinds of trouble begin or end, and when customers
//! have waited too long for a call back, for whoever has no monitor.
//!
//! | module | what lives there |
//! |---|---|
//! | [`history`] | pure: what waits for a person, and now, in; messages out |
//! | [`waiting`] | pure: who waits for a call back in; messages out |
//! | [`command`] | runs the command, within its time and without our secrets |

pub mod command;
pub mod history;
pub mod waiting;

use std::time::Duration;

/// The values of `--notify-command` and `--notify-missed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The command line, run by `/bin/sh -c`.
    pub command: String,
    /// Time of waiting for a call back after which a customer is reported; `None` reports nobody.
    pub missed: Option<Duration>,
}
