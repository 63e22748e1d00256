//! Tests of connections: grants, companies, tokens of both kinds, windows, and requestIds (§2.2,
//! §3.1, §3.2, §5.2 to §5.5, Limits).

use super::super::{INFO, NOW, SUBMIT, TOKEN, call, has_fields, kinds, now_plus, poll};
use super::{
    ID, READ, SAVE, approve, codes, connect, exchange, grant, is_refusal, pair, refresh,
    refresh_with, revoke, sandbox_with_application, token_info_status,
};
use crate::oauth::connection;
use crate::{Request, Sandbox, ViolationKind};
use serde_json::{Value, json};

fn info(core: &mut Sandbox, second: u64, token: &str) -> Value {
    let request = Request::get(INFO).with_token(token);
    core.handle(now_plus(second), &request).value()
}

fn submit(core: &mut Sandbox, second: u64, token: &str) -> crate::Response {
    let request = Request::post(SUBMIT, &call()).with_token(token);
    core.handle(now_plus(second), &request)
}

#[test]
fn token_info_distinguishes_access_token_and_pat() {
    let mut core = sandbox_with_application();
    let (access, _) = connect(&mut core, NOW);
    let public = info(&mut core, 1, &access);
    let end = NOW.floor_seconds().get() + 3_600;
    let expected = json!({
        "application": { "id": ID, "name": "callbridge for everybody", "type": "PUBLIC" },
        "company": { "id": 1, "name": "Sandbox company" },
        "kind": "ACCESS", "expiresAt": end, "expiresInDays": 0,
        "permissions": [
            { "permission": "PERMISSION_OPEN_API_CALL", "scope": "SAVE" },
            { "permission": "PERMISSION_OPEN_API_CALL", "scope": "READ" },
        ],
    });
    assert_eq!(public["data"], expected);
    let private = info(&mut core, 1, TOKEN);
    let expected = json!({
        "data": { "application": { "id": 1, "type": "PRIVATE" }, "kind": "PAT", "expiresAt": null },
    });
    assert!(has_fields(&private, &expected), "{private}");
    for value in [&access, TOKEN] {
        assert!(!public.to_string().contains(value) && !private.to_string().contains(value));
    }
}

#[test]
fn reads_and_writes_warn_when_access_token_expires_today() {
    let mut core = sandbox_with_application();
    let (access, _) = connect(&mut core, NOW);
    let read = info(&mut core, 1, &access);
    let written = submit(&mut core, 2, &access).value();
    for reply in [read, written] {
        assert_eq!(reply["message"], "Token expires today. Please renew it.");
        assert_eq!(reply["accept"], true);
    }
}

#[test]
fn narrowed_grants_apply_to_existing_tokens() {
    let mut core = sandbox_with_application();
    let (access, token) = connect(&mut core, NOW);
    assert_eq!(submit(&mut core, 1, &access).status, 200);
    assert!(connection::set_grants(&mut core, ID, 1, vec![grant(READ)]));
    assert_eq!(submit(&mut core, 3, &access).status, 403);
    let reply = core.handle(now_plus(4), &refresh(&token));
    assert_eq!(
        reply.value()["scope"],
        READ,
        "the scope is what is approved now"
    );
    let (newer, _) = pair(&reply);
    assert_eq!(submit(&mut core, 5, &newer).status, 403);
    assert!(connection::set_grants(&mut core, ID, 1, vec![grant(SAVE)]));
    assert_eq!(submit(&mut core, 7, &access).status, 200);
}

#[test]
fn grants_of_one_connection_do_not_apply_to_another() {
    let mut core = sandbox_with_application();
    let (first, _) = connect(&mut core, NOW);
    let (second, _) = connection::issue_pair(&mut core, NOW, ID, 2, None).expect("another company");
    connection::set_grants(&mut core, ID, 2, Vec::new());
    assert_eq!(submit(&mut core, 1, &first).status, 200);
    assert_eq!(submit(&mut core, 1, &second).status, 403);
    core.set_grants(NOW, Vec::new());
    assert_eq!(
        submit(&mut core, 2, TOKEN).status,
        403,
        "the own application's"
    );
    assert_eq!(
        submit(&mut core, 2, &first).status,
        200,
        "the public one's stay"
    );
}

#[test]
fn blocked_company_tokens_get_401_until_unblocked() {
    let mut core = sandbox_with_application();
    let (access, _) = connect(&mut core, NOW);
    core.company(now_plus(1), |own| own.blocked = true);
    assert_eq!(token_info_status(&mut core, now_plus(2), &access), 401);
    assert_eq!(token_info_status(&mut core, now_plus(2), TOKEN), 401);
    core.company(now_plus(70), |own| own.blocked = false);
    for token in [&access, TOKEN] {
        assert_eq!(token_info_status(&mut core, now_plus(71), token), 200);
    }
}

