//! Tests which process leads with PostgreSQL, and what happens to one that lost its session.

use super::call::{journal, time_at};
use super::place::{Engine, Place, url};
use crate::postgres::PostgresUrl;
use crate::{
    Done, Error, Guard, Handle, Instance, LeadDirectory, Leadership, Op, Settings, SlotRow,
    open_postgres, tables,
};
use callbridge_model::{Phone, TokenFingerprint};
use callbridge_testbed::authority::{Authority, Flaw};
use callbridge_testbed::pooler::Pooler;
use callbridge_testbed::postgres::{Durability, Postgres, SECRET};
use callbridge_testbed::proxy::Proxy;
use callbridge_testbed::wait::pass;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::timeout;

/// How long it may take until another process leads.
const TAKEOVER: Duration = Duration::from_secs(15);

pub(super) fn schema() -> (Place, String) {
    let place = Place::new(Engine::Postgres);
    let Place::Schema(schema) = &place else {
        panic!("PostgreSQL has schemas");
    };
    let schema = schema.clone();
    (place, schema)
}

pub(super) fn instance(name: &str) -> Instance {
    Instance::new(name, "0.1.0", "settings")
}

pub(super) async fn open_instance(url: PostgresUrl, instance: Instance) -> (Handle, Guard) {
    // This blocks while waiting for the server.
    tokio::task::spawn_blocking(move || open_postgres(&url, instance, Settings::default()))
        .await
        .expect("joined")
        .expect("opens")
}

pub(super) async fn close_guard(guard: Guard) {
    tokio::task::spawn_blocking(|| guard.close())
        .await
        .expect("joined");
}

/// Waits until the leadership meets the condition.
pub(super) async fn wait_for_leadership(
    watch: &mut watch::Receiver<Leadership>,
    wanted: fn(&Leadership) -> bool,
) -> Leadership {
    let found = timeout(Duration::from_secs(60), watch.wait_for(wanted)).await;
    found.expect("in time").expect("open").clone()
}

/// Waits until this process leads again after losing its leadership, which may already be over.
async fn wait_to_lead_again(watch: &mut watch::Receiver<Leadership>) {
    let again = async {
        loop {
            watch.changed().await.expect("open");
            if watch.borrow_and_update().is_leading() {
                return;
            }
        }
    };
    timeout(Duration::from_secs(60), again)
        .await
        .expect("in time");
}

pub(super) fn finish(n: u32) -> Vec<Op> {
    vec![Op::Finish(Box::new(journal(n)))]
}

fn slot() -> Vec<Op> {
    vec![Op::Slot(SlotRow {
        slot: 0,
        token: TokenFingerprint::of("token"),
        boot_id: "boot".into(),
        sent: Duration::from_secs(1),
        answered: None,
        wall_sent: time_at(1),
    })]
}

