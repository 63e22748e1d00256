//! What a code or a refresh token is exchanged for, and what revoking ends (§4.1, §5.6).

use super::super::core::Sandbox;
use super::super::token::{Grant, TokenKey};
use super::super::violations::ViolationKind;
use super::application::{Application, CompanyConnection, scope};
use super::connection::{Minted, pair};
use super::form::Form;
use super::problem::{Code, Problem};
use super::state::{AuthorizationCode, PairOrigin, Used};
use crate::oauth::connection;
use crate::{token_gen, webhook};
use callbridge_call::EventTime;
use serde_json::{Value, json};

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
        secrets.push(("embedded_secret", token_gen::mint_key(sandbox)));
    }
    connection::connect(sandbox, connection.clone());
    if !has_webhook_key(sandbox, application.id, company) {
        let key = webhook::webhook_connected(sandbox, company, application.id);
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
