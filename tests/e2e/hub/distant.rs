//! Tests a hub whose database is far away. A branch that floods the hub mustn't stop its requests
//! to the CRM, and many collectors must be able to store their calls quickly. The full run also
//! tests the numbers that depend on the machine.

use super::busy::BusyCollector;
use super::pair::{FULL_RATE, PATIENCE, Pair, source_address, submissions};
use super::runs::{is_full_run, report, seconds};
use super::stage::{
    add_branch, free_address, message, messages, post, post_within, start_hub_with,
    wait_until_serving,
};
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use callbridge_sandbox::Server;
use callbridge_sandbox::window::Rate;
use callbridge_testbed::postgres::{Durability, Postgres};
use callbridge_testbed::proxy::Proxy;
use callbridge_testbed::wait::{pass, until_within};
use futures_util::future::join_all;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The delay added by the flooded hub's proxy in each direction. The timer adds up to a
/// millisecond.
const DELAY: Duration = Duration::from_millis(2);
/// Number of connections used by the flood.
const CONNECTIONS: u32 = 4;
/// Number of calls in each of the flood's requests.
const BATCH: u32 = 500;
/// Number of calls from the other branch.
const QUIET_CALLS: u32 = 300;
/// How many of the CRM's windows aren't counted at first, because a new state starts with used
/// slots.
const EARLIER_WINDOWS: u32 = 2;
/// How many of the CRM's windows are counted.
const WINDOWS: usize = 2;
/// How many of a full window's requests may be sent in the next one, because responses take time.
const LATE_MAX: usize = 1;

/// A branch that keeps sending new calls without a pause. The hub accepts 60 requests per minute
/// from a branch.
#[derive(Default)]
struct Flood {
    is_over: AtomicBool,
    requests: AtomicU32,
}

impl Flood {
    /// Sends requests until `is_over` is set.
    async fn run(&self, hub: SocketAddr, token: &str) {
        let connections = (0..CONNECTIONS).map(async |_| {
            while !self.is_over.load(Ordering::Relaxed) {
                let first = self.requests.fetch_add(1, Ordering::Relaxed) * BATCH;
                let calls = messages("flood", first..first + BATCH);
                while post_within(PATIENCE, hub, token, &calls)
                    .await
                    .expect("answered")
                    .0
                    == 429
                {
                    pass(Duration::from_millis(50)).await;
                }
            }
        });
        join_all(connections).await;
    }

    /// Counts the requests to the CRM in each window, and then ends the flood.
    async fn count_windows(&self, pair: &Pair, window: Duration) -> Vec<usize> {
        until_within(PATIENCE, "a request", async || submissions(&pair.judge) > 0).await;
        pass(window * EARLIER_WINDOWS).await;
        let mut counts = Vec::new();
        for _ in 0..WINDOWS {
            let count_before = pair.judge.count();
            pass(window).await;
            counts.push(pair.judge.count() - count_before);
        }
        self.is_over.store(true, Ordering::Relaxed);
        counts
    }
}

/// By default, the CRM's window is 10 s, and each window must have a request. Whether windows are
/// full depends on the machine, so only `tests/run hub --points` tests that, with the CRM's own
/// rate.
#[tokio::test(flavor = "multi_thread")]
async fn flood_does_not_stop_hub_with_distant_database() {
    let rate = if is_full_run() {
        FULL_RATE
    } else {
        Rate {
            requests: 20,
            window: Duration::from_secs(10),
        }
    };
    let place = Place::new();
    let server = Postgres::start(Durability::Synced, "");
    let proxy = Proxy::start_delayed(server.port(), DELAY).await;
    let schema = Postgres::new_schema();
    let through = server.url_at(proxy.port(), &schema);
    let pair = Pair::new([&through, &server.url(&schema)], rate).await;
    let flooding = add_branch(&pair.hubs[1].place, "flood", "flood").await;
    pair.start_first(&source_address(&place)).await;
    let hub = &pair.hubs[0];
    hub.post(&pair.token, 0..QUIET_CALLS).await;
    let flood = Flood::default();
    let (counts, ()) = tokio::join!(
        flood.count_windows(&pair, rate.window),
        flood.run(hub.collect, &flooding)
    );
    let calls = flood.requests.load(Ordering::Relaxed) * BATCH;
    report(&format!(
        "requests per {} s while a branch sends {calls} calls: {counts:?}\n",
        rate.window.as_secs()
    ));
    assert!(pair.findings(0).violations.is_empty(), "{}", pair.logs());
    let not_sent = pair.findings(QUIET_CALLS).lost;
    assert!(
        not_sent < QUIET_CALLS as usize,
        "the hub sent only calls of the flood"
    );
    let expected = if is_full_run() {
        rate.requests as usize - LATE_MAX
    } else {
        1
    };
    assert!(counts.iter().all(|count| *count >= expected), "{counts:?}");
    pair.terminate().await;
}

/// The delay added by the collectors' proxy in each direction.
const FAR: Duration = Duration::from_millis(10);
/// Number of branches that send calls at the same time.
const BRANCHES: u32 = 8;
/// Number of calls in each request.
const LINES: u32 = 100;
/// Minimum number of calls per second in a full run.
const RATE_MIN: f64 = 1_000.0;
/// How long any branch may have to wait for a response in a full run.
pub const WAIT_MAX: Duration = Duration::from_secs(2);

