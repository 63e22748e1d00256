//! Tests of §3.1, §5.1, §5.4, and §7: authentication, grants, and the form of refusals.

use super::rules::{Row, row, scene};
use super::{INFO, NOW, SUBMIT, TOKEN, call, call_with, filter, info, now_plus, submit};
use crate::token::{CALL_READ, CALL_SAVE, Grant, TokenKind};
use crate::{Request, Sandbox, ViolationKind};
use callbridge_call::{EpochSeconds, EventTime};
use serde_json::{Value, json};

pub(super) fn rows() -> Vec<Row> {
    let mut rows = tokens();
    rows.extend(lifecycle());
    rows.extend(grants());
    rows.extend(addresses());
    rows
}

/// Returns the expected body of a 401.
pub(super) fn invalid_token_body() -> Value {
    json!({
        "message": "Invalid or expired Open API token",
        "accept": false, "errors": null, "data": null,
    })
}

/// Returns a row in which `change` changes the token or the company, and the next request gets a
/// 401.
fn row_with_401(
    section: &'static str,
    rule: &'static str,
    change: impl Fn(&mut Sandbox) + 'static,
) -> Row {
    scene(
        section,
        rule,
        move |core: &mut Sandbox| {
            change(core);
            (now_plus(10), info())
        },
        401,
        invalid_token_body(),
    )
}

fn tokens() -> Vec<Row> {
    let twice = info().with_token(TOKEN);
    let bearer = Request::get(INFO).with_header("Authorization", &format!("Bearer {TOKEN}"));
    let both = info().with_header("Authorization", "Bearer x");
    vec![
        row(
            "§7.2",
            "unknown token",
            Request::get(INFO).with_token("svc_pat_other"),
            401,
            invalid_token_body(),
        ),
        // A client can check without a token that the CRM is reachable.
        row(
            "§7.2",
            "no header",
            Request::get(INFO),
            401,
            invalid_token_body(),
        ),
        row(
            "§7.2",
            "empty header",
            Request::get(INFO).with_token(""),
            401,
            invalid_token_body(),
        )
        .violation(ViolationKind::WrongHeader),
        row("§5.1", "two headers", twice, 401, invalid_token_body())
            .violation(ViolationKind::WrongHeader),
        row(
            "§5.1.2",
            "Bearer does not work",
            bearer,
            401,
            invalid_token_body(),
        )
        .violation(ViolationKind::WrongHeader)
        .violation(ViolationKind::WrongHeader),
        row(
            "§5.1.2",
            "Bearer is ignored",
            both,
            200,
            json!({ "message": "Success" }),
        )
        .violation(ViolationKind::WrongHeader),
        row(
            "§7.1",
            "token before address",
            Request::get("/v1/open-api/none"),
            401,
            invalid_token_body(),
        )
        .violation(ViolationKind::WrongHeader),
        row(
            "§7.1",
            "token before body",
            Request::post(SUBMIT, &json!([])),
            401,
            invalid_token_body(),
        )
        .violation(ViolationKind::WrongHeader),
    ]
}

fn lifecycle() -> Vec<Row> {
    vec![
        row_with_401("§3.1", "a new PAT revokes the one before", |core| {
            core.issue_pat(NOW, "svc_pat_second", None);
        }),
        row_with_401("§3.1", "revoked", |core| core.revoke(TOKEN)),
        row_with_401("§3.1", "expired", |core| {
            core.expire(TOKEN, Some(now_plus(10).floor_seconds()));
        }),
        row_with_401("§3.1", "company blocked", |core| {
            core.company(NOW, |own| own.blocked = true)
        }),
        row_with_401("§3.1", "company disconnected", |core| {
            core.company(NOW, |own| own.disconnected = true);
        }),
        scene(
            "§3.1",
            "access tokens live side by side",
            |core| {
                core.issue(NOW, "svc_at_1", TokenKind::Access, 1, None);
                core.issue(NOW, "svc_at_2", TokenKind::Access, 1, None);
                (now_plus(9), Request::get(INFO).with_token("svc_at_1"))
            },
            200,
            json!({ "data": { "kind": "ACCESS", "application": { "type": "PUBLIC" } } }),
        ),
        scene(
            "§3.1",
            "a second before its expiry",
            |core| {
                core.expire(
                    TOKEN,
                    Some(EpochSeconds::new(NOW.floor_seconds().get() + 10)),
                );
                (now_plus(9), info())
            },
            200,
            json!({ "message": "Token expires today. Please renew it." }),
        ),
    ]
}

