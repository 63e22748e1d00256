//! Serialized snapshots of open calls, which survive a restart.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;

/// An open call that has changed or ended since the changes were last taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenChange {
    /// The assembler's number for the call, which stays the same after a restart.
    pub key: u64,
    /// The serialized call for [`Assembler::restore`](crate::Assembler::restore), or `None` if it's
    /// no longer open.
    pub snapshot: Option<Vec<u8>>,
}

/// A snapshot that can't be read, because it doesn't come from
/// [`Assembler::take_changes`](crate::Assembler::take_changes).
#[derive(Debug, thiserror::Error)]
#[error("the open call {key} cannot be restored: {source}")]
pub struct Error {
    /// The call's number, as in [`OpenChange::key`].
    key: u64,
    source: serde_json::Error,
}

/// Keys of the entries that have changed since they were last published.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    changed: BTreeSet<u64>,
    /// Keys of the entries that existed when changes were last published.
    published: BTreeSet<u64>,
}

impl Changes {
    pub(crate) fn insert(&mut self, key: u64) {
        self.changed.insert(key);
    }

    /// Removes the key, which only counts as a change if the entry was published.
    pub(crate) fn remove(&mut self, key: u64) {
        if self.published.contains(&key) {
            self.changed.insert(key);
        } else {
            self.changed.remove(&key);
        }
    }

    /// Returns the changes since the last time this was called. `held` returns an entry's snapshot,
    /// or `None` if it no longer exists.
    pub(crate) fn take(&mut self, mut held: impl FnMut(u64) -> Option<Vec<u8>>) -> Vec<OpenChange> {
        let mut changes = Vec::new();
        for key in std::mem::take(&mut self.changed) {
            let was_published = self.published.remove(&key);
            let snapshot = held(key);
            if snapshot.is_some() {
                self.published.insert(key);
            }
            if was_published || snapshot.is_some() {
                changes.push(OpenChange { key, snapshot });
            }
        }
        changes
    }

    /// Reads the snapshot that was published under this key before a restart.
    pub(crate) fn restore<T: DeserializeOwned>(
        &mut self,
        key: u64,
        snapshot: &[u8],
    ) -> Result<T, Error> {
        let held = serde_json::from_slice(snapshot).map_err(|source| Error { key, source })?;
        self.published.insert(key);
        Ok(held)
    }
}

/// Serializes an entry. This always succeeds, because entries contain only texts, numbers, and
/// lists of them.
pub(crate) fn bytes(held: &impl Serialize) -> Option<Vec<u8>> {
    serde_json::to_vec(held).ok()
}
