//! Tests a hub whose state is new, or older than its collectors know.

use super::stage::{Hub, messages, serves, start_collector, start_hub};
use crate::support::program::{Place, Program};
use callbridge_model::Status;
use std::fs;
use std::net::SocketAddr;

fn forwarded(calls: u64) -> impl Fn(&Status) -> bool {
    move |status| status.books.forwarded == calls && status.books.ready == 0
}

/// Starts a collector with this many calls, and waits until the hub has stored them.
async fn collector_that_forwarded(calls: u32, hub: SocketAddr, token: &str) -> (Place, Program) {
    let own = Place::new();
    own.write("calls.jsonl", messages("samarkand", 0..calls));
    let mut collector = start_collector(&own, hub, token);
    let all = forwarded(calls.into());
    collector.until("its calls are forwarded", all).await;
    (own, collector)
}

async fn finishes(hub: &mut Program, calls: u64) -> Status {
    let what = format!("the hub has {calls} calls");
    hub.until(&what, |status| status.books.finished == calls)
        .await
}

/// Promise: If a hub loses its state, its collectors send all their calls again.
#[tokio::test]
async fn deleted_hub_is_offered_everything_and_keeps_silence() {
    let hub = Hub::start().await;
    let token = hub.branch("samarkand").await;
    let Hub {
        place,
        crm,
        address,
        program: hub,
    } = hub;
    let (own, collector) = collector_that_forwarded(5, address, &token).await;
    hub.kill().await;
    fs::remove_dir_all(place.at("state")).expect("removed");
    let mut hub = start_hub(&place, &crm.url(), address);
    serves(&mut hub).await;
    let file = place.write("branch-token", &token);
    let add = ["branch", "add", "samarkand", "--pbx", "samarkand"];
    let given = [&add[..], &["--token-file", &file, "--json"]].concat();
    place.lines(&given).await;
    // The collector's next request would wait for a minute after the 401.
    collector.terminate().await;
    let mut collector = start_collector(&own, address, &token);
    let status = finishes(&mut hub, 5).await;
    let seen = status.hub.expect("a hub");
    assert_eq!(seen.lost_commits_shown_by.as_deref(), Some("samarkand"));
    assert!(seen.silent_until.is_some());
    assert_eq!(status.books.ready, 5, "nothing is sent in the silence");
    collector
        .until("all calls are forwarded again", forwarded(5))
        .await;
    collector.terminate().await;
    hub.terminate().await;
}

#[tokio::test]
async fn restored_hub_is_offered_the_calls_that_its_copy_lacks() {
    let hub = Hub::start_in(Place::on_disk()).await;
    let token = hub.branch("samarkand").await;
    let Hub {
        place,
        crm,
        address,
        program: hub,
    } = hub;
    let (own, mut collector) = collector_that_forwarded(3, address, &token).await;
    hub.terminate().await;
    fs::copy(place.at("state/spool.db"), place.at("copy.db")).expect("copied");
    let mut hub = start_hub(&place, &crm.url(), address);
    own.append("calls.jsonl", messages("samarkand", 3..7).as_bytes());
    collector
        .until("more calls are forwarded", forwarded(7))
        .await;
    finishes(&mut hub, 7).await;
    hub.terminate().await;
    fs::copy(place.at("copy.db"), place.at("state/spool.db")).expect("restored");
    let mut hub = start_hub(&place, &crm.url(), address);
    own.append("calls.jsonl", messages("samarkand", 7..8).as_bytes());
    let status = finishes(&mut hub, 8).await;
    let seen = status.hub.expect("a hub");
    assert_eq!(seen.lost_commits_shown_by.as_deref(), Some("samarkand"));
    collector
        .until("all calls are forwarded", forwarded(8))
        .await;
    collector.terminate().await;
    hub.terminate().await;
}
