//! OAuth against the document: §3.1, §4.1, §4.2, §5.4, §5.6, §7.6.

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

/// Fields with other values, and the status and code of their refusal.
pub(super) type Refused = (&'static [(&'static str, &'static str)], u16, u16);

pub(super) fn grant(text: &str) -> Grant {
    Grant::parse(text).expect("a grant")
}

/// A published application that can request calls, with webhooks and an embedded page.
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

/// A sandbox with a PAT and [`application`].
pub(super) fn with_application() -> Sandbox {
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

/// A form for the token or the revoke endpoint.
pub(super) fn form(path: &str, fields: &[(&str, &str)]) -> Request {
    let body = Serializer::new(String::new()).extend_pairs(fields).finish();
    Request::post_bytes(path, body).with_header("content-type", "application/x-www-form-urlencoded")
}

pub(super) fn exchange(code: &str) -> Request {
    exchange_with(code, &[])
}

/// The exchange of a code with other values for some fields. An empty value removes the field.
pub(super) fn exchange_with(code: &str, other: &[(&str, &str)]) -> Request {
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", BACK),
        ("client_id", CLIENT),
        ("client_secret", SECRET),
    ];
    form(TOKEN_PATH, &with(&fields, other))
}

pub(super) fn refresh(token: &str) -> Request {
    refresh_with(token, &[])
}

pub(super) fn refresh_with(token: &str, other: &[(&str, &str)]) -> Request {
    let fields = [
        ("grant_type", "refresh_token"),
        ("refresh_token", token),
        ("client_id", CLIENT),
        ("client_secret", SECRET),
    ];
    form(TOKEN_PATH, &with(&fields, other))
}

pub(super) fn revoke(token: &str) -> Request {
    let fields = [
        ("token", token),
        ("client_id", CLIENT),
        ("client_secret", SECRET),
    ];
    form(REVOKE_PATH, &fields)
}

fn with<'a>(
    fields: &[(&'a str, &'a str)],
    other: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    let value = |name: &str| other.iter().find(|(changed, _)| *changed == name);
    fields
        .iter()
        .map(|&(name, own)| (name, value(name).map_or(own, |&(_, value)| value)))
        .filter(|(_, value)| !value.is_empty())
        .collect()
}

/// A request for the authorization page with these parameters.
pub(super) fn page(parameters: &[(&str, &str)]) -> Request {
    let mut request = Request::get("/consent");
    request.query = Serializer::new(String::new())
        .extend_pairs(parameters)
        .finish();
    request
}

pub(super) fn asked() -> Vec<(&'static str, &'static str)> {
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

/// A person's decision on the authorization page.
pub(super) fn decided(parameters: &[(&str, &str)], form: &[(&str, &str)]) -> Request {
    let mut request = page(parameters);
    request.method = "POST".to_owned();
    request.body = Serializer::new(String::new())
        .extend_pairs(form)
        .finish()
        .into_bytes();
    request.with_header("content-type", "application/x-www-form-urlencoded")
}

/// Returns the parameters in the address that the browser is sent back to.
pub(super) fn brought_back(answer: &Response) -> Vec<(String, String)> {
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

/// Approves everything and returns the code.
pub(super) fn approved(core: &mut Sandbox, now: EventTime) -> String {
    let answer = core.handle(now, &decided(&asked(), &[("decision", "approve")]));
    let back = brought_back(&answer);
    let code = back.iter().find(|(name, _)| name == "code");
    code.expect("a code").1.clone()
}

/// Returns the access token and the refresh token of an answer.
pub(super) fn pair(answer: &Response) -> (String, String) {
    assert_eq!(answer.status, 200, "{}", answer.value());
    let told = answer.value();
    let text = |name: &str| told[name].as_str().expect("a token").to_owned();
    (text("access_token"), text("refresh_token"))
}

/// Approves everything, exchanges the code, and returns the pair.
pub(super) fn connected(core: &mut Sandbox, now: EventTime) -> (String, String) {
    let code = approved(core, now);
    pair(&core.handle(now, &exchange(&code)))
}

/// Returns the status of `token/info` with this token.
pub(super) fn alive(core: &mut Sandbox, now: EventTime, token: &str) -> u16 {
    core.handle(now, &Request::get(INFO).with_token(token))
        .status
}

/// Returns the codes of the log, which no body contains.
pub(super) fn codes(core: &Sandbox) -> Vec<u16> {
    core.oauth.log.0.iter().map(|line| line.code).collect()
}

/// Returns `true` for a refusal of §7.6: the envelope with `error` null and `errors` empty.
pub(super) fn is_refusal(answer: &Response, status: u16) -> bool {
    let told = answer.value();
    let keys = super::keys(answer);
    let whole = keys == ["accept", "data", "error", "errors", "message", "requestId"];
    answer.status == status
        && whole
        && told["error"].is_null()
        && told["data"].is_null()
        && told["errors"] == Value::Array(Vec::new())
        && told["accept"] == false
}
