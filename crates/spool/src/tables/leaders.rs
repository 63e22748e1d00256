//! The process that leads, the processes that wait for its lock, and the health of their database.

pub use crate::leader::leader;
use crate::postgres::{self, DatabaseProblem, LockRole, OLD_SNAPSHOT, Standby};
use crate::{Db, Error};

/// Returns the role of the session that holds the lock. `None` if no process holds it. The row that
/// [`leader`] reads does not show this, because it stays when the process ends. With SQLite, always
/// returns [`LockRole::Own`].
pub fn lock_role(db: &Db) -> Result<Option<LockRole>, Error> {
    match db.session() {
        Some(session) => postgres::lock_role(session),
        None => Ok(Some(LockRole::Own)),
    }
}

/// Returns the processes that wait for the lock, longest wait first. Empty with SQLite.
pub fn standbys(db: &Db) -> Result<Vec<Standby>, Error> {
    match db.session() {
        Some(session) => postgres::standbys(session),
        None => Ok(Vec::new()),
    }
}

/// Returns the problems of the database that this role can see. Empty with SQLite.
pub fn database_problems(db: &Db) -> Result<Vec<DatabaseProblem>, Error> {
    match db.session() {
        Some(session) => postgres::problems(session, OLD_SNAPSHOT),
        None => Ok(Vec::new()),
    }
}
