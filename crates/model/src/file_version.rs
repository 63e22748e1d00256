//! Which version of a file was read, so that a file is read anew when it changes.

use callbridge_call::EventTime;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// A version of a file. Inodes are reused at once and sizes stay, so all of it counts; the default
/// is that of no file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileVersion {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileVersion {
    /// Of the file that this was told of.
    pub fn of(about: &Metadata) -> Self {
        Self {
            device: about.dev(),
            inode: about.ino(),
            bytes: about.len(),
            modified: (about.mtime(), about.mtime_nsec()),
            changed: (about.ctime(), about.ctime_nsec()),
        }
    }

    /// Of the file as it is now, or of a link in its place; `None` when it is not there.
    pub fn now(path: &Path) -> Option<Self> {
        path.symlink_metadata().ok().map(|about| Self::of(&about))
    }

    /// How long the file is.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When it was written or put in its place last.
    pub fn written(&self) -> EventTime {
        EventTime::from_seconds(self.modified.0.max(self.changed.0))
    }
}
