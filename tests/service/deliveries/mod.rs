//! Tests webhooks that the sandbox sends over real sockets to a separate receiver.

mod receiver;

use callbridge_sandbox::{Config, Server, start};
use callbridge_testbed::authority::Authority;
use receiver::{Answer, Receiver};
use serde_json::{Value, json};
use std::time::Duration;

const TOKEN: &str = "svc_pat_sandbox";

fn client() -> reqwest::Client {
    // An error means that another test has already installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .no_proxy()
        .tls_certs_only([])
        .build()
        .expect("a client")
}

/// Starts a sandbox that can deliver to loopback and trusts the authority.
async fn sandbox(authority: &Authority, change: impl FnOnce(&mut Config)) -> Server {
    let mut config = config(authority);
    change(&mut config);
    start(config).await.expect("starts")
}

fn config(authority: &Authority) -> Config {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = Config::default();
    config.settings.persist_after = Duration::ZERO;
    config.settings.persist_jitter = Duration::ZERO;
    config.settings.private_targets = true;
    config.webhook_ca_file = Some(authority.ca_file());
    config
}

async fn post(server: &Server, path: &str, body: &Value) -> (u16, Value) {
    let request = client().post(format!("{}{path}", server.url())).json(body);
    let answer = request.header("X-Open-Api-Token", TOKEN).send().await;
    let answer = answer.expect("an answer");
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

async fn admin(server: &Server, act: &str, body: &Value) -> Value {
    let (status, answer) = post(server, &format!("/sandbox/admin/{act}"), body).await;
    assert_eq!(status, 200, "{act}: {answer}");
    answer
}

/// Subscribes application 1 to all events. Returns its webhook secret.
async fn subscribe(server: &Server, url: &str) -> String {
    let config = json!({ "targetUrl": url, "events": ["LEAD", "CALL"] });
    let answer = admin(server, "webhook", &config).await;
    answer["webhookSecret"]
        .as_str()
        .expect("shown once")
        .to_owned()
}

async fn webhooks(server: &Server) -> Value {
    let answer = client()
        .get(format!("{}/sandbox/webhooks", server.url()))
        .send()
        .await;
    answer.expect("an answer").json().await.expect("JSON")
}

/// Waits until the sandbox's webhooks meet a condition, and returns them. `what` names the
/// condition.
async fn wait_until(server: &Server, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(180);
    let mut look = tokio::time::interval(Duration::from_millis(50));
    loop {
        look.tick().await;
        let seen = webhooks(server).await;
        if is_so(&seen) {
            return seen;
        }
        assert!(tokio::time::Instant::now() < deadline, "{what}: {seen}");
    }
}

/// Creates a lead, which causes one event.
async fn create_lead(server: &Server) {
    admin(server, "lead", &json!({ "name": "Ali" })).await;
}

#[tokio::test]
async fn journaled_call_arrives_signed_with_its_four_headers() {
    let authority = Authority::new();
    let receiver = Receiver::start(&authority).await;
    let server = sandbox(&authority, |_| ()).await;
    let secret = subscribe(&server, &receiver.url()).await;
    let now = server.admin(|_, now| now.floor_seconds().get());
    let call = json!({
        "leadId": 4001, "employeeId": 501, "uuid": "one", "startedAt": now - 60,
        "durationSec": 50, "talkTimeSec": 40, "answered": true, "direction": "INBOUND",
    });
    let (status, _) = post(&server, "/v1/open-api/call-history", &call).await;
    assert_eq!(status, 200);
    let delivery = receiver.next().await;
    assert_eq!(delivery.path, "/webhooks");
    assert_eq!(delivery.header("content-type"), "application/json");
    assert_eq!(delivery.header("x-webhook-id"), delivery.json()["eventId"]);
    assert_eq!(delivery.header("x-webhook-installation-id"), "7001");
    let signed_at: i64 = delivery
        .header("x-webhook-timestamp")
        .parse()
        .expect("seconds");
    assert!((now..now + 30).contains(&signed_at), "{signed_at}");
    assert!(delivery.is_signed_with(&secret));
    assert!(
        !delivery
            .headers
            .iter()
            .any(|(name, _)| name == "authorization")
    );
    assert_eq!(delivery.json()["call"]["callId"], "oapi-one");
    let seen = wait_until(&server, "done", |seen| seen["queue"] == json!([])).await;
    assert_eq!(seen["attempts"][0]["status"], 204);
    assert!(!seen.to_string().contains(&secret), "keys are shown once");
    server.stop().await.expect("stops");
}

#[tokio::test]
async fn redirect_is_not_followed_and_the_event_is_dead() {
    let authority = Authority::new();
    let receiver = Receiver::start(&authority).await;
    let server = sandbox(&authority, |_| ()).await;
    subscribe(&server, &receiver.url()).await;
    receiver.answer(&[Answer::Redirect]);
    create_lead(&server).await;
    let seen = wait_until(&server, "dead", |seen| seen["dead"] != json!([])).await;
    assert_eq!(seen["attempts"][0]["status"], 302);
    let came = receiver.take_received().await;
    assert_eq!(came.len(), 1, "nobody asked for /elsewhere: {came:?}");
    server.stop().await.expect("stops");
}

#[tokio::test]
async fn moved_clock_brings_a_retry_forward_with_a_fresh_signature() {
    let authority = Authority::new();
    let receiver = Receiver::start(&authority).await;
    let server = sandbox(&authority, |_| ()).await;
    let secret = subscribe(&server, &receiver.url()).await;
    receiver.answer(&[Answer::Cut, Answer::Status(503)]);
    create_lead(&server).await;
    let first = receiver.next().await;
    wait_until(&server, "waits", |seen| seen["queue"][0]["attempts"] == 1).await;
    admin(&server, "clock", &json!({ "aheadSec": 31 })).await;
    let second = receiver.next().await;
    wait_until(&server, "waits again", |seen| {
        seen["queue"][0]["attempts"] == 2
    })
    .await;
    admin(&server, "clock", &json!({ "aheadSec": 400 })).await;
    let third = receiver.next().await;
    let machine: i64 = first
        .header("x-webhook-timestamp")
        .parse()
        .expect("seconds");
    for again in [&second, &third] {
        assert_eq!(again.body, first.body);
        assert_eq!(again.header("x-webhook-id"), first.header("x-webhook-id"));
        let at: i64 = again
            .header("x-webhook-timestamp")
            .parse()
            .expect("seconds");
        assert!(
            (machine..machine + 30).contains(&at),
            "of the machine's clock: {at}"
        );
        assert!(again.is_signed_with(&secret));
    }
    server.stop().await.expect("stops");
}

#[tokio::test]
async fn hanging_receiver_is_timeout_and_absent_receiver_is_error() {
    let authority = Authority::new();
    let receiver = Receiver::start(&authority).await;
    let server = sandbox(&authority, |_| ()).await;
    subscribe(&server, &receiver.url()).await;
    receiver.answer(&[Answer::Hang]);
    create_lead(&server).await;
    let seen = wait_until(&server, "timed out", |seen| seen["attempts"] != json!([])).await;
    assert_eq!(seen["attempts"][0]["error"], "timeout");
    assert!(
        seen["attempts"][0]["durationMs"].as_u64() >= Some(9_900),
        "{seen}"
    );
    // No process listens on port 1.
    subscribe_again(&server, "https://localhost:1/webhooks").await;
    create_lead(&server).await;
    let seen = wait_until(&server, "refused", |seen| {
        seen["attempts"][1] != Value::Null
    })
    .await;
    let attempt = &seen["attempts"][1];
    assert_eq!(
        (&attempt["status"], &seen["dead"]),
        (&Value::Null, &json!([])),
        "it is tried again"
    );
    assert!(
        attempt["error"]
            .as_str()
            .is_some_and(|words| words.contains("refused")),
        "{attempt}"
    );
    server.stop().await.expect("stops");
}

async fn subscribe_again(server: &Server, url: &str) {
    admin(server, "webhook", &json!({ "targetUrl": url })).await;
}

#[tokio::test]
async fn private_target_is_dead_without_an_attempt() {
    let authority = Authority::new();
    let receiver = Receiver::start(&authority).await;
    let server = sandbox(&authority, |config| config.settings.private_targets = false).await;
    let port = receiver.port;
    let targets = [
        format!("https://localhost:{port}/"),
        format!("https://127.0.0.1:{port}/"),
        format!("https://[::ffff:127.0.0.1]:{port}/"),
    ];
    for (number, url) in targets.iter().enumerate() {
        let config = json!({ "targetUrl": url, "events": ["LEAD"], "force": true });
        admin(&server, "webhook", &config).await;
        create_lead(&server).await;
        wait_until(&server, url, |seen| seen["counts"]["dead"] == number + 1).await;
    }
    let seen = webhooks(&server).await;
    assert_eq!(seen["dead"][2]["why"], "target private or internal");
    assert_eq!(seen["attempts"], json!([]), "no attempt was made");
    assert!(receiver.take_received().await.is_empty());
    server.stop().await.expect("stops");
}

#[tokio::test]
async fn undelivered_webhook_is_delivered_after_a_restart() {
    let authority = Authority::new();
    let receiver = Receiver::start(&authority).await;
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let server = sandbox(&authority, |config| config.state = Some(state.clone())).await;
    let secret = subscribe(&server, &receiver.url()).await;
    receiver.answer(&[Answer::Hang]);
    create_lead(&server).await;
    let first = receiver.next().await;
    server.stop().await.expect("stops");

    let server = sandbox(&authority, |config| config.state = Some(state.clone())).await;
    let again = receiver.next().await;
    assert_eq!(again.body, first.body, "the same event, to the letter");
    assert!(again.is_signed_with(&secret));
    wait_until(&server, "done", |seen| seen["counts"]["delivered"] == 1).await;
    server.stop().await.expect("stops");
}
