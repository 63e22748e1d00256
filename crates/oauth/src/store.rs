//! Reads the OAuth connection stored in the state.
//!
//! The stored connection is changed by compare-and-set (`ConnectionStore`). Each change contains
//! the refresh token of the connection that it replaces. If another connection has been stored in
//! the meantime, that connection is kept, and the change has no effect.

use super::connection::Connection;
use callbridge_model::{Code, ExitCode, ExposeSecret as _};
use callbridge_spool::{self as spool, Handle, StatePlace, StoredConnection, tables};
use std::time::Duration;

/// Longest duration of a refresh, from noting it in the state to storing the pair. No request takes
/// longer, so after this time, a noted refresh has ended.
pub const REFRESH_WITHIN: Duration = Duration::from_secs(45);

/// An error that prevents the connection from being read or stored. Its message doesn't contain any
/// of the connection's values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    State(#[from] spool::Error),
    /// The stored text isn't a valid connection.
    #[error("the connection in the state is damaged: {0}; run `callbridge connect` again")]
    Damaged(String),
}

impl ExitCode for Error {
    fn exit_code(&self) -> Code {
        match self {
            Self::State(error) => error.exit_code(),
            Self::Damaged(_) => Code::Configuration,
        }
    }
}

/// Parses a stored connection.
///
/// # Errors
/// Returns [`Error::Damaged`] if the text isn't a valid connection.
pub fn parse(stored: &StoredConnection) -> Result<Connection, Error> {
    Connection::from_json(stored.content.expose_secret()).map_err(Error::Damaged)
}

/// Reads an open state's connection, or returns `None` if there isn't one.
///
/// # Errors
/// Returns an error if the connection can't be read or is damaged.
pub async fn read(state: &Handle) -> Result<Option<Connection>, Error> {
    let stored = state.read(|store| tables::connection::connection(store));
    stored.await?.as_ref().map(parse).transpose()
}

/// Reads the connection of the state at this place, which may be open in another process, or
/// returns `None` if there isn't one.
///
/// # Errors
/// Returns an error if the connection can't be read or is damaged.
pub fn read_in(place: &StatePlace) -> Result<Option<Connection>, Error> {
    let stored = place.connections().read()?;
    stored.as_ref().map(parse).transpose()
}

/// Returns `true` if the state at this place has a connection, even a damaged one, or `None` if the
/// state can't be read.
pub fn exists(place: &StatePlace) -> Option<bool> {
    let stored = place.connections().read();
    stored.ok().map(|stored| stored.is_some())
}
