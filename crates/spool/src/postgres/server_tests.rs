//! Tests that `check` detects the problems of a real server.

use super::*;
use callbridge_testbed::authority::{Authority, Flaw};
use callbridge_testbed::pooler::Pooler;
use callbridge_testbed::postgres::{Durability, Postgres, SECRET};

fn url(text: &str) -> PostgresUrl {
    PostgresUrl::parse(text).expect("a URL")
}

fn inspect(text: &str) -> Vec<ServerFinding> {
    report(text).findings
}

fn report(text: &str) -> ServerReport {
    inspect_server(&url(text)).expect("it answers")
}

#[track_caller]
fn part(found: &[ServerFinding], part: &str) -> ServerFinding {
    let finding = found.iter().find(|finding| finding.part == part);
    finding.expect("this part").clone()
}

#[track_caller]
fn assert_failed(found: &[ServerFinding], name: &str, word: &str) {
    let finding = part(found, name);
    assert!(matches!(finding.grade, Grade::Failed(_)), "{finding:?}");
    assert!(finding.message.contains(word), "{finding:?}");
    assert!(!finding.fix.is_empty(), "{finding:?}");
}

#[test]
fn suitable_server_passes_every_check() {
    let server = Postgres::start(Durability::Synced, "");
    let whole = report(&server.url("hub"));
    assert!(whole.is_new && whole.can_lead());
    let found = whole.findings;
    let parts: Vec<_> = found.iter().map(|one| (one.part, one.grade)).collect();
    let names = [
        "server",
        "TLS",
        "rights",
        "pooling",
        "timeouts",
        "clock",
        "replication",
    ];
    assert_eq!(parts, names.map(|name| (name, Grade::Ok)), "{found:?}");
    assert!(part(&found, "rights").message.contains("can create"));
    assert!(part(&found, "replication").message.contains("disk"));
    let locks = server.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'");
    assert_eq!(locks, "0");
    let schemas = server.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'hub'");
    assert_eq!(schemas, "0", "a check changes nothing");
}

#[test]
fn role_without_rights_or_table_ownership_fails_the_check() {
    let server = Postgres::start(Durability::None, "");
    server
        .sql("REVOKE CREATE ON DATABASE calls FROM PUBLIC; ALTER DATABASE calls OWNER TO postgres");
    assert_failed(
        &inspect(&server.url("missing")),
        "rights",
        "cannot create the schema missing",
    );
    server.sql("CREATE SCHEMA locked");
    assert_failed(
        &inspect(&server.url("locked")),
        "rights",
        "cannot create tables",
    );
    server.sql(
        "CREATE SCHEMA shared AUTHORIZATION callbridge; CREATE TABLE shared.calls (x int);
         CREATE TABLE shared.meta (x int); ALTER TABLE shared.meta OWNER TO callbridge",
    );
    assert_failed(
        &inspect(&server.url("shared")),
        "rights",
        "these tables: calls",
    );
    assert!(!report(&server.url("shared")).can_lead());
    server.sql(
        "ALTER TABLE shared.calls OWNER TO callbridge; CREATE TABLE shared.callbridge_schema ();
         ALTER TABLE shared.callbridge_schema OWNER TO callbridge",
    );
    assert!(!report(&server.url("shared")).is_new);
    assert_eq!(
        part(&inspect(&server.url("shared")), "rights").grade,
        Grade::Ok
    );
}

/// Promise: A database behind a pooler of transactions is refused.
#[test]
fn transaction_and_statement_poolers_are_refused() {
    let server = Postgres::shared();
    for (mode, grade) in [
        ("session", Grade::Ok),
        ("transaction", Grade::Failed(Code::Configuration)),
        ("statement", Grade::Failed(Code::Configuration)),
    ] {
        let pooler = Pooler::start(server, mode);
        for _ in 0..3 {
            let report = report(&server.url_at(pooler.port(), "pooled"));
            assert_eq!(report.can_lead(), mode == "session");
            let found = report.findings;
            let pooling = part(&found, "pooling");
            assert_eq!(pooling.grade, grade, "{mode}: {pooling:?} {}", pooler.log());
            let has_timeouts = found.iter().any(|one| one.part == "timeouts");
            assert_eq!(has_timeouts, mode == "session", "{found:?}");
        }
    }
}

#[test]
fn only_the_message_of_statement_pooling_proves_a_pooler() {
    for (why, is_proof) in [
        (
            "transaction blocks not allowed in statement pooling mode (SQLSTATE 08P01)",
            true,
        ),
        ("query_wait_timeout (SQLSTATE 08P01)", false),
        ("no more connections allowed (SQLSTATE 08P01)", false),
        ("connection closed", false),
    ] {
        let lost = Error::SessionLost("db".into(), why.to_owned());
        let refused = Error::Sql("db".into(), why.to_owned());
        assert_eq!(refuses_transactions(&lost), is_proof, "{why}");
        assert_eq!(refuses_transactions(&refused), is_proof, "{why}");
    }
}

