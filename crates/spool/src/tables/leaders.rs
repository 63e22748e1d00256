//! The process that leads, and those that wait.

pub use crate::leader::leader;
use crate::postgres::{self, Standby};
use crate::{Db, Error};

/// Returns `true` if a process holds the lock. The row of [`leader`] stays when it ends.
pub fn is_led(db: &Db) -> Result<bool, Error> {
    match db.session() {
        Some(session) => postgres::is_led(session),
        None => Ok(true),
    }
}

/// Returns the processes that wait for the lock, longest first. SQLite's lock has none.
pub fn standbys(db: &Db) -> Result<Vec<Standby>, Error> {
    match db.session() {
        Some(session) => postgres::standbys(session),
        None => Ok(Vec::new()),
    }
}
