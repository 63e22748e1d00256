//! The lock that makes a process the leader, and the processes waiting for it.
//!
//! Both are session-level advisory locks, so they end with the session. Only the leader holds the
//! first lock, whereas all standbys share the second one, so that any process can find them with a
//! query.

use super::Session;
use crate::Error;
use ring::digest::{SHA256, digest};
use serde::Deserialize;

/// A process waiting for the lock.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Standby {
    /// The process's version, settings, and name, as formatted by
    /// [`Instance::label`](crate::Instance).
    pub label: String,
    /// When the process's session began, in epoch seconds.
    pub since: i64,
}

/// Returns the key of the standbys' lock (`of_standby`) or of the leader's. It contains a hash of
/// the schema's name, because advisory locks apply to a whole database.
fn key(schema: &str, of_standby: bool) -> i64 {
    let purpose = if of_standby { "standby" } else { "leader" };
    let hash = digest(&SHA256, format!("callbridge {purpose} {schema}").as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&hash.as_ref()[..8]);
    i64::from_be_bytes(first)
}

/// Takes the leader's lock unless another session holds it, returning `true` if this session has
/// it.
pub(crate) fn take_leader_lock(session: &Session) -> Result<bool, Error> {
    session.one(
        "SELECT pg_try_advisory_lock(?1)",
        &[key(&session.schema, false)],
    )
}

/// The role of the session that holds the leader's lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockRole {
    /// This process's role.
    Own,
    /// Another role, which may be any role in the database, because advisory locks need no
    /// privileges.
    Other(String),
}

/// Returns the role that holds the leader's lock, or `None` if no session holds it.
pub(crate) fn lock_role(session: &Session) -> Result<Option<LockRole>, Error> {
    let text = format!(
        "SELECT coalesce(CAST(a.usename AS TEXT), 'unknown'), a.usename IS NOT DISTINCT FROM \
             current_user
         FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid WHERE {HOLDS}"
    );
    let holder: Option<(String, bool)> = session
        .rows(&text, &[key(&session.schema, false)], 1)?
        .pop();
    Ok(holder.map(|(role, is_own)| {
        if is_own {
            LockRole::Own
        } else {
            LockRole::Other(role)
        }
    }))
}

/// SQL condition that the lock `l` is an advisory lock in this database with the key `?1`, and is
/// held.
const HOLDS: &str = "l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
     AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
     AND (CAST(CAST(l.classid AS BIGINT) << 32 AS BIGINT) | CAST(l.objid AS BIGINT)) = ?1";

/// Shows this session as a standby, until it ends or [`hide_standby`] runs.
pub(crate) fn show_standby(session: &Session) -> Result<(), Error> {
    let text = "SELECT pg_try_advisory_lock_shared(?1)";
    session
        .one::<bool>(text, &[key(&session.schema, true)])
        .map(drop)
}

pub(crate) fn hide_standby(session: &Session) -> Result<(), Error> {
    let text = "SELECT pg_advisory_unlock_shared(?1)";
    session
        .one::<bool>(text, &[key(&session.schema, true)])
        .map(drop)
}

/// Returns the name of the process that holds the leader's lock, or `None` if it's no longer held.
/// For a command other than the daemon, this is its session's label.
pub(crate) fn lock_holder(session: &Session) -> Result<Option<String>, Error> {
    let text = format!(
        "SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
         WHERE {HOLDS}"
    );
    let holder = session
        .rows(&text, &[key(&session.schema, false)], 1)?
        .pop();
    Ok(holder.map(|label: String| name_of(&label)))
}

/// Returns the process's name from a label written by [`Instance::label`](crate::Instance), or the
/// whole label if it has another format.
fn name_of(label: &str) -> String {
    let name = label
        .strip_prefix("callbridge ")
        .and_then(|rest| rest.splitn(3, ' ').nth(2));
    name.unwrap_or(label).to_owned()
}

/// Returns the processes waiting for the leader's lock, oldest session first.
pub(crate) fn standbys(session: &Session) -> Result<Vec<Standby>, Error> {
    let text = format!(
        "SELECT a.application_name AS label,
                CAST(extract(epoch FROM a.backend_start) AS BIGINT) AS since
         FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
         WHERE {HOLDS} ORDER BY a.backend_start, a.pid"
    );
    session.rows(&text, &[key(&session.schema, true)], usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::{Access, PostgresUrl};
    use callbridge_testbed::postgres::Postgres;
    use callbridge_testbed::wait::DEADLINE;
    use std::time::Instant;

    #[test]
    fn other_role_that_holds_the_lock_is_named() {
        let server = Postgres::shared();
        let schema = Postgres::new_schema();
        let url = PostgresUrl::parse(&server.url(&schema)).expect("a URL");
        let session = Session::open(&url, Access::Read, "test").expect("a session");
        assert_eq!(lock_role(&session), Ok(None));
        let (leader, end) = (key(&schema, false), key(&schema, true));
        let taken: bool = session
            .one("SELECT pg_try_advisory_lock(?1)", &[end])
            .expect("an answer");
        assert!(taken);
        std::thread::scope(|scope| {
            // The superuser holds the leader's lock until this session releases the other one.
            let holding =
                format!("SELECT pg_advisory_lock({leader}); SELECT pg_advisory_lock({end})");
            scope.spawn(move || server.sql(&holding));
            let begun = Instant::now();
            let other = Some(LockRole::Other("postgres".to_owned()));
            while lock_role(&session).expect("readable") != other {
                assert!(begun.elapsed() < DEADLINE, "the role was not named");
            }
            let is_released: bool = session
                .one("SELECT pg_advisory_unlock(?1)", &[end])
                .expect("an answer");
            assert!(is_released);
        });
        assert!(take_leader_lock(&session).expect("free"));
        assert_eq!(lock_role(&session), Ok(Some(LockRole::Own)));
    }
}
