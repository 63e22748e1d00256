//! The version of a file that was read, so the file is read again when it changes.

use callbridge_call::EventTime;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// A version of a file. Inodes are reused at once, and sizes can stay the same, so all fields are
/// compared. The default means that there is no file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileVersion {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileVersion {
    /// Returns the version of the file that this metadata was read from.
    pub fn from_metadata(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Returns the current version of the file, or of a link in its place. `None` if the path does
    /// not exist.
    pub fn now(path: &Path) -> Option<Self> {
        path.symlink_metadata()
            .ok()
            .map(|about| Self::from_metadata(&about))
    }

    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the time of the file's last write or last inode change, whichever is later. A file
    /// that is moved into place counts from the move.
    pub fn written(&self) -> EventTime {
        EventTime::from_seconds(self.modified.0.max(self.changed.0))
    }
}
