//! Tests a hub that serves TLS itself, and what `check` reports about the connection to it.

use super::stage::{add_branch, free_address, messages, wait_until_serving};
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use callbridge_model::clock;
use callbridge_model::status::{FindingKind, Status};
use callbridge_testbed::authority::{Authority, Flaw, Identity};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;

/// Starts a hub that serves TLS with a certificate from this CA.
fn start_secured(place: &Place, crm: &str, address: SocketAddr, authority: &Authority) -> Program {
    let (chain, key) = write_identity(place, authority.identity(Flaw::None));
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

/// Writes the hub's certificate and key, and returns their paths.
fn write_identity(place: &Place, identity: Identity) -> (String, String) {
    let chain = place.write("hub.crt", identity.certificate);
    let key = place.write("hub.key", identity.key);
    (chain, key)
}

/// Copies the CA's certificate to `ca.pem`, the file given in the collector's flags.
fn trust(place: &Place, authority: &Authority) {
    let pem = std::fs::read(authority.ca_file()).expect("readable");
    place.write("ca.pem", pem);
}

/// Returns a collector's flags, without the `run` command.
fn collector_flags(place: &Place, hub: SocketAddr, pbx: &str) -> Vec<String> {
    vec![
        format!("--pbx-id={pbx}"),
        format!("--source=file://{}?format=cel-csv", place.path("cel.csv")),
        "--trunk=city=PJSIP/city,country=UZ".to_owned(),
        format!("--forward=https://localhost:{}", hub.port()),
        format!("--forward-token-file={}", place.path("hub-token")),
        format!("--forward-ca-file={}", place.path("ca.pem")),
    ]
}

/// Runs a collector's `check`, and returns the findings about the hub.
async fn check(place: &Place, hub: SocketAddr, pbx: &str) -> Vec<Value> {
    let flags = collector_flags(place, hub, pbx);
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
            .is_some_and(|name| name.starts_with("hub"))
    });
    findings
}

#[tokio::test]
async fn check_verifies_hub_token_pbx_names_and_certificate() {
    let (place, crm) = (Place::new(), crm::start().await);
    let (address, authority) = (free_address(), Authority::new());
    let mut hub = start_secured(&place, &crm.url(), address, &authority);
    wait_until_serving(&mut hub).await;
    let token = add_branch(&place, "samarkand", "samarkand").await;
    let collector_place = Place::new();
    collector_place.write("cel.csv", "");
    collector_place.write("hub-token", &token);
    trust(&collector_place, &authority);
    let found = check(&collector_place, address, "samarkand").await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["ok"], true, "{found:?}");
    assert_eq!(found[0]["message"], "accepts calls of branch samarkand");
    let found = check(&collector_place, address, "bukhara").await;
    let message = found[1]["message"].as_str().expect("a message");
    assert!(message.contains("but not bukhara"), "{message}");
    collector_place.write("hub-token", "wrong");
    let found = check(&collector_place, address, "samarkand").await;
    let message = found[0]["message"].as_str().expect("a message");
    assert!(message.starts_with("refuses the token (401"), "{message}");
    collector_place.write("hub-token", &token);
    trust(&collector_place, &Authority::new());
    let found = check(&collector_place, address, "samarkand").await;
    let message = found[0]["message"].as_str().expect("a message");
    assert!(message.contains("--forward-ca-file"), "{message}");
    hub.terminate().await;
}

/// Starts a collector that trusts the authority in its `ca.pem` and forwards `calls.jsonl`.
fn start_secured_collector(place: &Place, address: SocketAddr, token: &str) -> Program {
    place.write("hub-token", token);
    let arguments = [
        "run".to_owned(),
        place.file("calls.jsonl", "call"),
        format!("--forward=https://localhost:{}", address.port()),
        format!("--forward-token-file={}", place.path("hub-token")),
        format!("--forward-ca-file={}", place.path("ca.pem")),
        format!("--state={}", place.path("state")),
    ];
    place.start(&arguments, &[])
}

#[tokio::test]
async fn collector_forwards_over_tls() {
    let (place, crm) = (Place::new(), crm::start().await);
    let (address, authority) = (free_address(), Authority::new());
    let mut hub = start_secured(&place, &crm.url(), address, &authority);
    wait_until_serving(&mut hub).await;
    let token = add_branch(&place, "samarkand", "samarkand").await;
    let collector_place = Place::new();
    trust(&collector_place, &authority);
    collector_place.write("calls.jsonl", messages("samarkand", 0..4));
    let mut collector = start_secured_collector(&collector_place, address, &token);
    collector
        .until("its calls are forwarded", |status| {
            status.books.forwarded == 4
        })
        .await;
    hub.settled(4).await;
    collector.terminate().await;
    hub.terminate().await;
}

fn has_certificate_problem(status: &Status) -> bool {
    let mut kinds = status.problems.iter().map(|problem| problem.kind);
    kinds.any(|kind| kind == FindingKind::HubCertificate)
}

#[tokio::test]
async fn new_authority_and_expiring_certificate_need_no_restart() {
    let (place, crm) = (Place::new(), crm::start().await);
    let (address, authority) = (free_address(), Authority::new());
    let mut hub = start_secured(&place, &crm.url(), address, &authority);
    wait_until_serving(&mut hub).await;
    let token = add_branch(&place, "samarkand", "samarkand").await;
    let collector_place = Place::new();
    trust(&collector_place, &authority);
    collector_place.write("calls.jsonl", messages("samarkand", 0..2));
    let mut collector = start_secured_collector(&collector_place, address, &token);
    collector
        .until("two calls forwarded", |status| status.books.forwarded == 2)
        .await;
    let status = hub.status().await.expect("a status");
    assert!(!has_certificate_problem(&status));
    let renewed = Authority::new();
    let now = clock::now().wall.floor_seconds().get();
    let expiry = Duration::from_secs(now.cast_unsigned() + 12 * 86_400);
    write_identity(&place, renewed.identity_until(expiry));
    hub.until("the expiry as a problem", has_certificate_problem)
        .await;
    collector_place.append("calls.jsonl", messages("samarkand", 2..4).as_ref());
    collector
        .until("a refused certificate", |status| {
            let reason = status
                .forward
                .as_ref()
                .and_then(|forward| forward.reason.as_ref());
            reason.is_some_and(|reason| reason.contains("--forward-ca-file"))
        })
        .await;
    trust(&collector_place, &renewed);
    collector
        .until("all calls forwarded", |status| status.books.forwarded == 4)
        .await;
    hub.settled(4).await;
    let log = place.logs();
    assert!(
        log.contains("reloaded the certificate") && log.contains("hub"),
        "{log}"
    );
    assert!(!log.contains("webhook"), "{log}");
    collector.terminate().await;
    hub.terminate().await;
}
