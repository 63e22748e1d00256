//! Tests of OAuth against the document: §3.1, §4.1, §4.2, §5.4, §5.6, §7.6.

mod client_rules;
mod codes;
mod connections;
mod consent;
mod flags;
mod model;
mod refreshing;
mod restart;

use super::{INFO, sandbox};
use crate::oauth::{Application, connection};
use crate::token::{Grant, TokenKey};
use crate::webhook::Config;
use crate::{Request, Response, Sandbox, webhook};
use callbridge_call::EventTime;
use serde_json::Value;
use url::form_urlencoded::Serializer;

pub(super) const TOKEN_PATH: &str = "/v1/open-api/oauth/token";
pub(super) const REVOKE_PATH: &str = "/v1/open-api/oauth/revoke";
pub(super) const CLIENT: &str = "svc_app_first";
pub(super) const SECRET: &str = "svc_sec_first";
pub(super) const BACK: &str = "http://127.0.0.1:9/back";
pub(super) const SAVE: &str = "PERMISSION_OPEN_API_CALL:SAVE";
pub(super) const READ: &str = "PERMISSION_OPEN_API_CALL:READ";
/// The id of [`application`].
pub(super) const ID: i64 = 2;

/// Changed form fields, and the status and code of the expected refusal.
pub(super) type Refused = (&'static [(&'static str, &'static str)], u16, u16);

pub(super) fn grant(text: &str) -> Grant {
    Grant::parse(text).expect("a grant")
}

/// Returns a published application with an embedded page, which can request the grants for calls.
pub(super) fn application() -> Application {
    Application {
        id: ID,
        secret: TokenKey::from_value(SECRET),
        redirect_uris: vec![BACK.to_owned(), "https://app.example/back?a=1".to_owned()],
        allowed: vec![grant(SAVE), grant(READ)],
        embedded: true,
        ..Application::new(CLIENT.to_owned())
    }
}

/// Returns a sandbox with a PAT and [`application`], which has a webhook.
pub(super) fn sandbox_with_application() -> Sandbox {
    let mut core = sandbox();
    connection::register(&mut core, application());
    let config = Config {
        target_url: "https://app.example/webhooks".to_owned(),
        events: vec!["LEAD_CREATED".to_owned()],
        enabled: true,
        secret: None,
    };
    webhook::configure_webhook(&mut core, ID, config, false);
    core
}

/// Returns a request that posts a form to the token endpoint or the revoke endpoint.
pub(super) fn form(path: &str, fields: &[(&str, &str)]) -> Request {
    let body = Serializer::new(String::new()).extend_pairs(fields).finish();
    Request::post_bytes(path, body).with_header("content-type", "application/x-www-form-urlencoded")
}

pub(super) fn exchange(code: &str) -> Request {
    exchange_with(code, &[])
}

/// Returns a request that exchanges a code. The fields in `other` have other values than usual. An
/// empty value removes the field.
pub(super) fn exchange_with(code: &str, other: &[(&str, &str)]) -> Request {
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", BACK),
        ("client_id", CLIENT),
        ("client_secret", SECRET),
    ];
    form(TOKEN_PATH, &replace_fields(&fields, other))
}

pub(super) fn refresh(token: &str) -> Request {
    refresh_with(token, &[])
}

/// Returns a request that refreshes a token. The fields in `other` have other values than usual. An
/// empty value removes the field.
pub(super) fn refresh_with(token: &str, other: &[(&str, &str)]) -> Request {
    let fields = [
        ("grant_type", "refresh_token"),
        ("refresh_token", token),
        ("client_id", CLIENT),
        ("client_secret", SECRET),
    ];
    form(TOKEN_PATH, &replace_fields(&fields, other))
}

pub(super) fn revoke(token: &str) -> Request {
    let fields = [
        ("token", token),
        ("client_id", CLIENT),
        ("client_secret", SECRET),
    ];
    form(REVOKE_PATH, &fields)
}

