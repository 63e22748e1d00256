//! `--notify-command`: a command that is run once when a kind of trouble begins and once when it
//! ends, for whoever has no monitor.
//!
//! | module | what lives there |
//! |---|---|
//! | [`history`] | pure: what waits for a person, and now, in; what is to be told, out |
//! | [`command`] | runs the command, within its time and without our secrets |

pub mod command;
pub mod history;
