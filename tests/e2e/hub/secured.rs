//! Tests a hub that serves TLS itself, and what `check` reports about the connection to it.

use super::stage::{add_branch, free_address, messages, serves};
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use callbridge_testbed::authority::{Authority, Flaw};
use serde_json::Value;
use std::net::SocketAddr;

fn start_secured(place: &Place, crm: &str, address: SocketAddr, authority: &Authority) -> Program {
    let identity = authority.identity(Flaw::None);
    let chain = place.write("hub.crt", identity.certificate);
    let key = place.write("hub.key", identity.key);
    let arguments = [
        "run".to_owned(),
        format!("--collect={address}"),
        format!("--tls-cert={chain}"),
        format!("--tls-key={key}"),
        format!("--crm-url={crm}"),
        format!("--token-file={}", place.path("token")),
        format!("--state={}", place.path("state")),
        "--country=UZ".to_owned(),
        RATE_FLAG.to_owned(),
    ];
    place.start(&arguments, &[])
}

/// Copies the authority's certificate to the path in the flags.
fn trust(place: &Place, authority: &Authority) {
    let pem = std::fs::read(authority.ca_file()).expect("readable");
    place.write("ca.pem", pem);
}

/// Returns the flags of a collector, without its command.
fn flags(place: &Place, hub: SocketAddr, pbx: &str) -> Vec<String> {
    vec![
        format!("--pbx-id={pbx}"),
        format!("--source=file://{}?format=cel-csv", place.path("cel.csv")),
        "--trunk=city=PJSIP/city,country=UZ".to_owned(),
        format!("--forward=https://localhost:{}", hub.port()),
        format!("--forward-token-file={}", place.path("hub-token")),
        format!("--forward-ca-file={}", place.path("ca.pem")),
    ]
}

async fn check(place: &Place, hub: SocketAddr, pbx: &str) -> Vec<Value> {
    let flags = flags(place, hub, pbx);
    let mut arguments = vec!["check", "--json"];
    arguments.extend(flags.iter().map(String::as_str));
    let output = place.command(&arguments).await;
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let findings = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let mut findings: Vec<Value> = findings.collect();
    findings.retain(|finding| {
        finding["name"]
            .as_str()
            .is_some_and(|place| place.starts_with("hub"))
    });
    findings
}

#[tokio::test]
async fn check_tries_token_pbx_names_and_certificate_of_the_hub() {
    let (place, crm) = (Place::new(), crm::start().await);
    let (address, authority) = (free_address(), Authority::new());
    let mut hub = start_secured(&place, &crm.url(), address, &authority);
    serves(&mut hub).await;
    let token = add_branch(&place, "samarkand", "samarkand").await;
    let own = Place::new();
    own.write("cel.csv", "");
    own.write("hub-token", &token);
    trust(&own, &authority);
    let found = check(&own, address, "samarkand").await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["ok"], true, "{found:?}");
    assert_eq!(found[0]["message"], "accepts calls of branch samarkand");
    let found = check(&own, address, "bukhara").await;
    let message = found[1]["message"].as_str().expect("a message");
    assert!(message.contains("but not bukhara"), "{message}");
    own.write("hub-token", "wrong");
    let found = check(&own, address, "samarkand").await;
    let message = found[0]["message"].as_str().expect("a message");
    assert!(message.starts_with("refuses the token (401"), "{message}");
    own.write("hub-token", &token);
    trust(&own, &Authority::new());
    let found = check(&own, address, "samarkand").await;
    let message = found[0]["message"].as_str().expect("a message");
    assert!(message.contains("--forward-ca-file"), "{message}");
    hub.terminate().await;
}

#[tokio::test]
async fn collector_forwards_over_tls() {
    let (place, crm) = (Place::new(), crm::start().await);
    let (address, authority) = (free_address(), Authority::new());
    let mut hub = start_secured(&place, &crm.url(), address, &authority);
    serves(&mut hub).await;
    let token = add_branch(&place, "samarkand", "samarkand").await;
    let own = Place::new();
    own.write("hub-token", &token);
    trust(&own, &authority);
    own.write("calls.jsonl", messages("samarkand", 0..4));
    let arguments = [
        "run".to_owned(),
        own.file("calls.jsonl", "call"),
        format!("--forward=https://localhost:{}", address.port()),
        format!("--forward-token-file={}", own.path("hub-token")),
        format!("--forward-ca-file={}", own.path("ca.pem")),
        format!("--state={}", own.path("state")),
    ];
    let mut collector = own.start(&arguments, &[]);
    collector
        .until("its calls are forwarded", |status| {
            status.books.forwarded == 4
        })
        .await;
    hub.settled(4).await;
    collector.terminate().await;
    hub.terminate().await;
}
