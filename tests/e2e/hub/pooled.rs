//! Tests hubs behind PgBouncer. One that pools transactions would give the leader's lock to another
//! client, so it's refused, whereas one that pools sessions works.

use super::pair::{Pair, TAKEOVER, source_address};
use super::stage::{free_address, start_hub};
use crate::support::crm;
use crate::support::program::Place;
use callbridge_model::status::Role;
use callbridge_testbed::pooler::Pooler;
use callbridge_testbed::postgres::Postgres;
use std::time::Instant;

#[tokio::test]
async fn run_and_check_refuse_transaction_and_statement_pooler() {
    let server = Postgres::shared();
    let crm = crm::start().await;
    for mode in ["transaction", "statement"] {
        let pooler = Pooler::start(server, mode);
        let url = server.url_at(pooler.port(), &Postgres::new_schema());
        let place = Place::in_database(&url);
        let hub = start_hub(&place, &crm.url(), free_address());
        assert_eq!(hub.ended().await.code(), Some(78), "{}", place.logs());
        let check = [
            "check",
            "--collect=127.0.0.1:0",
            &format!("--crm-url={}", crm.url()),
            &format!("--token-file={}", place.path("token")),
            "--country=UZ",
        ];
        let checked = place.command(&check).await;
        assert_eq!(checked.status.code(), Some(78), "{checked:?}");
        let printed = String::from_utf8_lossy(&checked.stdout).into_owned();
        for text in [place.logs(), printed] {
            assert!(text.contains("pools transactions"), "{mode}: {text}");
            assert!(text.contains("pool_mode = session"), "{mode}: {text}");
        }
        let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = ";
        let schema = url.rsplit_once('=').expect("a schema").1;
        assert_eq!(server.sql(&format!("{schemas}'{schema}'")), "0");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hubs_behind_session_pooler_take_over_and_log_each_call_once() {
    let place = Place::new();
    let library = source_address(&place);
    let server = Postgres::shared();
    let pooler = Pooler::start(server, "session");
    let url = server.url_at(pooler.port(), &Postgres::new_schema());
    let pair = Pair::new([&url, &url], crm::RATE).await;
    pair.start(&library).await;
    pair.post(0..3).await;
    let [first, second] = &pair.hubs;
    first.kill().await;
    let kill_time = Instant::now();
    second.wait_for_role(Role::Leader).await;
    assert!(kill_time.elapsed() < TAKEOVER, "{:?}", kill_time.elapsed());
    pair.post(3..6).await;
    pair.wait_until_journaled(6).await;
    let findings = pair.findings(6);
    assert_eq!(findings.broken_rules(), [""; 0], "{findings:?}");
    pair.terminate().await;
}
