//! The switches that send events over one source.

use super::SourceStatus;
use serde::{Deserialize, Serialize};

/// A switch that sent events over a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchName {
    /// The switch's own name: `FreeSWITCH-Switchname`, `server_name`.
    pub name: String,
    /// The id of the switch's PBX. The first switch of a source has the source's PBX.
    pub pbx: String,
}

impl SourceStatus {
    /// Records a switch that sent events over this source, up to 64.
    pub fn note_switch(&mut self, name: &str, pbx: &str) {
        const SWITCHES_MAX: usize = 64;
        let known = self.switches.iter().any(|switch| switch.name == name);
        if !known && self.switches.len() < SWITCHES_MAX {
            self.switches.push(SwitchName {
                name: name.to_owned(),
                pbx: pbx.to_owned(),
            });
        }
    }
}
