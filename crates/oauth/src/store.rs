//! The connection's file: `connection.json` in the state folder, for its owner alone.
//!
//! It is replaced in one step and synced, file and folder, before anything of it is used: a kill
//! or a full disk leaves either the old one or the new one. Whoever changes it holds
//! `connection.lock`, from before a request that changes the pair until the new one is stored.
//! A kill while the new one was being synced leaves it whole under another name, from which the
//! next holder takes it: its pair is the only one that the service still knows.

use super::connection::Connection;
use callbridge_model::{Code, ExitCode, FileVersion, plain_file};
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

pub const FILE: &str = "connection.json";
/// Name of the lock file next to it.
const LOCK: &str = "connection.lock";
/// Maximum bytes of the file.
const FILE_MAX: u64 = 256 * 1024;
/// Time to wait for the lock. It is longer than a request of its holder.
const LOCK_WITHIN: Duration = Duration::from_secs(45);
/// Wait between two tries to take the lock.
const LOCK_EVERY: Duration = Duration::from_millis(50);

/// Why the connection cannot be read or written, each with its path and a message that never
/// contains a value of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The file exists but cannot be read.
    #[error("{0}: {1}; give callbridge's user the right to read it")]
    Unreadable(PathBuf, String),
    /// Something other than a file is in its place.
    #[error("{0} cannot be used; {1}")]
    NotPlain(PathBuf, String),
    /// The content is not what was written.
    #[error(
        "{0} is damaged: {1}; put a copy of it back, or run `callbridge connect` again, which \
         keeps this one beside the new one"
    )]
    Damaged(PathBuf, String),
    #[error("{0} cannot be written: {1}")]
    NotWritable(PathBuf, String),
    #[error("another callbridge is busy with {0}; try again in a minute")]
    Locked(PathBuf),
}

impl Error {
    /// Error of a file that cannot be written, with the system's reason.
    pub(crate) fn not_writable(path: PathBuf, error: io::Error) -> Self {
        Self::NotWritable(path, error.to_string())
    }
}

impl ExitCode for Error {
    fn exit_code(&self) -> Code {
        match self {
            Self::Unreadable(..) | Self::NotPlain(..) | Self::Damaged(..) => Code::Configuration,
            Self::NotWritable(..) => Code::CannotWrite,
            Self::Locked(_) => Code::Locked,
        }
    }
}

/// Path of the connection's file in the state folder.
pub fn path(dir: &Path) -> PathBuf {
    dir.join(FILE)
}

/// Returns `true` if a connection's file exists, with any content.
pub fn exists(dir: &Path) -> bool {
    path(dir).symlink_metadata().is_ok()
}

/// The version of the stored connection. `None` if there is none.
pub fn version(dir: &Path) -> Option<FileVersion> {
    FileVersion::now(&path(dir))
}

/// The stored connection. `None` if there is none.
///
/// # Errors
/// If it cannot be read, or is damaged.
pub fn read(dir: &Path) -> Result<Option<Connection>, Error> {
    let path = path(dir);
    let bytes = match plain_file::read(&path, FILE_MAX + 1) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        // as `plain_file` reports it
        Err(error) if error.kind() == ErrorKind::InvalidInput => {
            return Err(Error::NotPlain(path, error.to_string()));
        }
        Err(error) => return Err(Error::Unreadable(path, error.to_string())),
    };
    let damaged = |why| Error::Damaged(path.clone(), why);
    if bytes.len() as u64 > FILE_MAX {
        return Err(damaged(format!("it is longer than {FILE_MAX} bytes")));
    }
    Connection::from_json(&bytes).map(Some).map_err(damaged)
}

/// The right to change the connection. Released when dropped, or when the process ends.
#[derive(Debug)]
pub struct Lock {
    dir: PathBuf,
    _held: File,
}

impl Lock {
    /// Waits up to 45 s for the lock, and completes a write that a kill interrupted.
    ///
    /// # Errors
    /// If it is not free in time, or the folder cannot be written.
    pub async fn take(dir: &Path) -> Result<Self, Error> {
        Self::within(dir, LOCK_WITHIN).await
    }

    async fn within(dir: &Path, within: Duration) -> Result<Self, Error> {
        let path = dir.join(LOCK);
        let wrong = |error| Error::not_writable(path.clone(), error);
        let mut how = OpenOptions::new();
        how.create(true).truncate(false).write(true).mode(0o600);
        let held = plain_file::open(&path, &mut how).map_err(wrong)?;
        let until = Instant::now() + within;
        loop {
            match flock(&held, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    recover(dir);
                    let dir = dir.to_owned();
                    return Ok(Self { dir, _held: held });
                }
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                    tokio::time::sleep(LOCK_EVERY).await;
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::Locked(dir.to_owned())),
                Err(error) => return Err(wrong(error.into())),
            }
        }
    }

    /// Replaces the connection. The old one stays until the new one is on the disk.
    ///
    /// # Errors
    /// If it cannot be written.
    pub async fn write(&self, connection: &Connection) -> Result<(), Error> {
        let (dir, path, bytes) = (self.dir.clone(), path(&self.dir), connection.to_json());
        let place = path.clone();
        // a disk that hangs only blocks this thread
        let work = move || replace(&dir, &written(&dir), &place, &bytes);
        let written = tokio::task::spawn_blocking(work).await;
        let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
        written.map_err(|error| Error::not_writable(path, error))
    }

    /// Deletes the connection's file, if there is one.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn remove(&self) -> Result<(), Error> {
        let path = path(&self.dir);
        let gone = match std::fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            ended => ended.and_then(|()| sync(&self.dir)),
        };
        gone.map_err(|error| Error::not_writable(path, error))
    }

    /// Renames an unreadable file. Returns its new path.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn put_aside(&self, at: i64) -> Result<PathBuf, Error> {
        let path = path(&self.dir);
        let aside = self.dir.join(format!("{FILE}.damaged-{at}"));
        let moved = std::fs::rename(&path, &aside);
        moved.map_err(|error| Error::not_writable(path, error))?;
        Ok(aside)
    }
}

