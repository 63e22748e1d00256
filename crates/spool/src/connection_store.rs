//! Ordinary sessions that read and change the OAuth connection.
//!
//! The connection is guarded by its refresh token and not by the state's lock, because the CRM
//! gives a new pair of tokens once. A process that received one must store it, even if it has lost
//! the lock since.

use crate::connection::{ConnectionChange, StoredConnection};
use crate::state_dir::{FILE, check_siblings, connect, not_writable};
use crate::tables::connection;
use crate::tables::schema::{self, Found, MIGRATIONS};
use crate::{Db, Error};
use callbridge_model::{Secret, plain_file};
use std::path::{Path, PathBuf};

/// Reads and changes the connection of a state without its lock, on a session of its own for each
/// call. The calls block.
#[derive(Clone, Debug)]
pub struct ConnectionStore {
    dir: PathBuf,
}

impl ConnectionStore {
    /// The connection of the state in this folder. Nothing is opened yet.
    pub fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_path_buf(),
        }
    }

    /// Reads the connection. `None` if there is none, or no state.
    ///
    /// # Errors
    /// If the state cannot be read.
    pub fn read(&self) -> Result<Option<StoredConnection>, Error> {
        match self.open() {
            Ok(db) => connection::connection(&db),
            Err(Error::Missing(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes the change. `false` if another connection is stored: nothing is changed then. The same
    /// change can be made again after an error.
    ///
    /// # Errors
    /// If the state cannot be read or written.
    pub fn change(&self, change: &ConnectionChange) -> Result<bool, Error> {
        connection::change(&self.open()?, change)
    }

    /// Reads the secrets that outlive a connection, as JSON.
    ///
    /// # Errors
    /// If the state cannot be read.
    pub fn shown_once(&self) -> Result<Option<Secret>, Error> {
        connection::shown_once(&self.open()?)
    }

    /// Keeps these secrets, as JSON, in place of those before.
    ///
    /// # Errors
    /// If the state cannot be read or written.
    pub fn keep_shown_once(&self, content: &Secret) -> Result<(), Error> {
        connection::keep_shown_once(&self.open()?, content)
    }

    /// Opens a session. [`Error::Missing`] if there is no state with the current schema.
    fn open(&self) -> Result<Db, Error> {
        let file = self.dir.join(FILE);
        let found = plain_file::check(&file).map_err(|error| not_writable(&file, &error))?;
        if found.is_none() {
            return Err(Error::Missing(self.dir.clone()));
        }
        check_siblings(&file)?;
        let connection = connect(&file)?;
        let found = schema::inspect(&connection, MIGRATIONS);
        match found.map_err(|error| Error::sqlite(&file, &error))? {
            Found::Current => {}
            Found::New | Found::Migrated(_) => return Err(Error::Missing(self.dir.clone())),
            Found::Foreign => return Err(Error::Foreign(file)),
            Found::Newer(found) => {
                let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
                return Err(Error::NewerSchema(file, found, known));
            }
        }
        connection
            .execute_batch("PRAGMA synchronous = FULL")
            .map_err(|error| Error::sqlite(&file, &error))?;
        Ok(Db::new(connection, &file))
    }
}
