//! Tests that collectors forward their calls to a hub, and keep those that the hub doesn't accept.

use super::stage::{Hub, messages, start_collector, start_hub};
use crate::support::program::Place;
use callbridge_model::Status;
use callbridge_testbed::wait::until;

fn has_forwarded(calls: u64) -> impl Fn(&Status) -> bool {
    move |status| status.books.forwarded == calls
}

/// Promise: A collector forwards each call once, and the hub journals it.
#[tokio::test]
async fn two_collectors_forward_and_the_hub_journals() {
    let mut hub = Hub::start().await;
    let mut collectors = Vec::new();
    for pbx in ["samarkand", "bukhara"] {
        let token = hub.add_branch(pbx).await;
        let collector_place = Place::new();
        collector_place.write("calls.jsonl", messages(pbx, 0..10));
        let collector = start_collector(&collector_place, hub.address, &token);
        collectors.push((collector_place, collector));
    }
    for (collector_place, collector) in &mut collectors {
        let status = collector
            .until("its calls are forwarded", has_forwarded(10))
            .await;
        let forward = status.forward.expect("a collector");
        assert_eq!((forward.ready, forward.reason), (0, None));
        collector_place.append("calls.jsonl", messages("samarkand", 90..91).as_bytes());
    }
    hub.program
        .until("all calls are journaled", |status| {
            status.books.journaled == 21
        })
        .await;
    assert_eq!(hub.crm.journal().len(), 21, "each call once");
    // The second collector's last call belongs to another branch.
    let (collector_place, collector) = &mut collectors[1];
    let status = collector
        .until("the foreign call is a dead letter", |status| {
            status.books.dead == 1
        })
        .await;
    assert!(status.books.balance());
    let letters = collector_place.letters().await;
    let message = letters[0]["message"].as_str().expect("a message");
    assert!(
        message.contains("samarkand is not a PBX of branch bukhara"),
        "{message}"
    );
    until("both collectors report", async || {
        let branches = hub.place.lines(&["branch", "list", "--json"]).await;
        branches.iter().all(|branch| branch["state"] == "reports")
    })
    .await;
    for (_, collector) in collectors {
        collector.terminate().await;
    }
    let branches = hub.place.lines(&["branch", "list", "--json"]).await;
    for branch in branches {
        assert_eq!(branch["state"], "stopped", "{branch}");
    }
    hub.program.terminate().await;
}

#[tokio::test]
async fn collector_keeps_calls_while_the_hub_is_unreachable() {
    let hub = Hub::start().await;
    let token = hub.add_branch("samarkand").await;
    let Hub {
        place,
        crm,
        address,
        program,
    } = hub;
    program.kill().await;
    let collector_place = Place::new();
    collector_place.write("calls.jsonl", messages("samarkand", 0..3));
    let mut collector = start_collector(&collector_place, address, &token);
    let status = collector
        .until("the hub is away", |status| {
            let reason = status.pause.as_ref().map(|pause| pause.reason.as_str());
            reason == Some("hub_unreachable") && status.books.ready == 3
        })
        .await;
    assert!(status.forward.expect("a collector").reason.is_some());
    collector.kill().await;
    let mut collector = start_collector(&collector_place, address, &token);
    let hub = start_hub(&place, &crm.url(), address);
    let status = collector
        .until("its calls are forwarded", has_forwarded(3))
        .await;
    assert_eq!(status.pause, None);
    collector.terminate().await;
    hub.terminate().await;
}

#[tokio::test]
async fn wrong_hub_token_pauses_forwarding_and_keeps_calls_ready() {
    let hub = Hub::start().await;
    let collector_place = Place::new();
    collector_place.write("calls.jsonl", messages("samarkand", 0..1));
    let mut collector = start_collector(&collector_place, hub.address, "wrong");
    collector
        .until("the token is refused", |status| {
            let reason = status.pause.as_ref().map(|pause| pause.reason.as_str());
            reason == Some("hub_token_refused") && status.books.ready == 1
        })
        .await;
    collector.terminate().await;
    hub.program.terminate().await;
}
