//! Tests PostgreSQL outages, in which it's killed, stopped, or frozen, or runs out of disk space or
//! connections. In the meantime, the hub mustn't send anything, and its collectors keep their
//! calls.

use super::pair::{BRANCH, Condition, PATIENCE, Pair, source_address};
use super::runs::{report, seconds};
use super::stage::{messages, start_collector};
use super::watchdog::Watchdog;
use crate::support::crm;
use crate::support::judge::Port;
use crate::support::program::{Place, Program};
use callbridge_model::status::Role;
use callbridge_testbed::mounts::{SmallDisk, inside};
use callbridge_testbed::postgres::{Durability, Postgres, ROLE};
use callbridge_testbed::proxy::Proxy;
use callbridge_testbed::wait::{pass, until, until_within};
use std::time::{Duration, Instant};

/// How long to wait for all requests to end. A request may wait for less than this between the
/// storing of its slot and its first byte.
const UNDER_WAY: Duration = Duration::from_secs(6);
/// Length of the outage during which nothing may be sent.
const OUTAGE: Duration = Duration::from_secs(15);

/// `WatchdogSec=` of the hub. callbridge pings every 10 s, and a leader notices after 8 s that the
/// database doesn't respond.
const WATCHDOG: Duration = Duration::from_secs(40);

/// A hub whose database becomes unavailable, along with a collector.
struct Scene {
    pair: Pair,
    collector_place: Place,
    collector: Program,
    watchdog: Watchdog,
    calls: u32,
}

impl Scene {
    async fn start(server: &Postgres) -> Self {
        Self::start_at(&server.url(&Postgres::new_schema())).await
    }

    /// Starts a hub with its state at this URL.
    async fn start_at(url: &str) -> Self {
        let place = Place::new();
        let pair = Pair::new([url, url], crm::RATE).await;
        let hub = &pair.hubs[0];
        let watchdog = Watchdog::start(&hub.place, WATCHDOG);
        hub.start(&source_address(&place), &watchdog.variables());
        until("the hub serves", async || hub.has_served()).await;
        let collector_place = Place::new();
        collector_place.write("calls.jsonl", "");
        let collector = start_collector(&collector_place, pair.hubs[0].collect, &pair.token);
        let mut scene = Self {
            pair,
            collector_place,
            collector,
            watchdog,
            calls: 0,
        };
        scene.write_calls(5);
        scene.pair.wait_until_journaled(5).await;
        scene
    }

    /// Writes this many new calls to the collector's source.
    fn write_calls(&mut self, calls: u32) {
        let numbers = self.calls..self.calls + calls;
        let lines = messages(BRANCH, numbers);
        self.collector_place.append("calls.jsonl", lines.as_bytes());
        self.calls += calls;
    }

    /// Waits until the hub has confirmed this many calls.
    async fn wait_until_forwarded(&mut self, calls: u64) {
        until_within(PATIENCE, "forwarded calls", async || {
            let status = self.collector.status().await;
            status.is_some_and(|status| status.books.forwarded >= calls)
        })
        .await;
    }

    /// Checks that nothing is sent during an outage. `begin` makes the database unavailable, and
    /// `end` restores it.
    async fn check_outage(mut self, fault: &str, begin: impl FnOnce(), end: impl FnOnce()) {
        // The hub has stored these calls but not sent them.
        self.pair.judge.set_port(Port::Closed);
        self.write_calls(2);
        self.wait_until_forwarded(7).await;
        let begun = Instant::now();
        begin();
        let hub = &self.pair.hubs[0];
        until_within(PATIENCE, "the hub without its session", async || {
            hub.place.logs().contains("lost the lock")
        })
        .await;
        pass(UNDER_WAY).await;
        let sent = self.pair.judge.count();
        self.pair.judge.set_port(Port::Open);
        self.write_calls(200);
        self.collector
            .until("the hub accepts nothing", |status| {
                let pause = status.pause.as_ref();
                let is_away = pause.is_some_and(|pause| pause.reason == "hub_unreachable");
                is_away && status.books.ready == 200
            })
            .await;
        pass(OUTAGE).await;
        let logs = self.pair.hubs[0].place.logs();
        assert_eq!(self.pair.hubs[0].condition(), Condition::Runs, "{logs}");
        assert_eq!(self.pair.judge.count(), sent, "nothing is sent");
        end();
        self.wait_until_forwarded(8).await;
        let pause = begun.elapsed();
        self.wait_until_forwarded(207).await;
        self.pair.wait_until_journaled(207).await;
        self.finish(fault, pause).await;
    }

