//! Tests lost commits, a leader that's cut off or frozen, and a database that's restored.

use super::pair::{
    BRANCH, FULL_RATE, Hub, PATIENCE, Pair, TAKEOVER, WINDOW, source_address, submissions,
};
use super::runs::{is_full_run, report};
use super::stage::{messages, start_collector};
use crate::support::crm;
use crate::support::judge::Port;
use crate::support::program::{Place, Program};
use callbridge_model::status::Role;
use callbridge_sandbox::ViolationKind;
use callbridge_sandbox::window::Rate;
use callbridge_spool::{PostgresUrl, Settings, read_postgres, tables};
use callbridge_testbed::commit_proxy::{CommitProxy, Loss};
use callbridge_testbed::postgres::Postgres;
use callbridge_testbed::proxy::Proxy;
use callbridge_testbed::wait::{pass, soon, until, until_within};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// Length of a freeze, which is longer than a request may wait until its first byte is sent.
const FREEZE: Duration = Duration::from_secs(6);
/// Number of slots that are already used when a state is first started.
const SLOTS_OF_NEW_STATE: usize = 3;

/// Promise: A leader that is cut off from the database sends nothing, and is replaced within 15 s.
#[tokio::test(flavor = "multi_thread")]
async fn leader_cut_off_from_database_is_replaced() {
    let place = Place::new();
    let library = source_address(&place);
    let server = Postgres::shared();
    let schema = Postgres::new_schema();
    let proxy = Proxy::start(server.port()).await;
    let through = server.url_at(proxy.port(), &schema);
    let pair = Pair::new([&through, &server.url(&schema)], FULL_RATE).await;
    pair.start(&library).await;
    let [first, second] = &pair.hubs;
    pair.post(0..3).await;
    until_within(PATIENCE, "a request", async || submissions(&pair.judge) > 0).await;
    proxy.cut();
    let begin = Instant::now();
    second.wait_for_role(Role::Leader).await;
    assert!(begin.elapsed() < TAKEOVER, "{:?}", begin.elapsed());
    pair.post(3..6).await;
    proxy.join();
    first.wait_for_role(Role::Standby).await;
    pair.wait_until_journaled(6).await;
    pair.findings(6).assert_sound();
    let status = second.status().await.expect("a status");
    assert_eq!(status.books.finished, 6);
    pair.terminate().await;
}

/// Waits until this many calls have been journaled. Fails if the stored counts differ from the
/// calls.
async fn assert_books(hub: &Hub, calls: u64) {
    until_within(PATIENCE, "all calls journaled", async || {
        let status = hub.status().await;
        status.is_some_and(|status| status.books.journaled == calls)
    })
    .await;
    let url = PostgresUrl::parse(&hub.place.state()).expect("a URL");
    let (reader, guard) = read_postgres(&url, Settings::default()).expect("a thread");
    let read = reader.read(|store| Ok((store.books(), tables::books::recount(store)?)));
    let (books, differences) = read.await.expect("readable");
    assert_eq!((books.finished, books.journaled), (calls, calls));
    assert!(books.balance(), "{books:?}");
    assert_eq!(differences, []);
    guard.close();
}

/// Runs a hub that loses the `number`-th commit in this way, and checks the books. Returns `false`
/// if all calls were journaled before that commit.
async fn lose_commit(library: &str, number: u32, loss: Loss) -> bool {
    let server = Postgres::shared();
    let schema = Postgres::new_schema();
    let proxy = CommitProxy::start(server.port()).await;
    let through = server.url_at(proxy.port(), &schema);
    let pair = Pair::new([&through, &server.url(&schema)], crm::RATE).await;
    pair.start_first(library).await;
    proxy.lose(number, loss);
    for batch in 0..3 {
        pair.post(batch * 2..(batch + 1) * 2).await;
    }
    pair.wait_until_journaled(6).await;
    let hub = &pair.hubs[0];
    assert_books(hub, 6).await;
    let is_met = proxy.has_lost().now_or_never().is_some();
    let logs = hub.place.logs();
    assert_eq!(logs.contains("lost the lock"), is_met, "{logs}");
    assert!(!logs.contains("reason=takeover"), "{logs}");
    let findings = pair.findings(6);
    assert_eq!(
        findings.broken_rules(),
        [""; 0],
        "{number} {loss:?}: {findings:?}\n{logs}"
    );
    let count_duplicates = format!(
        "SELECT count(*) FROM (SELECT uuid FROM {schema}.calls GROUP BY uuid HAVING count(*) > 1)
         AS twice"
    );
    assert_eq!(server.sql(&count_duplicates), "0");
    pair.terminate().await;
    is_met
}

