//! Is the spool whole after a kill? A copy is looked at, so that nothing is mended by looking.

use rusqlite::Connection;
use std::path::Path;

/// Fails when SQLite finds the spool damaged. None is there before the first commit.
pub fn assert_whole(state: &Path) {
    let Some((_folder, copy)) = copied(state) else {
        return;
    };
    let checked = copy.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
    assert_eq!(checked.as_deref(), Ok("ok"), "{}", state.display());
}

fn copied(state: &Path) -> Option<(tempfile::TempDir, Connection)> {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = |name: &str| std::fs::copy(state.join(name), folder.path().join(name));
    copy("spool.db").ok()?;
    // None is there when the last change is in the database.
    let _ = copy("spool.db-wal");
    let database = Connection::open(folder.path().join("spool.db")).expect("it opens");
    Some((folder, database))
}
