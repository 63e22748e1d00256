//! The token and the revoke endpoint (§4.1): outside the authentication layer and its windows,
//! form-encoded, the refusals in the full envelope. What a code or a refresh token is exchanged
//! for, and what revoking ends (§5.6).

use super::connection::{self, Minted, pair};
use super::problem::{Code, Form, Problem};
use super::state::{Application, AuthorizationCode, CompanyConnection, PairOrigin, Used, scope};
use crate::core::Sandbox;
use crate::envelope::{BODY_BYTES_MAX, Refusal, Request, Response, Success};
use crate::faults::{Action, after_effect, instead};
use crate::judge::judge_oauth;
use crate::routes::Endpoint;
use crate::token::{Grant, TokenKey};
use crate::violations::ViolationKind;
use crate::webhook::keys;
use callbridge_call::EventTime;
use serde_json::{Value, json};

/// Answers the token and the revoke endpoint.
pub(crate) fn oauth_endpoint(
    sandbox: &mut Sandbox,
    now: EventTime,
    endpoint: Endpoint,
    request: &Request,
) -> Response {
    judge_oauth(sandbox, now, request);
    let fault = sandbox.faults.pick(endpoint, request);
    sandbox.judge_repeat(now, endpoint, request);
    let mut response = match fault.and_then(instead) {
        Some(response) => response,
        None => oauth_answer(sandbox, now, endpoint, request, fault),
    };
    if let Some(action) = fault {
        after_effect(&mut response, action);
    }
    sandbox.note_answer(now, endpoint, request, &response, fault.is_none());
    response
}

fn oauth_answer(
    sandbox: &mut Sandbox,
    now: EventTime,
    endpoint: Endpoint,
    request: &Request,
    fault: Option<Action>,
) -> Response {
    if request.method != "POST" {
        let words = format!("{} {}", request.method, request.path);
        sandbox.violation(now, ViolationKind::WrongMethod, "§4.1", words);
        return Refusal::Method.respond();
    }
    if request.body.len() > BODY_BYTES_MAX {
        let words = format!("a body above {BODY_BYTES_MAX} bytes");
        sandbox.violation(now, ViolationKind::Invalid, "§4.1", words);
        return Refusal::TooLarge.respond();
    }
    let result = form_of(sandbox, now, request).and_then(|form| {
        let application = client_of(sandbox, now, &form)?;
        unblocked(sandbox, now, &application, &form)?;
        if endpoint == Endpoint::OauthRevoke {
            revoke_for(sandbox, &application, &form)?;
            return Ok(Success::default().respond("Success"));
        }
        let asked = Exchange {
            now,
            application: &application,
            form: &form,
            answered: fault.is_none_or(Action::leaves_answer_whole),
        };
        let told = exchange(sandbox, &asked)?;
        Ok(Response::json(200, &told))
    });
    result.unwrap_or_else(|problem| oauth_refusal(sandbox, now, endpoint, &problem))
}

/// The envelope with `error` null and `errors` empty; the code stays in the log (§7.6).
pub(super) fn oauth_refusal(
    sandbox: &mut Sandbox,
    now: EventTime,
    endpoint: Endpoint,
    problem: &Problem,
) -> Response {
    sandbox.oauth.log.push(now, endpoint, problem);
    match problem.code {
        // What a client cannot know beforehand is no fault of its.
        Code::InvalidGrant | Code::InvalidClient | Code::CompanyBlocked => {}
        Code::InvalidRequest
        | Code::UnsupportedGrantType
        | Code::InvalidScope
        | Code::InvalidRedirectUri
        | Code::ApplicationNotFound => {
            sandbox.violation(now, ViolationKind::Invalid, "§7.6", problem.to_string());
        }
    }
    Refusal::Oauth(problem.code).respond()
}

fn form_of(sandbox: &mut Sandbox, now: EventTime, request: &Request) -> Result<Form, Problem> {
    if !request.is_of_type("application/x-www-form-urlencoded") {
        let words = format!(
            "{} without Content-Type application/x-www-form-urlencoded",
            request.path
        );
        sandbox.violation(now, ViolationKind::ContentType, "§4.1", words);
        let words = "the body is not form-encoded";
        return Err(Problem::new(Code::InvalidRequest, words));
    }
    Form::read(&request.body)
}

