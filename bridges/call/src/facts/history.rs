//! The distinct values reported for one property of a channel, such as its name, each with the time
//! when it was first reported.

use super::fact::{TEXT_BYTES_MAX, TEXTS_MAX};
use crate::EventTime;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use smol_str::SmolStr;

/// A value, along with when it was first reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamped {
    pub(crate) at: EventTime,
    pub(crate) text: SmolStr,
}

/// The distinct values reported for one property, each with the time when it was first reported.
/// There's usually only one, so no memory is allocated for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct TextHistory(pub(crate) SmallVec<[Stamped; 1]>);

impl TextHistory {
    /// Stores a value, returning `true` if that changed anything.
    pub(crate) fn note(&mut self, at: EventTime, text: &str) -> bool {
        if text.is_empty() || text.len() > TEXT_BYTES_MAX {
            return false;
        }
        if let Some(known) = self.0.iter_mut().find(|known| known.text == text) {
            let earlier = at < known.at;
            known.at = known.at.min(at);
            return earlier;
        }
        let room = self.0.len() < TEXTS_MAX;
        if room {
            let text = text.into();
            self.0.push(Stamped { at, text });
        }
        room
    }

    /// Returns `true` if this value has been stored.
    pub(crate) fn has(&self, text: &str) -> bool {
        self.0.iter().any(|known| known.text == text)
    }

    /// Returns the values, ordered by when each was first reported.
    pub(crate) fn by_time(&self) -> Vec<&Stamped> {
        let mut all: Vec<&Stamped> = self.0.iter().collect();
        all.sort_by_key(|stamped| stamped.at);
        all
    }

    /// Returns the value with the earliest time.
    pub(crate) fn first(&self) -> Option<&Stamped> {
        self.0.iter().min_by_key(|stamped| stamped.at)
    }

    /// Iterates over the values in the order they were stored.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stamped> {
        self.0.iter()
    }
}
