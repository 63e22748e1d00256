//! Exports a state from any place to a single tar file ([`archive`](crate::archive)) while the
//! daemon runs, and imports such a file into an empty place.
//!
//! The archive always holds a SQLite file. To export a PostgreSQL database, a consistent snapshot
//! is first copied to a SQLite file in a private folder next to the archive. To import into a
//! database, the SQLite file is unpacked and checked in a private temporary folder, and its rows
//! are copied from there.

use crate::archive::{ArchiveError, Manifest, export_folder, import_folder};
use crate::held::{HeldState, Use};
use crate::marks::UNFINISHED;
use crate::postgres::{self, Access, PostgresUrl, Session};
use crate::state_dir::not_writable;
use crate::store::refuse;
use crate::tables::connection::SECRET_TABLES;
use crate::tables::schema::{Found, MIGRATIONS};
use crate::tables::{meta, silence};
use crate::transfer::{Progress, begin_copy, check_source, copy_all, in_transaction};
use crate::{Db, Error, Silence, SilenceReason, StatePlace};
use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Names that the server shows for export and import sessions.
const EXPORT: &str = "callbridge state export";
const IMPORT: &str = "callbridge state import";

/// A private folder that's removed along with its files when this value is dropped.
struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn make(parent: &Path) -> Result<Self, Error> {
        let path = parent.join(format!(".callbridge-{}", uuid::Uuid::new_v4().simple()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| not_writable(&path, &error))?;
        Ok(Self(path))
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, folder = %self.0.display(), "temporary folder not removed");
        }
    }
}

/// Writes the state in `place` to the tar file `to`, whose path is `path`. `program` and `now`
/// (epoch seconds) are recorded in the manifest. With a database, this must not be called from an
/// async task, because it blocks until the database responds.
///
/// # Errors
/// Returns an error if there's no state, if it was moved away, or if one of the files can't be read
/// or written.
pub fn export(
    place: &StatePlace,
    with_secrets: bool,
    (to, path): (&mut File, &Path),
    (program, now): (&str, i64),
    progress: Progress<'_>,
) -> Result<Manifest, ArchiveError> {
    let url = match place {
        StatePlace::Folder(dir) => {
            return export_folder(dir, with_secrets, false, (to, path), (program, now));
        }
        StatePlace::Database(database) => &database.url,
    };
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let folder = TemporaryFolder::make(parent.unwrap_or(Path::new(".")))?;
    let left_out = copy_database(url, &folder.0, with_secrets, progress)?;
    export_folder(
        &folder.0,
        with_secrets,
        left_out,
        (to, path),
        (program, now),
    )
}

/// Copies a consistent snapshot of the database to a new state in `folder`, returning `true` if any
/// secrets were left out.
fn copy_database(
    url: &PostgresUrl,
    folder: &Path,
    with_secrets: bool,
    progress: Progress<'_>,
) -> Result<bool, Error> {
    let session = Session::open(url, Access::Copy, EXPORT)?;
    match refuse(
        session.place(),
        postgres::inspect(&session, MIGRATIONS.len())?,
    )? {
        Found::Current => {}
        // There's no state, or it has an older schema, which only a leader may migrate.
        _ => return Err(Error::Missing(url.place())),
    }
    // All further statements see the database as it is now.
    session.script("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
    let source = Db::postgres(session);
    check_source(&source)?;
    let without: &[&str] = if with_secrets { &[] } else { &SECRET_TABLES };
    let mut left_out = false;
    for table in without {
        left_out |= source.exists(&format!("SELECT 1 FROM {table}"), ())?;
    }
    let place = StatePlace::Folder(folder.to_path_buf());
    let target = HeldState::open(&place, Use::To, EXPORT)?;
    begin_copy(&target, None)?;
    copy_all(&source, &target, without, progress)?;
    finish_copy(&target)?;
    Ok(left_out)
}

/// Marks a filled state as complete, and as a copy that doesn't know about later requests.
fn finish_copy(target: &Db) -> Result<(), Error> {
    in_transaction(target, || {
        silence::replace(target, &Silence::to_begin(SilenceReason::Copied))?;
        meta::drop_meta(target, UNFINISHED)
    })
}

/// Restores the state in the tar file `from`, whose path is `path`, to the empty `place`. With a
/// database, this must not be called from an async task, because it blocks until the database
/// responds.
///
/// # Errors
/// Returns an error if the place is in use or not empty, or if the archive is incomplete, altered,
/// or newer.
pub fn import(
    place: &StatePlace,
    (from, path): (File, &Path),
    progress: Progress<'_>,
) -> Result<Manifest, ArchiveError> {
    if let StatePlace::Folder(dir) = place {
        return import_folder(dir, (from, path));
    }
    let folder = TemporaryFolder::make(&std::env::temp_dir())?;
    let manifest = import_folder(&folder.0, (from, path))?;
    let unpacked = StatePlace::Folder(folder.0.clone());
    let source = HeldState::open(&unpacked, Use::From, IMPORT)?;
    let target = HeldState::open(place, Use::To, IMPORT)?;
    check_source(&source)?;
    begin_copy(&target, None)?;
    copy_all(&source, &target, &[], progress)?;
    finish_copy(&target)?;
    target.close();
    Ok(manifest)
}