/// Returns `fields` with the values in `other`. An empty value removes the field.
fn replace_fields<'a>(
    fields: &[(&'a str, &'a str)],
    other: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    let mut replaced = Vec::new();
    for &(name, usual) in fields {
        let change = other.iter().find(|(changed, _)| *changed == name);
        let value = change.map_or(usual, |&(_, value)| value);
        if !value.is_empty() {
            replaced.push((name, value));
        }
    }
    replaced
}

/// Returns a request for the authorization page with these parameters.
pub(super) fn page(parameters: &[(&str, &str)]) -> Request {
    let mut request = Request::get("/consent");
    request.query = Serializer::new(String::new())
        .extend_pairs(parameters)
        .finish();
    request
}

/// Returns valid parameters for the authorization page.
pub(super) fn consent_parameters() -> Vec<(&'static str, &'static str)> {
    vec![
        ("response_type", "code"),
        ("client_id", CLIENT),
        ("redirect_uri", BACK),
        (
            "scope",
            "PERMISSION_OPEN_API_CALL:SAVE PERMISSION_OPEN_API_CALL:READ",
        ),
        ("state", "s 1&2"),
    ]
}

/// Returns a request that posts a person's decision `form` on the authorization page with these
/// parameters.
pub(super) fn decision_request(parameters: &[(&str, &str)], form: &[(&str, &str)]) -> Request {
    let mut request = page(parameters);
    request.method = "POST".to_owned();
    request.body = Serializer::new(String::new())
        .extend_pairs(form)
        .finish()
        .into_bytes();
    request.with_header("content-type", "application/x-www-form-urlencoded")
}

/// Returns the query parameters of the address that the answer redirects the browser to.
pub(super) fn redirect_parameters(answer: &Response) -> Vec<(String, String)> {
    assert_eq!(
        answer.status,
        302,
        "{}",
        String::from_utf8_lossy(&answer.body)
    );
    let location = answer.location.as_deref().expect("a redirect");
    let url = url::Url::parse(location).expect("an address");
    url.query_pairs()
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect()
}

/// Approves all grants on the authorization page, and returns the code.
pub(super) fn approve(core: &mut Sandbox, now: EventTime) -> String {
    let answer = core.handle(
        now,
        &decision_request(&consent_parameters(), &[("decision", "approve")]),
    );
    let back = redirect_parameters(&answer);
    let code = back.iter().find(|(name, _)| name == "code");
    code.expect("a code").1.clone()
}

fn token_text(reply: &Value, name: &str) -> String {
    reply[name].as_str().expect("a token").to_owned()
}

/// Returns the access token and the refresh token of an answer.
pub(super) fn pair(answer: &Response) -> (String, String) {
    assert_eq!(answer.status, 200, "{}", answer.value());
    let reply = answer.value();
    (
        token_text(&reply, "access_token"),
        token_text(&reply, "refresh_token"),
    )
}

/// Approves all grants, exchanges the code, and returns the access token and the refresh token.
pub(super) fn connect(core: &mut Sandbox, now: EventTime) -> (String, String) {
    let code = approve(core, now);
    pair(&core.handle(now, &exchange(&code)))
}

/// Returns the status of `token/info` with this token.
pub(super) fn token_info_status(core: &mut Sandbox, now: EventTime, token: &str) -> u16 {
    core.handle(now, &Request::get(INFO).with_token(token))
        .status
}

/// Returns the codes in the log of OAuth requests. No answer has these codes in its body.
pub(super) fn codes(core: &Sandbox) -> Vec<u16> {
    core.oauth.log.0.iter().map(|line| line.code).collect()
}

/// Returns `true` for a refusal of §7.6: the envelope with `error` null and `errors` empty.
pub(super) fn is_refusal(answer: &Response, status: u16) -> bool {
    let reply = answer.value();
    let keys = super::keys(answer);
    let whole = keys == ["accept", "data", "error", "errors", "message", "requestId"];
    answer.status == status
        && whole
        && reply["error"].is_null()
        && reply["data"].is_null()
        && reply["errors"] == Value::Array(Vec::new())
        && reply["accept"] == false
}
