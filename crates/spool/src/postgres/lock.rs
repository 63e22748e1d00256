//! The lock that makes a process the leader, and the processes that wait for it.
//!
//! Both are advisory locks of the session, so they end with the session. Only the leader holds the
//! first lock. All standbys share the second lock, so any process can find them with a query.

use super::Session;
use crate::Error;
use ring::digest::{SHA256, digest};
use serde::Deserialize;

/// A process that waits for the lock.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Standby {
    /// The process's version, settings, and name, as [`Instance::label`](crate::Instance) writes
    /// them.
    pub label: String,
    /// Epoch seconds at which the process's session began.
    pub since: i64,
}

/// Returns the key of the standbys' lock (`of_standby`) or of the leader's lock. The key contains a
/// hash of the schema's name, because advisory locks belong to a whole database.
fn key(schema: &str, of_standby: bool) -> i64 {
    let purpose = if of_standby { "standby" } else { "leader" };
    let hash = digest(&SHA256, format!("callbridge {purpose} {schema}").as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&hash.as_ref()[..8]);
    i64::from_be_bytes(first)
}

/// Takes the leader's lock if no other session holds it. Returns `true` if this session has it.
pub(crate) fn take_leader_lock(session: &Session) -> Result<bool, Error> {
    session.one(
        "SELECT pg_try_advisory_lock(?1)",
        &[key(&session.schema, false)],
    )
}

/// Returns `true` if a session holds the leader's lock.
pub(crate) fn is_led(session: &Session) -> Result<bool, Error> {
    let text = format!("SELECT EXISTS (SELECT 1 FROM pg_locks l WHERE {HOLDS})");
    session.one(&text, &[key(&session.schema, false)])
}

/// SQL condition: the lock `l` is an advisory lock of this database with the key `?1`, and is held.
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

/// Returns the name of the process that holds the leader's lock. For a command that is not a
/// daemon, returns the label of its session. `None` if no process holds the lock any more.
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

/// Returns the process's name in a label that [`Instance::label`](crate::Instance) wrote, or the
/// whole label if it has another form.
fn name_of(label: &str) -> String {
    let name = label
        .strip_prefix("callbridge ")
        .and_then(|rest| rest.splitn(3, ' ').nth(2));
    name.unwrap_or(label).to_owned()
}

/// Returns the processes that wait for the leader's lock, oldest session first.
pub(crate) fn standbys(session: &Session) -> Result<Vec<Standby>, Error> {
    let text = format!(
        "SELECT a.application_name AS label,
                CAST(extract(epoch FROM a.backend_start) AS BIGINT) AS since
         FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
         WHERE {HOLDS} ORDER BY a.backend_start, a.pid"
    );
    session.rows(&text, &[key(&session.schema, true)], usize::MAX)
}
