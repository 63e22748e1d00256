//! The files of a state folder: their names, how they are made, and what may stand in their place.

use super::Error;
use callbridge_model::plain_file;
use rusqlite::{Connection, OpenFlags};
use std::fs::{DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

/// The database in the state folder.
pub const FILE: &str = "spool.db";
/// The lock in the state folder.
pub const LOCK: &str = "spool.lock";

/// SQLite opens its files by their names, whatever stands there: what is no plain file is refused
/// before it does.
///
/// # Errors
/// [`Error::NotPlain`], which says what stands there; [`Error::NotWritable`] where the system does
/// not let us look.
pub(super) fn check_siblings(file: &Path) -> Result<(), Error> {
    for end in ["", "-wal", "-shm", "-journal"] {
        let mut name = file.as_os_str().to_owned();
        name.push(end);
        let path = Path::new(&name);
        plain_file::check(path).map_err(|error| not_writable(path, &error))?;
    }
    Ok(())
}

/// Opens a connection that writes, to a file that is there.
pub(super) fn connect(file: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(file, flags).map_err(|error| Error::sqlite(file, &error))
}

pub(super) fn not_writable(path: &Path, error: &io::Error) -> Error {
    let (path, why) = (path.to_path_buf(), error.to_string());
    match error.kind() {
        // as `plain_file` says it
        ErrorKind::InvalidInput => Error::NotPlain { path, why },
        _ => Error::NotWritable { path, why },
    }
}

/// A folder that is made here, or is found empty, is made private. One that holds other things
/// keeps its mode: it may be shared on purpose, and the files are private anyway.
pub(super) fn make_folder(dir: &Path) -> Result<(), Error> {
    let wrong = |error: io::Error| not_writable(dir, &error);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(wrong)?;
    let is_empty = dir.read_dir().map_err(wrong)?.next().is_none();
    if is_empty {
        std::fs::set_permissions(dir, Permissions::from_mode(0o700)).map_err(wrong)?;
    }
    Ok(())
}

/// SQLite syncs its files; that they stand in their folder is to be synced as well.
pub(super) fn sync_folder(file: &Path) -> Result<(), Error> {
    let Some(dir) = file.parent() else {
        return Ok(());
    };
    let synced = plain_file::folder(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|error| not_writable(dir, &error))
}