/// The application that the client proves to be (6905); both fields are required, in the body.
fn client_of(sandbox: &mut Sandbox, now: EventTime, form: &Form) -> Result<Application, Problem> {
    let client_id = form.needed("client_id")?;
    let secret = form.one("client_secret")?.unwrap_or_default();
    let known = sandbox.oauth.client(client_id);
    let proven = known.filter(|known| known.secret == TokenKey::of(secret));
    let both = TokenKey::of(&format!("{client_id}\n{secret}"));
    match (proven.cloned(), known.is_some()) {
        (Some(application), _) => {
            sandbox.client.rules.token_works(both);
            Ok(application)
        }
        (None, known) => {
            if let Some(after) = sandbox.client.rules.dead_token(both, now) {
                let words = format!(
                    "again with client credentials that are none after {} ms",
                    after.as_millis()
                );
                sandbox.violation(now, ViolationKind::RepeatAfter401, "§7.7", words);
            }
            let words = match (known, secret.is_empty()) {
                (false, _) => "unknown client_id",
                (true, true) => "client_secret is missing",
                (true, false) => "wrong client_secret",
            };
            Err(Problem::new(Code::InvalidClient, words))
        }
    }
}

/// Whose company is blocked is answered 401 here too, whatever it asks (§3.1, 2715); nothing is
/// used up or revoked by it.
fn unblocked(
    sandbox: &mut Sandbox,
    now: EventTime,
    application: &Application,
    form: &Form,
) -> Result<(), Problem> {
    let mut blocked = None;
    for name in ["code", "refresh_token", "token"] {
        if let Some(value) = form.one(name)?
            && is_blocked(sandbox, application.id, TokenKey::of(value))
        {
            // Apart from the token's own 401s at the API.
            blocked = Some(TokenKey::of(&format!("{name}\n{value}")));
        }
    }
    let Some(key) = blocked else {
        return Ok(());
    };
    if let Some(after) = sandbox.client.rules.dead_token(key, now) {
        let words = format!("again for a blocked company after {} ms", after.as_millis());
        sandbox.violation(now, ViolationKind::RepeatAfter401, "§7.7", words);
    }
    let words = "the company is blocked";
    Err(Problem::new(Code::CompanyBlocked, words))
}

/// Is it the application's code or token, in a company that is blocked?
fn is_blocked(sandbox: &Sandbox, application: i64, key: TokenKey) -> bool {
    let code = sandbox.oauth.codes.get(&key);
    let code = code.map(|own| (Some(own.application), own.company));
    let refresh = sandbox.oauth.refresh(key);
    let refresh = refresh.map(|own| (Some(own.application), own.company));
    let access = sandbox.tokens.get(&key);
    let access = access.map(|own| (own.application, own.company));
    let own = code.or(refresh).or(access);
    let own = own.filter(|(of, _)| *of == Some(application));
    let company = own.and_then(|(_, company)| sandbox.companies.get(&company));
    company.is_some_and(|company| company.blocked)
}

/// What a client that proved to be this application asks the token endpoint.
pub(super) struct Exchange<'a> {
    pub(super) now: EventTime,
    pub(super) application: &'a Application,
    pub(super) form: &'a Form,
    /// The answer leaves whole and at once.
    pub(super) answered: bool,
}

fn refused(words: &str) -> Problem {
    Problem::new(Code::InvalidGrant, words)
}

/// The success body of RFC 6749, without an envelope (§4.1.1).
pub(super) fn exchange(sandbox: &mut Sandbox, asked: &Exchange<'_>) -> Result<Value, Problem> {
    let words = match asked.form.one("grant_type")?.unwrap_or_default() {
        "authorization_code" => return exchange_code(sandbox, asked),
        "refresh_token" => return exchange_refresh(sandbox, asked),
        "" => "grant_type is missing",
        _ => "grant_type is neither authorization_code nor refresh_token",
    };
    Err(Problem::new(Code::UnsupportedGrantType, words))
}

fn exchange_code(sandbox: &mut Sandbox, asked: &Exchange<'_>) -> Result<Value, Problem> {
    let (now, application) = (asked.now, asked.application);
    let key = TokenKey::of(asked.form.needed("code")?);
    let redirect_uri = asked.form.needed("redirect_uri")?;
    let code = sandbox.oauth.codes.get(&key).cloned();
    let code = code.filter(|code| code.application == application.id);
    let code = code.ok_or_else(|| refused("unknown code"))?;
    if let Some(used) = code.used {
        judge_reuse(sandbox, now, ViolationKind::CodeReused, "§5.6.3", used);
        return Err(refused("the code was used"));
    }
    if now >= code.issued_at.plus(sandbox.settings.oauth.code_life) {
        return Err(refused("the code has expired"));
    }
    if code.redirect_uri != redirect_uri {
        return Err(refused("redirect_uri is not the one of the code"));
    }
    if application.suspended {
        return Err(refused("the application is suspended"));
    }
    let (connection, secrets) = connected_by(sandbox, now, application, &code);
    let origin = PairOrigin::Code(key);
    let minted = pair(sandbox, now, &connection, origin, asked.answered);
    let mut told = told(sandbox, &connection, &minted);
    for (name, secret) in secrets {
        told[name] = json!(secret);
    }
    Ok(told)
}