/// Returns a scene that sends the request with a token that has only this grant.
fn scene_with_grant(
    grant: &'static str,
    request: Request,
) -> impl Fn(&mut Sandbox) -> (EventTime, Request) {
    move |core: &mut Sandbox| {
        core.set_grants(NOW, vec![Grant::parse(grant).expect("a grant")]);
        (NOW, request.clone())
    }
}

fn grants() -> Vec<Row> {
    let denied = json!({ "error": { "messageCode": 3701 }, "errors": [], "data": null });
    let page = filter(&json!({ "page": 1, "size": 9 }));
    let fine = json!({ "accept": true });
    vec![
        scene(
            "§4.5.6",
            "SAVE missing",
            scene_with_grant(CALL_READ, submit(&call())),
            403,
            denied.clone(),
        ),
        scene(
            "§4.5.6",
            "SAVE given",
            scene_with_grant(CALL_SAVE, submit(&call())),
            200,
            fine.clone(),
        ),
        scene(
            "§5.4",
            "READ missing",
            scene_with_grant(CALL_SAVE, page.clone()),
            403,
            denied.clone(),
        ),
        scene(
            "§5.4",
            "READ given",
            scene_with_grant(CALL_READ, page),
            200,
            fine,
        ),
        scene(
            "§5.4",
            "before the body is looked at",
            scene_with_grant(CALL_READ, submit(&json!({}))),
            403,
            denied,
        ),
    ]
}

/// Returns the expected body of a refusal without a code.
fn codeless_refusal() -> Value {
    json!({ "error": null, "errors": [], "data": null })
}

fn get(path: &str) -> Request {
    Request::get(path).with_token(TOKEN)
}

fn unknown_path(rule: &'static str, path: &str) -> Row {
    row("§4", rule, get(path), 404, codeless_refusal()).violation(ViolationKind::UnknownPath)
}

fn addresses() -> Vec<Row> {
    let put = Request {
        method: "PUT".to_owned(),
        ..submit(&call())
    };
    let plain = Request::post_bytes(SUBMIT, call().to_string()).with_token(TOKEN);
    let form = plain
        .clone()
        .with_header("content-type", "application/x-www-form-urlencoded");
    let wide = Request::post_bytes(SUBMIT, call().to_string())
        .with_token(TOKEN)
        .with_header("content-type", "application/json; charset=\"utf-16\"");
    let utf8 = plain
        .clone()
        .with_header("content-type", "application/json; charset=utf-8");
    let packed = submit(&call()).with_header("content-encoding", "gzip");
    let large = submit(&call_with("note", json!("n".repeat(70_000))));
    vec![
        unknown_path("no such path", "/v1/open-api/calls"),
        unknown_path("a slash too many", "/v1/open-api/call-history/"),
        unknown_path("another version", "/v2/open-api/token/info"),
        unknown_path("the root", "/"),
        unknown_path("a requestId that is none", "/v1/open-api/request/"),
        row(
            "§4.7",
            "a lead is not for a token of calls alone",
            get("/v1/open-api/lead/4001"),
            403,
            json!({ "error": { "messageCode": 3701 } }),
        ),
        row("§4.5", "not with GET", get(SUBMIT), 405, codeless_refusal())
            .violation(ViolationKind::WrongMethod),
        row("§4.5", "not with PUT", put, 405, codeless_refusal())
            .violation(ViolationKind::WrongMethod),
        row("§4.5", "no content type", plain, 415, codeless_refusal())
            .violation(ViolationKind::ContentType),
        row("§4.5", "a form", form, 415, codeless_refusal()).violation(ViolationKind::ContentType),
        row("§4.5", "UTF-16", wide, 415, codeless_refusal()).violation(ViolationKind::ContentType),
        row("§4.5", "packed", packed, 415, codeless_refusal())
            .violation(ViolationKind::ContentType),
        row(
            "§4.5",
            "with a charset",
            utf8,
            200,
            json!({ "accept": true }),
        ),
        row("§4.5", "too large", large, 413, codeless_refusal()).violation(ViolationKind::Invalid),
    ]
}