    /// Checks that each call was journaled once, and that systemd would have let the hub run.
    /// `pause` is the time in which the collector got no call confirmed.
    async fn finish(self, fault: &str, pause: Duration) {
        let findings = self.pair.findings(self.calls);
        assert_eq!(findings.broken_rules(), [""; 0], "{findings:?}");
        findings.report(fault, pause);
        let without_ping = self.watchdog.check();
        report(&format!(
            "{fault:45} longest time without a ping of the watchdog {}\n",
            seconds(Some(&without_ping))
        ));
        self.collector.terminate().await;
        self.pair.terminate().await;
    }
}

/// Promise: If PostgreSQL crashes, no call is lost, and nothing is sent until it is back.
#[tokio::test(flavor = "multi_thread")]
async fn killed_database_loses_no_call() {
    let server = Postgres::start(Durability::Synced, "");
    let scene = Scene::start(&server).await;
    scene
        .check_outage("database killed", || server.kill(), || server.start_again())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn immediately_stopped_database_loses_no_call() {
    let server = Postgres::start(Durability::Synced, "");
    let scene = Scene::start(&server).await;
    scene
        .check_outage(
            "database stopped at once",
            || server.stop_at_once(),
            || server.start_again(),
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_database_loses_no_call() {
    let server = Postgres::start(Durability::Synced, "");
    let scene = Scene::start(&server).await;
    scene
        .check_outage(
            "database restarted",
            || server.stop(),
            || server.start_again(),
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_database_loses_no_call() {
    let server = Postgres::start(Durability::None, "");
    let proxy = Proxy::start(server.port()).await;
    let url = server.url_at(proxy.port(), &Postgres::new_schema());
    let scene = Scene::start_at(&url).await;
    scene
        .check_outage("database unreachable", || proxy.cut(), || proxy.join())
        .await;
}

/// A read of an unreachable database takes longer to fail than this watchdog's time.
#[tokio::test(flavor = "multi_thread")]
async fn standby_pings_watchdog_while_database_is_unreachable() {
    let place = Place::new();
    let server = Postgres::shared();
    let proxy = Proxy::start(server.port()).await;
    let schema = Postgres::new_schema();
    let through = server.url_at(proxy.port(), &schema);
    let pair = Pair::new([&through, &server.url(&schema)], crm::RATE).await;
    proxy.cut();
    let hub = &pair.hubs[0];
    let watchdog = Watchdog::start(&hub.place, Duration::from_secs(4));
    hub.start(&source_address(&place), &watchdog.variables());
    until("pings", async || watchdog.count() >= 6).await;
    watchdog.check();
    proxy.join();
    hub.wait_for_role(Role::Leader).await;
    pair.terminate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_database_loses_no_call() {
    let server = Postgres::start(Durability::Synced, "");
    let scene = Scene::start(&server).await;
    scene
        .check_outage("database frozen", || server.freeze(), || server.thaw())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn database_without_connections_loses_no_call() {
    let server = Postgres::start(Durability::None, "");
    let scene = Scene::start(&server).await;
    scene
        .check_outage(
            "database without connections",
            || {
                limit_connections(&server, 0);
                server.sql(&format!(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                     WHERE usename = '{ROLE}'"
                ));
            },
            || limit_connections(&server, -1),
        )
        .await;
}

/// Sets how many sessions callbridge may have, where -1 means the server's limit.
fn limit_connections(server: &Postgres, connections: i32) {
    server.sql(&format!("ALTER ROLE {ROLE} CONNECTION LIMIT {connections}"));
}

/// Promise: If the database's disk is full, no call is lost.
#[test]
fn full_disk_of_database_loses_no_call() {
    inside(
        "e2e::hub::outages::full_disk_of_database_loses_no_call",
        fill_disk_of_database(),
    );
}

async fn fill_disk_of_database() {
    let place = Place::on_disk();
    let disk = SmallDisk::at(place.at("database"), 256 << 10);
    disk.open_to_all();
    let server = Postgres::start_in(&place.at("database"), "max_wal_size = 64MB\n");
    let mut scene = Scene::start(&server).await;
    let begun = Instant::now();
    disk.fill_but(0);
    scene.write_calls(200);
    let away = scene.collector.until("the hub accepts nothing", |status| {
        let pause = status.pause.as_ref();
        pause.is_some_and(|pause| pause.reason == "hub_unreachable")
    });
    let ready = away.await.books.ready;
    assert!(ready > 0);
    let (status, answer) = scene.pair.hubs[0].post(&scene.pair.token, 900..1000).await;
    assert_eq!(status, 503, "{answer}");
    pass(OUTAGE).await;
    disk.make_room();
    scene.wait_until_forwarded(205 - ready + 1).await;
    let pause = begun.elapsed();
    scene.wait_until_forwarded(205).await;
    scene.pair.wait_until_journaled(205).await;
    scene.finish("database's disk full", pause).await;
}
