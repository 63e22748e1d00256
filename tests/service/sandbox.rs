//! Tests the sandbox over a real socket, as a client uses it.

use callbridge_model::{Code, ExitCode as _};
use callbridge_sandbox::oauth::Application;
use callbridge_sandbox::token::{Grant, TokenKey};
use callbridge_sandbox::{Action, Config, Endpoint, Rule, Server, ViolationKind, start};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

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
async fn submitted_call_is_confirmed_and_appears_in_the_journal() {
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
    assert_eq!(server.violations(), []);
    server.stop().await.expect("stops");
}

#[tokio::test]
async fn request_above_limit_is_answered_429_with_fixed_message() {
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
    assert_eq!(server.violations().len(), 1);
    assert_eq!(server.violations()[0].kind, ViolationKind::WindowExceeded);
    server.stop().await.expect("stops");
}

#[tokio::test]
async fn lost_answer_leaves_a_record_and_a_repeat_is_allowed() {
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
        server.violations(),
        [],
        "a repeat after a lost answer is no breach"
    );
    server.stop().await.expect("stops");
}

#[tokio::test]
async fn request_cut_before_its_effect_journals_no_call() {
    let cut = Rule::next(Endpoint::CallHistory, 1, Action::Cut);
    let server = server(|config| config.rules = vec![cut]).await;
    let body = call(&server, "one");
    post(&server, "/v1/open-api/call-history", &body)
        .await
        .expect_err("no answer");
    assert_eq!(server.journal().len(), 0);
    server.stop().await.expect("stops");
}

#[tokio::test]
async fn slow_answer_arrives_complete_and_broken_one_is_unreadable() {
    let slow = Rule::next(
        Endpoint::TokenInfo,
        1,
        Action::Slow(Duration::from_millis(80)),
    );
    let broken = Rule::next(Endpoint::CallHistory, 1, Action::Broken);
    let server = server(|config| config.rules = vec![slow, broken]).await;
    let begun = Instant::now();
    let (status, info) = get(&server, "/v1/open-api/token/info").await;
    assert_eq!((status, &info["accept"]), (200, &json!(true)));
    assert!(begun.elapsed() >= Duration::from_millis(80));
    let body = call(&server, "one");
    let error = post(&server, "/v1/open-api/call-history", &body)
        .await
        .expect_err("no JSON");
    assert!(error.is_decode(), "{error:?}");
    server.stop().await.expect("stops");
}

#[tokio::test]
async fn stop_does_not_wait_for_a_delayed_answer() {
    let delayed = Action::Delay(Duration::from_secs(3_600));
    let server = server(|config| {
        config.rules = vec![Rule::always(Endpoint::CallHistory, delayed)];
    })
    .await;
    let (url, body) = (server.url(), call(&server, "one"));
    let first_request = tokio::spawn(async move {
        let request = client()
            .post(format!("{url}/v1/open-api/call-history"))
            .json(&body);
        request.header("X-Open-Api-Token", TOKEN).send().await
    });
    let accepted = async {
        let mut look = tokio::time::interval(Duration::from_millis(5));
        while server.journal().is_empty() {
            look.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), accepted)
        .await
        .expect("the call came in");
    let stopped = tokio::time::timeout(Duration::from_secs(20), server.stop()).await;
    stopped.expect("in time").expect("stops");
    first_request
        .await
        .expect("joined")
        .expect_err("the connection was closed");
}

/// The members of the CRM's answer after authentication (§2.1).
const ENVELOPE: [&str; 6] = ["accept", "data", "error", "errors", "message", "requestId"];
/// The members of an answer of the authentication layer (§7.1).
const AUTH_ENVELOPE: [&str; 4] = ["accept", "data", "errors", "message"];

/// Checks the HTTP status of a refused request, and that its JSON body has exactly `members`.
async fn check_error(answer: reqwest::Response, status: u16, members: &[&str]) {
    assert_eq!(answer.status().as_u16(), status);
    assert_eq!(answer.headers()["content-type"], "application/json");
    let body: Value = answer.json().await.expect("JSON");
    let object = body.as_object().expect("an object");
    let mut found: Vec<&str> = object.keys().map(String::as_str).collect();
    found.sort_unstable();
    assert_eq!(found, members, "{status}: {body}");
    assert_eq!(body["accept"], json!(false), "{status}: {body}");
    assert_eq!(body["data"], Value::Null, "{status}: {body}");
}

