//! Problems that the database's administrator should know about while callbridge is running.

use super::Session;
use crate::Error;
use std::time::Duration;

/// Age at which a transaction is reported, because the server can't remove dead rows that it might
/// still see.
pub(crate) const OLD_SNAPSHOT: Duration = Duration::from_secs(3600);

/// A problem with the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseProblem {
    /// Its stable name in metrics.
    pub word: &'static str,
    /// What's wrong, and how to fix it.
    pub message: String,
}

/// Returns the problems that this role can see. `old` is the age at which a snapshot is old.
pub(crate) fn problems(session: &Session, old: Duration) -> Result<Vec<DatabaseProblem>, Error> {
    // Without pg_read_all_stats, the replicas' state and other roles' transactions are NULL.
    let text = "SELECT current_setting('synchronous_standby_names'),
             NOT EXISTS (SELECT 1 FROM pg_stat_replication
                 WHERE sync_state IS NULL OR sync_state IN ('sync', 'quorum')),
             current_setting('autovacuum') = 'off',
             (SELECT CAST(max(extract(epoch FROM clock_timestamp() - xact_start)) AS BIGINT)
                 FROM pg_stat_activity
                 WHERE datname = current_database() AND backend_xmin IS NOT NULL
                     AND pid <> pg_backend_pid())";
    let (names, has_no_standby, autovacuum_is_off, snapshot_age): (
        String,
        bool,
        bool,
        Option<i64>,
    ) = session.one(text, &())?;
    let mut found = Vec::new();
    if !names.is_empty() && has_no_standby {
        found.push(DatabaseProblem {
            word: "no_synchronous_standby",
            message: format!(
                "no synchronous standby is connected (expected: {names}), so no commit ends: start \
                 the standby, or correct synchronous_standby_names"
            ),
        });
    }
    if autovacuum_is_off {
        found.push(DatabaseProblem {
            word: "autovacuum_off",
            message: "autovacuum is off, so the tables grow without limit: set autovacuum = on"
                .to_owned(),
        });
    }
    let age = Duration::from_secs(u64::try_from(snapshot_age.unwrap_or(0)).unwrap_or(0));
    if snapshot_age.is_some() && age >= old {
        found.push(DatabaseProblem {
            word: "old_snapshot",
            message: format!(
                "a transaction has been open for {} minutes, so the tables grow: end its session \
                 (pg_stat_activity shows it)",
                age.as_secs() / 60
            ),
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::{Access, PostgresUrl};
    use callbridge_testbed::postgres::{Durability, Postgres};
    use callbridge_testbed::wait::DEADLINE;
    use std::time::Instant;

    fn open(server: &Postgres) -> Session {
        let url = PostgresUrl::parse(&server.url("public")).expect("a URL");
        Session::open(&url, Access::Read, "test").expect("a session")
    }

    fn words(session: &Session, old: Duration) -> Vec<&'static str> {
        let found = problems(session, old).expect("readable");
        found.iter().map(|problem| problem.word).collect()
    }

    #[test]
    fn missing_standby_autovacuum_and_old_snapshot_are_found() {
        let server = Postgres::start(Durability::None, "");
        let session = open(&server);
        assert_eq!(words(&session, OLD_SNAPSHOT), [""; 0]);
        server.sql("ALTER SYSTEM SET synchronous_standby_names = 'db2'");
        server.sql("ALTER SYSTEM SET autovacuum = off");
        server.sql("SELECT pg_reload_conf()");
        let other = open(&server);
        other
            .script("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
            .expect("a snapshot");
        // A session sees the new settings once the server's signal has reached it.
        let begun = Instant::now();
        while words(&session, Duration::ZERO).len() < 3 {
            assert!(begun.elapsed() < DEADLINE, "the settings were not reloaded");
        }
        assert_eq!(
            words(&session, Duration::ZERO),
            ["no_synchronous_standby", "autovacuum_off", "old_snapshot"]
        );
        assert_eq!(words(&session, OLD_SNAPSHOT).len(), 2);
    }
}
