//! The channels of an open call.

use super::leg::Leg;
use crate::units::{EventTime, UniqueId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The channels by their unique ids. Each stands in memory of its own: a call has two or three of
/// them, and room for a dozen whole ones would be kept free otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Legs(BTreeMap<UniqueId, Box<Leg>>);

impl Legs {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, id: &UniqueId) -> Option<&Leg> {
        self.0.get(id).map(Box::as_ref)
    }

    pub(crate) fn get_mut(&mut self, id: &UniqueId) -> Option<&mut Leg> {
        self.0.get_mut(id).map(Box::as_mut)
    }

    pub(crate) fn contains_key(&self, id: &UniqueId) -> bool {
        self.0.contains_key(id)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &UniqueId> {
        self.0.keys()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Leg> {
        self.0.values().map(Box::as_ref)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Leg> {
        self.0.values_mut().map(Box::as_mut)
    }

    /// The channel, first heard of at `at` if it was not yet.
    pub(super) fn met(&mut self, id: UniqueId, at: EventTime) -> &mut Leg {
        let new = |id: &UniqueId| Box::new(Leg::new(id.clone(), at));
        self.0.entry(id).or_insert_with_key(new)
    }

    pub(super) fn remove(&mut self, id: &UniqueId) -> Option<Leg> {
        self.0.remove(id).map(|leg| *leg)
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&UniqueId, &Leg) -> bool) {
        self.0.retain(|id, leg| keep(id, leg));
    }

    /// Takes over the channels of another call. One channel is in one call only; a merge that
    /// finds it in both keeps what is known.
    pub(super) fn absorb(&mut self, other: Self) {
        for (id, leg) in other.0 {
            self.0.entry(id).or_insert(leg);
        }
    }
}
