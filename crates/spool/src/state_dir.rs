//! The state folder and its files: their names, how they're created, the lock, and whether they're
//! still in place.
//!
//! A file that's deleted while open still works, but its content is lost when the process ends. So
//! before each commit, the database, its log (`-wal`), and the lock file must be in place, and must
//! be the same files as those that are open. If they aren't, nothing is stored, and [`Error::Gone`]
//! ends the daemon. A folder that disappears while in use isn't recreated.

use super::identity::{NO_LOG, Seen};
use crate::Error;
use callbridge_model::plain_file;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

/// Name of the database in the state folder.
pub const FILE: &str = "spool.db";
/// Name of the lock in the state folder.
pub const LOCK: &str = "spool.lock";

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// An open state's files.
pub(super) struct StateDir {
    pub(super) file: PathBuf,
    /// The database file, held open to check that its name still leads to the same file. It's
    /// closed after SQLite has closed the file, because closing any handle to a file releases its
    /// locks.
    pub(super) held: File,
    /// The lock, which is released last, after the database file has been closed.
    pub(super) lock: Lock,
}

impl StateDir {
    /// Checks that the open files are still in place.
    ///
    /// # Errors
    /// Returns [`Error::Gone`] if a file was removed or replaced, or [`Error::NotWritable`] if the
    /// system doesn't allow the check.
    pub fn check_in_place(&self) -> Result<(), Error> {
        self.check_name(&self.file, &self.held)?;
        // The log exists from the first commit until the last connection ends.
        let log = sibling_path(&self.file, "-wal");
        self.metadata(&log)?;
        self.check_name(&self.file.with_file_name(LOCK), &self.lock.held)
    }

    /// Checks that `path` leads to the open file `open`.
    fn check_name(&self, path: &Path, open: &File) -> Result<(), Error> {
        let found = self.metadata(path)?;
        let ours = open
            .metadata()
            .map_err(|error| not_writable(path, &error))?;
        if is_same(&found, &ours) {
            return Ok(());
        }
        Err(self.gone_error(path, "was replaced"))
    }

    fn metadata(&self, path: &Path) -> Result<Metadata, Error> {
        path.symlink_metadata().map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => self.gone_error(path, "is missing"),
            _ => not_writable(path, &error),
        })
    }

    fn gone_error(&self, path: &Path, what: &str) -> Error {
        let folder = self.file.parent().unwrap_or(Path::new("."));
        let name = path.file_name().unwrap_or_default().display();
        Error::Gone(folder.to_path_buf(), format!("{name} {what}"))
    }
}

/// The folder's lock, an flock on the lock file that always ends with the process. When it's
/// dropped, after the store is closed, it writes the database file's stamp into the lock file.
pub(super) struct Lock {
    held: File,
    file: PathBuf,
    /// Stamp of the database file that the last holder wrote when it exited cleanly, or [`NO_LOG`].
    /// `None` after a kill, and after [`Lock::begin`].
    pub(super) stamp: Option<String>,
    /// Whether the database file had another stamp when the lock was taken.
    differs: bool,
}

impl Lock {
    /// Takes the lock and writes our process ID into it. The stamp stays in the lock file until
    /// [`Lock::begin`], so that a process that ends before its first commit can't hide a copy.
    pub(super) fn take(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(LOCK);
        let mut how = OpenOptions::new();
        how.create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600);
        let held =
            plain_file::open(&path, &mut how).map_err(|error| not_writable(&path, &error))?;
        let locked = flock(&held, FlockOperation::NonBlockingLockExclusive);
        // The first line is the holder's process ID. After a clean end, the second line is the
        // stamp.
        let mut text = String::new();
        (&held).take(256).read_to_string(&mut text).ok();
        let mut lines = text.lines();
        let pid = lines.next().and_then(|pid| pid.trim().parse().ok());
        locked.map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => Error::Locked(dir.into(), pid),
            error => not_writable(&path, &error.into()),
        })?;
        let file = dir.join(FILE);
        let meta = file.symlink_metadata().ok().filter(|meta| meta.len() > 0);
        let mut stamp = lines.next().map(str::to_owned);
        if stamp.is_none() && meta.is_some() && is_missing(&sibling_path(&file, "-wal")) {
            stamp = Some(NO_LOG.to_owned());
        }
        let found = meta.map(|meta| Seen::from_metadata(&meta).stamp);
        let mut lock = Self {
            differs: stamp.is_some() && stamp != found,
            held,
            file,
            stamp,
        };
        lock.write()?;
        Ok(lock)
    }

    /// Removes the stamp once the first commit of this process is stored, since from then on the
    /// database itself remembers the doubt about a copy.
    pub(super) fn begin(&mut self) {
        self.stamp = None;
        self.differs = false;
        // If this fails and the process is killed, the next start compares the old stamp again.
        self.write().ok();
    }

    fn write(&mut self) -> Result<(), Error> {
        let mut text = format!("{}\n", std::process::id());
        if let Some(stamp) = &self.stamp {
            text = format!("{text}{stamp}\n");
        }
        let written = self.held.rewind();
        written
            .and_then(|()| self.held.write_all(text.as_bytes()))
            .and_then(|()| self.held.set_len(text.len() as u64))
            .map_err(|error| not_writable(&self.file.with_file_name(LOCK), &error))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.differs {
            // No commit remembers the doubt yet, so the next start has to find the old stamp.
            return;
        }
        // If this fails, the next start treats the file as a possible copy.
        if let Ok(meta) = self.file.symlink_metadata() {
            self.stamp = Some(Seen::from_metadata(&meta).stamp);
            self.write().ok();
        }
    }
}

pub(super) fn is_missing(path: &Path) -> bool {
    let found = path.symlink_metadata();
    found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Rejects a database file, or a file next to it (`-wal`, `-shm`, `-journal`), that isn't a plain
/// file. SQLite opens these names whatever they are, even if they're links.
///
/// # Errors
/// Returns [`Error::NotPlain`] with what was found, or [`Error::NotWritable`] if the system doesn't
/// allow the check.
pub(super) fn check_siblings(file: &Path) -> Result<(), Error> {
    for path in ["", "-wal", "-shm", "-journal"].map(|end| sibling_path(file, end)) {
        plain_file::check(&path).map_err(|error| not_writable(&path, &error))?;
    }
    Ok(())
}

pub(super) fn sibling_path(file: &Path, end: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Opens a connection for writing to an existing file.
pub(super) fn connect(file: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(file, flags).map_err(|error| Error::sqlite(file, &error))
}

pub(super) fn not_writable(path: &Path, error: &io::Error) -> Error {
    let path = path.to_path_buf();
    let why = error.to_string();
    match error.kind() {
        // `plain_file` returns this kind for anything other than a plain file.
        ErrorKind::InvalidInput => Error::NotPlain(path, why),
        _ => Error::NotWritable(path, why),
    }
}

/// Makes the folder private if it's created here or is empty. A folder with other files in it keeps
/// its mode, since it may be shared on purpose, and our files are private anyway.
pub(super) fn make_folder(dir: &Path) -> Result<(), Error> {
    make_private_folder(dir).map_err(|error| not_writable(dir, &error))
}

fn make_private_folder(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    if dir.read_dir()?.next().is_none() {
        std::fs::set_permissions(dir, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Syncs the folder, because SQLite syncs only its files, not their directory entries.
pub(super) fn sync_folder(file: &Path) -> Result<(), Error> {
    let Some(dir) = file.parent() else {
        return Ok(());
    };
    let synced = plain_file::folder(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|error| not_writable(dir, &error))
}