/// Loses these commits in separate runs, or every commit with `tests/run hub --points`.
async fn lose_commits(library: &str, loss: Loss, chosen: &[u32]) {
    let mut points = 0;
    if is_full_run() {
        while lose_commit(library, points + 1, loss).await {
            points += 1;
        }
    } else {
        let runs = chosen
            .iter()
            .map(|number| lose_commit(library, *number, loss));
        for is_met in join_all(runs).await {
            assert!(is_met);
            points += 1;
        }
    }
    report(&format!("{loss:?} of a COMMIT lost: {points} points\n"));
}

/// Promise: If the answer to a commit is lost, no call is lost and none is stored twice.
#[tokio::test(flavor = "multi_thread")]
async fn lost_commit_or_answer_keeps_books_correct() {
    let place = Place::new();
    let library = source_address(&place);
    let lost_requests = lose_commits(&library, Loss::Request, &[1, 2, 3, 5, 8]);
    let lost_answers = lose_commits(&library, Loss::Answer, &[1, 2, 4, 6, 9]);
    tokio::join!(lost_requests, lost_answers);
}

/// The hub is frozen after a request's slot has been committed, before the request's first byte is
/// sent.
#[tokio::test(flavor = "multi_thread")]
async fn late_request_of_frozen_hub_is_not_sent_but_keeps_its_slot() {
    let place = Place::new();
    let library = source_address(&place);
    let server = Postgres::shared();
    let schema = Postgres::new_schema();
    let proxy = CommitProxy::start(server.port()).await;
    let through = server.url_at(proxy.port(), &schema);
    // Slots remain in use until after the test.
    let rate = Rate {
        requests: 240,
        window: 60 * WINDOW,
    };
    let pair = Pair::new([&through, &server.url(&schema)], rate).await;
    let hub = &pair.hubs[0];
    pair.start_first(&library).await;
    pair.post(0..1).await;
    assert_books(hub, 1).await;
    // While the CRM is unreachable, the next commit stores a probe's slot.
    pair.judge.set_port(Port::Closed);
    pair.post(1..2).await;
    until_within(PATIENCE, "an unreachable CRM", async || {
        let status = hub.status().await;
        let pause = status.and_then(|status| status.pause);
        pause.is_some_and(|pause| pause.reason == "unreachable")
    })
    .await;
    proxy.hold(1);
    pair.judge.set_port(Port::Open);
    soon("a commit", proxy.has_held()).await;
    hub.signal(Signal::STOP);
    hub.wait_until_stopped().await;
    proxy.release();
    pass(FREEZE).await;
    hub.signal(Signal::CONT);
    pair.wait_until_journaled(2).await;
    assert_books(hub, 2).await;
    let log = hub.place.logs();
    assert_eq!(log.matches("verdict=too_late").count(), 1, "{log}");
    assert!(!log.contains("lost the lock"), "{log}");
    assert_eq!(submissions(&pair.judge), 2, "each call is sent once");
    let slots = server.sql(&format!("SELECT count(*) FROM {schema}.slots"));
    let unreachable = log.matches("verdict=failure").count();
    let taken = SLOTS_OF_NEW_STATE + pair.judge.count() + unreachable + 1;
    assert_eq!(
        slots,
        taken.to_string(),
        "one slot was kept and not used\n{log}"
    );
    pair.findings(2).assert_sound();
    pair.terminate().await;
}

/// A hub whose database is lost, along with its collector.
struct Scene {
    library: String,
    place: Place,
    schema: String,
    pair: Pair,
    collector_place: Place,
    collector: Program,
}

impl Scene {
    /// Starts the scene, and waits until three calls have been forwarded and journaled.
    async fn start() -> Self {
        let place = Place::new();
        let library = source_address(&place);
        let schema = Postgres::new_schema();
        let url = Postgres::shared().url(&schema);
        let pair = Pair::new([&url, &url], crm::RATE).await;
        pair.start_first(&library).await;
        let collector_place = Place::new();
        collector_place.write("calls.jsonl", messages(BRANCH, 0..3));
        let collector = start_collector(&collector_place, pair.hubs[0].collect, &pair.token);
        pair.wait_until_journaled(3).await;
        Self {
            library,
            place,
            schema,
            pair,
            collector_place,
            collector,
        }
    }

