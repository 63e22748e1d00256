//! Another daemon on this machine that reads the same source, as `status` shows it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Effect on the calls that two daemons read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Both daemons consume one queue. Each receives a part of the messages of a call.
    Torn,
    /// Calls of a trunk that both daemons watch are journaled twice. This daemon does not know the
    /// trunks of the other one.
    #[default]
    Unknown,
}

/// Another daemon that reads a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherReader {
    /// The daemon's process id. `null` if it is not visible from here.
    pub pid: Option<i32>,
    /// Effect on the calls of the source.
    pub effect: Effect,
}

impl fmt::Display for OtherReader {
    /// Writes `process 812 reads it, too: …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "process {pid}")?,
            None => f.write_str("another process")?,
        }
        f.write_str(match self.effect {
            Effect::Unknown => {
                " reads it, too: each call of a trunk that both have is journaled twice; give each \
                 trunk to one of them"
            }
            Effect::Torn => {
                " reads it, too: each has a part of the queue's messages; stop one of them"
            }
        })
    }
}
