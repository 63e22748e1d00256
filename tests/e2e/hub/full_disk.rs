//! Tests that a hub whose disk is full doesn't accept any calls, reports the problem, and doesn't
//! lose a call.

use super::stage::{add_branch, free_address, messages, post, start_collector, start_hub};
use crate::e2e::operations::monitoring::page;
use crate::kill::mounts::{SmallDisk, inside};
use crate::support::crm;
use crate::support::program::Place;

/// Promise: A hub with a full disk answers 503, and its collectors keep their calls.
#[test]
fn full_disk_of_hub_is_answered_503_and_loses_no_call() {
    inside(
        "e2e::hub::full_disk::full_disk_of_hub_is_answered_503_and_loses_no_call",
        fill_disk_of_hub(),
    );
}

async fn fill_disk_of_hub() {
    let (place, crm) = (Place::on_disk(), crm::start().await);
    let disk = SmallDisk::at(place.at("state"), 64 << 10);
    let address = free_address();
    let mut hub = start_hub(&place, &crm.url(), address);
    hub.until("the hub serves", |status| status.hub.is_some())
        .await;
    let token = add_branch(&place, "samarkand", "samarkand").await;
    let script = add_branch(&place, "script", "script").await;
    disk.fill_but(0);
    let collector_place = Place::new();
    collector_place.write("calls.jsonl", messages("samarkand", 0..200));
    let mut collector = start_collector(&collector_place, address, &token);
    collector
        .until("the hub accepts nothing", |status| {
            let pause = status.pause.as_ref();
            pause.is_some_and(|pause| pause.reason == "hub_unreachable")
                && status.books.ready == 200
        })
        .await;
    let (status, answer) = post(address, "/v1/calls", &script, messages("script", 0..100)).await;
    assert_eq!(status, 503, "{answer}");
    let (status, text) = page(&hub, "/readyz").await;
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("nothing can be stored"), "{text}");
    disk.make_room();
    collector
        .until("its calls are forwarded", |status| {
            status.books.forwarded == 200
        })
        .await;
    let status = hub.settled(200).await;
    assert_eq!(status.books.journaled, 200);
    assert_eq!(page(&hub, "/readyz").await.0, 200);
    collector.terminate().await;
    hub.terminate().await;
}
