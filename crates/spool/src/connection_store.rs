//! Sessions that read and change the OAuth connection without holding the state's lock.
//!
//! The connection is guarded by its refresh token rather than the state's lock, because the CRM
//! sends a new pair of tokens only once. A process that has received a pair must store it, even if
//! it has lost the lock since.

use crate::connection::{ConnectionChange, StoredConnection};
use crate::marks::refuse_unusable;
use crate::postgres::{self, Access, PostgresUrl, Session};
use crate::state_dir::{FILE, check_siblings, connect, is_missing, not_writable, sibling_path};
use crate::tables::connection;
use crate::tables::schema::{self, Found, MIGRATIONS};
use crate::{Db, Error};
use callbridge_model::{Secret, plain_file};
use rusqlite::config::DbConfig;
use std::path::{Path, PathBuf};

/// Reads and changes a state's OAuth connection without the state's lock. Each call opens a
/// database session, and blocks.
#[derive(Clone, Debug)]
pub struct ConnectionStore {
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Folder(PathBuf),
    Database(Box<PostgresUrl>),
}

impl ConnectionStore {
    /// Creates a store for the state in this folder, without opening anything yet.
    pub fn new(dir: &Path) -> Self {
        Self {
            place: Place::Folder(dir.to_path_buf()),
        }
    }

    /// Creates a store for the state in this database, without opening anything yet.
    pub fn in_database(url: &PostgresUrl) -> Self {
        Self {
            place: Place::Database(Box::new(url.clone())),
        }
    }

    /// Reads the connection, or returns `None` if no connection is stored or there's no state.
    ///
    /// # Errors
    /// Returns an error if the state can't be read.
    pub fn read(&self) -> Result<Option<StoredConnection>, Error> {
        match self.in_session(connection::connection) {
            Err(Error::Missing(_)) => Ok(None),
            read => read,
        }
    }

    /// Makes the change, or returns `false` without changing anything if the stored connection
    /// isn't the one in `change.from`. After an error, the same change can be tried again.
    ///
    /// # Errors
    /// Returns an error if the state can't be read or written.
    pub fn change(&self, change: &ConnectionChange) -> Result<bool, Error> {
        self.in_session(|db| connection::change(db, change))
    }

    /// Reads the secrets that the CRM shows only once, as JSON. They outlive a connection.
    ///
    /// # Errors
    /// Returns an error if the state can't be read.
    pub fn shown_once(&self) -> Result<Option<Secret>, Error> {
        self.in_session(connection::shown_once)
    }

    /// Stores the secrets that the CRM shows only once, as JSON, replacing any stored earlier.
    ///
    /// # Errors
    /// Returns an error if the state can't be read or written.
    pub fn keep_shown_once(&self, content: &Secret) -> Result<(), Error> {
        self.in_session(|db| connection::keep_shown_once(db, content))
    }

    /// Opens a session and runs `work` in it.
    fn in_session<T: Send>(
        &self,
        work: impl FnOnce(&Db) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        match &self.place {
            Place::Folder(dir) => work(&usable(open_file(dir)?)?),
            // The caller may be an async task, which must not block on the session's own runtime,
            // so use a separate thread.
            Place::Database(url) => std::thread::scope(|scope| {
                let working = scope.spawn(|| work(&usable(open_database(url)?)?));
                working.join().unwrap_or(Err(Error::Closed))
            }),
        }
    }
}

/// Rejects an unfinished copy, and a state that was moved away, since its tokens are in use in the
/// new place.
fn usable(db: Db) -> Result<Db, Error> {
    refuse_unusable(&db)?;
    Ok(db)
}

/// Opens the SQLite file in a state folder, or returns [`Error::Missing`] if there's no state with
/// the current schema.
fn open_file(dir: &Path) -> Result<Db, Error> {
    let file = dir.join(FILE);
    let plain = plain_file::check(&file).map_err(|error| not_writable(&file, &error))?;
    if plain.is_none() {
        return Err(Error::Missing(dir.to_path_buf()));
    }
    check_siblings(&file)?;
    let is_logged = !is_missing(&sibling_path(&file, "-wal"));
    let connection = connect(&file)?;
    if is_logged {
        // After a kill, this is the only connection, so SQLite would delete the log on closing. The
        // log has to stay, since the next start takes a file without one for a copy.
        let keep = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        let kept = connection.set_db_config(keep, true);
        kept.map_err(|error| Error::sqlite(&file, &error))?;
    }
    let found =
        schema::inspect(&connection, MIGRATIONS).map_err(|error| Error::sqlite(&file, &error))?;
    refuse_other_schema(dir, &file, found)?;
    connection
        .execute_batch("PRAGMA synchronous = FULL")
        .map_err(|error| Error::sqlite(&file, &error))?;
    Ok(Db::sqlite(connection, &file))
}

/// Opens a session with the PostgreSQL database, or returns [`Error::Missing`] if there's no state
/// with the current schema.
fn open_database(url: &PostgresUrl) -> Result<Db, Error> {
    let session = Session::open(url, Access::Write, "callbridge connection")?;
    let found = postgres::inspect(&session, MIGRATIONS.len())?;
    refuse_other_schema(session.place(), session.place(), found)?;
    Ok(Db::postgres(session))
}

fn refuse_other_schema(state: &Path, place: &Path, found: Found) -> Result<(), Error> {
    match found {
        Found::Current => Ok(()),
        Found::New | Found::Migrated(_) => Err(Error::Missing(state.to_path_buf())),
        Found::Foreign => Err(Error::Foreign(place.to_path_buf())),
        Found::Newer(found) => {
            let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
            Err(Error::NewerSchema(place.to_path_buf(), found, known))
        }
    }
}
