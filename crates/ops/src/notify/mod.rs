//! `--notify-command`: a command that is run when kinds of trouble begin or end, and when customers
//! have waited too long for a call back, for whoever has no monitor.
//!
//! | module | what lives there |
//! |---|---|
//! | [`history`] | pure: what waits for a person, and now, in; what is to be told, out |
//! | [`waiting`] | pure: who waits for a call back in; who is to be told of, out |
//! | [`command`] | runs the command, within its time and without our secrets |

pub mod command;
pub mod history;
pub mod waiting;

use std::time::Duration;

/// `--notify-command`, `--notify-missed`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// For `/bin/sh -c`.
    pub command: String,
    /// A customer who waits longer for a call back is told of; nobody is without it.
    pub missed: Option<Duration>,
}