    /// Checks that all calls were journaled once, although `posted` of them came from a script, and
    /// that the hub noticed the lost commits. `fault` began at `begin`.
    async fn finish(mut self, calls: u32, posted: u32, fault: &str, begin: Instant) {
        let hub = &self.pair.hubs[0];
        until("all calls stored again", async || {
            let status = hub.status().await;
            status.is_some_and(|status| status.books.finished == u64::from(calls))
        })
        .await;
        let pause = begin.elapsed();
        assert_books(hub, calls.into()).await;
        let status = hub.status().await.and_then(|status| status.hub);
        let shown_by = status.expect("a hub").lost_commits_shown_by;
        assert_eq!(shown_by.as_deref(), Some(BRANCH));
        self.collector
            .until("each call is forwarded", |status| {
                status.books.ready == 0 && status.books.forwarded == u64::from(calls - posted)
            })
            .await;
        let mut findings = self.pair.findings(calls);
        // The hub has forgotten that the CRM accepted these calls.
        findings.violations.remove(&ViolationKind::RepeatAfter200);
        assert_eq!(findings.broken_rules(), [""; 0], "{findings:?}");
        findings.report(fault, pause);
        self.collector.terminate().await;
        self.pair.terminate().await;
    }
}

/// Promise: If the hub's database is restored to an earlier state, collectors send what it lacks.
#[tokio::test(flavor = "multi_thread")]
async fn restored_database_receives_its_missing_calls() {
    let scene = Scene::start().await;
    let (server, hub) = (Postgres::shared(), &scene.pair.hubs[0]);
    let copy = scene.place.path("copy.sql");
    server.dump(&scene.schema, &copy);
    let more = messages(BRANCH, 3..7);
    scene.collector_place.append("calls.jsonl", more.as_bytes());
    scene.pair.wait_until_journaled(7).await;
    let begin = Instant::now();
    hub.kill().await;
    server.restore(&scene.schema, &copy);
    hub.start(&scene.library, &[]);
    let last = messages(BRANCH, 7..8);
    scene.collector_place.append("calls.jsonl", last.as_bytes());
    scene.finish(8, 0, "database restored", begin).await;
}

/// A script uses the collector's token, and raises the restored `seq` above the collector's before
/// the collector returns.
#[tokio::test(flavor = "multi_thread")]
async fn script_hides_no_lost_calls_from_restored_database() {
    let mut scene = Scene::start().await;
    let server = Postgres::shared();
    let copy = scene.place.path("copy.sql");
    server.dump(&scene.schema, &copy);
    let more = messages(BRANCH, 3..7);
    scene.collector_place.append("calls.jsonl", more.as_bytes());
    scene.pair.wait_until_journaled(7).await;
    // The collector's last report can raise the position that it has seen.
    scene.collector.terminate().await;
    let hub = &scene.pair.hubs[0];
    let (status, answer) = hub.post(&scene.pair.token, 7..8).await;
    assert_eq!(status, 200, "{answer}");
    let begin = Instant::now();
    hub.kill().await;
    server.restore(&scene.schema, &copy);
    // Commits that have nothing to do with this branch raise `seq`, too.
    let raise = format!("UPDATE {}.hub SET seq = {}", scene.schema, answer["seq"]);
    server.sql(&raise);
    hub.start(&scene.library, &[]);
    hub.wait_for_role(Role::Leader).await;
    let (status, answer) = hub.post(&scene.pair.token, 7..9).await;
    assert_eq!(status, 200, "{answer}");
    scene.collector = start_collector(&scene.collector_place, hub.collect, &scene.pair.token);
    let fault = "database restored, two senders with one token";
    scene.finish(9, 2, fault, begin).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_tables_are_created_and_filled_again() {
    let mut scene = Scene::start().await;
    let hub = &scene.pair.hubs[0];
    let begin = Instant::now();
    hub.kill().await;
    let delete = format!("DROP SCHEMA {} CASCADE", scene.schema);
    Postgres::shared().sql(&delete);
    hub.start(&scene.library, &[]);
    hub.wait_for_role(Role::Leader).await;
    let file = hub.place.write("branch-token", &scene.pair.token);
    let add = ["branch", "add", BRANCH, "--pbx", BRANCH];
    let arguments = [&add[..], &["--token-file", &file, "--json"]].concat();
    hub.place.lines(&arguments).await;
    // After a 401, the collector's next request would have to wait for a minute.
    scene.collector.terminate().await;
    scene.collector = start_collector(&scene.collector_place, hub.collect, &scene.pair.token);
    scene.finish(3, 0, "tables deleted", begin).await;
}
