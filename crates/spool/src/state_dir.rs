//! The place of the state: its folder and the files in it, their names and how they are made, the
//! lock, and whether all of it still is there.
//!
//! An open file lives on when its name is gone, and all of it is lost with the process. So the
//! place is looked at before each commit:
//!
//! | what is found | what is done |
//! |---|---|
//! | the file | – |
//! | no file, and ours was deleted | folder and file are made anew from what is open |
//! | the file without its log (`-wal`) | the same: what is in the log alone would be lost |
//! | the file without its lock | it is taken anew: two processes must not send |
//! | no file, and ours lives elsewhere (`mv`) | nothing is stored until it is put back |
//! | another file | nothing is stored: it may be somebody's backup, and is left as it is |

use super::identity::{self, Seen};
use crate::{Error, Store};
use callbridge_model::plain_file;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

/// The database in the state folder.
pub const FILE: &str = "spool.db";
/// The lock in the state folder.
pub const LOCK: &str = "spool.lock";

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// The place of an open state.
pub(super) struct StateDir {
    pub(super) file: PathBuf,
    /// The database, held open to know what became of its name. Closed after SQLite has closed it:
    /// closing any handle of a file lets its locks go.
    pub(super) held: File,
    /// It was written anew, and the store does not go on in it yet: what it commits is elsewhere.
    pub(super) unfinished: bool,
    /// The lock, let go last, when the file is closed.
    pub(super) lock: Lock,
}

impl StateDir {
    /// Sees to it that the state is in its place: where it was deleted, `store` goes on there with
    /// all that it holds.
    ///
    /// # Errors
    /// [`Error::Gone`], or why it cannot be made anew.
    pub fn keep(&mut self, store: &mut Store) -> Result<(), Error> {
        let Ok(ours) = self.held.metadata() else {
            return self.keep_lock();
        };
        let why = match self.file.symlink_metadata() {
            Ok(found) if is_same(&found, &ours) => {
                // It is there from the first commit to the end of the last connection.
                let is_whole = beside(&self.file, "-wal").exists() && !self.unfinished;
                return if is_whole {
                    self.keep_lock()
                } else {
                    self.make_anew(store)
                };
            }
            Ok(_) => "another file is there",
            Err(_) if ours.nlink() == 0 => return self.make_anew(store),
            Err(_) => "it was moved",
        };
        Err(Error::Gone(self.file.clone(), why))
    }

    /// Without its name the lock keeps nobody out: it is taken anew, where nobody else has.
    fn keep_lock(&mut self) -> Result<(), Error> {
        let dir = self.file.parent().unwrap_or(Path::new("."));
        let found = dir.join(LOCK).symlink_metadata().ok();
        let ours = self.lock.held.metadata();
        let ours = ours.map_err(|error| not_writable(&self.file, &error))?;
        if !found.is_some_and(|found| is_same(&found, &ours)) {
            self.lock = Lock::take(dir)?;
        }
        Ok(())
    }

    fn make_anew(&mut self, store: &mut Store) -> Result<(), Error> {
        make_folder(self.file.parent().unwrap_or(Path::new(".")))?;
        self.keep_lock()?;
        let wrong = |error: io::Error| not_writable(&self.file, &error);
        // Of the file that was deleted: to the new one they would be a log of strange pages.
        for rest in ["-wal", "-shm", ".new"] {
            match std::fs::remove_file(beside(&self.file, rest)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(wrong(error)),
                _ => {}
            }
        }
        let new = beside(&self.file, ".new");
        let mut how = OpenOptions::new();
        let made = how.create_new(true).append(true).mode(0o600).open(&new);
        let made = made.map_err(wrong)?;
        let no_name = || Error::NotWritable(new.clone(), "its name is not UTF-8".to_owned());
        let name = new.to_str().ok_or_else(no_name)?;
        let copied = store.connection.execute("VACUUM INTO ?1", [name]);
        copied.map_err(|error| Error::sqlite(&new, &error))?;
        made.sync_all().map_err(wrong)?;
        std::fs::rename(&new, &self.file).map_err(wrong)?;
        let seen = Seen::of(&made.metadata().map_err(wrong)?);
        // Whatever fails from here on, the file in its place is ours, and is made once more.
        (self.held, self.unfinished) = (made, true);
        sync_folder(&self.file)?;
        check_siblings(&self.file)?;
        // What is followed, counted and awaited in the store stays.
        store.db = Store::over(connect(&self.file)?, &self.file, store.settings.clone())?.db;
        self.unfinished = false;
        identity::begin(store, &seen)?;
        tracing::error!(
            file = %self.file.display(),
            "the state was deleted in use, all or in part; it was written anew from the open \
             database"
        );
        Ok(())
    }
}

/// The folder's lock. flock ends with the process, however it ends. It is dropped after the store
/// is closed, and leaves behind how the file looked then.
pub(super) struct Lock {
    held: File,
    file: PathBuf,
    /// Stamp that the last holder left at its orderly end.
    pub(super) stamp: Option<String>,
}

impl Lock {
    /// Takes the lock and leaves our number in it.
    pub(super) fn take(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(LOCK);
        let wrong = |error: io::Error| not_writable(&path, &error);
        let mut how = OpenOptions::new();
        let how = how.create(true).truncate(false).read(true).write(true);
        let mut held = plain_file::open(&path, how.mode(0o600)).map_err(wrong)?;
        let locked = flock(&held, FlockOperation::NonBlockingLockExclusive);
        // The holder's number, and after an orderly end the file's stamp.
        let mut text = String::new();
        (&held).take(256).read_to_string(&mut text).ok();
        let mut lines = text.lines();
        let pid = lines.next().and_then(|pid| pid.trim().parse().ok());
        locked.map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => Error::Locked(dir.into(), pid),
            error => wrong(error.into()),
        })?;
        held.set_len(0)
            .and_then(|()| held.rewind())
            .and_then(|()| writeln!(held, "{}", std::process::id()))
            .map_err(wrong)?;
        Ok(Self {
            held,
            file: dir.join(FILE),
            stamp: lines.next().map(str::to_owned),
        })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Where this fails the next start is in doubt, which is right.
        if let Ok(meta) = self.file.symlink_metadata() {
            writeln!(self.held, "{}", Seen::of(&meta).stamp).ok();
        }
    }
}

/// SQLite opens its files by their names, whatever stands there: what is no plain file is refused
/// before it does.
///
/// # Errors
/// [`Error::NotPlain`], which says what stands there; [`Error::NotWritable`] where the system does
/// not let us look.
pub(super) fn check_siblings(file: &Path) -> Result<(), Error> {
    for path in ["", "-wal", "-shm", "-journal"].map(|end| beside(file, end)) {
        plain_file::check(&path).map_err(|error| not_writable(&path, &error))?;
    }
    Ok(())
}

fn beside(file: &Path, end: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(end);
    name.into()
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
        ErrorKind::InvalidInput => Error::NotPlain(path, why),
        _ => Error::NotWritable(path, why),
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
    if dir.read_dir().map_err(wrong)?.next().is_none() {
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
