//! Another daemon on this machine that reads the same source, as `status` shows it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What it does to the calls that two daemons read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Nothing: its trunks are others, or one of both journals nothing.
    #[default]
    None,
    /// Every call of a trunk that both have is journaled under two uuids.
    Twice,
    /// Every such call is sent by both, under one uuid.
    SentTwice,
    /// Each has a part of the queue's messages, and so no whole call.
    Torn,
}

/// Another daemon on a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherReader {
    /// Its process; `null` where that cannot be seen from here.
    pub pid: Option<i32>,
    /// Its state folder.
    pub state: String,
    /// The id that it has for the PBX.
    pub pbx: String,
    /// What it does to the calls.
    pub effect: Effect,
}

impl fmt::Display for OtherReader {
    /// `process 812 (state /var/lib/callbridge/pbx1) reads it, too: …`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "process {pid}")?,
            None => f.write_str("another process")?,
        }
        let does = match self.effect {
            Effect::None => "no call is journaled by both",
            Effect::Twice => "each call of a trunk of both is journaled twice; stop one of them",
            Effect::SentTwice => {
                "each call of a trunk of both is sent by both, under one uuid; stop one of them"
            }
            Effect::Torn => "each has a part of the queue's messages; stop one of them",
        };
        write!(
            f,
            " (state {}, PBX {}) reads it, too: {does}",
            self.state, self.pbx
        )
    }
}
