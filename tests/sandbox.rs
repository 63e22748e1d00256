//! The sandbox over a real socket, as a client meets it.

use callbridge::sandbox::{Action, Config, Endpoint, Kind, Rule, Server, start};
use serde_json::{Value, json};
use std::time::Duration;

const TOKEN: &str = "svc_pat_sandbox";

fn client() -> reqwest::Client {
    // Whoever comes second finds it installed, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .no_proxy()
        .tls_certs_only([])
        .build()
        .expect("a client")
}

async fn server(change: impl FnOnce(&mut Config)) -> Server {
    let mut config = Config::default();
    config.settings.persist_after = Duration::ZERO;
    config.settings.persist_jitter = Duration::ZERO;
    change(&mut config);
    start(config).await.expect("starts")
}

fn call(server: &Server, uuid: &str) -> Value {
    let now = server.admin(|_, now| now.floor_seconds().get());
    json!({
        "leadId": 4001, "employeeId": 501, "uuid": uuid, "startedAt": now - 60,
        "durationSec": 50, "talkTimeSec": 40, "answered": true, "direction": "INBOUND",
    })
}

async fn post(server: &Server, path: &str, body: &Value) -> Result<(u16, Value), reqwest::Error> {
    let request = client().post(format!("{}{path}", server.url())).json(body);
    let answer = request.header("X-Open-Api-Token", TOKEN).send().await?;
    Ok((answer.status().as_u16(), answer.json().await?))
}

async fn get(server: &Server, path: &str) -> (u16, Value) {
    let request = client().get(format!("{}{path}", server.url()));
    let answer = request
        .header("X-Open-Api-Token", TOKEN)
        .send()
        .await
        .expect("an answer");
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

#[tokio::test]
async fn a_call_goes_in_is_confirmed_and_stands_in_the_journal() {
    let server = server(|_| ()).await;
    let (status, info) = get(&server, "/v1/open-api/token/info").await;
    assert_eq!((status, &info["data"]["kind"]), (200, &json!("PAT")));
    let body = call(&server, "one");
    let (status, answer) = post(&server, "/v1/open-api/call-history", &body)
        .await
        .expect("answer");
    assert_eq!(
        (status, &answer["data"], &answer["accept"]),
        (200, &Value::Null, &json!(true))
    );
    let id = answer["requestId"]
        .as_str()
        .expect("a requestId")
        .to_owned();
    let (status, answer) = get(&server, &format!("/v1/open-api/request/{id}")).await;
    assert_eq!(
        (status, &answer["data"]["status"]),
        (200, &json!("SUCCESS"))
    );
    let page = json!({ "page": 1, "size": 100 });
    let (_, answer) = post(&server, "/v1/open-api/call-history/filter", &page)
        .await
        .expect("answer");
    assert_eq!(answer["data"]["content"][0]["uuid"], json!("oapi-one"));
    let (_, journal) = get(&server, "/sandbox/journal").await;
    assert_eq!(journal[0]["sentUuid"], json!("one"));
    assert_eq!(
        journal[0]["endedAt"],
        json!(body["startedAt"].as_i64().expect("number") + 50)
    );
    assert_eq!(server.breaches(), []);
    server.stop().await.expect("stops");
}

#[tokio::test]
async fn the_request_above_the_limit_is_answered_429_in_the_fixed_words() {
    let server = server(|config| config.settings.rate.requests = 3).await;
    for _ in 0..3 {
        assert_eq!(get(&server, "/v1/open-api/token/info").await.0, 200);
    }
    let (status, body) = get(&server, "/v1/open-api/token/info").await;
    let expected = json!({
        "message": "Rate limit exceeded. Max 60 requests per minute.",
        "accept": false, "errors": null, "data": null,
    });
    assert_eq!((status, body), (429, expected));
    assert_eq!(server.breaches().len(), 1);
    assert_eq!(server.breaches()[0].kind, Kind::WindowExceeded);
    server.stop().await.expect("stops");
}

#[tokio::test]
async fn an_answer_lost_after_the_effect_leaves_a_record_and_no_byte() {
    let lost = Rule::next(Endpoint::CallHistory, 1, Action::Lost);
    let server = server(|config| config.rules = vec![lost]).await;
    let body = call(&server, "one");
    let error = post(&server, "/v1/open-api/call-history", &body)
        .await
        .expect_err("no answer");
    assert!(error.is_request(), "{error:?}");
    assert_eq!(server.journal().len(), 1);
    let (status, _) = post(&server, "/v1/open-api/call-history", &body)
        .await
        .expect("answer");
    assert_eq!((status, server.journal().len()), (200, 1));
    assert_eq!(
        server.breaches(),
        [],
        "a repeat after a lost answer is no breach"
    );
    server.stop().await.expect("stops");
}
