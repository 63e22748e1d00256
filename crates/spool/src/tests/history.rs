//! Tests which changes to a database cast doubt on its commits.

use crate::postgres::{Access, PostgresUrl, Session, history};
use crate::tables::schema::MIGRATIONS;
use callbridge_testbed::postgres::{Durability, Postgres};

/// Returns the history as this server's leader reads it.
fn read_history(server: &Postgres) -> String {
    let url = PostgresUrl::parse(&server.url("hub")).expect("a URL");
    let session = Session::open(&url, Access::Write, "test").expect("a session");
    crate::postgres::migrate(&session, MIGRATIONS).expect("migrated");
    let text = history(&session).expect("a history");
    session.close();
    text
}

fn is_same_after_restart(server: &Postgres) -> bool {
    let before = read_history(server);
    server.kill();
    server.start_again();
    read_history(server) == before
}

#[test]
fn history_survives_restart_only_if_commits_are_synced() {
    let synced = Postgres::start(Durability::Synced, "");
    assert!(is_same_after_restart(&synced));
    let not_synced = Postgres::start(Durability::None, "");
    assert!(!is_same_after_restart(&not_synced));
}

#[test]
fn history_without_timeline_changes_with_start_of_server() {
    let server = Postgres::start(Durability::Synced, "");
    server.sql("REVOKE EXECUTE ON FUNCTION pg_walfile_name(pg_lsn) FROM PUBLIC");
    server.sql("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC");
    assert_eq!(read_history(&server), read_history(&server));
    assert!(!is_same_after_restart(&server));
}
