//! A second, read-only connection to the spool's file, for whoever cannot wait for a commit.

use super::{Db, Error, files};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Connection that only reads, and follows the file when that is made anew.
#[derive(Debug)]
pub(super) struct ReadConnection {
    db: Db,
    /// Device and inode of what is open.
    opened: Option<(u64, u64)>,
}

fn identity(file: &Path) -> Option<(u64, u64)> {
    let meta = file.symlink_metadata().ok()?;
    Some((meta.dev(), meta.ino()))
}

impl ReadConnection {
    /// Opens it beside the open spool of this folder.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        Self::of(dir.join(files::FILE))
    }

    fn of(file: PathBuf) -> Result<Self, Error> {
        files::check_siblings(&file)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(&file, flags)
            .map_err(|error| Error::sqlite(&file, &error))?;
        // A plan that hangs on the values asked for is made anew for each of them.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
            .map_err(|error| Error::sqlite(&file, &error))?;
        let opened = identity(&file);
        Ok(Self {
            db: Db::new(db, &file),
            opened,
        })
    }

    /// The connection. A file that was deleted in use is made anew by the writer: what it holds
    /// from then on is read there.
    pub fn db(&mut self) -> &Db {
        let now = identity(&self.db.path);
        if now.is_some() && now != self.opened {
            match Self::of(self.db.path.clone()) {
                Ok(anew) => *self = anew,
                Err(error) => tracing::warn!(%error, "the state is read as it was"),
            }
        }
        &self.db
    }
}
