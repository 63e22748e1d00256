//! Tests of violations of clients with their tokens and secrets (§4.1, §5.1, §5.2, §5.6, §7.7).

use super::super::{INFO, NOW, SUBMIT, TOKEN, call, info, kinds, now_plus};
use super::{
    CLIENT, SECRET, TOKEN_PATH, approve, connect, exchange, exchange_with, form, page, refresh,
    revoke, sandbox_with_application, token_info_status,
};
use crate::oauth::connection;
use crate::{Request, Role, ViolationKind};
use serde_json::json;

fn info_with_query(query: &str) -> Request {
    Request {
        query: query.to_owned(),
        ..info()
    }
}

#[test]
fn misplaced_token_or_secret_is_a_violation() {
    let mut core = sandbox_with_application();
    let (access, token) = connect(&mut core, NOW);
    let mut body = call();
    body["note"] = json!(SECRET);
    let table = [
        (
            "a refresh token as the token",
            Request::get(INFO).with_token(&token),
        ),
        (
            "a secret as the token",
            Request::get(INFO).with_token(SECRET),
        ),
        (
            "a secret in a header",
            info().with_header("x-client-secret", SECRET),
        ),
        (
            "a token in the address",
            info_with_query(&format!("access_token={access}")),
        ),
        ("a refresh token in the address", info_with_query(&token)),
        (
            "a secret in the body of a call",
            Request::post(SUBMIT, &body).with_token(TOKEN),
        ),
        ("a code at the API", info_with_query("code=svc_ac_1")),
    ];
    for (what, request) in table {
        let mut core = core.clone();
        core.handle(now_plus(1), &request);
        assert_eq!(
            core.violations().count(ViolationKind::SecretMisplaced),
            1,
            "{what}: {:?}",
            kinds(&core)
        );
    }
}

#[test]
fn oauth_endpoints_report_header_query_and_pat_as_violations() {
    let mut core = sandbox_with_application();
    let code = approve(&mut core, NOW);
    let good = exchange(&code);
    let mut query = good.clone();
    query.query = format!("client_secret={SECRET}");
    let pat = [
        ("token", TOKEN),
        ("client_id", CLIENT),
        ("client_secret", SECRET),
    ];
    let table = [
        (
            good.clone().with_token("svc_at_1"),
            vec![ViolationKind::WrongHeader],
        ),
        (
            good.clone().with_header("authorization", "Basic eA=="),
            vec![ViolationKind::WrongHeader],
        ),
        (
            query,
            vec![ViolationKind::Invalid, ViolationKind::SecretMisplaced],
        ),
        (
            form(super::REVOKE_PATH, &pat),
            vec![ViolationKind::SecretMisplaced],
        ),
    ];
    for (request, expected) in table {
        let mut core = core.clone();
        assert_eq!(core.handle(NOW, &request).status, 200);
        assert_eq!(kinds(&core), expected);
    }
    assert_eq!(
        token_info_status(&mut core, NOW, TOKEN),
        200,
        "a PAT is not revoked here"
    );
}

#[test]
fn client_credentials_in_header_or_query_are_ignored() {
    let mut core = sandbox_with_application();
    let code = approve(&mut core, NOW);
    let mut request = exchange_with(&code, &[("client_secret", "")]);
    request.query = format!("client_secret={SECRET}");
    let request = request.with_header(
        "authorization",
        "Basic c3ZjX2FwcF9maXJzdDpzdmNfc2VjX2ZpcnN0",
    );
    assert_eq!(core.handle(NOW, &request).status, 401);
}

#[test]
fn wrong_method_gets_405_and_is_a_violation() {
    let mut core = sandbox_with_application();
    let answer = core.handle(NOW, &Request::get(TOKEN_PATH));
    assert_eq!(
        (answer.status, kinds(&core)),
        (405, vec![ViolationKind::WrongMethod])
    );
}

#[test]
fn repeated_refused_body_or_credentials_are_violations() {
    let mut core = sandbox_with_application();
    for second in [0, 2] {
        core.handle(now_plus(second), &refresh("svcrt_none"));
    }
    assert_eq!(kinds(&core), [ViolationKind::RepeatAfter400]);
    let wrong = exchange_with("svc_ac_1", &[("client_secret", "svc_sec_old")]);
    for second in [10, 12] {
        core.handle(now_plus(second), &wrong);
    }
    assert_eq!(
        kinds(&core),
        [ViolationKind::RepeatAfter400, ViolationKind::RepeatAfter401]
    );
    core.handle(now_plus(80), &wrong);
    assert_eq!(kinds(&core).len(), 2, "a minute later");
}

#[test]
fn old_client_secret_is_invalid_right_after_rotation() {
    let mut core = sandbox_with_application();
    let (_, token) = connect(&mut core, NOW);
    let fresh = "svc_sec_fresh";
    let rotate = Request::post(
        "/sandbox/admin/oauth/application",
        &json!({ "clientId": super::application().client_id, "clientSecret": fresh }),
    );
    assert_eq!(core.handle(now_plus(1), &rotate).status, 200);
    assert_eq!(core.handle(now_plus(2), &refresh(&token)).status, 401);
    let with = super::refresh_with(&token, &[("client_secret", fresh)]);
    assert_eq!(core.handle(now_plus(3), &with).status, 200);
    assert_eq!(kinds(&core), []);
}

/// Returns the request, sent to the address that serves the endpoints of this role.
fn sent_to(role: Role, request: Request) -> Request {
    Request { role, ..request }
}

#[test]
fn endpoint_on_wrong_host_gets_404_and_violation() {
    let mut core = sandbox_with_application();
    let code = approve(&mut core, NOW);
    let consent_page = page(&super::consent_parameters());
    let wrong = [
        sent_to(Role::Api, exchange(&code)),
        sent_to(Role::Api, revoke("x")),
        sent_to(Role::Auth, info()),
        sent_to(Role::Auth, consent_page.clone()),
    ];
    for request in &wrong {
        assert_eq!(core.handle(NOW, request).status, 404);
    }
    assert_eq!(kinds(&core), [ViolationKind::WrongHost; 4]);
    for request in [
        sent_to(Role::Auth, exchange(&code)),
        sent_to(Role::Api, info()),
        sent_to(Role::Api, consent_page),
    ] {
        assert_eq!(core.handle(NOW, &request).status, 200);
    }
}

#[test]
fn refresh_repeated_after_disconnect_is_a_violation() {
    let mut core = sandbox_with_application();
    let (access, token) = connect(&mut core, NOW);
    connection::disconnect(&mut core, super::ID, 1);
    assert_eq!(token_info_status(&mut core, now_plus(2), &access), 401);
    assert_eq!(core.handle(now_plus(3), &refresh(&token)).status, 400);
    assert_eq!(kinds(&core), [], "finding out is no breach");
    assert_eq!(core.handle(now_plus(5), &refresh(&token)).status, 400);
    assert_eq!(
        kinds(&core),
        [ViolationKind::RepeatAfter400],
        "asking on is"
    );
}
