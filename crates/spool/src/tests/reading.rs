//! Tests of a process that only reads a state in PostgreSQL.

use super::lead::{close_guard, finish, instance, open_instance, schema};
use super::place::url;
use crate::postgres::PostgresUrl;
use crate::{Error, Guard, Handle, Leadership, Settings, Store, read_postgres, tables};
use callbridge_testbed::postgres::{Durability, Postgres};
use callbridge_testbed::wait::pass;
use std::sync::mpsc;
use std::time::Duration;

fn reader(url: &PostgresUrl) -> (Handle, Guard) {
    read_postgres(url, Settings::default()).expect("a thread")
}

async fn ready_calls(reader: &Handle) -> Result<u64, Error> {
    reader.read(|store| Ok(store.books().ready)).await
}

/// Returns the leader's name and the problem, as reported by a reader.
fn leader_and_problem(reader: &Handle) -> (Option<String>, Option<Error>) {
    let leadership = reader.leadership().borrow().clone();
    let Leadership::Standby { leader, problem } = leadership else {
        panic!("{leadership:?}");
    };
    (leader.map(|leader| leader.name), problem)
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_sees_each_commit_and_writes_nothing() {
    let (_place, schema) = schema();
    let (leader, guard) = open_instance(url(&schema), instance("hub1")).await;
    let (reader, reader_guard) = reader(&url(&schema));
    assert_eq!(
        leader_and_problem(&reader),
        (None, None),
        "nothing was asked yet"
    );
    for n in 1..4 {
        leader.write(finish(n)).await.expect("stored");
        assert_eq!(ready_calls(&reader).await, Ok(u64::from(n)));
    }
    assert_eq!(leader_and_problem(&reader), (Some("hub1".to_owned()), None));
    let refused = reader.write(finish(9)).await.expect_err("a reader");
    assert_eq!(
        refused,
        Error::NotLeader(url(&schema).place(), Some("hub1".to_owned()))
    );
    close_guard(guard).await;
    assert_eq!(ready_calls(&reader).await, Ok(3), "no process leads");
    let next = reader.read(|store| Ok(store.next_id)).await;
    assert_eq!(next, Ok(4));
    close_guard(reader_guard).await;
    assert_eq!(ready_calls(&reader).await, Err(Error::Closed));
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_books_match_its_rows_while_the_leader_writes() {
    let (_place, schema) = schema();
    let (leader, guard) = open_instance(url(&schema), instance("hub1")).await;
    leader.write(finish(1)).await.expect("stored");
    let (reader, reader_guard) = reader(&url(&schema));
    let (begun, begins) = tokio::sync::oneshot::channel();
    let (written, is_written) = mpsc::sync_channel::<()>(1);
    let reading = tokio::spawn(async move {
        let read = reader.read(move |store| {
            begun.send(()).expect("awaited");
            is_written.recv().expect("sent");
            tables::books::recount(store)
        });
        read.await
    });
    begins.await.expect("it reads");
    leader.write(finish(2)).await.expect("stored");
    written.send(()).expect("awaited");
    assert_eq!(reading.await.expect("joined"), Ok(Vec::new()));
    close_guard(guard).await;
    close_guard(reader_guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_of_no_state_reports_it_and_creates_nothing() {
    let (_place, schema) = schema();
    let (reader, reader_guard) = reader(&url(&schema));
    let missing = Error::Missing(url(&schema).place());
    assert_eq!(ready_calls(&reader).await, Err(missing.clone()));
    assert_eq!(leader_and_problem(&reader), (None, Some(missing)));
    let found = Postgres::shared().sql(&format!("SELECT to_regnamespace('{schema}') IS NULL"));
    assert_eq!(found, "t");
    let (_leader, guard) = open_instance(url(&schema), instance("hub1")).await;
    assert_eq!(ready_calls(&reader).await, Ok(0));
    assert_eq!(leader_and_problem(&reader), (Some("hub1".to_owned()), None));
    close_guard(guard).await;
    close_guard(reader_guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_refuses_other_schema_versions_until_they_match() {
    let (place, schema) = schema();
    let (_leader, guard) = open_instance(url(&schema), instance("hub1")).await;
    close_guard(guard).await;
    let (reader, reader_guard) = reader(&url(&schema));
    place.sql("UPDATE callbridge_schema SET version = 99");
    let newer = Error::NewerSchema(url(&schema).place(), 99, 1);
    assert_eq!(ready_calls(&reader).await, Err(newer));
    place.sql("UPDATE callbridge_schema SET version = 0");
    let older = ready_calls(&reader).await.expect_err("an older schema");
    assert!(matches!(older, Error::Unusable(..)), "{older}");
    place.sql("UPDATE callbridge_schema SET version = 1");
    assert_eq!(ready_calls(&reader).await, Ok(0));
    close_guard(reader_guard).await;
}

/// Ends the reader's session, as restarting the server would.
async fn end_session(reader: &Handle) {
    let read = reader.read(|store: &Store| store.query_one::<i64>("SELECT pg_backend_pid()", ()));
    let backend = read.await.expect("readable");
    Postgres::shared().sql(&format!("SELECT pg_terminate_backend({backend}, 60000)"));
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_whose_session_ended_connects_again() {
    let (_place, schema) = schema();
    let (leader, guard) = open_instance(url(&schema), instance("hub1")).await;
    let (reader, reader_guard) = reader(&url(&schema));
    assert_eq!(ready_calls(&reader).await, Ok(0));
    let seen = reader.read(|store| Ok(store.letters_so_far())).await;
    let seen = seen.expect("readable");
    end_session(&reader).await;
    leader.write(finish(1)).await.expect("stored");
    assert_eq!(ready_calls(&reader).await, Ok(1));
    let letters = reader.read(move |store| tables::letters::letters_since(store, seen, 10));
    let letters = letters.await.expect("readable");
    assert_eq!(letters, None, "who follows the letters reads all of them");
    close_guard(guard).await;
    close_guard(reader_guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_reports_a_lost_server_and_resumes_when_it_is_back() {
    let server = Postgres::start(Durability::None, "");
    let url = PostgresUrl::parse(&server.url("hub")).expect("a URL");
    let (leader, guard) = open_instance(url.clone(), instance("hub1")).await;
    leader.write(finish(1)).await.expect("stored");
    let (reader, reader_guard) = reader(&url);
    assert_eq!(ready_calls(&reader).await, Ok(1));
    server.kill();
    let lost = ready_calls(&reader).await.expect_err("no server");
    assert!(matches!(lost, Error::SessionLost(..)), "{lost}");
    assert_eq!(
        leader_and_problem(&reader),
        (Some("hub1".to_owned()), Some(lost.clone()))
    );
    let refused = reader.write(finish(2)).await.expect_err("no server");
    assert!(refused.is_retryable(), "{refused}");
    server.start_again();
    // A reader pauses for a second after a failure.
    pass(Duration::from_secs(1)).await;
    assert_eq!(ready_calls(&reader).await, Ok(1));
    close_guard(guard).await;
    close_guard(reader_guard).await;
}
