//! Tests that every call in a CDR directory is counted, no matter how its files are written.

use crate::e2e::calls::freeswitch_cdr::{TRUNK, read_cdr_files};
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::Place;
use callbridge_testbed::wait::pass;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// How many bytes of an unreadable record callbridge keeps.
const KEPT_BYTES: usize = 64 * 1024;
/// Time between the two parts of a file.
const PAUSE: Duration = Duration::from_secs(30);

/// Adds a 1.2 MB variable to a record.
fn pad(record: &str) -> String {
    let mut record: Value = serde_json::from_str(record).expect("JSON");
    record["variables"]["padding"] = json!("x".repeat(1_200_000));
    record.to_string()
}

/// Returns the name of a file that's written in two parts.
fn split_file(n: usize) -> String {
    format!("cdr/split-{n}.cdr.json")
}

#[tokio::test]
async fn long_split_and_nul_records_are_all_in_the_books() {
    let (place, crm) = (Place::new(), crm::start().await);
    std::fs::create_dir(place.at("cdr")).expect("a folder");
    let folder = place.path("cdr");
    let source = format!("--source=file://{folder}/?format=freeswitch-cdr&from=start");
    let flags = [source.as_str(), TRUNK, RATE_FLAG, "--cdr-wait=1s"];
    let mut program = place.run(&crm.url(), &flags);
    program.until("the daemon runs", |_| true).await;

    let mut wanted = BTreeSet::new();
    let (records, linkedid) = read_cdr_files("ring_group");
    for (n, record) in records.iter().enumerate() {
        place.write(&split_file(n), &record[..record.len() / 2]);
    }
    wanted.insert(linkedid);
    let split = records;

    let (records, linkedid) = read_cdr_files("hold");
    for (n, record) in records.iter().enumerate() {
        let bytes = [vec![0; 3000], record.clone().into_bytes()].concat();
        place.write(&format!("cdr/nul-{n}.cdr.json"), bytes);
    }
    wanted.insert(linkedid);

    let (records, _) = read_cdr_files("outbound_answered");
    let long: Vec<String> = records.iter().map(|record| pad(record)).collect();
    for (n, record) in long.iter().enumerate() {
        place.write(&format!("cdr/long-{n}.cdr.json"), record);
    }

    pass(PAUSE).await;
    for (n, record) in split.iter().enumerate() {
        place.append(&split_file(n), &record.as_bytes()[record.len() / 2..]);
    }
    let status = program.settled(2).await;
    assert_eq!((status.books.finished, status.books.journaled), (2, 2));
    program
        .until("the long records", |status| status.books.unreadable == 2)
        .await;
    let calls = place.lines(&["calls", "--json"]).await;
    let mut found = BTreeSet::new();
    for call in &calls {
        found.insert(call["linkedid"].as_str().expect("an id").to_owned());
    }
    assert_eq!(found, wanted);

    let dead_letters = place.letters().await;
    assert_eq!(dead_letters.len(), long.len(), "{dead_letters:?}");
    for letter in &dead_letters {
        assert_eq!(letter["reason"], "unreadable");
        let file = letter["file"].as_str().expect("a file");
        let n = long
            .iter()
            .enumerate()
            .position(|(n, _)| file.ends_with(&format!("/cdr/long-{n}.cdr.json")));
        let record = &long[n.expect("one of the long files")];
        let id = letter["id"].to_string();
        let shown = place.lines(&["dead", "show", &id, "--json"]).await;
        assert_eq!(shown[0]["text"], record[..KEPT_BYTES]);
    }

    let cdr = format!("--cdr={folder}");
    let flags = ["audit", &cdr, TRUNK, "--pbx-id=pbx1", "--json"];
    let output = place.command(&flags).await;
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(output.status.code(), Some(0), "{report}");
    assert_eq!(report["file"], 4, "{report}");
    assert_eq!(
        (&report["journaled"], &report["dead"]),
        (&json!(2), &json!(2))
    );
    program.terminate().await;
}