#[tokio::test]
async fn invalid_http_requests_get_their_status_and_envelope() {
    let server = server(|_| ()).await;
    let url = format!("{}/v1/open-api/call-history", server.url());
    let client = client();
    let plain = send_with_token(client.post(&url).body("{}")).await;
    check_error(plain, 415, &ENVELOPE).await;
    let large = send_with_token(client.post(&url).json(&"n".repeat(100_000))).await;
    check_error(large, 413, &ENVELOPE).await;
    let deleted = send_with_token(client.delete(&url)).await;
    check_error(deleted, 405, &ENVELOPE).await;
    let bearer = client
        .get(&url)
        .bearer_auth(TOKEN)
        .send()
        .await
        .expect("an answer");
    check_error(bearer, 401, &AUTH_ENVELOPE).await;
    let (_, counts) = get(&server, "/sandbox/requests").await;
    assert_eq!(
        counts["fullest"]["inAWindow"],
        json!(3),
        "the 401 is not counted"
    );
    server.stop().await.expect("stops");
}

async fn send_with_token(request: reqwest::RequestBuilder) -> reqwest::Response {
    let request = request.header("X-Open-Api-Token", TOKEN);
    request.send().await.expect("an answer")
}

/// §7.7: no answer tells a client how long to wait.
#[tokio::test]
async fn answer_of_any_status_has_no_limit_or_retry_header() {
    let server = server(|config| config.settings.rate.requests = 12).await;
    let url = format!("{}/v1/open-api", server.url());
    let mut seen = std::collections::BTreeSet::new();
    for text in ["500", "503", "403", "409", "429", "406"] {
        let fault = format!("token-info status {text}");
        let (rules, _) = callbridge_sandbox::faults::parse(&fault).expect("a fault");
        server.admin(|core, _| core.set_faults(rules));
        seen.insert(check_headers(&ask(&url, "token/info", TOKEN).await));
    }
    let (rules, _) = callbridge_sandbox::faults::parse("token-info gateway 502").expect("a fault");
    server.admin(|core, _| core.set_faults(rules));
    seen.insert(check_headers(&ask(&url, "token/info", TOKEN).await));
    server.admin(|core, _| core.set_faults(Vec::new()));
    seen.insert(check_headers(
        &ask(&url, "token/info", "svc_pat_none").await,
    ));
    seen.insert(check_headers(&ask(&url, "request/none", TOKEN).await));
    let body = json!({});
    let refused = client().post(format!("{url}/call-history")).json(&body);
    let refused = refused.header("X-Open-Api-Token", TOKEN).send().await;
    seen.insert(check_headers(&refused.expect("an answer")));
    for _ in 0..6 {
        seen.insert(check_headers(&ask(&url, "token/info", TOKEN).await));
    }
    let all = [200, 400, 401, 403, 404, 406, 409, 429, 500, 502, 503];
    assert_eq!(seen, all.into());
    let exceeded = server
        .violations()
        .iter()
        .any(|violation| violation.kind == ViolationKind::WindowExceeded);
    assert!(exceeded, "a 429 of the window, too");
    server.stop().await.expect("stops");
}

/// Sends a GET request for `path` below `url` with this token. Returns the answer.
async fn ask(url: &str, path: &str, token: &str) -> reqwest::Response {
    let request = client().get(format!("{url}/{path}"));
    let request = request.header("X-Open-Api-Token", token);
    request.send().await.expect("an answer")
}

/// Checks that no header of the answer is about waiting or a limit. Returns the HTTP status.
fn check_headers(answer: &reqwest::Response) -> u16 {
    for name in answer.headers().keys() {
        let name = name.as_str();
        let is_hint = name == "retry-after" || name.contains("rate") || name.contains("limit");
        assert!(!is_hint, "{} has {name}", answer.status());
    }
    answer.status().as_u16()
}

/// Posts `body` to `/sandbox/admin/{path}`. Returns the answer.
async fn administer(server: &Server, path: &str, body: &Value) -> reqwest::Response {
    let url = format!("{}/sandbox/admin/{path}", server.url());
    let request = client().post(url).json(body);
    request.send().await.expect("an answer")
}

