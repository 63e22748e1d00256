//! Tests of codes: the answer of the exchange, and its refusals (§3.1, §4.1, §4.1.1, §5.6, §7.6).

use super::super::{NOW, has_fields, keys, kinds, now_plus, sandbox};
use super::{
    BACK, CLIENT, Refused, SECRET, TOKEN_PATH, application, approve, codes, connect, exchange,
    exchange_with, form, is_refusal, pair, sandbox_with_application, token_info_status,
};
use crate::oauth::connection;
use crate::token::TokenKey;
use crate::{Action, Endpoint, Request, Rule, Sandbox, ViolationKind};
use serde_json::{Value, json};

#[test]
fn code_exchange_returns_a_pair_without_an_envelope() {
    let mut core = sandbox_with_application();
    let code = approve(&mut core, NOW);
    let answer = core.handle(NOW, &exchange(&code));
    let reply = answer.value();
    let expected = json!({
        "token_type": "Bearer", "expires_in": 3600,
        "scope": "PERMISSION_OPEN_API_CALL:SAVE PERMISSION_OPEN_API_CALL:READ",
    });
    assert!(
        answer.status == 200 && has_fields(&reply, &expected),
        "{reply}"
    );
    assert_eq!(
        keys(&answer),
        [
            "access_token",
            "embedded_secret",
            "expires_in",
            "refresh_token",
            "scope",
            "token_type",
            "webhook_secret"
        ]
    );
    let (access, refresh) = pair(&answer);
    assert!(access.starts_with("svc_at_") && refresh.starts_with("svcrt_"));
    assert_eq!(token_info_status(&mut core, NOW, &access), 200);
    assert_eq!(kinds(&core), []);
}

#[test]
fn signing_keys_are_64_hex_digits_and_need_configuration() {
    let mut core = sandbox_with_application();
    let code = approve(&mut core, NOW);
    let reply = core.handle(NOW, &exchange(&code)).value();
    for name in ["webhook_secret", "embedded_secret"] {
        let secret = reply[name].as_str().expect("a secret");
        assert_eq!(secret.len(), 64, "{secret}");
        assert!(
            secret
                .chars()
                .all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c)),
            "{secret}"
        );
    }
    assert_ne!(reply["webhook_secret"], reply["embedded_secret"]);
    let mut core = sandbox();
    let mut bare = application();
    bare.embedded = false;
    connection::register(&mut core, bare);
    let code = approve(&mut core, NOW);
    let reply = core.handle(NOW, &exchange(&code)).value();
    assert!(reply.get("webhook_secret").is_none() && reply.get("embedded_secret").is_none());
}

/// Connects at this second, and returns the secret for webhooks in the answer of the exchange.
fn exchanged_webhook_secret(core: &mut Sandbox, second: u64) -> Option<Value> {
    let code = approve(core, now_plus(second));
    let reply = core.handle(now_plus(second), &exchange(&code)).value();
    reply.get("webhook_secret").cloned()
}

#[test]
fn signing_keys_come_only_in_first_exchange_of_connection() {
    let mut core = sandbox_with_application();
    let first = exchanged_webhook_secret(&mut core, 0).expect("the first");
    assert_eq!(
        exchanged_webhook_secret(&mut core, 1),
        None,
        "connected again"
    );
    assert!(connection::disconnect(&mut core, super::ID, 1));
    let third = exchanged_webhook_secret(&mut core, 3).expect("a new installation");
    assert_ne!(third, first);
}

#[test]
fn code_works_once() {
    let mut core = sandbox_with_application();
    let code = approve(&mut core, NOW);
    let first = core.handle(NOW, &exchange(&code));
    let second = core.handle(now_plus(1), &exchange(&code));
    assert!(is_refusal(&second, 400), "{}", second.value());
    assert_eq!(
        (codes(&core), kinds(&core)),
        (vec![6906], vec![ViolationKind::CodeReused])
    );
    let (access, _) = pair(&first);
    assert_eq!(
        token_info_status(&mut core, now_plus(2), &access),
        200,
        "the first pair stays"
    );
}

#[test]
fn code_lives_ten_minutes() {
    let mut core = sandbox_with_application();
    let code = approve(&mut core, NOW);
    assert_eq!(
        core.clone().handle(now_plus(599), &exchange(&code)).status,
        200
    );
    let late = core.handle(now_plus(600), &exchange(&code));
    assert!(is_refusal(&late, 400));
    assert_eq!((codes(&core), kinds(&core)), (vec![6906], vec![]));
}

#[test]
fn refused_exchange_does_not_use_the_code_up() {
    let mut core = sandbox_with_application();
    let code = approve(&mut core, NOW);
    let wrong = [
        exchange_with(&code, &[("redirect_uri", "http://127.0.0.1:9/back/")]),
        exchange_with(&code, &[("client_secret", "svc_sec_other")]),
        exchange_with(&code, &[("grant_type", "password")]),
    ];
    for request in &wrong {
        assert!(core.handle(NOW, request).status >= 400);
    }
    assert_eq!(codes(&core), [6906, 6905, 6909]);
    assert_eq!(core.handle(NOW, &exchange(&code)).status, 200);
}

