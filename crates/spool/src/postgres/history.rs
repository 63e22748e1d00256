//! Identifies a database's history, so that a leader notices if the database was restored.

use super::Session;
use crate::Error;

/// Returns a text that changes if the database is restored or another server is promoted. It's made
/// up of the system identifier, the timeline, and the oid of the calls table.
///
/// A server that restarts keeps its commits, unless `fsync` is off. In that case, and on managed
/// servers that don't show the timeline, the text also changes with the server's start.
pub(crate) fn history(session: &Session) -> Result<String, Error> {
    let system = "SELECT CAST(system_identifier AS TEXT) FROM pg_control_system()";
    let system = shown(session, system)?.unwrap_or_default();
    let timeline = "SELECT substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)
         WHERE current_setting('fsync') = 'on'";
    let kept = match shown(session, timeline)? {
        Some(timeline) => timeline,
        None => {
            let start = "SELECT CAST(extract(epoch FROM pg_postmaster_start_time()) AS TEXT)";
            format!("started {}", session.one::<String>(start, &())?)
        }
    };
    let table: i64 = session.one("SELECT CAST(CAST('calls' AS regclass) AS oid)", &())?;
    Ok(format!("{system}/{kept}/{table}"))
}

/// Returns a query's first row, or `None` if there is none or the server doesn't allow the query,
/// as with some managed servers.
fn shown(session: &Session, text: &str) -> Result<Option<String>, Error> {
    match session.rows(text, &(), 1) {
        Ok(mut rows) => Ok(rows.pop()),
        Err(error @ Error::SessionLost(..)) => Err(error),
        Err(_) => Ok(None),
    }
}
