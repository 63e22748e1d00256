//! Opens the state folder: checks its owner and mode, detects whether the file in it is a copy, and
//! checks the file in the background if necessary.

use super::check::check_beside;
use super::identity::{self, Seen};
use super::state_dir::{check_siblings, connect, make_folder, not_writable, sync_folder};
use super::writer::{Guard, Handle, start};
use crate::tables::meta::{self, CLEAN, UNCHECKED};
use crate::tables::slots::slots;
use crate::{Error, Lock, Settings, StateDir, Store};
use callbridge_model::plain_file;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

pub use super::state_dir::{FILE, LOCK};

/// Opens the state in `dir`: creates it if allowed, locks it, migrates it, and starts the thread.
/// After an unclean stop, or if the file was changed while no process was running, it's checked in
/// the background ([`Handle::health`]). A copy starts with a silence.
///
/// # Errors
/// Returns [`Error::Locked`], [`Error::Missing`], [`Error::NotWritable`], [`Error::NewerSchema`],
/// [`Error::Foreign`], or [`Error::Damaged`], without deleting or changing anything.
pub fn open(dir: &Path, settings: Settings) -> Result<(Handle, Guard), Error> {
    let file = dir.join(FILE);
    match plain_file::check(&file) {
        Err(error) if error.kind() == ErrorKind::InvalidInput => {
            return Err(not_writable(&file, &error));
        }
        Ok(None) | Err(_) if !settings.create => return Err(Error::Missing(dir.into())),
        Ok(_) | Err(_) => {}
    }
    make_folder(dir)?;
    let mut lock = Lock::take(dir)?;
    let (held, seen) = make_private(&file)?;
    check_siblings(&file)?;
    let mut store = Store::from_connection(connect(&file)?, &file, settings)?;
    let farewell = meta::meta(&store, CLEAN)?;
    let clean = seen.is_none() || farewell.is_some();
    let (mut untouched, mut doubtful) = (true, false);
    if let Some(seen) = &seen {
        let own = meta::meta(&store, meta::FILE)?;
        let used = !slots(&store)?.is_empty();
        doubtful = seen.is_doubtful(own.as_deref(), lock.stamp.as_deref(), used);
        untouched = lock.stamp.as_ref() == Some(&seen.stamp);
    }
    if !clean {
        store.fold()?;
    }
    // From now on, the next start can tell that this process didn't exit cleanly.
    let now = file
        .symlink_metadata()
        .map_err(|error| not_writable(&file, &error))?;
    identity::begin(&mut store, &Seen::from_metadata(&now), doubtful)?;
    lock.begin();
    let state_dir = StateDir {
        file: file.clone(),
        held,
        lock,
    };
    let (handle, mut guard) =
        start(store, Some(state_dir)).map_err(|error| not_writable(&file, &error))?;
    if !clean || !untouched || farewell.as_deref() == Some(UNCHECKED) {
        let health = handle.health.clone();
        guard.check = Some(check_beside(&file, move |found| {
            health.send_modify(|health| health.integrity = found);
        })?);
    }
    Ok((handle, guard))
}

/// Rejects a folder that users other than its owner can write to. An empty folder is allowed,
/// because it's made private when it's opened.
///
/// # Errors
/// Returns [`Error::Shared`] for such a folder.
pub fn refuse_shared(dir: &Path) -> Result<(), Error> {
    match dir.metadata() {
        Ok(found) if plain_file::is_shared(&found) && !is_empty(dir) => {
            Err(Error::shared(dir, found.mode()))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

fn is_empty(dir: &Path) -> bool {
    dir.read_dir().is_ok_and(|mut all| all.next().is_none())
}

/// Creates the file for this user only, before SQLite opens it. SQLite gives `-wal` and `-shm` the
/// same mode. Returns the open file, along with its metadata unless it was missing or empty.
pub(super) fn make_private(file: &Path) -> Result<(File, Option<Seen>), Error> {
    let (made, meta) = open_private(file).map_err(|error| not_writable(file, &error))?;
    if meta.len() > 0 {
        return Ok((made, Some(Seen::from_metadata(&meta))));
    }
    sync_folder(file)?;
    Ok((made, None))
}

fn open_private(file: &Path) -> io::Result<(File, Metadata)> {
    let mut how = OpenOptions::new();
    how.create(true).append(true).mode(0o600);
    let made = plain_file::open(file, &mut how)?;
    let meta = made.metadata()?;
    if meta.permissions().mode() & 0o077 != 0 {
        made.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok((made, meta))
}
