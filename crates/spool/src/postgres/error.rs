//! Converts server and connection errors into [`Error`].

use super::login;
use crate::Error;
use std::error::Error as StdError;
use std::path::Path;
use std::time::Duration;
use tokio_postgres::error::SqlState;

/// Converts a statement's error. A response that ends the session, or an error that isn't a
/// response from the server, becomes [`Error::SessionLost`].
pub(super) fn of_statement(place: &Path, error: &tokio_postgres::Error) -> Error {
    let place = place.to_path_buf();
    let Some(answer) = error.as_db_error() else {
        return Error::SessionLost(place, innermost(error));
    };
    let why = format!("{} (SQLSTATE {})", answer.message(), answer.code().code());
    if ends_session(answer.code()) {
        return Error::SessionLost(place, why);
    }
    if *answer.code() == SqlState::NOT_NULL_VIOLATION && answer.column() == Some("seq") {
        let why = "another process has written to the state".to_owned();
        return Error::SessionLost(place, why);
    }
    match *answer.code() {
        SqlState::DISK_FULL => Error::Full(place),
        SqlState::DATA_CORRUPTED | SqlState::INDEX_CORRUPTED => Error::Damaged(place, why),
        SqlState::INSUFFICIENT_PRIVILEGE => Error::NotWritable(place, why),
        SqlState::OUT_OF_MEMORY
        | SqlState::INSUFFICIENT_RESOURCES
        | SqlState::IO_ERROR
        | SqlState::QUERY_CANCELED
        | SqlState::LOCK_NOT_AVAILABLE
        | SqlState::T_R_DEADLOCK_DETECTED
        | SqlState::T_R_SERIALIZATION_FAILURE => Error::Disk(place, why),
        _ => Error::Sql(place, why),
    }
}

/// Returns the error for a response that didn't arrive within `deadline`.
pub(super) fn no_answer(place: &Path, deadline: Duration) -> Error {
    let why = format!("no answer within {} s", deadline.as_secs());
    Error::SessionLost(place.to_path_buf(), why)
}

/// Returns the error for a connection that wasn't established within `deadline`.
pub(super) fn no_connection(place: &Path, deadline: Duration) -> Error {
    let why = format!("no connection within {} s", deadline.as_secs());
    Error::SessionLost(place.to_path_buf(), why)
}

/// Returns `true` if this code means that the server ends the session, or is no longer the primary.
fn ends_session(code: &SqlState) -> bool {
    const ENDS: [SqlState; 6] = [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::DATABASE_DROPPED,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        SqlState::READ_ONLY_SQL_TRANSACTION,
    ];
    ENDS.contains(code) || code.code() == "57P05" || code.code().starts_with("08")
}

/// Converts the error for a connection that couldn't be established. It becomes
/// [`Error::SessionLost`] if it may go away without a change to the settings.
pub(super) fn of_connection(place: &Path, error: &tokio_postgres::Error) -> Error {
    let place = place.to_path_buf();
    let Some(answer) = error.as_db_error() else {
        let why = innermost(error);
        if why == login::REFUSED {
            return Error::Unusable(place, why);
        }
        return Error::SessionLost(place, why);
    };
    let why = format!("{} (SQLSTATE {})", answer.message(), answer.code().code());
    match *answer.code() {
        SqlState::INVALID_PASSWORD
        | SqlState::INVALID_AUTHORIZATION_SPECIFICATION
        | SqlState::INVALID_CATALOG_NAME
        | SqlState::INSUFFICIENT_PRIVILEGE => Error::Unusable(place, why),
        _ => Error::SessionLost(place, why),
    }
}

/// Returns the message of the innermost cause, which is more specific than the library's.
fn innermost(error: &tokio_postgres::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        message = error.to_string();
        cause = error.source();
    }
    message
}
