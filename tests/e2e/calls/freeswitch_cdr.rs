//! Tests that each call in a directory of FreeSWITCH CDR files is journaled once, as an estimate.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::Place;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

pub const TRUNK: &str = "--trunk=city=profile/external,country=UZ,lead=var:lead_id";
/// Scenarios with a single customer call each, which has a lead.
const SCENARIOS: [&str; 5] = [
    "inbound_answered",
    "inbound_no_answer",
    "outbound_answered",
    "ring_group",
    "hold",
];

/// Returns the text of each CDR file in a scenario, and the linkedid of its only call.
pub fn read_cdr_files(scenario: &str) -> (Vec<String>, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/freeswitch");
    let folder = root.join(scenario);
    let records = std::fs::read_to_string(folder.join("json_cdr.jsonl")).expect("a recording");
    let expected = std::fs::read_to_string(folder.join("expected.json")).expect("a recording");
    let expected: Value = serde_json::from_str(&expected).expect("JSON");
    let linkedid = expected["calls"][0]["linkedid"].as_str().expect("an id");
    (
        records.lines().map(str::to_owned).collect(),
        linkedid.to_owned(),
    )
}

/// Writes a scenario's CDR files the way FreeSWITCH would, and returns the call's linkedid.
fn write_cdr_files(place: &Place, scenario: &str) -> String {
    let (records, linkedid) = read_cdr_files(scenario);
    for (n, record) in records.iter().enumerate() {
        place.write(&format!("cdr/{scenario}-{n}.cdr.json"), record);
    }
    linkedid
}

#[tokio::test]
async fn freeswitch_cdr_folder_calls_are_journaled_once_as_estimates() {
    let (place, crm) = (Place::new(), crm::start().await);
    std::fs::create_dir(place.at("cdr")).expect("a folder");
    let folder = place.path("cdr");
    let source = format!("--source=file://{folder}/?format=freeswitch-cdr&from=start");
    let flags = [source.as_str(), TRUNK, RATE_FLAG, "--cdr-wait=1s"];
    let mut wanted = BTreeSet::new();
    let (first, second) = SCENARIOS.split_at(3);
    wanted.extend(first.iter().map(|name| write_cdr_files(&place, name)));
    let mut program = place.run(&crm.url(), &flags);
    program.settled(3).await;
    program.kill().await;
    wanted.extend(second.iter().map(|name| write_cdr_files(&place, name)));
    let mut program = place.run(&crm.url(), &flags);
    let status = program.settled(5).await;
    assert_eq!((status.books.finished, status.books.journaled), (5, 5));
    assert_eq!(crm.journal().len(), 5);
    let calls = place.lines(&["calls", "--json"]).await;
    let ids: BTreeSet<String> = (calls.iter())
        .map(|call| call["linkedid"].as_str().expect("an id").to_owned())
        .collect();
    assert_eq!(
        ids, wanted,
        "the linkedid of each call is the id of the first channel"
    );
    assert!(
        calls.iter().all(|call| call["estimate"] == true),
        "{calls:?}"
    );
    program.terminate().await;
}

#[tokio::test]
async fn cdr_folder_is_audited_against_received_events() {
    let (place, crm) = (Place::new(), crm::start().await);
    std::fs::create_dir(place.at("cdr")).expect("a folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/freeswitch");
    let mut ids: Vec<String> = SCENARIOS
        .iter()
        .map(|name| write_cdr_files(&place, name))
        .collect();
    // FreeSWITCH wrote records for the last call, but no source received its events.
    let missed = ids.pop().expect("five");
    for name in &SCENARIOS[..4] {
        let events = std::fs::read(root.join(name).join("esl.jsonl"));
        place.append("events", &events.expect("recorded"));
    }
    let source = place.file("events", "freeswitch");
    let mut program = place.run(&crm.url(), &[&source, TRUNK, RATE_FLAG]);
    program.settled(4).await;
    let cdr = format!("--cdr={}", place.path("cdr"));
    let flags = ["audit", &cdr, TRUNK, "--pbx-id=pbx1", "--json"];
    let output = place.command(&flags).await;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&report["file"], &report["journaled"]),
        (&5.into(), &4.into())
    );
    let unexplained = report["unexplained"].as_array().expect("a list");
    let found: Vec<&Value> = unexplained.iter().map(|call| &call["linkedid"]).collect();
    assert_eq!(found, [missed.as_str()], "{report}");
    program.terminate().await;
}

#[tokio::test]
async fn explain_reads_a_folder_of_cdr_files() {
    let place = Place::new();
    std::fs::create_dir(place.at("cdr")).expect("a folder");
    let wanted: BTreeSet<String> = SCENARIOS
        .iter()
        .map(|name| write_cdr_files(&place, name))
        .collect();
    let folder = place.path("cdr");
    let flags = [
        "explain",
        "--format=freeswitch-cdr",
        "--json",
        TRUNK,
        &folder,
    ];
    let lines = place.lines(&flags).await;
    let ids = lines.iter().filter_map(|line| line["linkedid"].as_str());
    assert_eq!(ids.map(str::to_owned).collect::<BTreeSet<_>>(), wanted);
    let other = place.command(&["explain", "--format=ami", &folder]).await;
    assert_eq!(other.status.code(), Some(65), "{other:?}");
}
