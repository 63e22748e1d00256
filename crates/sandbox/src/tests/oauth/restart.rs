//! Tests of restarts, of the paths below `/sandbox`, and that no secret is printed.

use super::super::{INFO, NOW, has_fields, now_plus, restart_sandbox, sandbox};
use super::{
    BACK, CLIENT, ID, READ, SAVE, application, approve, connect, exchange, pair, refresh,
    sandbox_with_application, token_info_status,
};
use crate::oauth::connection;
use crate::{Request, Sandbox};
use proptest::prelude::*;
use serde_json::{Value, json};

fn post(core: &mut Sandbox, act: &str, body: &Value) -> (u16, Value) {
    let path = format!("/sandbox/admin/oauth/{act}");
    let answer = core.handle(NOW, &Request::post(&path, body));
    (answer.status, answer.value())
}

#[test]
fn restart_keeps_codes_tokens_grants_and_disconnects() {
    let mut core = sandbox();
    connection::register(&mut core, application());
    let (first, one) = connect(&mut core, NOW);
    let (second, two) = pair(&core.handle(now_plus(1), &refresh(&one)));
    let code = approve(&mut core, now_plus(2));
    connection::set_grants(&mut core, ID, 1, vec![super::grant(READ)]);

    let mut core = restart_sandbox(&core);
    assert_eq!(
        core.handle(now_plus(4), &refresh(&one)).status,
        400,
        "used before"
    );
    for token in [&first, &second] {
        assert_eq!(token_info_status(&mut core, now_plus(5), token), 200);
    }
    let info = Request::get(INFO).with_token(&first);
    let reply = core.handle(now_plus(5), &info).value();
    assert_eq!(reply["data"]["permissions"][0]["scope"], "READ");
    let (third, three) = pair(&core.handle(now_plus(6), &refresh(&two)));
    assert!(![&first, &second].contains(&&third), "no value comes twice");
    assert_eq!(core.handle(now_plus(7), &exchange(&code)).status, 200);

    let mut core = restart_sandbox(&core);
    assert_eq!(core.handle(now_plus(8), &exchange(&code)).status, 400);
    assert!(connection::disconnect(&mut core, ID, 1));
    let mut core = restart_sandbox(&core);
    assert_eq!(token_info_status(&mut core, now_plus(10), &third), 401);
    assert_eq!(core.handle(now_plus(11), &refresh(&three)).status, 400);
    let text = serde_json::to_string(&core).expect("JSON");
    for value in [&first, &second, &third, &one, &two, &three, &code] {
        assert!(
            !text.contains(value.as_str()),
            "a token's value in the state file"
        );
    }
}

#[test]
fn flag_application_resets_only_when_flags_change() {
    let mut core = sandbox();
    core.settings.application = Some(application());
    core.begin(NOW, super::super::TOKEN, None);
    let mut suspended = application();
    suspended.suspended = true;
    connection::register(&mut core, suspended);
    core.begin(now_plus(1), super::super::TOKEN, None);
    assert!(core.oauth.client(CLIENT).expect("known").suspended);
    let mut other = application();
    other.name = "renamed".to_owned();
    core.settings.application = Some(other);
    core.begin(now_plus(2), super::super::TOKEN, None);
    assert!(!core.oauth.client(CLIENT).expect("known").suspended);
}

#[test]
fn registered_application_can_change_and_shows_secret_once() {
    let mut core = sandbox();
    let new = json!({ "redirectUris": [BACK], "grants": [SAVE, READ], "embedded": true });
    let (status, reply) = post(&mut core, "application", &new);
    assert_eq!(status, 200, "{reply}");
    let client_id = reply["clientId"].as_str().expect("an id").to_owned();
    assert!(client_id.starts_with("svc_app_"));
    assert!(
        reply["clientSecret"]
            .as_str()
            .expect("a secret")
            .starts_with("svc_sec_")
    );
    let change = json!({ "clientId": client_id, "suspended": true });
    assert_eq!(
        post(&mut core, "application", &change).1,
        json!({ "clientId": client_id })
    );
    let seen = core.handle(NOW, &Request::get("/sandbox/oauth")).value();
    let expected = json!({ "clientId": client_id, "suspended": true, "redirectUris": [BACK] });
    assert!(has_fields(&seen["applications"][0], &expected), "{seen}");
    for wrong in [
        "javascript:alert(1)",
        "http://example.com/",
        "/back",
        "https://a.example/#x",
    ] {
        let body = json!({ "redirectUris": [wrong] });
        assert_eq!(post(&mut core, "application", &body).0, 400, "{wrong}");
    }
    assert_eq!(post(&mut core, "nothing", &json!({})).0, 404);
}