#[tokio::test]
async fn admin_adds_leads_replaces_token_and_blocks_company() {
    let server = server(|_| ()).await;
    let mut body = call(&server, "one");
    body["leadId"] = json!(777_777);
    post(&server, "/v1/open-api/call-history", &body)
        .await
        .expect("an answer");
    assert_eq!(server.journal().len(), 0, "an unknown lead");
    let added = administer(&server, "leads", &json!({ "add": [777_777] })).await;
    assert_eq!(added.status().as_u16(), 200);
    post(&server, "/v1/open-api/call-history", &body)
        .await
        .expect("an answer");
    assert_eq!(server.journal().len(), 1);
    assert_eq!(server.violations(), [], "sent again after FAILED");
    let (_, writes) = get(&server, "/sandbox/writes").await;
    let mut states: Vec<&str> = (writes.as_object().expect("by id").values())
        .filter_map(|write| write["status"].as_str())
        .collect();
    states.sort_unstable();
    assert_eq!(states, ["FAILED", "SUCCESS"]);

    administer(&server, "company", &json!({ "blocked": true })).await;
    assert_eq!(get(&server, "/v1/open-api/token/info").await.0, 401);
    administer(&server, "company", &json!({ "blocked": false })).await;
    assert_eq!(get(&server, "/v1/open-api/token/info").await.0, 200);
    let issued = administer(&server, "token", &json!({})).await;
    let issued: Value = issued.json().await.expect("JSON");
    assert_eq!(
        get(&server, "/v1/open-api/token/info").await.0,
        401,
        "replaced"
    );
    let value = issued["token"].as_str().expect("shown once").to_owned();
    assert!(server.admin(|core, now| core.token_works(now, &value)));
    let unknown = administer(&server, "nothing", &json!({})).await;
    assert_eq!(unknown.status().as_u16(), 404);
    let wrong = administer(&server, "leads", &json!({ "add": "x" })).await;
    assert_eq!(wrong.status().as_u16(), 400);
    server.stop().await.expect("stops");
}

#[tokio::test]
async fn restart_keeps_journal_breaches_window_and_administration() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sandbox.json");
    let first = server(|config| keep_state_and_limit_rate(config, &path)).await;
    let held = start(Config {
        state: Some(path.clone()),
        ..Config::default()
    })
    .await;
    let held = held.err().map(|error| error.exit_code());
    assert_eq!(held, Some(Code::Locked), "one process per file");
    first.admin(|core, now| core.company(now, |company| company.leads.add(777_777)));
    let mut body = call(&first, "one");
    post(&first, "/v1/open-api/call-history", &body)
        .await
        .expect("an answer");
    post(&first, "/v1/open-api/call-history", &body)
        .await
        .expect("an answer");
    body["uuid"] = json!("two");
    body["leadId"] = json!(777_777);
    let (_, answer) = post(&first, "/v1/open-api/call-history", &body)
        .await
        .expect("an answer");
    let (journal, breaches) = (first.journal(), first.violations());
    first.stop().await.expect("stops");
    assert_eq!((journal.len(), breaches.len()), (2, 1));

    // A file that was partly written when the machine stopped.
    let half = folder.path().join("sandbox.json.new");
    std::fs::write(&half, "{\"companies\":").expect("written");
    let second = server(|config| keep_state_and_limit_rate(config, &path)).await;
    assert_eq!((second.journal(), second.violations()), (journal, breaches));
    let id = answer["requestId"].as_str().expect("a requestId");
    let (_, status) = get(&second, &format!("/v1/open-api/request/{id}")).await;
    assert_eq!(status["data"]["status"], json!("SUCCESS"));
    assert_eq!(
        get(&second, "/v1/open-api/token/info").await.0,
        429,
        "the window is still open"
    );
    assert!(
        !std::fs::read_to_string(&path)
            .expect("text")
            .contains(TOKEN),
        "no token in clear"
    );
    let mode = std::fs::metadata(&path)
        .expect("the file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    second.stop().await.expect("stops");
}

/// Makes the sandbox keep its state in this file, and accept four requests per window.
fn keep_state_and_limit_rate(config: &mut Config, state: &Path) {
    config.state = Some(state.to_owned());
    config.settings.rate.requests = 4;
}

#[tokio::test]
async fn damaged_state_file_is_refused_with_its_line_and_unchanged() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sandbox.json");
    std::fs::write(&path, "no JSON\n").expect("written");
    let refused = start(Config {
        state: Some(path.clone()),
        ..Config::default()
    })
    .await;
    let Err(error) = refused else {
        panic!("it started")
    };
    assert_eq!(error.exit_code(), Code::Configuration);
    assert!(error.to_string().contains("line 1"), "{error}");
    assert_eq!(
        std::fs::read_to_string(&path).expect("still there"),
        "no JSON\n"
    );
}

const BACK: &str = "http://127.0.0.1:9/back";

fn public_application() -> Application {
    Application {
        id: 2,
        secret: TokenKey::from_value("svc_sec_1"),
        redirect_uris: vec![BACK.to_owned()],
        allowed: Grant::parse("PERMISSION_OPEN_API_CALL:SAVE")
            .into_iter()
            .collect(),
        ..Application::new("svc_app_1".to_owned())
    }
}

async fn post_form(url: String, body: String) -> reqwest::Response {
    let form = "application/x-www-form-urlencoded";
    let request = client().post(url).header("Content-Type", form).body(body);
    request.send().await.expect("an answer")
}

