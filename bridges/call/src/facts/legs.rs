//! The channels of an open call.

use super::Leg;
use crate::{EventTime, UniqueId};
use serde::{Deserialize, Serialize, Serializer};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// The channels, ordered by unique ID. Each one is boxed, because a call only has two or three, and
/// a larger inline buffer would waste memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "BTreeMap<UniqueId, Box<Leg>>")]
pub(crate) struct Legs(SmallVec<[(UniqueId, Box<Leg>); 2]>);

impl Legs {
    fn find(&self, id: &UniqueId) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.cmp(id))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, id: &UniqueId) -> Option<&Leg> {
        self.find(id).ok().map(|place| self.0[place].1.as_ref())
    }

    pub(crate) fn get_mut(&mut self, id: &UniqueId) -> Option<&mut Leg> {
        self.find(id).ok().map(|place| self.0[place].1.as_mut())
    }

    pub(crate) fn contains_key(&self, id: &UniqueId) -> bool {
        self.find(id).is_ok()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &UniqueId> {
        self.0.iter().map(|(id, _)| id)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Leg> {
        self.0.iter().map(|(_, leg)| leg.as_ref())
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Leg> {
        self.0.iter_mut().map(|(_, leg)| leg.as_mut())
    }

    /// Returns the channel `id`. If it isn't known yet, it's added as first seen at `at`, in the
    /// event at position `place` in the stream.
    pub(crate) fn get_or_add(&mut self, id: UniqueId, at: EventTime, place: u64) -> &mut Leg {
        let index = self.find(&id).unwrap_or_else(|index| {
            let leg = Box::new(Leg::new(id.clone(), at, place));
            self.0.insert(index, (id, leg));
            index
        });
        &mut self.0[index].1
    }

    pub(crate) fn remove(&mut self, id: &UniqueId) -> Option<Leg> {
        let place = self.find(id).ok()?;
        Some(*self.0.remove(place).1)
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&UniqueId, &Leg) -> bool) {
        self.0.retain(|(id, leg)| keep(id, leg));
    }

    /// Adds another call's channels. If a channel is in both calls, the one already in this call is
    /// kept.
    pub(crate) fn absorb(&mut self, other: Self) {
        for (id, leg) in other.0 {
            if let Err(place) = self.find(&id) {
                self.0.insert(place, (id, leg));
            }
        }
    }
}

impl From<BTreeMap<UniqueId, Box<Leg>>> for Legs {
    fn from(legs: BTreeMap<UniqueId, Box<Leg>>) -> Self {
        Self(legs.into_iter().collect())
    }
}

impl Serialize for Legs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(id, leg)| (id, leg)))
    }
}
