//! Identifies the history of a database, so a leader notices that the database was restored.

use super::Session;
use crate::Error;

/// Returns a text that changes if the database is restored, promoted, or started again. It contains
/// the system's identifier, its timeline, the start of the server, and the oid of the table of
/// calls.
pub(crate) fn history(session: &Session) -> Result<String, Error> {
    let system = "SELECT CAST(system_identifier AS TEXT) FROM pg_control_system()";
    let system: String = match session.one(system, &()) {
        Ok(system) => system,
        Err(error @ Error::SessionLost(..)) => return Err(error),
        // Some managed servers do not show the system's identifier.
        Err(_) => String::new(),
    };
    let text = "SELECT substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8),
             CAST(extract(epoch FROM pg_postmaster_start_time()) * 1000000 AS BIGINT),
             CAST(CAST('calls' AS regclass) AS oid)";
    let (timeline, start, table): (String, i64, i64) = session.one(text, &())?;
    Ok(format!("{system}/{timeline}/{start}/{table}"))
}
