//! Tests what happens to calls while the database server is failing.
//!
//! All of these servers sync their commits.

use super::call::{journal, time_at};
use super::lead::{close_guard, instance, open_instance, wait_for_leadership};
use crate::postgres::{Access, PostgresUrl, Session};
use crate::{
    Done, Error, Guard, Handle, LeadDirectory, Leadership, LostSessions, Op, RowId, tables,
};
use callbridge_model::Phone;
use callbridge_testbed::commit_proxy::{CommitProxy, Loss};
use callbridge_testbed::mounts::{SmallDisk, inside};
use callbridge_testbed::postgres::{Durability, Postgres};
use callbridge_testbed::wait::{pass, soon};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;

/// A call source that retries each call until it's stored, as collectors do.
struct Calls {
    handle: Handle,
    next: u32,
    /// Rows of the calls that the spool has confirmed.
    rows: BTreeSet<RowId>,
}

impl Calls {
    const fn new(handle: Handle) -> Self {
        Self {
            handle,
            next: 1,
            rows: BTreeSet::new(),
        }
    }

    fn op(n: u32) -> Vec<Op> {
        vec![Op::Finish(Box::new(journal(n)))]
    }

    /// Writes calls until one is refused, and returns the error. That call will be written next.
    async fn write_until_refused(&mut self) -> Error {
        loop {
            match self.handle.write(Self::op(self.next)).await {
                Ok(done) => self.note(&done),
                Err(error) => return error,
            }
        }
    }

    /// Writes the next call until it's stored, and returns whether it had already been stored.
    async fn write_again(&mut self) -> bool {
        let writing = async {
            loop {
                self.handle = self.handle.renewed();
                match self.handle.write(Self::op(self.next)).await {
                    Ok(done) => return done,
                    Err(error) => assert!(error.is_retryable(), "{error}"),
                }
                pass(Duration::from_millis(100)).await;
            }
        };
        let done = soon("a stored call", writing).await;
        self.note(&done);
        matches!(done[..], [Done::Repeat(_)])
    }

    fn note(&mut self, done: &[Done]) {
        let [Done::New(row) | Done::Repeat(Some(row))] = done else {
            panic!("{done:?}");
        };
        assert!(self.rows.insert(*row), "{row} was given twice");
        self.next += 1;
    }

    /// Checks that each confirmed call is stored exactly once.
    async fn assert_all_stored(&self) {
        let handle = self.handle.renewed();
        for n in 1..self.next {
            let done = handle.write(Self::op(n)).await.expect("readable");
            assert!(matches!(done[..], [Done::Repeat(Some(_))]), "{n}: {done:?}");
        }
        let books = handle.read(|store| Ok(store.books())).await;
        let books = books.expect("readable");
        assert_eq!(books.finished, u64::from(self.next - 1));
        let recount = handle.read(tables::books::recount).await;
        assert_eq!(recount.expect("a recount"), []);
    }
}

