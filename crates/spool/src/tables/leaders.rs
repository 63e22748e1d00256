//! The process that leads, and the processes that wait for its lock.

pub use crate::leader::leader;
use crate::postgres::{self, Standby};
use crate::{Db, Error};

/// Returns `true` if a process holds the lock. The row that [`leader`] reads does not show this,
/// because it stays when the process ends. Always `true` with SQLite.
pub fn is_led(db: &Db) -> Result<bool, Error> {
    match db.session() {
        Some(session) => postgres::is_led(session),
        None => Ok(true),
    }
}

/// Returns the processes that wait for the lock, longest wait first. Empty with SQLite.
pub fn standbys(db: &Db) -> Result<Vec<Standby>, Error> {
    match db.session() {
        Some(session) => postgres::standbys(session),
        None => Ok(Vec::new()),
    }
}
