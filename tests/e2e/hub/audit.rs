//! Tests that each call in a PBX's file is explained both at its collector and at the hub.

use super::stage::{add_branch, free_address, start_hub};
use crate::e2e::calls::freeswitch_cdr::{TRUNK, read_cdr_files};
use crate::support::crm;
use crate::support::program::Place;
use callbridge_model::Status;
use serde_json::Value;

const SCENARIOS: [&str; 3] = ["inbound_answered", "outbound_answered", "hold"];

/// Audits the CDR files in this directory, and checks that each of the three calls is explained.
async fn audit(place: &Place, folder: &str) -> Value {
    let cdr = format!("--cdr={folder}");
    let flags = ["audit", &cdr, TRUNK, "--pbx-id=pbx1", "--json"];
    let output = place.command(&flags).await;
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(output.status.code(), Some(0), "{report}");
    assert_eq!(report["file"], 3, "{report}");
    report
}

#[tokio::test]
async fn audit_explains_forwarded_calls_at_collector_and_hub() {
    let (place, crm) = (Place::new(), crm::start().await);
    let address = free_address();
    let mut hub = start_hub(&place, &crm.url(), address);
    hub.until("the hub serves", |status: &Status| status.hub.is_some())
        .await;
    let token = add_branch(&place, "city", "pbx1").await;

    let collector_place = Place::new();
    std::fs::create_dir(collector_place.at("cdr")).expect("a folder");
    for scenario in SCENARIOS {
        for (n, record) in read_cdr_files(scenario).0.iter().enumerate() {
            collector_place.write(&format!("cdr/{scenario}-{n}.cdr.json"), record);
        }
    }
    let folder = collector_place.path("cdr");
    let token_file = collector_place.write("hub-token", &token);
    let mut collector = collector_place.start(
        &[
            "run".to_owned(),
            format!("--source=file://{folder}/?format=freeswitch-cdr&from=start"),
            "--pbx-id=pbx1".to_owned(),
            TRUNK.to_owned(),
            "--cdr-wait=1s".to_owned(),
            format!("--forward=http://{address}"),
            format!("--forward-token-file={token_file}"),
            format!("--state={}", collector_place.path("state")),
        ],
        &[],
    );
    collector
        .until("all is forwarded", |status: &Status| {
            status.books.forwarded == 3
        })
        .await;
    let report = audit(&collector_place, &folder).await;
    assert_eq!(report["forwarded"], 3, "{report}");

    hub.settled(3).await;
    let report = audit(&place, &folder).await;
    assert_eq!(report["journaled"], 3, "{report}");
    collector.terminate().await;
    hub.terminate().await;
}
