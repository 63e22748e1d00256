//! Tests a hub that lost its state, or whose state was restored from an older copy.

use super::stage::{
    Hub, add_branch, free_address, message, messages, post, start_collector, start_hub,
    start_hub_at_rate, wait_until_serving,
};
use crate::support::crm;
use crate::support::program::{Place, Program};
use callbridge_model::status::FindingKind;
use callbridge_model::{Status, clock};
use callbridge_sandbox as sandbox;
use callbridge_testbed::wait::until;
use std::fs;
use std::net::SocketAddr;

fn has_forwarded(calls: u64) -> impl Fn(&Status) -> bool {
    move |status| status.books.forwarded == calls && status.books.ready == 0
}

/// Starts a collector with this many calls, and waits until the hub has stored them.
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
    // After the 401, the collector's next request would have to wait for a minute.
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

/// A collector and a script use the same token. The script raises the restored hub's `seq` above
/// the collector's before the collector returns.
#[tokio::test]
async fn script_hides_no_lost_calls_from_a_restored_hub() {
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
    // The collector's last report can raise the position that it has seen.
    collector.terminate().await;
    let body = messages("samarkand", 100..101);
    let (_, answer) = post(address, "/v1/calls", &token, body).await;
    let seen = answer["seq"].as_u64().expect("a number");
    hub.terminate().await;
    fs::copy(place.at("copy.db"), place.at("state/spool.db")).expect("restored");
    let mut hub = start_hub(&place, &crm.url(), address);
    wait_until_serving(&mut hub).await;
    let mut posted = 0;
    loop {
        let body = messages("samarkand", 100 + posted..101 + posted);
        let (status, answer) = post(address, "/v1/calls", &token, body).await;
        assert_eq!(status, 200);
        posted += 1;
        if answer["seq"].as_u64().expect("a number") > seen {
            break;
        }
    }
    let mut collector = start_collector(&collector_place, address, &token);
    let status = wait_until_finished(&mut hub, 7 + u64::from(posted)).await;
    let shown_by = status.hub.expect("a hub").lost_commits_shown_by;
    assert_eq!(shown_by.as_deref(), Some("samarkand"));
    collector
        .until("all calls are forwarded again", has_forwarded(7))
        .await;
    let what = "the second sender is a problem";
    hub.until(what, has_problem(FindingKind::BranchSenders))
        .await;
    collector.terminate().await;
    hub.terminate().await;
}

fn has_problem(kind: FindingKind) -> impl Fn(&Status) -> bool {
    move |status| status.problems.iter().any(|problem| problem.kind == kind)
}

#[tokio::test]
async fn copy_of_a_collector_is_a_problem_at_the_hub() {
    let Hub {
        place,
        crm: _crm,
        address,
        program: mut hub,
    } = Hub::start().await;
    let token = add_branch(&place, "samarkand", "samarkand").await;
    let (first_place, first) = collector_that_forwarded(3, address, &token).await;
    first.terminate().await;
    let copy_place = Place::new();
    fs::create_dir(copy_place.at("state")).expect("a folder");
    for file in ["spool.db", "spool.db-wal"] {
        let (from, to) = (
            format!("state/{file}"),
            copy_place.at(&format!("state/{file}")),
        );
        if first_place.at(&from).exists() {
            fs::copy(first_place.at(&from), to).expect("copied");
        }
    }
    first_place.append("calls.jsonl", messages("samarkand", 3..5).as_bytes());
    let mut first = start_collector(&first_place, address, &token);
    first
        .until("all calls are forwarded", has_forwarded(5))
        .await;
    let status = wait_until_finished(&mut hub, 5).await;
    assert!(!has_problem(FindingKind::CopiedCollector)(&status));
    copy_place.write("calls.jsonl", "");
    let copy = start_collector(&copy_place, address, &token);
    hub.until(
        "the copy is a problem",
        has_problem(FindingKind::CopiedCollector),
    )
    .await;
    let listed = place.lines(&["branch", "list", "--json"]).await;
    let senders = listed[0]["senders"].as_array().expect("senders");
    assert_eq!(senders.len(), 1, "{senders:?}");
    for program in [first, copy, hub] {
        program.terminate().await;
    }
}

/// Returns the messages for calls that have just ended, so that the hub sends each of them as soon
/// as a slot becomes available.
fn live_messages(numbers: std::ops::Range<u32>) -> String {
    let started = clock::now().wall.floor_seconds().get() - 20;
    let lines = numbers.map(|n| {
        let mut call = message("samarkand", n);
        call["startedAt"] = started.into();
        format!("{call}\n")
    });
    lines.collect()
}

/// The hub fills a window and is killed, and then an older copy, which lacks those requests, is
/// written over its state. Since scripts send no position, only the file can show that it's a copy.
#[tokio::test]
async fn killed_hub_with_a_copied_state_exceeds_no_window() {
    const RATE: &str = "--rate=60/60s";
    let mut config = crm::settings();
    config.settings.rate = sandbox::window::Rate::default();
    let crm = sandbox::start(config).await.expect("a sandbox");
    let (place, address) = (Place::on_disk(), free_address());
    let mut hub = start_hub_at_rate(RATE, &place, &crm.url(), address);
    wait_until_serving(&mut hub).await;
    let token = add_branch(&place, "samarkand", "samarkand").await;
    hub.terminate().await;
    fs::copy(place.at("state/spool.db"), place.at("copy.db")).expect("copied");
    let mut hub = start_hub_at_rate(RATE, &place, &crm.url(), address);
    wait_until_serving(&mut hub).await;
    let (status, _) = post(address, "/v1/calls", &token, live_messages(0..70)).await;
    assert_eq!(status, 200);
    // A new state begins with three slots taken, for the requests of an earlier `check`.
    until("the window is full", async || {
        crm.admin(|core, _| core.fullest().in_a_window) >= 57
    })
    .await;
    hub.kill().await;
    for file in ["spool.db-wal", "spool.db-shm"] {
        fs::remove_file(place.at(&format!("state/{file}"))).expect("removed");
    }
    fs::copy(place.at("copy.db"), place.at("state/spool.db")).expect("restored");
    let mut hub = start_hub_at_rate(RATE, &place, &crm.url(), address);
    wait_until_serving(&mut hub).await;
    let (status, _) = post(address, "/v1/calls", &token, live_messages(70..80)).await;
    assert_eq!(status, 200);
    let what = "the hub waits for the end of the window, or has sent too much";
    let status = hub.until(what, |status| {
        status.books.finished == 10
            && (status.budget.next_free_in_ms > 50_000 || !crm.violations().is_empty())
    });
    let status = status.await;
    assert_eq!(crm.violations(), []);
    assert_eq!(status.books.ready, 10, "nothing is sent in the silence");
    hub.terminate().await;
}
