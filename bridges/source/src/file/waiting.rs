//! Files of a folder that wait to be given, and the states that show whether a file has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// The state of a file at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileState {
    /// Values that differ whenever the file was written to or replaced.
    pub(super) content: ContentState,
    /// Time of the last write, in microseconds since the epoch. At most `changed`, because a
    /// program can set this time.
    pub(super) written: u64,
    /// Time of the last change of the file or its entry (`ctime`), in microseconds since the epoch.
    /// No program can set it.
    pub(super) changed: u64,
}

/// Size, modification time, and inode of a file.
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

/// Files that wait, each once. The file that was written first is given first.
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

    /// Adds a file in this state. An earlier state of the same file is replaced.
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

    /// Returns the time of the earliest change of a waiting file.
    pub(super) fn first_changed(&self) -> Option<u64> {
        self.by_changed.first().map(|(changed, _)| *changed)
    }

    /// Returns the time of the latest change of a waiting file. 0 if no file waits.
    pub(super) fn last_changed(&self) -> u64 {
        self.by_changed.last().map_or(0, |(changed, _)| *changed)
    }

    /// Returns the time at which the newest waiting file was written. 0 if no file waits.
    pub(super) fn last_written(&self) -> u64 {
        self.by_written.last().map_or(0, |(written, _)| *written)
    }
}
