//! Tests that a branch that floods a hub does not stop the hub's requests to the CRM, although the
//! hub's database is 5 ms away. The full run also tests that the flood does not slow them down.

use super::pair::{FULL_RATE, PATIENCE, Pair, source_address, submissions};
use super::points::{is_full_run, report};
use super::stage::{add_branch, messages, post_within};
use crate::support::program::Place;
use callbridge_sandbox::window::Rate;
use callbridge_testbed::postgres::{Durability, Postgres};
use callbridge_testbed::proxy::Proxy;
use callbridge_testbed::wait::{pass, until_within};
use futures_util::future::join_all;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// The delay of the proxy in each direction. The timer adds up to a millisecond.
const DELAY: Duration = Duration::from_millis(2);
/// Connections of the flood.
const CONNECTIONS: u32 = 4;
/// Calls in each request of the flood.
const BATCH: u32 = 500;
/// Calls of the other branch.
const QUIET_CALLS: u32 = 300;
/// Windows of the CRM that are not counted at first, because a new state begins with used slots.
const EARLIER_WINDOWS: u32 = 2;
/// Windows of the CRM that are counted.
const WINDOWS: usize = 2;
/// Requests of a full window that can be sent in the next window, because answers take time.
const LATE_MAX: usize = 1;

/// A branch that sends new calls without a pause. The hub accepts 60 requests per minute from a
/// branch.
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

/// By default, the CRM's window is 10 s, and each window must have a request. The full windows
/// depend on the machine, so only `tests/run hub --points` tests them, with the CRM's own rate.
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