async fn is_takeover(handle: &Handle) -> bool {
    handle
        .read(|store| Ok(store.silence().is_some()))
        .await
        .expect("readable")
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_names_leader_and_takes_over_when_it_ends() {
    let (_place, schema) = schema();
    let (first, guard) = open_instance(url(&schema), instance("hub1")).await;
    first.write(slot()).await.expect("stored");
    first.write(finish(1)).await.expect("stored");
    let (second, second_guard) = open_instance(url(&schema), instance("hub2").another()).await;
    let mut watch = second.leadership();
    let standby = watch.borrow_and_update().clone();
    let Leadership::Standby {
        leader: Some(leader),
        problem: None,
    } = standby
    else {
        panic!("{standby:?}");
    };
    assert_eq!(
        (leader.name.as_str(), leader.version.as_str()),
        ("hub1", "0.1.0")
    );
    assert!(leader.is_this_process());
    let refused = second.write(finish(2)).await.expect_err("a standby");
    assert!(
        matches!(&refused, Error::NotLeader(_, Some(name)) if name == "hub1"),
        "{refused}"
    );
    let standbys = first.read(|store| tables::leaders::standbys(store)).await;
    let standbys = standbys.expect("readable");
    assert_eq!(standbys.len(), 1);
    assert!(standbys[0].label.ends_with("hub2"), "{standbys:?}");
    close_guard(guard).await;
    wait_for_leadership(&mut watch, Leadership::is_leading).await;
    let second = second.renewed();
    assert!(is_takeover(&second).await);
    let row = second.read(|store| tables::leaders::leader(store)).await;
    assert!(!row.expect("readable").expect("a leader").is_this_process());
    let books = second
        .read(|store| Ok(store.books()))
        .await
        .expect("readable");
    assert_eq!(books.ready, 1);
    let standbys = second.read(|store| tables::leaders::standbys(store)).await;
    assert_eq!(standbys.expect("readable"), []);
    close_guard(second_guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn takeover_doubt_survives_restarts_until_the_first_request() {
    let (_place, schema) = schema();
    let (first, guard) = open_instance(url(&schema), instance("hub1")).await;
    assert!(!is_takeover(&first).await, "a new state");
    close_guard(guard).await;
    let (first, guard) = open_instance(url(&schema), instance("hub0").another()).await;
    assert!(!is_takeover(&first).await, "no request was made");
    first.write(slot()).await.expect("stored");
    close_guard(guard).await;
    for _ in 0..2 {
        let (second, guard) = open_instance(url(&schema), instance("hub2").another()).await;
        assert!(is_takeover(&second).await, "no request was made yet");
        close_guard(guard).await;
    }
    let (second, guard) = open_instance(url(&schema), instance("hub2").another()).await;
    second.write(slot()).await.expect("stored");
    close_guard(guard).await;
    let (second, guard) = open_instance(url(&schema), instance("hub2").another()).await;
    assert!(!is_takeover(&second).await, "its slots are known");
    close_guard(guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_session_is_reported_and_old_handles_are_refused() {
    let (_place, schema) = schema();
    let (handle, guard) = open_instance(url(&schema), instance("hub1")).await;
    handle.write(finish(1)).await.expect("stored");
    let mut watch = handle.leadership();
    watch.mark_unchanged();
    let backend = backend(&handle).await;
    Postgres::shared().sql(&format!("SELECT pg_terminate_backend({backend})"));
    wait_for_leadership(&mut watch, |now| matches!(now, Leadership::Lost(_))).await;
    wait_for_leadership(&mut watch, Leadership::is_leading).await;
    let refused = handle
        .write(finish(2))
        .await
        .expect_err("an earlier leadership");
    assert!(matches!(refused, Error::NotLeader(..)), "{refused}");
    let handle = handle.renewed();
    assert!(
        !is_takeover(&handle).await,
        "the slots of this process are known"
    );
    let done = handle.write(finish(2)).await.expect("stored");
    assert!(matches!(done[..], [Done::New(_)]));
    let recount = handle.read(tables::books::recount).await;
    assert_eq!(recount.expect("a recount"), []);
    close_guard(guard).await;
}

/// Returns the process ID of this session's backend.
async fn backend(handle: &Handle) -> i64 {
    let read = handle.read(|store| store.query_one("SELECT pg_backend_pid()", ()));
    read.await.expect("readable")
}

#[tokio::test(flavor = "multi_thread")]
async fn disconnected_leader_is_replaced_and_writes_nothing() {
    let (_place, schema) = schema();
    let proxy = Proxy::start(Postgres::shared().port()).await;
    let through = Postgres::shared().url_at(proxy.port(), &schema);
    let through = PostgresUrl::parse(&through).expect("a URL");
    let (first, guard) = open_instance(through, instance("hub1")).await;
    let (second, second_guard) = open_instance(url(&schema), instance("hub2").another()).await;
    first.write(finish(1)).await.expect("stored");
    let (mut cut, mut waits) = (first.leadership(), second.leadership());
    let begun = Instant::now();
    proxy.cut();
    let lost = first.write(finish(2)).await.expect_err("cut off");
    assert!(
        matches!(lost, Error::SessionLost(..) | Error::NotLeader(..)),
        "{lost}"
    );
    wait_for_leadership(&mut waits, Leadership::is_leading).await;
    let took = begun.elapsed();
    assert!(took < TAKEOVER, "{took:?}");
    let second = second.renewed();
    let done = second.write(finish(2)).await.expect("stored");
    assert!(
        matches!(done[..], [Done::New(_)]),
        "the first process stored nothing"
    );
    proxy.join();
    wait_for_leadership(&mut cut, |now| {
        matches!(now, Leadership::Standby { leader: Some(leader), .. } if leader.name == "hub2")
    })
    .await;
    close_guard(guard).await;
    close_guard(second_guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_host_does_not_block_the_next_host() {
    let (_place, schema) = schema();
    let silent = Proxy::start(Postgres::shared().port()).await;
    silent.cut();
    let both = Postgres::shared().url(&schema);
    let first = format!("127.0.0.1:{},127.0.0.1:", silent.port());
    let both = both.replacen("127.0.0.1:", &first, 1);
    let begun = Instant::now();
    let url = PostgresUrl::parse(&both).expect("a URL");
    let (handle, guard) = open_instance(url, instance("hub1")).await;
    assert!(handle.leadership().borrow().is_leading());
    assert!(begun.elapsed() < TAKEOVER, "{:?}", begun.elapsed());
    close_guard(guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commit_whose_answer_is_dropped_is_stored_once() {
    let (_place, schema) = schema();
    let proxy = Proxy::start(Postgres::shared().port()).await;
    let through = Postgres::shared().url_at(proxy.port(), &schema);
    let through = PostgresUrl::parse(&through).expect("a URL");
    let (handle, guard) = open_instance(through, instance("hub1")).await;
    let mut watch = handle.leadership();
    for n in 1..4 {
        let handle = handle.renewed();
        watch.mark_unchanged();
        // Responses stop at some point in the middle of many commits.
        let writing = async {
            for call in 0.. {
                if handle.write(finish(n * 10_000 + call)).await.is_err() {
                    return call;
                }
            }
            0
        };
        let muting = async {
            pass(Duration::from_millis(u64::from(37 * n))).await;
            proxy.mute();
        };
        let (unknown, ()) = tokio::join!(writing, muting);
        wait_to_lead_again(&mut watch).await;
        let handle = handle.renewed();
        let recount = handle.read(tables::books::recount).await;
        assert_eq!(recount.expect("a recount"), []);
        let done = handle
            .write(finish(n * 10_000 + unknown))
            .await
            .expect("stored");
        assert!(
            matches!(done[..], [Done::New(_) | Done::Repeat(Some(_))]),
            "{done:?}"
        );
        let next = handle
            .write(finish(n * 10_000 + unknown + 1))
            .await
            .expect("stored");
        assert!(
            matches!(next[..], [Done::New(_)]),
            "no id is given twice: {next:?}"
        );
    }
    close_guard(guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_knows_its_slots_after_restart_of_server() {
    let server = Postgres::start(Durability::Synced, "");
    let url = PostgresUrl::parse(&server.url("hub")).expect("a URL");
    let (handle, guard) = open_instance(url.clone(), instance("hub1")).await;
    handle.write(slot()).await.expect("stored");
    handle.write(finish(1)).await.expect("stored");
    let leads = LeadDirectory::in_database(&url);
    let phone = Phone::from_e164("+998901110001").expect("a number");
    leads.find(&phone).expect("readable");
    let mut watch = handle.leadership();
    watch.mark_unchanged();
    server.kill();
    wait_for_leadership(&mut watch, |now| {
        matches!(
            now,
            Leadership::Standby {
                problem: Some(_),
                ..
            }
        )
    })
    .await;
    let refused = handle
        .renewed()
        .write(finish(2))
        .await
        .expect_err("no server");
    assert!(refused.is_retryable(), "{refused}");
    leads.find(&phone).expect_err("no server");
    server.start_again();
    wait_for_leadership(&mut watch, Leadership::is_leading).await;
    let handle = handle.renewed();
    assert!(!is_takeover(&handle).await, "every commit was synced");
    let books = handle
        .read(|store| Ok(store.books()))
        .await
        .expect("readable");
    assert_eq!(books.ready, 1);
    // A reader pauses for a second after a failure.
    pass(Duration::from_secs(1)).await;
    leads.find(&phone).expect("readable again");
    close_guard(guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_server_loses_session_and_leader_resumes_after_thaw() {
    let server = Postgres::start(Durability::None, "");
    let url = PostgresUrl::parse(&server.url("hub")).expect("a URL");
    let (handle, guard) = open_instance(url, instance("hub1")).await;
    let mut watch = handle.leadership();
    watch.mark_unchanged();
    server.freeze();
    let begun = Instant::now();
    let error = handle.write(finish(1)).await.expect_err("no answer");
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(error.is_retryable(), "{error}");
    server.thaw();
    wait_for_leadership(&mut watch, Leadership::is_leading).await;
    handle.renewed().write(finish(1)).await.expect("stored");
    close_guard(guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn newer_schema_keeps_process_on_standby_until_it_matches() {
    let (place, schema) = schema();
    let (handle, guard) = open_instance(url(&schema), instance("hub1")).await;
    handle.write(finish(1)).await.expect("stored");
    close_guard(guard).await;
    place.sql("UPDATE callbridge_schema SET version = 99");
    let (older, guard) = open_instance(url(&schema), instance("hub1")).await;
    let standby = older.leadership().borrow().clone();
    assert!(
        matches!(
            &standby,
            Leadership::Standby {
                problem: Some(Error::NewerSchema(_, 99, 1)),
                ..
            }
        ),
        "{standby:?}"
    );
    older.write(finish(2)).await.expect_err("a standby");
    let untouched = format!(
        "SELECT version, (SELECT count(*) FROM {schema}.calls) FROM {schema}.callbridge_schema"
    );
    assert_eq!(Postgres::shared().sql(&untouched).trim(), "99|1");
    place.sql("UPDATE callbridge_schema SET version = 1");
    wait_for_leadership(&mut older.leadership(), Leadership::is_leading).await;
    close_guard(guard).await;
}

fn try_open(url: &str) -> Result<(), Error> {
    let url = PostgresUrl::parse(url).expect("a URL");
    open_postgres(&url, instance("hub1"), Settings::default()).map(drop)
}

#[test]
fn tables_of_another_program_and_wrong_names_are_refused() {
    let (place, schema) = schema();
    Postgres::shared().sql(&format!(
        "CREATE SCHEMA {schema} AUTHORIZATION callbridge; CREATE TABLE {schema}.cookies (x int)"
    ));
    let server = Postgres::shared();
    let refused = try_open(&server.url(&schema)).expect_err("another program's");
    assert!(matches!(refused, Error::Foreign(_)), "{refused}");
    let (host, port) = ("127.0.0.1", server.port());
    let refused = try_open(&format!("postgres://callbridge@{host}:{port}/nothing"));
    let refused = refused.expect_err("no such database");
    assert!(matches!(refused, Error::Unusable(..)), "{refused}");
    let refused =
        try_open(&format!("postgres://nobody@{host}:{port}/calls")).expect_err("no such role");
    assert!(matches!(refused, Error::Unusable(..)), "{refused}");
    drop(place);
}

#[test]
fn session_has_the_timeouts_that_free_the_lock() {
    let (place, _) = schema();
    let store = place.store(Settings::default());
    for (name, value) in [
        ("idle_session_timeout", "10s"),
        ("idle_in_transaction_session_timeout", "5s"),
        ("client_connection_check_interval", "2s"),
        ("tcp_user_timeout", "8000"),
        ("synchronous_commit", "on"),
    ] {
        let text = format!("SELECT current_setting('{name}')");
        assert_eq!(
            store.query_one::<String>(&text, ()).expect("readable"),
            value,
            "{name}"
        );
    }
}

/// Opens this server's state using the password in this file.
fn open_with_secret(server: &Postgres, secret: &Path, ca: &str) -> Result<(), Error> {
    let url = format!(
        "postgres://callbridge@localhost:{}/calls?schema=hub&secret-file={}{ca}",
        server.port(),
        secret.display()
    );
    let url = PostgresUrl::parse(&url).expect("a URL");
    assert!(!format!("{url:?}").contains(SECRET));
    let (handle, guard) = open_postgres(&url, instance("hub1"), Settings::default())?;
    let leadership = handle.leadership().borrow().clone();
    guard.close();
    match leadership {
        Leadership::Standby {
            problem: Some(error),
            ..
        } => Err(error),
        Leadership::Leading { .. } => Ok(()),
        other => panic!("{other:?}"),
    }
}

/// TLS is always verified, and no message contains the password.
#[test]
fn database_over_tls_is_verified_and_its_password_is_not_shown() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    let ca = format!("&ca-file={}", authority.ca_file().display());
    let server = Postgres::start_with_tls(&authority.identity(Flaw::None));
    std::fs::write(&secret, SECRET).expect("written");
    open_with_secret(&server, &secret, &ca).expect("a valid certificate");
    let clear = open_with_secret(&server, &secret, "").expect_err("the server asks for TLS");
    assert!(matches!(clear, Error::Unusable(..)), "{clear}");
    let wrong = "not the secret";
    std::fs::write(&secret, wrong).expect("written");
    let refused = open_with_secret(&server, &secret, &ca).expect_err("another password");
    assert!(matches!(refused, Error::Unusable(..)), "{refused}");
    assert!(!refused.to_string().contains(wrong), "{refused}");
    std::fs::write(&secret, SECRET).expect("written");
    for flaw in [Flaw::WrongName, Flaw::Expired, Flaw::SelfSigned] {
        let server = Postgres::start_with_tls(&authority.identity(flaw));
        let refused = open_with_secret(&server, &secret, &ca).expect_err("an invalid certificate");
        assert!(
            refused.to_string().contains("certificate"),
            "{flaw:?}: {refused}"
        );
    }
}

/// A schema's owner could add functions and operators to it.
#[test]
fn schema_of_another_role_is_refused() {
    let (_place, schema) = schema();
    let server = Postgres::shared();
    server.sql(&format!("CREATE SCHEMA {schema}"));
    server.sql(&format!("GRANT ALL ON SCHEMA {schema} TO callbridge"));
    let refused = try_open(&server.url(&schema)).expect_err("another role's");
    assert!(matches!(refused, Error::Unusable(..)), "{refused}");
    assert!(
        refused.to_string().contains("belongs to postgres"),
        "{refused}"
    );
    server.sql(&format!("ALTER SCHEMA {schema} OWNER TO callbridge"));
    try_open(&server.url(&schema)).expect("its own schema");
}

/// Without other clients, such a pooler picks the same backend every time, so it looks as if the
/// session's settings were kept.
#[test]
fn pooler_of_transactions_is_refused_at_start() {
    let (_place, schema) = schema();
    let server = Postgres::shared();
    for (mode, is_refused) in [("transaction", true), ("session", false)] {
        let pooler = Pooler::start(server, mode);
        let url = PostgresUrl::parse(&server.url_at(pooler.port(), &schema)).expect("a URL");
        match open_postgres(&url, instance("hub1"), Settings::default()) {
            Ok((_, guard)) => {
                assert!(!is_refused, "{mode}");
                guard.close();
            }
            Err(error) => {
                assert!(
                    is_refused && matches!(error, Error::Unusable(..)),
                    "{error}"
                );
                assert!(error.to_string().contains("pool_mode = session"), "{error}");
            }
        }
    }
}