fn exchange_refresh(sandbox: &mut Sandbox, asked: &Exchange<'_>) -> Result<Value, Problem> {
    let (now, application) = (asked.now, asked.application);
    let key = TokenKey::of(asked.form.needed("refresh_token")?);
    let own = sandbox.oauth.refresh(key).cloned();
    let own = own.filter(|own| own.application == application.id);
    let own = own.ok_or_else(|| refused("unknown refresh token"))?;
    if let Some(used) = own.used {
        judge_reuse(sandbox, now, ViolationKind::RefreshReused, "§5.6.6", used);
        return Err(refused("the refresh token was used"));
    }
    if own.revoked {
        return Err(refused("the refresh token was revoked"));
    }
    if now >= own.expires_at {
        return Err(refused("the refresh token has expired"));
    }
    if application.suspended {
        return Err(refused("the application is suspended"));
    }
    let connection = connection::live_connection(sandbox, application.id, own.company);
    let connection = connection.ok_or_else(|| refused("the company disconnected"))?;
    let origin = PairOrigin::Refresh(key);
    let minted = pair(sandbox, now, &connection, origin, asked.answered);
    Ok(told(sandbox, &connection, &minted))
}

/// A second use. Whoever never got the answer to the first may not know of it.
fn judge_reuse(sandbox: &mut Sandbox, now: EventTime, kind: ViolationKind, rule: &str, used: Used) {
    if used.answered {
        let after = now.since(used.at).as_millis();
        let words = format!("again {after} ms after its use was answered");
        sandbox.violation(now, kind, rule, words);
    }
}

/// The connection as the company approved it: a new one, or the one there is with these
/// grants. The secrets come with its first exchange alone (§5.6.8).
fn connected_by(
    sandbox: &mut Sandbox,
    now: EventTime,
    application: &Application,
    code: &AuthorizationCode,
) -> (CompanyConnection, Vec<(&'static str, String)>) {
    let company = code.company;
    let there = connection::live_connection(sandbox, application.id, company);
    let new = || CompanyConnection::new(application.id, company, Vec::new(), now);
    let mut connection = there.unwrap_or_else(new);
    let within = |grant: &&Grant| application.allowed.contains(grant);
    connection.grants = code.grants.iter().filter(within).cloned().collect();
    let mut secrets = Vec::new();
    if application.embedded && !connection.embedded_given {
        connection.embedded_given = true;
        secrets.push(("embedded_secret", sandbox.mint_key()));
    }
    connection::connect(sandbox, connection.clone());
    if !has_webhook_key(sandbox, application.id, company) {
        let key = keys::webhook_connected(sandbox, company, application.id);
        secrets.extend(key.map(|key| ("webhook_secret", key.expose().to_owned())));
    }
    (connection, secrets)
}

/// The installation has a key of its own, which was shown when it was made.
fn has_webhook_key(sandbox: &Sandbox, application: i64, company: i64) -> bool {
    let installed = sandbox.webhooks.installed(company, application);
    let record = installed.and_then(|id| sandbox.webhooks.installations.get(&id));
    record.is_some_and(|record| record.secret.is_some())
}

fn told(sandbox: &Sandbox, connection: &CompanyConnection, minted: &Minted) -> Value {
    json!({
        "access_token": minted.access,
        "token_type": "Bearer",
        "expires_in": sandbox.settings.oauth.access_life.as_secs(),
        "refresh_token": minted.refresh,
        "scope": scope(&connection.grants),
    })
}

/// An access token alone, or a refresh token with all that was issued from it; what is unknown
/// or another application's changes nothing (RFC 7009).
pub(super) fn revoke_for(
    sandbox: &mut Sandbox,
    application: &Application,
    form: &Form,
) -> Result<(), Problem> {
    let token = TokenKey::of(form.needed("token")?);
    let own = sandbox.tokens.get(&token);
    if own.is_some_and(|own| own.application == Some(application.id)) {
        sandbox.revoke_key(token);
    }
    let own = sandbox.oauth.refresh(token);
    if own.is_some_and(|own| own.application == application.id) {
        connection::revoke_refresh(sandbox, token);
    }
    Ok(())
}
