//! Open calls in the order of a moment of each: what is due is found without a look at the others.

use std::collections::{BTreeMap, BTreeSet};

/// One moment a call, by call and in order.
#[derive(Debug, Default)]
pub(crate) struct Schedule<T> {
    at: BTreeMap<u64, T>,
    order: BTreeSet<(T, u64)>,
}

impl<T: Copy + Ord> Schedule<T> {
    pub(super) fn get(&self, key: u64) -> Option<T> {
        self.at.get(&key).copied()
    }

    /// The earliest moment, and its call.
    pub(crate) fn first(&self) -> Option<(T, u64)> {
        self.order.first().copied()
    }

    pub(crate) fn put(&mut self, key: u64, at: T) {
        if self.at.get(&key) != Some(&at) {
            self.remove(key);
            self.at.insert(key, at);
            self.order.insert((at, key));
        }
    }

    pub(crate) fn remove(&mut self, key: u64) {
        if let Some(at) = self.at.remove(&key) {
            self.order.remove(&(at, key));
        }
    }

    /// The calls whose moment has come, in the order of their moments.
    pub(super) fn until(&self, now: T) -> impl Iterator<Item = u64> {
        let due = self.order.iter().take_while(move |&&(at, _)| now >= at);
        due.map(|&(_, key)| key)
    }
}

/// Calls in their own order.
pub(super) fn in_order(calls: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut calls: Vec<u64> = calls.collect();
    calls.sort_unstable();
    calls
}
