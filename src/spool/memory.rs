//! The intake's memory of finished calls: looked up for each new channel, beside the writer's
//! thread, so that no look-up waits for a commit.

use super::{Error, folder};
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use std::path::Path;

/// A second, read-only connection to the spool's file.
#[derive(Debug)]
pub struct Memory {
    db: Connection,
}

impl Memory {
    /// Opens it beside the open spool of this folder.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let file = dir.join(folder::FILE);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(&file, flags)
            .map_err(|error| Error::sqlite(&file, &error))?;
        Ok(Self { db })
    }

    /// Whether a call with this unique id or linkedid is finished and stored. Where the file
    /// cannot be read it says no: a call told twice is recognised by its uuid all the same.
    pub fn remembers(&mut self, pbx: &str, id: &str) -> bool {
        let found = self
            .db
            .prepare_cached("SELECT 1 FROM tombstones WHERE pbx = ?1 AND id = ?2")
            .and_then(|mut found| found.query_row((pbx, id), |_| Ok(())).optional());
        match found {
            Ok(found) => found.is_some(),
            Err(error) => {
                tracing::warn!(%error, "finished calls cannot be looked up");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_remembered_of_a_fresh_spool() {
        let dir = tempfile::tempdir().expect("a folder");
        let spool = super::super::open(dir.path(), super::super::Settings::default());
        let (_handle, guard) = spool.expect("a spool");
        let mut memory = Memory::open(dir.path()).expect("beside it");
        assert!(!memory.remembers("pbx", "1.2"));
        drop(memory);
        guard.close();
    }
}
