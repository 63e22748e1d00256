//! The leader, the processes waiting for its lock, and the health of their database.

pub use crate::leader::leader;
use crate::postgres::{self, DatabaseProblem, LockRole, OLD_SNAPSHOT, Standby};
use crate::{Db, Error};

/// Returns the role of the session that holds the lock, or `None` if no process holds it. The row
/// that [`leader`] reads can't tell, since it remains after the process ends. With SQLite, this is
/// always [`LockRole::Own`].
pub fn lock_role(db: &Db) -> Result<Option<LockRole>, Error> {
    match db.session() {
        Some(session) => postgres::lock_role(session),
        None => Ok(Some(LockRole::Own)),
    }
}

/// Returns the processes waiting for the lock, longest wait first. Empty with SQLite.
pub fn standbys(db: &Db) -> Result<Vec<Standby>, Error> {
    match db.session() {
        Some(session) => postgres::standbys(session),
        None => Ok(Vec::new()),
    }
}

/// Returns the database's problems that this role can see. Empty with SQLite.
pub fn database_problems(db: &Db) -> Result<Vec<DatabaseProblem>, Error> {
    match db.session() {
        Some(session) => postgres::problems(session, OLD_SNAPSHOT),
        None => Ok(Vec::new()),
    }
}
