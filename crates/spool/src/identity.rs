//! Detects whether the database file is the one last used here, or a copy.
//!
//! A state folder restored from a backup doesn't know about requests made since then, so its slots
//! can't be relied on. Four signs reveal a copy:
//!
//! | sign | where it is kept | what it shows |
//! |---|---|---|
//! | inode and birth time of the file | in the file: `spool.file` | a new file |
//! | inode, birth time, last change | in `spool.lock`, after a clean end | an overwritten file |
//! | SQLite's log is missing | – | an overwritten file, after an unclean end |
//! | data and inode changed at one time | – | the same, if the log was copied too |
//!
//! Once a process was killed, it's the log that tells its file from a copy: SQLite deletes the log
//! only at a clean end, whereas a database is restored without it, since the log of another file
//! would damage it. The times don't help there, because a plain `cp` sets both of them at once.
//!
//! A sign may report a file that isn't a copy: `chown` changes the inode's time, and another
//! program that opens the database after a kill may delete the log. The signs miss a snapshot of
//! the whole machine, and a database that `cp` writes over the file of a killed process whose log
//! stays.

use crate::tables::meta::{CLEAN, FILE};
use crate::tables::unreadable_settings;
use crate::{Error, Op, Silence, SilenceReason, Store};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::UNIX_EPOCH;

/// Takes the place of a stamp that a killed process couldn't write, if the log is missing too. It
/// matches no file, so it keeps the doubt until a commit does.
pub(super) const NO_LOG: &str = "no log";

/// A file's metadata in its folder, before it's opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Stays the same for the file's entire life. Any copy has a different identity.
    pub identity: String,
    /// Stays the same until the file is changed.
    pub stamp: String,
    /// Whether data and inode last changed at the same time, in which case no program set the
    /// file's times.
    pub natural: bool,
}

impl Seen {
    pub fn from_metadata(meta: &Metadata) -> Self {
        // Inode numbers are soon reused, so the birth time is added, or the device if there's no
        // birth time.
        let birth = meta.created().map(|at| at.duration_since(UNIX_EPOCH));
        let identity = match birth {
            Ok(Ok(birth)) => format!("{}:{}", meta.ino(), birth.as_nanos()),
            Ok(Err(_)) | Err(_) => format!("{}:dev{}", meta.ino(), meta.dev()),
        };
        let ctime = meta.ctime();
        let nanos = meta.ctime_nsec();
        Self {
            stamp: format!("{identity}:{}:{ctime}.{nanos:09}", meta.len()),
            natural: (meta.mtime(), meta.mtime_nsec()) == (ctime, nanos),
            identity,
        }
    }

    /// Returns `true` if the file may be a copy. `own` is the identity in the file, `stamp` is the
    /// stamp in the lock file, and `used` tells whether slots from earlier requests are stored.
    pub fn is_doubtful(&self, own: Option<&str>, stamp: Option<&str>, used: bool) -> bool {
        match (own, stamp) {
            // The file was written by a version that didn't record identities.
            (None, _) => used,
            (Some(own), _) if own != self.identity => true,
            (Some(_), Some(stamp)) => stamp != self.stamp,
            // The process was killed, and its log is still there.
            (Some(_), None) => !self.natural,
        }
    }
}

/// Makes a process's first commit, which allows the next start to detect an unclean end and a
/// copied file. If the file may be a copy (`is_doubtful`), a silence begins, or the stored one
/// starts over.
pub(crate) fn begin(store: &mut Store, seen: &Seen, is_doubtful: bool) -> Result<(), Error> {
    let mut ops = vec![
        Op::MetaGone(CLEAN.into()),
        Op::meta(FILE, seen.identity.as_str()),
    ];
    if is_doubtful {
        let kept = store.silence().map(|silence| silence.why.clone());
        let why = kept.unwrap_or(SilenceReason::Copied);
        ops.push(Op::Silence(Silence::to_begin(why)));
    }
    unreadable_settings::reset(store)?;
    store.write(ops).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored_identity() -> Seen {
        Seen {
            identity: "7:1".into(),
            stamp: "7:1:100:5.0".into(),
            natural: true,
        }
    }

    #[test]
    fn unchanged_file_is_not_doubtful() {
        let file = stored_identity();
        assert!(!file.is_doubtful(Some("7:1"), Some("7:1:100:5.0"), true));
        assert!(!file.is_doubtful(Some("7:1"), None, true), "killed");
        assert!(!file.is_doubtful(None, None, false), "no request yet");
    }

    #[test]
    fn each_sign_of_a_copied_file_makes_it_doubtful() {
        let file = stored_identity();
        assert!(file.is_doubtful(Some("8:1"), Some("7:1:100:5.0"), true));
        assert!(file.is_doubtful(Some("7:1"), Some("7:1:100:4.0"), true));
        assert!(file.is_doubtful(Some("7:1"), Some(NO_LOG), true));
        assert!(file.is_doubtful(None, None, true));
        let dated = Seen {
            natural: false,
            ..stored_identity()
        };
        assert!(dated.is_doubtful(Some("7:1"), None, true));
    }
}
