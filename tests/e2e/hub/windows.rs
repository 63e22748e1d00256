//! Tests a takeover while the CRM's window is full, including with wrong clocks. Two tests
//! deliberately break a rule, and the judge must find the violation.

use super::pair::{FULL_RATE, LIMIT, PATIENCE, Pair, TAKEOVER, source_address, submissions};
use crate::support::crm;
use crate::support::program::{Place, preload};
use callbridge_model::status::Role;
use callbridge_testbed::postgres::{Durability, Postgres};
use callbridge_testbed::wait::{pass, until_within};
use rustix::process::Signal;
use std::path::Path;
use std::time::{Duration, Instant};

/// Number of calls, which is more than a window can hold.
const CALLS: u32 = 80;
/// The leader is killed after this many requests.
const SENT: usize = 45;

/// Waits until the window is nearly full of submissions.
async fn wait_for_full_window(pair: &Pair) {
    until_within(PATIENCE, "a full window", async || {
        submissions(&pair.judge) >= SENT
    })
    .await;
}

/// Kills the first hub, waits until the second one has sent the remaining calls, and checks the
/// requests.
async fn take_over(pair: &Pair, calls: u32) {
    let [first, second] = &pair.hubs;
    first.kill().await;
    let kill_time = Instant::now();
    second.wait_for_role(Role::Leader).await;
    assert!(kill_time.elapsed() < TAKEOVER, "{:?}", kill_time.elapsed());
    pair.wait_until_journaled(calls as usize).await;
    let findings = pair.findings(calls);
    findings.assert_sound();
    assert!(findings.fullest >= SENT, "{findings:?}");
    assert_eq!(findings.senders, 2);
}

/// Promise: A takeover within a full window of the CRM does not exceed it.
#[tokio::test(flavor = "multi_thread")]
async fn takeover_in_full_window_does_not_exceed_it() {
    let place = Place::new();
    let library = source_address(&place);
    let url = Postgres::shared().url(&Postgres::new_schema());
    let pair = Pair::new([&url, &url], FULL_RATE).await;
    pair.start(&library).await;
    pair.post_live(CALLS).await;
    wait_for_full_window(&pair).await;
    take_over(&pair, CALLS).await;
    pair.terminate().await;
}

/// The leader's clock is an hour behind, whereas those of the other hub and the database are an
/// hour ahead.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_clocks_of_hubs_and_database_do_not_exceed_window() {
    let place = Place::new();
    let clock = preload(&place, "clock.c");
    let libraries = format!("{} {clock}", source_address(&place));
    let server = Postgres::start_with_clock(Path::new(&clock), "-3600");
    let hour = server.sql("SELECT round(extract(epoch FROM clock_timestamp()))");
    let now = callbridge_model::clock::now().wall.floor_seconds().get();
    let ahead = hour.parse::<i64>().expect("seconds") - now;
    assert!((3590..3610).contains(&ahead), "{ahead}");
    let url = server.url(&Postgres::new_schema());
    let pair = Pair::new([&url, &url], FULL_RATE).await;
    let [first, second] = &pair.hubs;
    first.place.write("clock", "3600");
    second.place.write("clock", "-3600");
    first.start(&libraries, &[("TEST_CLOCK", &first.place.path("clock"))]);
    first.wait_for_role(Role::Leader).await;
    second.start(&libraries, &[("TEST_CLOCK", &second.place.path("clock"))]);
    second.wait_for_role(Role::Standby).await;
    // These calls are from another day, so the hub spreads them evenly across the window.
    let calls = 60;
    pair.post(0..calls).await;
    wait_for_full_window(&pair).await;
    take_over(&pair, calls).await;
    pair.terminate().await;
}

/// Without the leader's row, the other hub doesn't notice the takeover and sends too early, so the
/// judge must find the violation.
#[tokio::test(flavor = "multi_thread")]
async fn judge_finds_61_requests_if_takeover_is_not_known() {
    let place = Place::new();
    let library = source_address(&place);
    let server = Postgres::shared();
    let schema = Postgres::new_schema();
    let url = server.url(&schema);
    let pair = Pair::new([&url, &url], FULL_RATE).await;
    pair.start(&library).await;
    pair.post_live(CALLS).await;
    wait_for_full_window(&pair).await;
    let [first, second] = &pair.hubs;
    second.signal(Signal::STOP);
    first.kill().await;
    server.sql(&format!(
        "DELETE FROM {schema}.leader; DELETE FROM {schema}.slots"
    ));
    second.signal(Signal::CONT);
    until_within(PATIENCE, "more requests than a window holds", async || {
        pair.judge.count() > LIMIT
    })
    .await;
    let findings = pair.findings(CALLS);
    assert!(findings.fullest > LIMIT, "{findings:?}");
    assert!(findings.has_two_senders(), "{findings:?}");
}

/// If the database gives the lock to both hubs, and lets both of them raise `seq`, the judge must
/// find two senders.
#[tokio::test(flavor = "multi_thread")]
async fn judge_finds_two_senders_if_lock_excludes_no_hub() {
    let place = Place::new();
    let library = source_address(&place);
    let server = Postgres::start(Durability::None, "allow_system_table_mods = on\n");
    let schema = Postgres::new_schema();
    let leader_key = format!(
        "('x' || encode(substring(sha256('callbridge leader {schema}') for 8), 'hex'))
         ::bit(64)::bigint"
    );
    server.sql(
        "CREATE FUNCTION pg_catalog.real_try_advisory_lock(bigint) RETURNS boolean
         LANGUAGE internal AS 'pg_try_advisory_lock_int8'",
    );
    server.sql(&format!(
        "CREATE OR REPLACE FUNCTION pg_catalog.pg_try_advisory_lock(bigint) RETURNS boolean
         LANGUAGE sql AS $$ SELECT $1 = {leader_key} OR real_try_advisory_lock($1) $$"
    ));
    let url = server.url(&schema);
    let pair = Pair::new([&url, &url], crm::RATE).await;
    for hub in &pair.hubs {
        hub.start(&library, &[]);
        until_within(PATIENCE, "the hub serves", async || hub.has_served()).await;
        server.sql(&format!(
            "CREATE OR REPLACE FUNCTION {schema}.unfenced() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN NEW.seq := coalesce(NEW.seq, OLD.seq + 1); RETURN NEW; END';
             CREATE OR REPLACE TRIGGER unfenced BEFORE UPDATE ON {schema}.hub
             FOR EACH ROW EXECUTE FUNCTION {schema}.unfenced()"
        ));
    }
    let mut next = 0;
    until_within(PATIENCE, "requests of both hubs", async || {
        pair.post(next..next + 1).await;
        next += 1;
        pass(Duration::from_secs(1)).await;
        pair.findings(next).has_two_senders()
    })
    .await;
}
