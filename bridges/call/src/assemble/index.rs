//! What leads from a text to something open, and the open calls in the order of a moment of each:
//! what is asked for is found without a look at the others. The entries of an [`Index`] are looked
//! up and never walked: their order is by chance, so nothing that depends on it can be asked.

use foldhash::quality::RandomState;
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// Ids of finished calls that are remembered here; the spool remembers more, and longer.
const FINISHED_IDS_MAX: usize = 8192;

/// Entries by their texts. A lookup costs the same among ten thousand calls as among ten.
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

    /// Puts an entry under the text; what stood there before.
    pub(crate) fn insert(&mut self, text: &str, value: V) -> Option<V> {
        match self.0.get_mut(text) {
            Some(known) => Some(std::mem::replace(known, value)),
            None => self.0.insert(text.into(), value),
        }
    }

    /// Takes the entry out. What many entries needed is given back when few are left.
    pub(crate) fn remove(&mut self, text: &str) {
        self.0.remove(text);
        if self.0.len() < self.0.capacity() / 16 {
            self.0.shrink_to(self.0.len() * 4);
        }
    }
}

/// Numbers of what is found under each text, where several things may be.
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

/// Values by the ids of the calls that were finished last.
#[derive(Debug, Default)]
pub(crate) struct FinishedIds<V> {
    pub(crate) known: Index<V>,
    order: VecDeque<SmolStr>,
}

impl<V> FinishedIds<V> {
    /// Remembers an id, unless it is empty; the one remembered for the longest time makes room.
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

/// One moment a call, by call and in order.
#[derive(Debug, Default)]
pub(crate) struct Schedule<T> {
    pub(super) at: BTreeMap<u64, T>,
    order: BTreeSet<(T, u64)>,
}

impl<T: Copy + Ord> Schedule<T> {
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
