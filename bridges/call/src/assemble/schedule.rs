//! Open calls in the order of a moment of each: what is due is found without a look at the others.

use crate::units::EventTime;
use std::collections::{BTreeMap, BTreeSet};

/// One moment a call, by call and in order.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    at: BTreeMap<u64, EventTime>,
    order: BTreeSet<(EventTime, u64)>,
}

impl Schedule {
    pub(super) fn get(&self, key: u64) -> Option<EventTime> {
        self.at.get(&key).copied()
    }

    /// The earliest moment, and its call.
    pub(super) fn first(&self) -> Option<(EventTime, u64)> {
        self.order.first().copied()
    }

    pub(super) fn put(&mut self, key: u64, at: EventTime) {
        let before = self.at.insert(key, at);
        if before != Some(at) {
            if let Some(before) = before {
                self.order.remove(&(before, key));
            }
            self.order.insert((at, key));
        }
    }

    pub(super) fn remove(&mut self, key: u64) {
        if let Some(at) = self.at.remove(&key) {
            self.order.remove(&(at, key));
        }
    }

    /// The calls whose moment has come, in the order of the calls.
    pub(super) fn due(&self, now: EventTime) -> Vec<u64> {
        let due = self.order.iter().take_while(|&&(at, _)| now >= at);
        let mut due: Vec<u64> = due.map(|&(_, key)| key).collect();
        due.sort_unstable();
        due
    }
}
