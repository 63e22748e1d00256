//! Starts hubs and collectors for the tests, and posts calls. Each hub and each collector is a
//! process with its own directory.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use callbridge_sandbox::Server;
use callbridge_testbed::port;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

/// Returns a loopback address with a free port. A hub that's restarted keeps its address.
pub fn free_address() -> SocketAddr {
    let port = port::free_port();
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Starts a hub that sends to the CRM with this URL, at the rate of the tests' CRM.
pub fn start_hub(place: &Place, crm: &str, address: SocketAddr) -> Program {
    start_hub_at_rate(RATE_FLAG, place, crm, address)
}

/// Starts a hub with this `--rate`.
pub fn start_hub_at_rate(rate: &str, place: &Place, crm: &str, address: SocketAddr) -> Program {
    start_hub_with(&[rate], place, crm, address)
}

/// Starts a hub with these additional flags.
pub fn start_hub_with(flags: &[&str], place: &Place, crm: &str, address: SocketAddr) -> Program {
    let mut arguments = vec![
        "run".to_owned(),
        format!("--collect={address}"),
        format!("--crm-url={crm}"),
        format!("--token-file={}", place.path("token")),
        format!("--state={}", place.state()),
        "--country=UZ".to_owned(),
        "--listen=127.0.0.1:0".to_owned(),
    ];
    arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
    place.start(&arguments, &[])
}

/// A running hub and its CRM.
pub struct Hub {
    pub place: Place,
    pub crm: Server,
    pub address: SocketAddr,
    pub program: Program,
}

impl Hub {
    /// Starts the hub in a new directory, and waits until it's serving.
    pub async fn start() -> Self {
        Self::start_in(Place::new()).await
    }

    /// Starts the hub in this directory, and waits until it's serving.
    pub async fn start_in(place: Place) -> Self {
        let (crm, address) = (crm::start().await, free_address());
        let mut program = start_hub(&place, &crm.url(), address);
        wait_until_serving(&mut program).await;
        Self {
            place,
            crm,
            address,
            program,
        }
    }

    /// Adds a branch with a PBX of the same name, and returns the branch's token.
    pub async fn add_branch(&self, name: &str) -> String {
        add_branch(&self.place, name, name).await
    }

    /// Posts call messages, one per line, as a script would.
    pub async fn post(&self, token: &str, body: String) -> Answer {
        post(self.address, "/v1/calls", token, body).await
    }
}

/// Waits until the hub is serving.
pub async fn wait_until_serving(hub: &mut Program) {
    hub.until("the hub serves", |status| status.hub.is_some())
        .await;
}

/// Adds a branch with one PBX at the hub, and returns the branch's token.
pub async fn add_branch(hub: &Place, name: &str, pbx: &str) -> String {
    let lines = hub
        .lines(&["branch", "add", name, "--pbx", pbx, "--json"])
        .await;
    assert_eq!(lines[0]["branch"], name);
    lines[0]["token"].as_str().expect("a token").to_owned()
}

/// Starts a collector that reads call messages from `calls.jsonl`.
pub fn start_collector(place: &Place, hub: SocketAddr, token: &str) -> Program {
    start_collector_with(place, &[hub], token)
}

/// Starts a collector with the addresses of these hubs.
pub fn start_collector_with(place: &Place, hubs: &[SocketAddr], token: &str) -> Program {
    let token_file = place.write("hub-token", token);
    let hubs: Vec<String> = hubs.iter().map(|hub| format!("http://{hub}")).collect();
    let arguments = [
        "run".to_owned(),
        place.file("calls.jsonl", "call"),
        format!("--forward={}", hubs.join(",")),
        format!("--forward-token-file={token_file}"),
        format!("--state={}", place.path("state")),
        "--country=UZ".to_owned(),
    ];
    place.start(&arguments, &[])
}

/// Returns the message for a PBX's `n`-th call. Its calls start one second apart.
pub fn message(pbx: &str, n: u32) -> Value {
    json!({
        "pbx": pbx, "id": format!("call.{n}"), "direction": "INBOUND",
        "phone": "+998901110001", "startedAt": 1_795_151_317 + i64::from(n),
        "durationSec": 20, "answered": true, "talkSec": 12, "leadId": 4001,
    })
}

/// Returns the messages for these calls from a PBX, one per line.
pub fn messages(pbx: &str, numbers: std::ops::Range<u32>) -> String {
    let lines = numbers.map(|n| format!("{}\n", message(pbx, n)));
    lines.collect()
}

/// The HTTP status and the JSON of a hub's response.
pub type Answer = (u16, Value);

/// Posts a body as a script would.
pub async fn post(hub: SocketAddr, path: &str, token: &str, body: String) -> Answer {
    post_as(hub, path, token, "application/x-ndjson", body).await
}

/// Posts a body with this content type.
pub async fn post_as(
    hub: SocketAddr,
    path: &str,
    token: &str,
    content_type: &str,
    body: String,
) -> Answer {
    let request = build_request(hub, path, token, content_type, body);
    read_answer(request.send().await.expect("an answer")).await
}

/// Posts calls as a collector would whose last response was this one.
pub async fn post_as_collector(hub: SocketAddr, token: &str, last: &Value, body: String) -> Answer {
    let mut request = build_request(hub, "/v1/calls", token, "application/x-ndjson", body)
        .header("callbridge-sender", "5f6c");
    if let (Some(incarnation), Some(seq)) = (last["incarnation"].as_str(), last["seq"].as_u64()) {
        request = request
            .header("callbridge-incarnation", incarnation)
            .header("callbridge-seq", seq);
    }
    read_answer(request.send().await.expect("an answer")).await
}

/// Posts calls as a script would. Returns `None` if there's no response within this time.
pub async fn post_within(
    time: Duration,
    hub: SocketAddr,
    token: &str,
    body: &str,
) -> Option<Answer> {
    let body = body.to_owned();
    let request = build_request(hub, "/v1/calls", token, "application/x-ndjson", body);
    let exchange = async { Some(read_answer(request.send().await.ok()?).await) };
    tokio::time::timeout(time, exchange).await.ok()?
}

fn build_request(
    hub: SocketAddr,
    path: &str,
    token: &str,
    content_type: &str,
    body: String,
) -> reqwest::RequestBuilder {
    // An error means that another test has already installed the provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder()
        .tls_certs_only([])
        .no_proxy()
        .build()
        .expect("a client");
    http.post(format!("http://{hub}{path}"))
        .header("Authorization", format!("Bearer {token}"))
        .header("Content-Type", content_type)
        .body(body)
}

async fn read_answer(response: reqwest::Response) -> Answer {
    let status = response.status().as_u16();
    // If the hub is killed while it's responding, the text is empty.
    let text = response.text().await.unwrap_or_default();
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}
