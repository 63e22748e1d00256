//! Files in a directory that are waiting to be passed on, and the states that show whether a file
//! has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// A file's state at a particular moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileState {
    /// Values that differ whenever the file has been written to or replaced.
    pub(super) content: ContentState,
    /// When the file was last written to, in microseconds since the epoch. This is capped at
    /// `changed`, because any program can set this time.
    pub(super) written: u64,
    /// When the file or its directory entry was last changed (`ctime`), in microseconds since the
    /// epoch. No program can set this time.
    pub(super) changed: u64,
}

/// A file's size, modification time, and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ContentState {
    pub(super) size: u64,
    mtime: (i64, i64),
    inode: u64,
}

impl FileState {
    pub(super) fn from_metadata(metadata: &Metadata) -> Self {
        let changed = micros(metadata.ctime(), metadata.ctime_nsec());
        Self {
            content: ContentState {
                size: metadata.len(),
                mtime: (metadata.mtime(), metadata.mtime_nsec()),
                inode: metadata.ino(),
            },
            written: micros(metadata.mtime(), metadata.mtime_nsec()).min(changed),
            changed,
        }
    }
}

fn micros(seconds: i64, nanos: i64) -> u64 {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    seconds.saturating_mul(1_000_000) + u64::try_from(nanos).unwrap_or(0) / 1_000
}

/// The waiting files, each listed once. The file written first is passed on first.
#[derive(Debug, Default)]
pub(super) struct WaitingFiles {
    states: BTreeMap<OsString, FileState>,
    by_written: BTreeSet<(u64, OsString)>,
    by_changed: BTreeSet<(u64, OsString)>,
}

impl WaitingFiles {
    pub(super) fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// Adds a file in this state, replacing any earlier state of the same file.
    pub(super) fn insert(&mut self, name: OsString, state: FileState) {
        if let Some(earlier) = self.states.insert(name.clone(), state) {
            self.by_written.remove(&(earlier.written, name.clone()));
            self.by_changed.remove(&(earlier.changed, name.clone()));
        }
        self.by_written.insert((state.written, name.clone()));
        self.by_changed.insert((state.changed, name));
    }

    pub(super) fn pop_first(&mut self) -> Option<(OsString, FileState)> {
        let (_, name) = self.by_written.pop_first()?;
        let state = self.states.remove(&name)?;
        self.by_changed.remove(&(state.changed, name.clone()));
        Some((name, state))
    }

    /// Removes and returns the files that were written before `ours_from` or changed before
    /// `changed_from`, both in microseconds since the epoch.
    pub(super) fn take_older(
        &mut self,
        ours_from: u64,
        changed_from: u64,
    ) -> Vec<(OsString, FileState)> {
        let all = std::mem::take(self);
        let mut older = Vec::new();
        for (name, state) in all.states {
            if state.written < ours_from || state.changed < changed_from {
                older.push((name, state));
            } else {
                self.insert(name, state);
            }
        }
        older
    }

    /// Returns the time of the earliest change to a waiting file.
    pub(super) fn first_changed(&self) -> Option<u64> {
        self.by_changed.first().map(|(changed, _)| *changed)
    }

    /// Returns the time of the latest change to a waiting file, or 0 if there is none.
    pub(super) fn last_changed(&self) -> u64 {
        self.by_changed.last().map_or(0, |(changed, _)| *changed)
    }

    /// Returns when the newest waiting file was written, or 0 if there is none.
    pub(super) fn last_written(&self) -> u64 {
        self.by_written.last().map_or(0, |(written, _)| *written)
    }
}
