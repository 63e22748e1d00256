//! Indexes for finding open calls by text, and schedules that order them by time. A lookup doesn't
//! touch any other call.
//!
//! The entries of an [`Index`] are never iterated over, because their order is random, so no result
//! can depend on it.

use crate::UniqueId;
use foldhash::quality::RandomState;
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// Number of finished calls' IDs that are remembered here. The spool remembers more, and for
/// longer.
const FINISHED_IDS_MAX: usize = 8192;

/// Entries by text. A lookup among ten thousand calls costs the same as among ten.
#[derive(Debug)]
pub(crate) struct Index<V>(HashMap<SmolStr, V, RandomState>);

impl<V> Default for Index<V> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<V> Index<V> {
    pub(crate) fn get(&self, text: &str) -> Option<&V> {
        self.0.get(text)
    }

    pub(crate) fn has(&self, text: &str) -> bool {
        self.0.contains_key(text)
    }

    /// Inserts an entry under the text, and returns the previous one.
    pub(crate) fn insert(&mut self, text: &str, value: V) -> Option<V> {
        match self.0.get_mut(text) {
            Some(known) => Some(std::mem::replace(known, value)),
            None => self.0.insert(text.into(), value),
        }
    }

    /// Removes the entry under this text, releasing memory once few entries are left.
    pub(crate) fn remove(&mut self, text: &str) {
        self.0.remove(text);
        if self.0.len() < self.0.capacity() / 16 {
            self.0.shrink_to(self.0.len() * 4);
        }
    }
}

/// Numbers of calls or CDRs by text. A text can have several numbers.
#[derive(Debug, Default)]
pub(crate) struct Keys(BTreeMap<String, BTreeSet<u64>>);

impl Keys {
    pub(crate) fn get(&self, text: &str) -> impl Iterator<Item = u64> {
        self.0.get(text).into_iter().flatten().copied()
    }

    pub(crate) fn insert(&mut self, text: &str, key: u64) {
        self.0.entry(text.to_owned()).or_default().insert(key);
    }

    pub(crate) fn remove(&mut self, text: &str, key: u64) {
        if let Some(keys) = self.0.get_mut(text) {
            keys.remove(&key);
            if keys.is_empty() {
                self.0.remove(text);
            }
        }
    }
}

/// Values by the IDs of the most recently finished calls.
#[derive(Debug, Default)]
pub(crate) struct FinishedIds<V> {
    pub(crate) known: Index<V>,
    order: VecDeque<SmolStr>,
}

impl<V> FinishedIds<V> {
    /// Remembers an ID unless it's empty, dropping the oldest one if there are too many.
    pub(crate) fn insert(&mut self, id: &str, value: V) {
        if id.is_empty() || self.known.insert(id, value).is_some() {
            return;
        }
        self.order.push_back(id.into());
        if self.order.len() > FINISHED_IDS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

/// One moment per call, which can be looked up by call or iterated over in chronological order.
#[derive(Debug, Default)]
pub(crate) struct Schedule<T> {
    pub(super) at: BTreeMap<u64, T>,
    order: BTreeSet<(T, u64)>,
}

impl<T: Copy + Ord> Schedule<T> {
    /// Returns the earliest moment along with its call.
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

    /// Returns the calls ordered by number.
    pub(crate) fn keys(&self) -> impl Iterator<Item = u64> {
        self.at.keys().copied()
    }

    pub(crate) fn has(&self, key: u64) -> bool {
        self.at.contains_key(&key)
    }

    /// Returns the calls that are due, ordered by their moments.
    pub(crate) fn due_at(&self, now: T) -> impl Iterator<Item = u64> {
        let due = self.order.iter().take_while(move |&&(at, _)| now >= at);
        due.map(|&(_, key)| key)
    }
}

/// Returns `true` if this text is one of the IDs.
pub(super) fn has_id(ids: &BTreeSet<UniqueId>, text: &str) -> bool {
    UniqueId::new(text).is_some_and(|id| ids.contains(&id))
}

/// Returns the calls ordered by number.
pub(crate) fn in_order(calls: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut calls: Vec<u64> = calls.collect();
    calls.sort_unstable();
    calls
}