/// Sends a branch's requests one after the other, and returns the longest wait for a response.
async fn send_all(hub: SocketAddr, branch: &str, token: &str, requests: u32) -> Duration {
    let mut longest = Duration::ZERO;
    for request in 0..requests {
        let mut body = String::new();
        for n in request * LINES..(request + 1) * LINES {
            let mut call = message(branch, n);
            // The hub looks up each number's lead.
            call["leadId"] = serde_json::Value::Null;
            call["phone"] = format!("+99890{:07}", n).into();
            body.push_str(&format!("{call}\n"));
        }
        let began = Instant::now();
        let (status, answer) = post(hub, "/v1/calls", token, body).await;
        longest = longest.max(began.elapsed());
        assert_eq!(status, 200, "{answer}");
        assert_eq!(
            answer["taken"].as_array().expect("uuids").len(),
            LINES as usize
        );
    }
    longest
}

/// A hub whose database is far away, and its branches with their tokens.
struct DistantHub {
    _server: Postgres,
    _proxy: Proxy,
    _crm: Server,
    _place: Place,
    address: SocketAddr,
    program: Program,
    branches: Vec<(String, String)>,
}

impl DistantHub {
    async fn start() -> Self {
        let server = Postgres::start(Durability::Synced, "");
        let proxy = Proxy::start_delayed(server.port(), FAR).await;
        let schema = Postgres::new_schema();
        let near = Place::in_database(&server.url(&schema));
        let mut branches = Vec::new();
        for n in 0..BRANCHES {
            let name = format!("branch{n}");
            let token = add_branch(&near, &name, &name).await;
            branches.push((name, token));
        }
        let place = Place::in_database(&server.url_at(proxy.port(), &schema));
        let crm = crm::start().await;
        let address = free_address();
        let flags = [RATE_FLAG, "--lead=directory", "--lead-directory"];
        let mut program = start_hub_with(&flags, &place, &crm.url(), address);
        wait_until_serving(&mut program).await;
        Self {
            _server: server,
            _proxy: proxy,
            _crm: crm,
            _place: place,
            address,
            program,
            branches,
        }
    }
}

/// A collector has at most this many calls in one request.
const BACKLOG: u32 = 500;
/// A collector sends a request every 1.1 s, in addition to its wait for the answer.
const PAUSE_MAX: Duration = Duration::from_millis(3_100);

/// Collectors whose hub was away have a backlog. None of them waits for the others.
#[tokio::test(flavor = "multi_thread")]
async fn collectors_with_backlog_do_not_wait_for_each_other() {
    let requests = if is_full_run() { 8 } else { 2 };
    let mut hub = DistantHub::start().await;
    let began = Instant::now();
    let collectors = hub.branches.iter().map(async |(name, token)| {
        let backlog = requests * BACKLOG;
        let mut collector = BusyCollector::start(&[hub.address], name, token, backlog);
        collector.wait_until_all_confirmed().await;
        let pause = collector.longest_pause;
        collector.terminate().await;
        pause
    });
    let longest = join_all(collectors).await.into_iter().max();
    let took = began.elapsed();
    let calls = BRANCHES * requests * BACKLOG;
    report(&format!(
        "{BRANCHES} collectors with a backlog, {} ms to the database: {:.0} calls per second, \
         longest pause of a collector {}\n",
        2 * FAR.as_millis(),
        f64::from(calls) / took.as_secs_f64(),
        seconds(longest.as_ref())
    ));
    let what = "every call is stored once";
    let status = hub
        .program
        .until(what, |status| status.books.finished >= u64::from(calls));
    assert_eq!(status.await.books.finished, u64::from(calls));
    assert!(took < calls * 2 * FAR, "{calls} calls took {took:?}");
    if is_full_run() {
        assert!(longest <= Some(PAUSE_MAX), "{longest:?}");
    }
    hub.program.terminate().await;
}

/// If the hub asked the database once per call, this would take a round trip for each of them,
/// since all branches share the connection.
#[tokio::test(flavor = "multi_thread")]
async fn distant_database_is_asked_once_per_request_body() {
    let requests = if is_full_run() { 40 } else { 3 };
    let mut hub = DistantHub::start().await;
    let began = Instant::now();
    let sending = hub
        .branches
        .iter()
        .map(|(name, token)| send_all(hub.address, name, token, requests));
    let longest = join_all(sending).await.into_iter().max().expect("branches");
    let took = began.elapsed();
    let calls = BRANCHES * requests * LINES;
    let rate = f64::from(calls) / took.as_secs_f64();
    report(&format!(
        "{BRANCHES} branches with {LINES} calls per request, {} ms to the database: {rate:.0} \
         calls per second, longest wait {} ms\n",
        2 * FAR.as_millis(),
        longest.as_millis()
    ));
    assert!(took < calls * 2 * FAR, "{calls} calls took {took:?}");
    if is_full_run() {
        assert!(rate >= RATE_MIN, "{rate:.0} calls per second");
        assert!(longest <= WAIT_MAX, "a branch waited {longest:?}");
    }
    let what = "the database's round trip is shown";
    let status = hub.program.until(what, |status| {
        let leadership = status.leadership.as_ref();
        leadership.is_some_and(|leadership| leadership.round_trip_us.is_some())
    });
    let leadership = status.await.leadership.expect("a database");
    let round_trip = Duration::from_micros(leadership.round_trip_us.expect("measured"));
    assert!(round_trip >= 2 * FAR, "{round_trip:?}");
    hub.program.terminate().await;
}