#[test]
fn blocked_company_gets_oauth_401_and_keeps_tokens_and_codes() {
    let mut core = sandbox_with_application();
    let (access, token) = connect(&mut core, NOW);
    let code = approve(&mut core, NOW);
    let (foreign, _) =
        connection::issue_pair(&mut core, NOW, ID, 2, None).expect("another company");
    core.company(now_plus(1), |own| own.blocked = true);
    for request in [
        refresh(&token),
        exchange(&code),
        revoke(&token),
        revoke(&access),
    ] {
        let answer = core.handle(now_plus(2), &request);
        assert!(is_refusal(&answer, 401), "{}", answer.value());
    }
    assert_eq!((codes(&core), kinds(&core)), (vec![2715; 4], vec![]));
    // The answer is the same as for a wrong secret, and another company is not affected.
    let wrong = refresh_with(&token, &[("client_secret", "svc_sec_old")]);
    let (wrong, blocked) = (
        core.handle(now_plus(3), &wrong),
        core.handle(now_plus(70), &refresh(&token)),
    );
    assert_eq!(wrong.body, blocked.body);
    assert_eq!(core.handle(now_plus(70), &revoke(&foreign)).status, 200);
    assert_eq!(
        token_info_status(&mut core, now_plus(70), &foreign),
        401,
        "revoked"
    );
    assert_eq!(kinds(&core), [], "asked again after a minute");
    core.handle(now_plus(75), &refresh(&token));
    assert_eq!(
        kinds(&core),
        [ViolationKind::RepeatAfter401],
        "and again at once"
    );
    core.company(now_plus(80), |own| own.blocked = false);
    assert_eq!(token_info_status(&mut core, now_plus(81), &access), 200);
    pair(&core.handle(now_plus(82), &refresh(&token)));
    pair(&core.handle(now_plus(82), &exchange(&code)));
}

#[test]
fn refreshed_token_has_new_window_but_excess_is_violation() {
    let mut core = sandbox_with_application();
    let (access, token) = connect(&mut core, NOW);
    for _ in 0..60 {
        assert_eq!(token_info_status(&mut core, now_plus(1), &access), 200);
    }
    let (newer, _) = pair(&core.handle(now_plus(2), &refresh(&token)));
    assert_eq!(token_info_status(&mut core, now_plus(2), &access), 429);
    assert_eq!(kinds(&core).last(), Some(&ViolationKind::WindowExceeded));
    assert_eq!(
        token_info_status(&mut core, now_plus(3), &newer),
        200,
        "a counter of its own"
    );
    assert_eq!(kinds(&core).last(), Some(&ViolationKind::FreshBudget));
    assert_eq!(token_info_status(&mut core, now_plus(4), TOKEN), 200);
    let fresh = core.violations().count(ViolationKind::FreshBudget);
    assert_eq!(
        fresh, 1,
        "the company's own application has a budget of its own"
    );
}

/// Returns the status of a poll of the request `id` with this token.
fn poll_status(core: &mut Sandbox, id: &str, token: &str) -> u16 {
    let mut request = poll(id);
    request.headers.clear();
    core.handle(now_plus(4), &request.with_token(token)).status
}

#[test]
fn request_status_is_readable_only_by_its_own_token() {
    let mut core = sandbox_with_application();
    let (access, token) = connect(&mut core, NOW);
    let reply = submit(&mut core, 1, &access).value();
    let id = reply["requestId"].as_str().expect("a requestId").to_owned();
    let (newer, _) = pair(&core.handle(now_plus(2), &refresh(&token)));
    assert_eq!(poll_status(&mut core, &id, &newer), 404);
    assert_eq!(kinds(&core), [ViolationKind::ForeignPoll]);
    assert_eq!(
        poll_status(&mut core, &id, &access),
        200,
        "the one before, while it lives"
    );
}

#[test]
fn pat_cannot_refresh_and_new_pat_keeps_access_tokens() {
    let mut core = sandbox_with_application();
    let (access, _) = connect(&mut core, NOW);
    core.issue_pat(now_plus(1), "svc_pat_second", None);
    assert_eq!(token_info_status(&mut core, now_plus(2), TOKEN), 401);
    assert_eq!(token_info_status(&mut core, now_plus(2), &access), 200);
    assert!(is_refusal(
        &core.handle(now_plus(3), &refresh("svc_pat_second")),
        400
    ));
    assert_eq!(codes(&core), [6906]);
    assert_eq!(kinds(&core), [ViolationKind::SecretMisplaced]);
    assert_eq!(
        token_info_status(&mut core, now_plus(4), "svc_pat_second"),
        200
    );
}

#[test]
fn disconnected_company_has_its_installation_revoked() {
    let mut core = sandbox_with_application();
    connect(&mut core, NOW);
    let first = core.webhooks.installed(1, ID).expect("an installation");
    connection::disconnect(&mut core, ID, 1);
    assert_eq!(core.webhooks.installed(1, ID), None);
    connect(&mut core, now_plus(2));
    let second = core.webhooks.installed(1, ID).expect("another");
    assert_ne!(first, second);
}
