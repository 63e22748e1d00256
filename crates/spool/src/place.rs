//! Where a state is kept: a folder with a SQLite file, or a PostgreSQL database.

use crate::state_dir::make_folder;
use crate::{ConnectionStore, Error, FinishedCalls, LeadDirectory, PostgresUrl, folder};
use ring::digest::{SHA256, digest};
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

/// Where a state is kept, as given by `--state`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatePlace {
    /// A folder with `spool.db`.
    Folder(PathBuf),
    /// A schema in a database.
    Database(Box<DatabasePlace>),
}

/// A state in a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabasePlace {
    pub url: PostgresUrl,
    /// The URL as given with `--state`, which contains no password.
    pub text: String,
    /// Folder on this machine for the socket through which commands reach the daemon.
    pub socket_folder: PathBuf,
}

impl StatePlace {
    /// Returns the place of a state in the database with the URL `text`. `base` is a folder on this
    /// machine that belongs to this user, in which each state has a folder for its socket.
    ///
    /// # Errors
    /// Fails like [`PostgresUrl::parse`].
    pub fn in_database(text: &str, base: &Path) -> Result<Self, String> {
        let url = PostgresUrl::parse(text)?;
        let name = format!("{} {}", url.place().display(), url.schema);
        let hash = digest(&SHA256, name.as_bytes());
        let mut hex = String::new();
        for byte in &hash.as_ref()[..8] {
            write!(hex, "{byte:02x}").ok();
        }
        Ok(Self::Database(Box::new(DatabasePlace {
            url,
            text: text.to_owned(),
            socket_folder: base.join(hex),
        })))
    }

    /// Returns the `--state` value for this place.
    pub fn flag(&self) -> String {
        match self {
            Self::Folder(folder) => folder.display().to_string(),
            Self::Database(database) => database.text.clone(),
        }
    }

    /// Returns the state folder, or `None` if the state is in a database.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::Folder(folder) => Some(folder),
            Self::Database(_) => None,
        }
    }

    /// Returns the database, or `None` if the state is in a folder.
    pub fn database(&self) -> Option<&PostgresUrl> {
        match self {
            Self::Folder(_) => None,
            Self::Database(database) => Some(&database.url),
        }
    }

    /// Returns the folder on this machine that holds the socket through which commands reach the
    /// daemon.
    pub fn socket_folder(&self) -> &Path {
        match self {
            Self::Folder(folder) => folder,
            Self::Database(database) => &database.socket_folder,
        }
    }

    /// Creates the folder for the socket, accessible only to this user. Does nothing for a state in
    /// a folder, which is created along with the state.
    ///
    /// # Errors
    /// Returns [`Error::NotWritable`] or [`Error::Shared`].
    pub fn make_socket_folder(&self) -> Result<(), Error> {
        let Self::Database(database) = self else {
            return Ok(());
        };
        make_folder(&database.socket_folder)?;
        folder::refuse_shared(&database.socket_folder)
    }

    /// Opens lookups of finished calls that don't use the writer's thread.
    ///
    /// # Errors
    /// Returns an error if the file can't be read.
    pub fn finished_calls(&self) -> Result<FinishedCalls, Error> {
        match self {
            Self::Folder(folder) => FinishedCalls::open(folder),
            Self::Database(database) => Ok(FinishedCalls::in_database(&database.url)),
        }
    }

    /// Opens lookups of leads by phone number that don't use the writer's thread.
    ///
    /// # Errors
    /// Returns an error if the file can't be read.
    pub fn lead_directory(&self) -> Result<LeadDirectory, Error> {
        match self {
            Self::Folder(folder) => LeadDirectory::open(folder),
            Self::Database(database) => Ok(LeadDirectory::in_database(&database.url)),
        }
    }

    /// Returns a store that reads and changes the OAuth connection without the state's lock.
    pub fn connections(&self) -> ConnectionStore {
        match self {
            Self::Folder(folder) => ConnectionStore::new(folder),
            Self::Database(database) => ConnectionStore::in_database(&database.url),
        }
    }
}

impl From<PathBuf> for StatePlace {
    fn from(folder: PathBuf) -> Self {
        Self::Folder(folder)
    }
}

impl From<&Path> for StatePlace {
    fn from(folder: &Path) -> Self {
        Self::Folder(folder.to_path_buf())
    }
}

impl fmt::Display for StatePlace {
    /// Writes `/var/lib/callbridge/hq`, or `postgres://db1,db2/callbridge`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => folder.display().fmt(f),
            Self::Database(database) => database.url.place().display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(url: &str) -> StatePlace {
        StatePlace::in_database(url, Path::new("/run/callbridge")).expect("a URL")
    }

    #[test]
    fn schemas_of_a_database_have_different_socket_folders() {
        let first = place("postgres://me@db/calls?schema=a");
        let second = place("postgres://me@db/calls?schema=b");
        assert_ne!(first.socket_folder(), second.socket_folder());
        assert_eq!(first.to_string(), "postgres://db/calls");
        let again = place("postgres://me@db/calls?schema=a&secret-file=/etc/x");
        assert_eq!(first.socket_folder(), again.socket_folder());
    }
}
