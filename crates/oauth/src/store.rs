//! Reads the OAuth connection that the state keeps.
//!
//! The stored connection is changed by compare-and-set (`ConnectionStore`). A change names the
//! refresh token of the connection that it replaces. If another connection was stored meanwhile,
//! that connection is kept and the change has no effect.

use super::connection::Connection;
use callbridge_model::{Code, ExitCode, ExposeSecret as _};
use callbridge_spool::{self as spool, Handle, StatePlace, StoredConnection, tables};
use std::time::Duration;

/// Longest time of a refresh, from its note in the state to the stored pair, because no request
/// takes longer. After this time, a noted refresh has ended.
pub const REFRESH_WITHIN: Duration = Duration::from_secs(45);

/// An error that prevents reading or storing the connection. The message contains no value of the
/// connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    State(#[from] spool::Error),
    /// The stored text is not a valid connection.
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

/// Reads a stored connection.
///
/// # Errors
/// [`Error::Damaged`].
pub fn parse(stored: &StoredConnection) -> Result<Connection, Error> {
    Connection::from_json(stored.content.expose_secret()).map_err(Error::Damaged)
}

/// Reads the connection of an open state. Returns `None` if there is none.
///
/// # Errors
/// If it cannot be read, or is damaged.
pub async fn read(state: &Handle) -> Result<Option<Connection>, Error> {
    let stored = state.read(|store| tables::connection::connection(store));
    stored.await?.as_ref().map(parse).transpose()
}

/// Reads the connection of the state at this place, which another process can have open. Returns
/// `None` if there is none.
///
/// # Errors
/// If it cannot be read, or is damaged.
pub fn read_in(place: &StatePlace) -> Result<Option<Connection>, Error> {
    let stored = place.connections().read()?;
    stored.as_ref().map(parse).transpose()
}

/// Returns `true` if the state at this place has a connection, even a damaged one. Returns `None`
/// if the state cannot be read.
pub fn exists(place: &StatePlace) -> Option<bool> {
    let stored = place.connections().read();
    stored.ok().map(|stored| stored.is_some())
}