async fn leader(url: &str) -> (Handle, Guard) {
    let url = PostgresUrl::parse(url).expect("a URL");
    open_instance(url, instance("hub1")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn unanswered_commit_is_stored_at_most_once() {
    let server = Postgres::start(Durability::Synced, "");
    let proxy = CommitProxy::start(server.port()).await;
    let (handle, guard) = leader(&server.url_at(proxy.port(), "hub")).await;
    let mut calls = Calls::new(handle);
    for (loss, is_committed) in [
        (Loss::Request, false),
        (Loss::Answer, true),
        (Loss::Answer, true),
        (Loss::Request, false),
    ] {
        calls.write_again().await;
        // This affects the third call from now.
        proxy.lose(3, loss);
        let lost = calls.write_until_refused().await;
        assert!(matches!(lost, Error::SessionLost(..)), "{lost}");
        soon("the loss", proxy.has_lost()).await;
        assert_eq!(calls.write_again().await, is_committed, "{loss:?}");
    }
    calls.assert_all_stored().await;
    close_guard(guard).await;
}

/// When an administrator cancels the wait for a synchronous standby, PostgreSQL commits locally and
/// sends a warning instead of an error.
#[tokio::test(flavor = "multi_thread")]
async fn commit_without_its_standby_is_not_confirmed() {
    const WARNING_TRIGGER: &str = "CREATE FUNCTION hub.warn() RETURNS trigger LANGUAGE plpgsql
         AS $$BEGIN RAISE WARNING 'database must be vacuumed'; RETURN NEW; END$$;
         CREATE TRIGGER warn BEFORE INSERT ON hub.calls
         FOR EACH ROW EXECUTE FUNCTION hub.warn()";
    const CANCEL: &str = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
         WHERE wait_event = 'SyncRep'";
    let server = Postgres::start(Durability::Synced, "");
    server.sql("ALTER ROLE ALL SET client_min_messages = error");
    let (handle, guard) = leader(&server.url("hub")).await;
    let mut calls = Calls::new(handle);
    calls.write_again().await;
    server.sql(WARNING_TRIGGER);
    let is_repeat = calls.write_again().await;
    assert!(!is_repeat, "another warning changes nothing");
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'away'");
    server.sql("SELECT pg_reload_conf()");
    let canceling = async {
        while server.sql(CANCEL).trim() == "0" {
            pass(Duration::from_millis(50)).await;
        }
    };
    let (error, ()) = tokio::join!(calls.write_until_refused(), canceling);
    let Error::SessionLost(_, why) = &error else {
        panic!("{error}");
    };
    assert!(why.contains("canceling wait"), "{why}");
    server.sql("ALTER SYSTEM RESET synchronous_standby_names");
    server.sql("SELECT pg_reload_conf()");
    assert!(calls.write_again().await, "it was committed all the same");
    calls.assert_all_stored().await;
    close_guard(guard).await;
}

/// Another process that believes it's the leader has increased the hub's `seq`.
#[tokio::test(flavor = "multi_thread")]
async fn hub_that_is_not_the_only_writer_commits_nothing() {
    let server = Postgres::start(Durability::Synced, "");
    let (handle, guard) = leader(&server.url("hub")).await;
    let begin = Op::BeginHub {
        incarnation: "first".to_owned(),
        at: time_at(1),
    };
    handle.write(vec![begin]).await.expect("stored");
    let mut calls = Calls::new(handle);
    calls.write_again().await;
    server.sql("UPDATE hub.hub SET seq = seq + 1");
    let error = calls.write_until_refused().await;
    let Error::SessionLost(_, why) = &error else {
        panic!("{error}");
    };
    assert!(why.contains("another process"), "{why}");
    assert_eq!(server.sql("SELECT count(*) FROM hub.calls").trim(), "1");
    assert!(!calls.write_again().await, "it was not committed");
    calls.assert_all_stored().await;
    close_guard(guard).await;
}

/// A failure, which lasts until the second function is called.
type Fault = (&'static str, fn(&Postgres), fn(&Postgres));

#[tokio::test(flavor = "multi_thread")]
async fn killed_stopped_or_frozen_server_loses_no_call() {
    const FAULTS: [Fault; 3] = [
        ("kill -9", Postgres::kill, Postgres::start_again),
        ("immediate", Postgres::stop_at_once, Postgres::start_again),
        ("SIGSTOP", Postgres::freeze, Postgres::thaw),
    ];
    let server = Postgres::start(Durability::Synced, "");
    let (handle, guard) = leader(&server.url("hub")).await;
    let mut calls = Calls::new(handle);
    for (name, begin, end) in FAULTS {
        calls.write_again().await;
        let begun = calls.next;
        let failing = async {
            pass(Duration::from_millis(200)).await;
            begin(&server);
        };
        let (error, ()) = tokio::join!(calls.write_until_refused(), failing);
        assert!(error.is_retryable(), "{name}: {error}");
        assert!(calls.next > begun, "{name}: the server worked before");
        let refused = calls.handle.renewed().write(Calls::op(calls.next)).await;
        let refused = refused.expect_err("the server does not work");
        assert!(refused.is_retryable(), "{name}: {refused}");
        end(&server);
        calls.write_again().await;
    }
    calls.assert_all_stored().await;
    close_guard(guard).await;
}

#[tokio::test]
async fn lost_sessions_and_slow_commits_are_reported() {
    let server = Postgres::start(Durability::Synced, "");
    let (handle, guard) = leader(&server.url("hub")).await;
    let mut calls = Calls::new(handle);
    calls.write_again().await;
    let before = calls.handle.health();
    assert!(before.commits.slowest(Instant::now()).is_some());
    assert_eq!(before.lost_sessions, LostSessions::default());
    server
        .sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'callbridge'");
    calls.write_until_refused().await;
    calls.write_again().await;
    let lost = calls.handle.health().lost_sessions;
    let (_, why) = lost.last.expect("a lost session");
    assert_eq!(lost.count, 1);
    assert!(why.contains("terminating connection"), "{why}");
    close_guard(guard).await;
}

/// This test needs root, or users that can create namespaces. Otherwise, it's reported as skipped.
#[test]
fn full_disk_of_the_server_loses_no_call() {
    inside(
        "tests::server_faults::full_disk_of_the_server_loses_no_call",
        fill_disk(),
    );
}

async fn fill_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = SmallDisk::at(folder.path().join("disk"), 256 << 10);
    disk.open_to_all();
    let server = Postgres::start_in(&folder.path().join("disk"), "max_wal_size = 64MB\n");
    let (handle, guard) = leader(&server.url("hub")).await;
    let mut calls = Calls::new(handle);
    for _ in 0..20 {
        calls.write_again().await;
    }
    disk.fill_but(0);
    let full = calls.write_until_refused().await;
    assert!(matches!(full, Error::Full(_)), "{full}");
    let trouble = calls.handle.health().trouble;
    assert_eq!(trouble, Some(full), "the disk is reported");
    disk.make_room();
    for _ in 0..20 {
        calls.write_again().await;
    }
    assert_eq!(calls.handle.health().trouble, None);
    calls.assert_all_stored().await;
    close_guard(guard).await;
    drop(server);
}

/// Opens connections until the server has none left.
fn use_up_connections(url: &PostgresUrl) -> Vec<Session> {
    let mut sessions = Vec::new();
    while let Ok(session) = Session::open(url, Access::Read, "another program") {
        sessions.push(session);
    }
    sessions
}

/// Connects as soon as a connection becomes available.
fn take_next_connection(url: &PostgresUrl) -> Session {
    loop {
        if let Ok(session) = Session::open(url, Access::Read, "another program") {
            return session;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_without_a_free_connection_loses_no_call() {
    let server = Postgres::start(Durability::Synced, "max_connections = 10\n");
    let url = PostgresUrl::parse(&server.url("hub")).expect("a URL");
    let (handle, guard) = leader(&server.url("hub")).await;
    let mut calls = Calls::new(handle);
    calls.write_again().await;
    let others = url.clone();
    let others = spawn_blocking(move || use_up_connections(&others)).await;
    let mut others = others.expect("joined");
    assert!(!others.is_empty());
    calls.write_again().await;
    // The leader loses its session, and another program takes the connection this frees up.
    let next = url.clone();
    let next = spawn_blocking(move || take_next_connection(&next));
    while !next.is_finished() {
        server.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE application_name LIKE 'callbridge % hub1'",
        );
        pass(Duration::from_millis(100)).await;
    }
    others.push(next.await.expect("joined"));
    let mut watch = calls.handle.leadership();
    wait_for_leadership(&mut watch, |now| {
        matches!(now, Leadership::Standby { problem: Some(Error::SessionLost(_, why)), .. }
            if why.contains("53300"))
    })
    .await;
    let refused = calls.write_until_refused().await;
    assert!(refused.is_retryable(), "{refused}");
    let leads = LeadDirectory::in_database(&url);
    let phone = Phone::from_e164("+998901110001").expect("a number");
    leads.find(&phone).expect_err("no connection");
    drop(others);
    calls.write_again().await;
    calls.assert_all_stored().await;
    close_guard(guard).await;
}