#[test]
fn admin_paths_approve_narrow_revoke_and_disconnect() {
    let mut core = sandbox_with_application();
    let save = Some(vec![super::grant(SAVE)]);
    let issued = connection::issue_pair(&mut core, NOW, ID, 2, save);
    let (access, token) = issued.expect("a pair");
    assert_eq!(token_info_status(&mut core, NOW, &access), 200);
    let narrowed = json!({ "company": 2, "grants": [READ] });
    assert_eq!(post(&mut core, "grants", &narrowed).0, 200);
    assert_eq!(
        post(&mut core, "grants", &json!({ "company": 9, "grants": [] })).0,
        400
    );
    let (newer, last) = pair(&core.handle(NOW, &refresh(&token)));
    assert_eq!(post(&mut core, "revoke", &json!({ "company": 2 })).0, 200);
    for token in [&access, &newer] {
        assert_eq!(token_info_status(&mut core, NOW, token), 401);
    }
    assert_eq!(core.handle(NOW, &refresh(&last)).status, 400);
    let (_, reply) = post(&mut core, "approve", &json!({ "scope": SAVE }));
    let code = reply["code"].as_str().expect("a code");
    let (access, _) = pair(&core.handle(NOW, &exchange(code)));
    assert_eq!(post(&mut core, "disconnect", &json!({})).0, 200);
    assert_eq!(token_info_status(&mut core, NOW, &access), 401);
    assert_eq!(
        post(&mut core, "disconnect", &json!({})).0,
        400,
        "not twice"
    );
}

#[test]
fn overview_counts_connections_and_shows_refusals() {
    let mut core = sandbox_with_application();
    let (_, one) = connect(&mut core, NOW);
    core.handle(NOW, &refresh(&one));
    core.handle(NOW, &refresh(&one));
    let seen = core.handle(NOW, &Request::get("/sandbox/oauth")).value();
    let expected = json!({
        "application": ID, "company": 1, "grants": [SAVE, READ], "disconnected": false,
        "accessTokens": { "working": 2 },
        "refreshTokens": {
            "working": 1, "used": 1, "revoked": 0, "expired": 0,
        },
    });
    assert!(has_fields(&seen["connections"][0], &expected), "{seen}");
    assert_eq!(seen["refused"][0]["code"], 6906);
}

#[test]
fn debug_text_of_the_core_contains_no_secret() {
    let mut core = sandbox_with_application();
    let code = approve(&mut core, NOW);
    let request = exchange(&code);
    let answer = core.handle(NOW, &request);
    let (access, token) = pair(&answer);
    let key = answer.value()["webhook_secret"]
        .as_str()
        .expect("a key")
        .to_owned();
    let text = format!("{core:?} {request:?}");
    for value in [&code, &access, &token, &key, &super::SECRET.to_owned()] {
        assert!(!text.contains(value.as_str()));
    }
}

proptest! {
    #[test]
    fn arbitrary_oauth_input_gets_documented_answer(
        fields in prop::collection::vec(
            (prop::sample::select(vec![
                "grant_type", "code", "refresh_token", "token", "client_id", "client_secret",
                "redirect_uri", "other",
            ]), prop_oneof![
                prop::sample::select(vec![
                    "authorization_code", "refresh_token", CLIENT, super::SECRET, BACK, "",
                ]).prop_map(str::to_owned),
                ".{0,20}",
            ]), 0..9),
        revoke in any::<bool>(),
        bytes in prop::option::of(prop::collection::vec(any::<u8>(), 0..60)),
    ) {
        let mut core = sandbox_with_application();
        let path = if revoke { super::REVOKE_PATH } else { super::TOKEN_PATH };
        let pairs: Vec<(&str, &str)> = fields.iter().map(|(n, v)| (*n, v.as_str())).collect();
        let mut request = super::form(path, &pairs);
        if let Some(bytes) = bytes {
            request.body = bytes;
        }
        let answer = core.handle(NOW, &request);
        match answer.status {
            200 => prop_assert!(revoke, "nothing here is a code or a token"),
            400 | 401 => {
                prop_assert!(super::is_refusal(&answer, answer.status));
                let unknown = super::codes(&core) == [6905];
                prop_assert_eq!(answer.status == 401, unknown);
            }
            other => prop_assert!(false, "{}", other),
        }
    }
}
