//! Tests lost commits, a leader that is cut off or frozen, and a database that is restored.

use super::pair::{
    BRANCH, FULL_RATE, Hub, PATIENCE, Pair, TAKEOVER, WINDOW, source_address, submissions,
};
use super::points::{report, tries_all};
use super::stage::{messages, start_collector};
use crate::support::crm;
use crate::support::judge::Port;
use crate::support::program::{Place, Program};
use callbridge_model::status::Role;
use callbridge_sandbox::window::Rate;
use callbridge_spool::{PostgresUrl, Settings, read_postgres, tables};
use callbridge_testbed::commit_proxy::{CommitProxy, Loss};
use callbridge_testbed::postgres::Postgres;
use callbridge_testbed::proxy::Proxy;
use callbridge_testbed::wait::{pass, soon, until_within};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// A request can wait less than this for its first byte.
const FROZEN: Duration = Duration::from_secs(6);
/// Slots that a new state uses at its start.
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
    let begun = Instant::now();
    second.until_role(Role::Leader).await;
    assert!(begun.elapsed() < TAKEOVER, "{:?}", begun.elapsed());
    pair.post(3..6).await;
    proxy.join();
    first.until_role(Role::Standby).await;
    pair.journaled(6).await;
    pair.judged(6).assert_sound();
    let status = second.status().await.expect("a status");
    assert_eq!(status.books.finished, 6);
    pair.terminate().await;
}

/// Fails if the stored counts differ from the calls, or if a call is stored twice.
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

/// Loses the n-th commit in this way. Returns `false` if all calls were journaled before it.
async fn lose_commit(library: &str, number: u32, loss: Loss) -> bool {
    let server = Postgres::shared();
    let schema = Postgres::new_schema();
    let proxy = CommitProxy::start(server.port()).await;
    let through = server.url_at(proxy.port(), &schema);
    let pair = Pair::new([&through, &server.url(&schema)], crm::RATE).await;
    pair.start_one(library).await;
    proxy.lose(number, loss);
    for batch in 0..3 {
        pair.post(batch * 2..(batch + 1) * 2).await;
    }
    pair.journaled(6).await;
    let hub = &pair.hubs[0];
    assert_books(hub, 6).await;
    let is_met = proxy.has_lost().now_or_never().is_some();
    let logs = hub.place.logs();
    assert_eq!(logs.contains("lost the lock"), is_met, "{logs}");
    assert!(!logs.contains("reason=takeover"), "{logs}");
    let findings = pair.judged(6);
    assert_eq!(
        findings.wrong(),
        [""; 0],
        "{number} {loss:?}: {findings:?}\n{logs}"
    );
    let twice = format!(
        "SELECT count(*) FROM (SELECT uuid FROM {schema}.calls GROUP BY uuid HAVING count(*) > 1)
         AS twice"
    );
    assert_eq!(server.sql(&twice), "0");
    pair.terminate().await;
    is_met
}