/// Opens the authorization page, approves, and returns the code from the redirect.
async fn approve(server: &Server) -> String {
    let consent = format!(
        "{}/consent?response_type=code&client_id=svc_app_1&redirect_uri={BACK}\
         &scope=PERMISSION_OPEN_API_CALL:SAVE&state=s%201",
        server.url()
    );
    let page = client().get(&consent).send().await.expect("the page");
    assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
    let back = post_form(consent, "decision=approve".to_owned()).await;
    assert_eq!(back.status(), 302);
    let location = back.headers()["location"].to_str().expect("an address");
    let (to, query) = location.split_once("?code=").expect("a code");
    let (code, state) = query.split_once("&state=").expect("the state");
    assert_eq!((to, state), (BACK, "s+1"));
    code.to_owned()
}

#[tokio::test]
async fn consent_token_and_revocation_work_at_auth_address() {
    let server = server(|config| {
        config.auth_listen = Some(config.listen);
        config.settings.application = Some(public_application());
    })
    .await;
    let code = approve(&server).await;
    let path = "/v1/open-api/oauth/token";
    let body = format!(
        "grant_type=authorization_code&code={code}&redirect_uri={BACK}&client_id=svc_app_1\
         &client_secret=svc_sec_1"
    );
    let elsewhere = post_form(format!("{}{path}", server.url()), body.clone()).await;
    assert_eq!(elsewhere.status(), 404);
    let response = post_form(format!("{}{path}", server.auth_url()), body).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["cache-control"], "no-store");
    let tokens: Value = response.json().await.expect("JSON");
    let access = tokens["access_token"].as_str().expect("a token");
    let api = format!("{}/v1/open-api", server.url());
    assert_eq!(ask(&api, "token/info", access).await.status(), 200);
    let refresh = tokens["refresh_token"].as_str().expect("a token");
    let body = format!("token={refresh}&client_id=svc_app_1&client_secret=svc_sec_1");
    let url = format!("{}/v1/open-api/oauth/revoke", server.auth_url());
    assert_eq!(post_form(url, body).await.status(), 200);
    assert_eq!(ask(&api, "token/info", access).await.status(), 401);
    let kinds: Vec<ViolationKind> = server
        .violations()
        .iter()
        .map(|breach| breach.kind)
        .collect();
    assert_eq!(kinds, [ViolationKind::WrongHost]);
    server.stop().await.expect("both listeners end");
}

#[tokio::test]
async fn restart_keeps_leads_accepted_writes_and_a_moved_clock() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sandbox.json");
    let first = server(|config| keep_state_and_grant_leads(config, &path)).await;
    let ali = json!({ "id": 5001, "name": "Ali", "phone": "+998901112233" });
    assert_eq!(administer(&first, "lead", &ali).await.status(), 200);
    let merge = json!({ "into": 5001, "from": [4001] });
    assert_eq!(administer(&first, "lead/merge", &merge).await.status(), 200);
    let items = json!([{ "id": 11, "value": "an hour later" }]);
    let (status, _) = post(&first, "/v1/open-api/lead/5001/field/list", &items)
        .await
        .expect("an answer");
    assert_eq!(status, 200);
    let moved = administer(&first, "clock", &json!({ "aheadSec": 600 })).await;
    assert_eq!(moved.status(), 200);
    let before = first.admin(|_, now| now);
    first.stop().await.expect("stops");

    let second = server(|config| keep_state_and_grant_leads(config, &path)).await;
    assert!(
        second.admin(|_, now| now) >= before,
        "time does not go back"
    );
    let (status, lead) = get(&second, "/v1/open-api/lead/5001").await;
    let seen = (status, &lead["data"]["phone"], &lead["data"]["fields"]);
    assert_eq!(seen, (200, &json!("+998901112233"), &json!([])));
    assert_eq!(get(&second, "/v1/open-api/lead/4001").await.0, 409);
    let moved = administer(&second, "clock", &json!({ "aheadSec": 7_200 })).await;
    assert_eq!(moved.status(), 200);
    let (_, lead) = get(&second, "/v1/open-api/lead/5001").await;
    assert_eq!(
        lead["data"]["fields"],
        json!([{ "id": 11, "value": "an hour later" }])
    );
    second.stop().await.expect("stops");
}

/// Makes the sandbox keep its state in this file and apply accepted writes after an hour. Grants
/// the rights to write and to read leads.
fn keep_state_and_grant_leads(config: &mut Config, state: &Path) {
    config.state = Some(state.to_owned());
    config.settings.persist_after = Duration::from_secs(3_600);
    let grants = ["LEAD:SAVE", "LEAD:READ"].map(|scope| {
        let grant = format!("PERMISSION_OPEN_API_{scope}");
        Grant::parse(&grant).expect("a grant")
    });
    config.settings.company.grants.extend(grants);
}
