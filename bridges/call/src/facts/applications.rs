//! What the channels of an open call run, as far as it tells how they came to be.

use super::fact::{TEXT_BYTES_MAX, TEXTS_MAX};
use crate::units::EventTime;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// Applications in which everybody in one room hears each other.
const ROOMS: [&str; 3] = ["ConfBridge", "MeetMe", "Konference"];

/// A `Dial` that the channel ran, and when it was seen to run it first and last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeenDial {
    pub(crate) data: SmolStr,
    pub(crate) first: EventTime,
    pub(crate) last: EventTime,
}

/// The applications that one channel ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Applications {
    pub(crate) dials: Vec<SeenDial>,
    /// Time at which the channel was first seen to run what only a dialled channel runs.
    pub(crate) outgoing: Option<EventTime>,
    /// Time at which the channel was first seen to run a conference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) conference: Option<EventTime>,
}

impl Applications {
    /// Takes in what the channel runs; `true` if that changed anything. A `Dial` has the number in
    /// its data, and the other side of a `Dial`, `Queue` or originated call runs an application
    /// that nobody can call.
    pub(super) fn run(&mut self, at: EventTime, name: &str, data: &str) -> bool {
        if matches!(name, "AppDial" | "AppDial2" | "AppQueue") {
            return earliest(&mut self.outgoing, at);
        }
        if ROOMS.contains(&name) {
            return earliest(&mut self.conference, at);
        }
        if name != "Dial" || data.is_empty() || data.len() > TEXT_BYTES_MAX {
            return false;
        }
        if let Some(known) = self.dials.iter_mut().find(|known| known.data == data) {
            let changed = at < known.first || at > known.last;
            known.first = known.first.min(at);
            known.last = known.last.max(at);
            return changed;
        }
        let room = self.dials.len() < TEXTS_MAX;
        if room {
            let data = data.into();
            self.dials.push(SeenDial {
                data,
                first: at,
                last: at,
            });
        }
        room
    }

    pub(super) fn absorb(&mut self, other: Self) {
        for dial in other.dials {
            self.run(dial.first, "Dial", &dial.data);
            self.run(dial.last, "Dial", &dial.data);
        }
        if let Some(at) = other.outgoing {
            earliest(&mut self.outgoing, at);
        }
        if let Some(at) = other.conference {
            earliest(&mut self.conference, at);
        }
    }
}

/// Keeps the earlier of the two; `true` if that is another than before.
fn earliest(known: &mut Option<EventTime>, at: EventTime) -> bool {
    let earlier = known.is_none_or(|known| at < known);
    if earlier {
        *known = Some(at);
    }
    earlier
}
