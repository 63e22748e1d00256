//! What survives a restart: open calls as bytes.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;

/// An open call that changed or went since the last take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenChange {
    /// The assembler's own number for the call; stable over restarts.
    pub key: u64,
    /// The call as bytes for [`Assembler::restore`](crate::Assembler::restore); `None` when it is
    /// no longer open.
    pub snapshot: Option<Vec<u8>>,
}

/// A snapshot that cannot be read: the bytes are not what
/// [`Assembler::take_changes`](crate::Assembler::take_changes) gave out.
#[derive(Debug, thiserror::Error)]
#[error("the open call {key} cannot be restored: {source}")]
pub struct Error {
    /// Number of the call, as in [`OpenChange::key`].
    key: u64,
    source: serde_json::Error,
}

/// Keys of the things held that are not as they were last given out.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    changed: BTreeSet<u64>,
    /// Keys of what was given out, and was still held then.
    published: BTreeSet<u64>,
}

impl Changes {
    pub(crate) fn insert(&mut self, key: u64) {
        self.changed.insert(key);
    }

    /// Nothing is held under the key any more: a change for whoever was given what was.
    pub(crate) fn remove(&mut self, key: u64) {
        if self.published.contains(&key) {
            self.changed.insert(key);
        } else {
            self.changed.remove(&key);
        }
    }

    /// Returns what changed or went since the last take; `held` gives the bytes of what is held.
    pub(crate) fn take(&mut self, mut held: impl FnMut(u64) -> Option<Vec<u8>>) -> Vec<OpenChange> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        let changes = changed.filter_map(|key| {
            let was_published = self.published.remove(&key);
            let snapshot = held(key);
            self.published.extend(snapshot.is_some().then_some(key));
            (was_published || snapshot.is_some()).then_some(OpenChange { key, snapshot })
        });
        changes.collect()
    }

    /// Reads what was given out under this key before a restart.
    pub(crate) fn restored<T: DeserializeOwned>(
        &mut self,
        key: u64,
        snapshot: &[u8],
    ) -> Result<T, Error> {
        let held = serde_json::from_slice(snapshot).map_err(|source| Error { key, source })?;
        self.published.insert(key);
        Ok(held)
    }
}

/// Serializes what is held: texts, numbers and lists of them, which always can be.
pub(crate) fn bytes(held: &impl Serialize) -> Option<Vec<u8>> {
    serde_json::to_vec(held).ok()
}
