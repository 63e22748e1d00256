//! Tests a hub that lost its state, or whose state was restored from an older copy.

use super::stage::{Hub, messages, start_collector, start_hub, wait_until_serving};
use crate::support::program::{Place, Program};
use callbridge_model::Status;
use std::fs;
use std::net::SocketAddr;

fn has_forwarded(calls: u64) -> impl Fn(&Status) -> bool {
    move |status| status.books.forwarded == calls && status.books.ready == 0
}

/// Starts a collector with this many calls, and waits until the hub has stored the calls.
async fn collector_that_forwarded(calls: u32, hub: SocketAddr, token: &str) -> (Place, Program) {
    let collector_place = Place::new();
    collector_place.write("calls.jsonl", messages("samarkand", 0..calls));
    let mut collector = start_collector(&collector_place, hub, token);
    let is_done = has_forwarded(calls.into());
    collector.until("its calls are forwarded", is_done).await;
    (collector_place, collector)
}

async fn wait_until_finished(hub: &mut Program, calls: u64) -> Status {
    let what = format!("the hub has {calls} calls");
    hub.until(&what, |status| status.books.finished == calls)
        .await
}

/// Promise: If a hub loses its state, its collectors send all their calls again.
#[tokio::test]
async fn hub_with_deleted_state_receives_all_calls_and_is_silent() {
    let hub = Hub::start().await;
    let token = hub.add_branch("samarkand").await;
    let Hub {
        place,
        crm,
        address,
        program: hub,
    } = hub;
    let (collector_place, collector) = collector_that_forwarded(5, address, &token).await;
    hub.kill().await;
    fs::remove_dir_all(place.at("state")).expect("removed");
    let mut hub = start_hub(&place, &crm.url(), address);
    wait_until_serving(&mut hub).await;
    let file = place.write("branch-token", &token);
    let add = ["branch", "add", "samarkand", "--pbx", "samarkand"];
    let arguments = [&add[..], &["--token-file", &file, "--json"]].concat();
    place.lines(&arguments).await;
    // The collector's next request would wait for a minute after the 401.
    collector.terminate().await;
    let mut collector = start_collector(&collector_place, address, &token);
    let status = wait_until_finished(&mut hub, 5).await;
    let seen = status.hub.expect("a hub");
    assert_eq!(seen.lost_commits_shown_by.as_deref(), Some("samarkand"));
    assert!(seen.silent_until.is_some());
    assert_eq!(status.books.ready, 5, "nothing is sent in the silence");
    collector
        .until("all calls are forwarded again", has_forwarded(5))
        .await;
    collector.terminate().await;
    hub.terminate().await;
}

#[tokio::test]
async fn restored_hub_receives_the_calls_missing_in_its_copy() {
    let hub = Hub::start_in(Place::on_disk()).await;
    let token = hub.add_branch("samarkand").await;
    let Hub {
        place,
        crm,
        address,
        program: hub,
    } = hub;
    let (collector_place, mut collector) = collector_that_forwarded(3, address, &token).await;
    hub.terminate().await;
    fs::copy(place.at("state/spool.db"), place.at("copy.db")).expect("copied");
    let mut hub = start_hub(&place, &crm.url(), address);
    collector_place.append("calls.jsonl", messages("samarkand", 3..7).as_bytes());
    collector
        .until("more calls are forwarded", has_forwarded(7))
        .await;
    wait_until_finished(&mut hub, 7).await;
    hub.terminate().await;
    fs::copy(place.at("copy.db"), place.at("state/spool.db")).expect("restored");
    let mut hub = start_hub(&place, &crm.url(), address);
    collector_place.append("calls.jsonl", messages("samarkand", 7..8).as_bytes());
    let status = wait_until_finished(&mut hub, 8).await;
    let seen = status.hub.expect("a hub");
    assert_eq!(seen.lost_commits_shown_by.as_deref(), Some("samarkand"));
    collector
        .until("all calls are forwarded", has_forwarded(8))
        .await;
    collector.terminate().await;
    hub.terminate().await;
}
