//! Opening the state folder: who may, what is found, and what is checked beside the work.

use super::identity::Seen;
use super::store::{CLEAN, Store};
use super::writer::{Guard, Handle, Integrity, start};
use super::{Error, Settings};
use rusqlite::{Connection, InterruptHandle, OpenFlags};
use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// The database in the state folder.
pub const FILE: &str = "spool.db";
/// The lock in the state folder.
pub const LOCK: &str = "spool.lock";

/// Opens the state in `dir`: makes it if allowed, locks it, brings it up to date, starts the
/// thread. After an unclean stop the file is checked beside the work ([`Handle::health`]). A file
/// that is a copy is recognised ([`Store::restored`]).
///
/// # Errors
/// [`Error::Locked`], [`Error::Missing`], [`Error::NotWritable`], [`Error::NewerSchema`],
/// [`Error::Foreign`], [`Error::Damaged`]: nothing is deleted or changed then.
pub fn open(dir: &Path, settings: Settings) -> Result<(Handle, Guard), Error> {
    let file = dir.join(FILE);
    if !settings.create && !file.exists() {
        let dir = dir.to_path_buf();
        return Err(Error::Missing { dir });
    }
    make_folder(dir)?;
    let lock = Lock::take(dir)?;
    let seen = make_private(&file)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db =
        Connection::open_with_flags(&file, flags).map_err(|error| Error::sqlite(&file, &error))?;
    let on_commit = settings.on_commit.clone();
    let mut store = Store::over(db, &file, settings)?;
    let clean = seen.is_none() || store.meta(CLEAN)?.is_some();
    if let Some(seen) = &seen {
        store.compare_identity(seen, lock.stamp.as_deref(), clean)?;
    }
    // From here on an end without farewell is seen by the next start.
    let now = file
        .metadata()
        .map_err(|error| not_writable(&file, &error))?;
    store.begin(&Seen::of(&now))?;
    let (handle, mut guard) =
        start(store, Some(lock), on_commit).map_err(|error| not_writable(&file, &error))?;
    if !clean {
        guard.check = Some(check_beside(&file, &handle)?);
    }
    Ok((handle, guard))
}

fn not_writable(path: &Path, error: &io::Error) -> Error {
    Error::NotWritable {
        path: path.to_path_buf(),
        why: error.to_string(),
    }
}

/// A folder that is made here, or is found empty, is made private. One that holds other things
/// keeps its mode: it may be shared on purpose, and the files are private anyway.
fn make_folder(dir: &Path) -> Result<(), Error> {
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

/// Makes the file for this user alone before SQLite opens it; `-wal` and `-shm` take its mode.
/// As it was found; `None` when it was not there, or empty.
fn make_private(file: &Path) -> Result<Option<Seen>, Error> {
    let wrong = |error: io::Error| not_writable(file, &error);
    let made = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(file)
        .map_err(wrong)?;
    let meta = made.metadata().map_err(wrong)?;
    if meta.permissions().mode() & 0o077 != 0 {
        made.set_permissions(Permissions::from_mode(0o600))
            .map_err(wrong)?;
    }
    Ok((meta.len() > 0).then(|| Seen::of(&meta)))
}

/// The folder's lock. flock ends with the process, however it ends. It is dropped after the store
/// is closed, and leaves behind how the file looked then.
pub(super) struct Lock {
    held: File,
    file: PathBuf,
    /// What the last one left behind.
    stamp: Option<String>,
}

impl Lock {
    /// Takes it and leaves our number in it.
    fn take(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(LOCK);
        let wrong = |error: io::Error| not_writable(&path, &error);
        let mut held = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(wrong)?;
        let locked = flock(&held, FlockOperation::NonBlockingLockExclusive);
        let text = words(&mut held);
        let mut lines = text.lines();
        let pid = lines.next().and_then(|pid| pid.trim().parse().ok());
        match locked {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(Error::Locked {
                    dir: dir.to_path_buf(),
                    pid,
                });
            }
            Err(error) => return Err(wrong(error.into())),
        }
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
        if let Ok(meta) = self.file.metadata() {
            writeln!(self.held, "{}", Seen::of(&meta).stamp).ok();
        }
    }
}

impl std::fmt::Debug for Lock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lock")
    }
}

/// What stands in the lock: the holder's number, and after an orderly end the file's stamp.
fn words(held: &mut File) -> String {
    let mut text = String::new();
    held.take(256).read_to_string(&mut text).ok();
    text
}

/// A check under way; dropping it breaks it off.
pub(super) struct Check {
    interrupt: InterruptHandle,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Check")
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        // An interrupt is lost on a statement that has not begun yet: say it until it is heard.
        while !thread.is_finished() {
            self.interrupt.interrupt();
            std::thread::park_timeout(std::time::Duration::from_millis(5));
        }
        thread.join().ok();
    }
}

/// Checks the file on a connection and a thread of its own.
fn check_beside(file: &PathBuf, handle: &Handle) -> Result<Check, Error> {
    let wrong = |error: rusqlite::Error| Error::sqlite(file, &error);
    let db = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(wrong)?;
    let interrupt = db.get_interrupt_handle();
    let handle = handle.clone();
    handle.set_integrity(Integrity::Checking);
    let thread = std::thread::Builder::new()
        .name("spool-check".into())
        .spawn(move || handle.set_integrity(quick_check(&db)))
        .map_err(|error| not_writable(file, &error))?;
    Ok(Check {
        interrupt,
        thread: Some(thread),
    })
}

fn quick_check(db: &Connection) -> Integrity {
    let answer = db.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    match answer {
        Ok(words) if words == "ok" => Integrity::Sound,
        Ok(words) => Integrity::Damaged(words),
        Err(error) => match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => {
                Integrity::Damaged(error.to_string())
            }
            _ => Integrity::Unknown(error.to_string()),
        },
    }
}