#[test]
fn code_works_only_for_its_application() {
    let mut core = sandbox_with_application();
    let mut other = application();
    other.id = 3;
    other.client_id = "svc_app_other".to_owned();
    other.secret = TokenKey::from_value("svc_sec_other");
    connection::register(&mut core, other);
    let code = approve(&mut core, NOW);
    let foreign = [
        ("client_id", "svc_app_other"),
        ("client_secret", "svc_sec_other"),
    ];
    let answer = core.handle(NOW, &exchange_with(&code, &foreign));
    assert!(is_refusal(&answer, 400));
    assert_eq!(codes(&core), [6906]);
}

#[test]
fn token_refusal_has_status_and_shows_code_only_in_log() {
    let table: [Refused; 12] = [
        (&[("client_id", "")], 400, 6907),
        (&[("client_id", "svc_app_none")], 401, 6905),
        (&[("client_secret", "")], 401, 6905),
        (&[("client_secret", "svc_sec_wrong")], 401, 6905),
        (&[("client_secret", "SVC_SEC_FIRST")], 401, 6905),
        (&[("grant_type", "")], 400, 6909),
        (&[("grant_type", "client_credentials")], 400, 6909),
        (&[("grant_type", "refresh_token")], 400, 6907),
        (&[("code", "")], 400, 6907),
        (&[("code", "svc_ac_none")], 400, 6906),
        (&[("redirect_uri", "")], 400, 6907),
        (
            &[("redirect_uri", "https://app.example/back?a=1")],
            400,
            6906,
        ),
    ];
    for (other, status, code) in table {
        let mut core = sandbox_with_application();
        let good = approve(&mut core, NOW);
        let answer = core.handle(NOW, &exchange_with(&good, other));
        assert!(
            is_refusal(&answer, status),
            "{other:?}: {} {}",
            answer.status,
            answer.value()
        );
        assert_eq!(codes(&core), [code], "{other:?}");
        let text = answer.value().to_string();
        assert!(!text.contains(&code.to_string()), "{text}");
    }
}

#[test]
fn token_request_must_be_a_form_without_repeated_fields() {
    let mut core = sandbox_with_application();
    let code = approve(&mut core, NOW);
    let good = String::from_utf8(exchange(&code).body).expect("a form");
    let json = json!({
        "grant_type": "authorization_code", "code": code, "redirect_uri": BACK,
        "client_id": CLIENT, "client_secret": SECRET,
    });
    let bare = Request::post_bytes(TOKEN_PATH, good.clone());
    let form = "application/x-www-form-urlencoded";
    let wrong = [
        (Request::post(TOKEN_PATH, &json), ViolationKind::ContentType),
        (bare.clone(), ViolationKind::ContentType),
        (
            bare.clone()
                .with_header("content-type", &format!("{form}; charset=latin1")),
            ViolationKind::ContentType,
        ),
        (
            Request::post_bytes(TOKEN_PATH, format!("{good}&client_id={CLIENT}"))
                .with_header("content-type", form),
            ViolationKind::Invalid,
        ),
    ];
    for (request, kind) in wrong {
        let mut core = core.clone();
        let answer = core.handle(NOW, &request);
        assert!(is_refusal(&answer, 400), "{}", answer.value());
        assert_eq!(kinds(&core)[0], kind);
        assert_eq!(codes(&core), [6907]);
    }
    let right = bare.with_header("content-type", &format!("{form}; charset=UTF-8"));
    assert_eq!(core.handle(NOW, &right).status, 200);
}

#[test]
fn oauth_endpoints_need_no_token_and_count_in_no_window() {
    let mut core = sandbox_with_application();
    for second in 0..70 {
        let answer = core.handle(now_plus(second), &form(TOKEN_PATH, &[("client_id", "x")]));
        assert_eq!(answer.status, 401);
    }
    assert_eq!(core.fullest().windows, 0);
    let (access, _) = connect(&mut core, now_plus(71));
    assert_eq!(token_info_status(&mut core, now_plus(71), &access), 200);
}

#[test]
fn lost_exchange_uses_code_and_first_retry_is_no_violation() {
    for action in [Action::Lost, Action::StatusAfter(500), Action::Broken] {
        let mut core = sandbox_with_application();
        let code = approve(&mut core, NOW);
        core.faults
            .rules
            .push((Rule::next(Endpoint::OauthToken, 1, action), 0, 0));
        core.handle(NOW, &exchange(&code));
        let again = core.handle(now_plus(5), &exchange(&code));
        assert!(is_refusal(&again, 400));
        assert_eq!(kinds(&core), [], "{action:?}");
        core.handle(now_plus(9), &exchange(&code));
        assert_eq!(
            kinds(&core),
            [ViolationKind::RepeatAfter400],
            "a third time"
        );
    }
}