/// Loses these commits in separate runs. With `tests/run hub --points`, loses every commit.
async fn lose_commits(library: &str, loss: Loss, chosen: &[u32]) {
    let mut points = 0;
    if tries_all() {
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
async fn lost_commit_or_answer_leaves_right_books() {
    let place = Place::new();
    let library = source_address(&place);
    let of_request = lose_commits(&library, Loss::Request, &[1, 2, 3, 5, 8]);
    let of_answer = lose_commits(&library, Loss::Answer, &[1, 2, 4, 6, 9]);
    tokio::join!(of_request, of_answer);
}

/// The hub is frozen after the commit of a request's slot, before the request's first byte.
#[tokio::test(flavor = "multi_thread")]
async fn request_of_frozen_hub_is_not_sent_and_slot_kept() {
    let place = Place::new();
    let library = source_address(&place);
    let server = Postgres::shared();
    let schema = Postgres::new_schema();
    let proxy = CommitProxy::start(server.port()).await;
    let through = server.url_at(proxy.port(), &schema);
    // Slots stay in use until after the test.
    let rate = Rate {
        requests: 240,
        window: 60 * WINDOW,
    };
    let pair = Pair::new([&through, &server.url(&schema)], rate).await;
    let hub = &pair.hubs[0];
    pair.start_one(&library).await;
    pair.post(0..1).await;
    assert_books(hub, 1).await;
    // While the CRM is unreachable, the next commit is that of a probe and its slot.
    pair.judge.port(Port::Closed);
    pair.post(1..2).await;
    until_within(PATIENCE, "an unreachable CRM", async || {
        let status = hub.status().await;
        let pause = status.and_then(|status| status.pause);
        pause.is_some_and(|pause| pause.reason == "unreachable")
    })
    .await;
    proxy.hold(1);
    pair.judge.port(Port::Open);
    soon("a commit", proxy.has_held()).await;
    hub.signal(Signal::STOP);
    hub.until_stopped().await;
    proxy.release();
    pass(FROZEN).await;
    hub.signal(Signal::CONT);
    pair.journaled(2).await;
    assert_books(hub, 2).await;
    let log = hub.place.logs();
    assert_eq!(log.matches("verdict=too_late").count(), 1, "{log}");
    assert!(!log.contains("lost the lock"), "{log}");
    assert_eq!(submissions(&pair.judge), 2, "each once");
    let slots = server.sql(&format!("SELECT count(*) FROM {schema}.slots"));
    let unreachable = log.matches("verdict=failure").count();
    let taken = SLOTS_OF_NEW_STATE + pair.judge.count() + unreachable + 1;
    assert_eq!(
        slots,
        taken.to_string(),
        "one slot was kept and not used\n{log}"
    );
    pair.judged(2).assert_sound();
    pair.terminate().await;
}

/// A hub whose database is lost, and its collector.
struct Scene {
    library: String,
    place: Place,
    schema: String,
    pair: Pair,
    own: Place,
    collector: Program,
}

impl Scene {
    /// Starts the scene. The collector has forwarded three calls, and they are journaled.
    async fn start() -> Self {
        let place = Place::new();
        let library = source_address(&place);
        let schema = Postgres::new_schema();
        let url = Postgres::shared().url(&schema);
        let pair = Pair::new([&url, &url], crm::RATE).await;
        pair.start_one(&library).await;
        let own = Place::new();
        own.write("calls.jsonl", messages(BRANCH, 0..3));
        let collector = start_collector(&own, pair.hubs[0].collect, &pair.token);
        pair.journaled(3).await;
        Self {
            library,
            place,
            schema,
            pair,
            own,
            collector,
        }
    }

    /// Checks that all calls are journaled once, and that the hub noticed the lost commits.
    async fn ends(mut self, calls: u32) {
        let hub = &self.pair.hubs[0];
        assert_books(hub, calls.into()).await;
        let status = hub.status().await.and_then(|status| status.hub);
        let shown_by = status.expect("a hub").lost_commits_shown_by;
        assert_eq!(shown_by.as_deref(), Some(BRANCH));
        self.collector
            .until("each call is forwarded", |status| {
                status.books.forwarded == u64::from(calls)
            })
            .await;
        let findings = self.pair.judged(calls);
        let counts = (findings.lost, findings.doubled, findings.invented);
        assert_eq!(counts, (0, 0, 0));
        self.collector.terminate().await;
        self.pair.terminate().await;
    }
}

/// Promise: If the hub's database is restored to an earlier state, collectors send what it lacks.
#[tokio::test(flavor = "multi_thread")]
async fn restored_database_is_offered_the_calls_that_it_lacks() {
    let scene = Scene::start().await;
    let (server, hub) = (Postgres::shared(), &scene.pair.hubs[0]);
    let copy = scene.place.path("copy.sql");
    server.dump(&scene.schema, &copy);
    let more = messages(BRANCH, 3..7);
    scene.own.append("calls.jsonl", more.as_bytes());
    scene.pair.journaled(7).await;
    hub.kill().await;
    server.restore(&scene.schema, &copy);
    hub.start(&scene.library, &[]);
    let last = messages(BRANCH, 7..8);
    scene.own.append("calls.jsonl", last.as_bytes());
    scene.pair.journaled(8).await;
    scene.ends(8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_tables_are_made_and_filled_again() {
    let mut scene = Scene::start().await;
    let hub = &scene.pair.hubs[0];
    hub.kill().await;
    let delete = format!("DROP SCHEMA {} CASCADE", scene.schema);
    Postgres::shared().sql(&delete);
    hub.start(&scene.library, &[]);
    hub.until_role(Role::Leader).await;
    let file = hub.place.write("branch-token", &scene.pair.token);
    let add = ["branch", "add", BRANCH, "--pbx", BRANCH];
    let given = [&add[..], &["--token-file", &file, "--json"]].concat();
    hub.place.lines(&given).await;
    // The collector's next request would wait for a minute after a 401.
    scene.collector.terminate().await;
    scene.collector = start_collector(&scene.own, hub.collect, &scene.pair.token);
    scene.ends(3).await;
}