/// Path at which a new file is written before it is renamed into place.
fn written(dir: &Path) -> PathBuf {
    dir.join(format!("{FILE}.new"))
}

/// A new one was written, and perhaps not renamed into place.
pub fn is_unfinished(dir: &Path) -> bool {
    matches!(plain_file::check(&written(dir)), Ok(Some(_)))
}

/// Completes a write that a kill interrupted. A torn file, or one with the same pair, is ignored.
fn recover(dir: &Path) {
    let new = written(dir);
    let bytes = plain_file::read(&new, FILE_MAX).unwrap_or_default();
    let Ok(pair) = Connection::from_json(&bytes) else {
        return;
    };
    let newer = match read(dir) {
        Ok(Some(stored)) => !stored.is_same_pair(&pair),
        Ok(None) => true,
        Err(_) => false,
    };
    if newer {
        let opened = plain_file::open(&new, OpenOptions::new().read(true));
        let synced = opened.and_then(|file| file.sync_all());
        let put = synced.and_then(|()| std::fs::rename(&new, path(dir)));
        match put.and_then(|()| sync(dir)) {
            Ok(()) => tracing::info!("a pair that a kill has kept from its place is in it now"),
            Err(error) => tracing::error!(%error, file = %new.display(), "a pair is not in place"),
        }
    }
}

/// Replaces a file of the folder, via `new` next to it.
pub(crate) fn replace(dir: &Path, new: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    // left behind by a kill, perhaps with other permissions
    match std::fs::remove_file(new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = (OpenOptions::new().create_new(true).write(true).mode(0o600)).open(new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(new, path)?;
    sync(dir)
}

fn sync(dir: &Path) -> io::Result<()> {
    plain_file::folder(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::super::connection::tests::connection;
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[tokio::test]
    async fn connection_file_is_private_and_replaced_atomically() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path();
        assert!(read(dir).expect("readable").is_none());
        let lock = Lock::take(dir).await.expect("the lock");
        std::fs::write(dir.join("connection.json.new"), "torn").expect("written");
        lock.write(&connection()).await.expect("written");
        let first = version(dir);
        let mode = path(dir).metadata().expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let stored = read(dir).expect("readable").expect("there");
        assert!(stored.is_same_pair(&connection()));
        lock.write(&connection()).await.expect("written");
        assert_ne!(version(dir), first, "seen by whoever watches");
        assert!(!dir.join("connection.json.new").exists());
        lock.remove().expect("removed");
        lock.remove().expect("removed already");
        assert!(!exists(dir));
    }

    #[tokio::test]
    async fn a_damaged_file_is_explained_and_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path();
        std::fs::write(path(dir), "{\"crmUrl\":").expect("written");
        let error = read(dir).expect_err("damaged");
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
        let lock = Lock::take(dir).await.expect("the lock");
        let aside = lock.put_aside(7).expect("moved");
        lock.write(&connection()).await.expect("written");
        assert_eq!(std::fs::read(aside).expect("there"), b"{\"crmUrl\":");
        std::fs::write(path(dir), vec![b' '; 300 * 1024]).expect("written");
        assert!(matches!(read(dir), Err(Error::Damaged { .. })));
    }

    #[tokio::test]
    async fn a_pair_that_a_kill_kept_from_its_place_is_put_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path();
        let lock = Lock::take(dir).await.expect("the lock");
        lock.write(&connection()).await.expect("written");
        drop(lock);
        let next = Connection {
            refresh_token: callbridge_model::Secret::from("svcrt_next"),
            ..connection()
        };
        let whole = next.to_json();
        for (left, put) in [(&whole[..whole.len() / 2], false), (&whole[..], true)] {
            std::fs::write(written(dir), left).expect("written");
            assert!(is_unfinished(dir));
            drop(Lock::take(dir).await.expect("the lock"));
            let stored = read(dir).expect("readable").expect("there");
            assert_eq!(stored.is_same_pair(&next), put);
        }
        assert!(!is_unfinished(dir));
    }

    #[tokio::test]
    async fn only_one_changes_the_connection_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let held = Lock::take(folder.path()).await.expect("the lock");
        let second = Lock::within(folder.path(), Duration::ZERO).await;
        assert!(matches!(second, Err(Error::Locked(_))), "{second:?}");
        drop(held);
        assert!(Lock::take(folder.path()).await.is_ok());
    }
}
