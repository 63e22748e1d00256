//! Tests what `check` reports about the PostgreSQL server of a state.

use super::findings::{check, check_in_both_forms, replace_flag};
use crate::commands::sidecar::{Place, start_crm};
use crate::support::program::{self, preload};
use callbridge_sandbox::Server;
use callbridge_testbed::calls::Call;
use callbridge_testbed::pooler::Pooler;
use callbridge_testbed::port::free_port;
use callbridge_testbed::postgres::{Durability, Postgres};

/// Returns a place with a source, its CRM, and the flags for the state at this URL.
async fn stage(url: &str) -> (Place, Server, Vec<String>) {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    place.write("calls.ami", Call::new(1, 4001).ami());
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    (place, crm, replace_flag(flags, "--state", url))
}

#[tokio::test]
async fn new_database_passes_check_and_remains_empty() {
    let server = Postgres::start(Durability::Synced, "");
    let (place, _crm, flags) = stage(&server.url("hub")).await;
    let report = check_in_both_forms(&place, &flags).await;
    report.assert_clean();
    for (name, words) in [
        ("database server", "PostgreSQL 1"),
        ("database rights", "can create the schema hub"),
        ("database pooling", "keeps its own backend"),
        ("database timeouts", "accepted"),
        ("database replication", "disk of this server"),
        ("state", "`run` creates it"),
    ] {
        let found = report.ok_finding(name);
        let message = found["message"].as_str().expect("a message");
        assert!(message.contains(words), "{found}");
    }
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'hub'";
    assert_eq!(server.sql(schemas), "0");
}

/// Promise: `check` refuses a database behind a pooler of transactions.
#[tokio::test]
async fn transaction_pooler_fails_check_and_session_pooler_passes() {
    let server = Postgres::shared();
    let schema = Postgres::new_schema();
    let pooler = Pooler::start(server, "transaction");
    let (place, _crm, flags) = stage(&server.url_at(pooler.port(), &schema)).await;
    let report = check(&place, &flags).await;
    assert_eq!(report.code, 78, "{report:?}");
    assert_eq!(report.failed_names(), ["database pooling", "crm"]);
    let sessions = Pooler::start(server, "session");
    let flags = replace_flag(flags, "--state", &server.url_at(sessions.port(), &schema));
    let report = check(&place, &flags).await;
    report.ok_finding("database pooling");
    assert_eq!(report.code, 0, "{report:?}");
}

#[tokio::test]
async fn unreachable_database_exits_69() {
    let url = format!("postgres://callbridge@127.0.0.1:{}/calls", free_port());
    let (place, _crm, flags) = stage(&url).await;
    let report = check(&place, &flags).await;
    assert_eq!(report.code, 69, "{report:?}");
    assert_eq!(report.failed_names(), ["database", "crm"]);
}

#[tokio::test]
async fn database_clock_difference_is_reported() {
    let (place, _crm, flags) = stage(&Postgres::shared().url(&Postgres::new_schema())).await;
    let library = program::Place::new();
    let behind = place.write("clock", "3600");
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_callbridge"))
        .arg("check")
        .args(&flags)
        .env_clear()
        .env("LD_PRELOAD", preload(&library, "clock.c"))
        .env("TEST_CLOCK", behind)
        .output()
        .await
        .expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.contains("database clock"));
    let line = line.unwrap_or_else(|| panic!("{output:?}"));
    let rest = line.strip_prefix("failed database clock: it is ");
    let shown = rest.and_then(|rest| rest.split_once(" s ahead of"));
    let (seconds, _) = shown.unwrap_or_else(|| panic!("{line}"));
    let seconds: i64 = seconds.parse().expect("a number");
    // On a busy machine, the clocks are read at different moments.
    assert!((3_540..=3_660).contains(&seconds), "{line}");
}
