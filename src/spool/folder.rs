//! Opening the state folder: who may, what is found, and what is checked beside the work.

use super::store::{CLEAN, Store};
use super::writer::{Guard, Handle, Integrity, start};
use super::{Error, Op, Settings};
use rusqlite::{Connection, InterruptHandle, OpenFlags};
use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// The database in the state folder.
pub const FILE: &str = "spool.db";
/// The lock in the state folder.
pub const LOCK: &str = "spool.lock";

/// Opens the state in `dir`: makes it if allowed, locks it, brings it up to date, starts the
/// thread. After an unclean stop the file is checked beside the work ([`Handle::health`]).
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
    let lock = lock(dir)?;
    let is_new = make_private(&file)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db =
        Connection::open_with_flags(&file, flags).map_err(|error| Error::sqlite(&file, &error))?;
    let on_commit = settings.on_commit.clone();
    let mut store = Store::over(db, &file, settings)?;
    let clean = is_new || store.meta(CLEAN)?.is_some();
    // From here on an end without farewell is seen by the next start.
    store.write(vec![Op::MetaGone { key: CLEAN.into() }])?;
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
/// True when it was not there, or empty.
fn make_private(file: &Path) -> Result<bool, Error> {
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
    Ok(meta.len() == 0)
}

/// Takes the lock and leaves our number in it. flock ends with the process, however it ends.
fn lock(dir: &Path) -> Result<OwnedFd, Error> {
    let path = dir.join(LOCK);
    let wrong = |error: io::Error| not_writable(&path, &error);
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(wrong)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            return Err(Error::Locked {
                dir: dir.to_path_buf(),
                pid: holder(&mut file),
            });
        }
        Err(error) => return Err(wrong(error.into())),
    }
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(wrong)?;
    Ok(file.into())
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
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