/// The other sessions of the test end before they begin a transaction.
#[test]
fn pooler_test_that_fails_refuses_no_server() {
    let server = Postgres::start(Durability::None, "");
    let url = url(&server.url("hub"));
    let session = Session::connect(&url, Access::Write, "test").expect("a session");
    let other = session.connect_again(&url, Access::Write, LABEL);
    let other = other.expect("another session");
    other.abandon();
    let [backend] = row(&session, "SELECT pg_backend_pid()").expect("a backend");
    let failed = are_backends_separate(&[other], &backend);
    assert!(matches!(failed, Err(Error::SessionLost(..))), "{failed:?}");
    let found = judge_pooling(failed.and(Ok(true)));
    assert_eq!(found.grade, Grade::Unknown, "{found:?}");
}

#[test]
fn replication_check_requires_a_connected_synchronous_replica() {
    let primary = Postgres::start(Durability::None, "wal_keep_size = 64MB\n");
    let replica = primary.start_replica();
    let follows = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
    wait_until(|| primary.sql(follows) == "1");
    assert_failed(
        &inspect(&primary.url("hub")),
        "replication",
        "none of 1 replicas is synchronous",
    );
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.sql("SELECT pg_reload_conf()");
    wait_until(|| primary.sql("SELECT sync_state FROM pg_stat_replication") == "sync");
    let hidden = part(&inspect(&primary.url("hub")), "replication");
    assert_eq!(hidden.grade, Grade::Unknown, "{hidden:?}");
    primary.sql("GRANT pg_read_all_stats TO callbridge");
    let seen = part(&inspect(&primary.url("hub")), "replication");
    assert_eq!(seen.grade, Grade::Ok, "{seen:?}");
    drop(replica);
    wait_until(|| primary.sql("SELECT count(*) FROM pg_stat_replication") == "0");
    assert_failed(
        &inspect(&primary.url("hub")),
        "replication",
        "every commit waits",
    );
}

#[track_caller]
fn wait_until(mut holds: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < callbridge_testbed::wait::DEADLINE);
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

#[test]
fn tls_is_reported_with_its_version() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, SECRET).expect("written");
    let server = Postgres::start_with_tls(&authority.identity(Flaw::None));
    let text = format!(
        "postgres://callbridge@localhost:{}/calls?schema=hub&secret-file={}&ca-file={}",
        server.port(),
        secret.display(),
        authority.ca_file().display()
    );
    let tls = part(&inspect(&text), "TLS");
    assert_eq!(tls.grade, Grade::Ok);
    assert!(tls.message.starts_with("TLSv1.3"), "{tls:?}");
}

#[test]
fn unreachable_server_or_missing_database_is_an_error() {
    let port = callbridge_testbed::port::free_port();
    let text = format!("postgres://callbridge@127.0.0.1:{port}/calls");
    let error = inspect_server(&url(&text)).expect_err("no server");
    assert!(matches!(error, Error::SessionLost(..)), "{error}");
    let text = Postgres::shared().url("hub").replace("/calls", "/nothing");
    let error = inspect_server(&url(&text)).expect_err("no database");
    assert!(matches!(error, Error::Unusable(..)), "{error}");
}

#[test]
fn old_version_other_encoding_and_lost_setting_fail() {
    let old = judge_server(130_012, "13.12", "UTF8");
    assert_failed(&[old], "server", "13.12");
    let encoding = judge_server(150_000, "15.0", "SQL_ASCII");
    assert_failed(&[encoding], "server", "SQL_ASCII");
    let kept = (("idle_session_timeout", "10s"), Ok("10s".to_owned()));
    let lost = (("tcp_user_timeout", "8000"), Ok("0".to_owned()));
    let refused = (
        ("client_connection_check_interval", "2s"),
        Err("must be set to 0 on platforms that lack POLLRDHUP".to_owned()),
    );
    assert_eq!(judge_timeouts(std::slice::from_ref(&kept)).grade, Grade::Ok);
    let wrong = judge_timeouts(&[kept, lost, refused]);
    assert_failed(
        std::slice::from_ref(&wrong),
        "timeouts",
        "tcp_user_timeout is 0 and not 8000",
    );
    assert!(wrong.message.contains("POLLRDHUP"), "{wrong:?}");
}

#[test]
fn clock_that_differs_by_more_than_five_seconds_fails() {
    let half = Duration::from_millis(3);
    for (ahead_ms, word) in [
        (0, "by 0 ms (± 3 ms)"),
        (4_999, "by 4999 ms"),
        (5_003, "by 5003 ms"),
        (-5_003, "by 5003 ms"),
    ] {
        let found = judge_clock(ahead_ms * 1_000, half);
        assert_eq!(found.grade, Grade::Ok, "{found:?}");
        assert!(found.message.contains(word), "{found:?}");
    }
    assert_failed(
        &[judge_clock(3_600_000_000, half)],
        "clock",
        "3600 s ahead of",
    );
    assert_failed(&[judge_clock(5_004_000, half)], "clock", "5 s ahead of");
    assert_failed(&[judge_clock(-5_004_000, half)], "clock", "5 s behind");
}

/// This holds even if the role's own search path starts with a schema in which others can create
/// functions.
#[test]
fn session_sees_only_pg_catalog_before_its_settings() {
    let server = Postgres::start(Durability::None, "");
    server.sql("ALTER ROLE callbridge SET search_path = public");
    let url = PostgresUrl::parse(&server.url("hub")).expect("a URL");
    let session = Session::connect(&url, Access::Read, "test").expect("a session");
    let [path] = row(&session, "SHOW search_path").expect("a path");
    assert_eq!(path, "pg_catalog");
}
