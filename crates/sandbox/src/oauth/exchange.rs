//! The token and revoke endpoints (§4.1). They exchange codes and refresh tokens, and revoke tokens
//! (§5.6). They are outside the authentication layer and its request windows. Requests are
//! form-encoded, and refusals have the full envelope.

use crate::{
    Action, Application, AuthorizationCode, BODY_BYTES_MAX, CODE_LIFE, CompanyConnection, Endpoint,
    Problem, Refresh, Refusal, Request, Response, Sandbox, Success, TokenKey, Used, ViolationKind,
    envelope::METHOD, envelope::TOO_LARGE, oauth::connection, oauth::connection::pair,
    oauth::problem::Code, oauth::problem::Form, oauth::state::scope,
};
use serde_json::{Value, json};

/// Answers a request to the token or revoke endpoint.
pub(crate) fn answer(core: &mut Sandbox, endpoint: Endpoint, request: &Request) -> Response {
    core.judge_oauth(request);
    let fault = core.faults.pick(endpoint, request);
    core.answer_with_fault(endpoint, request, fault, |core| {
        if request.method != "POST" {
            let message = format!("{} {}", request.method, request.path);
            core.record_violation(ViolationKind::WrongMethod, "§4.1", message);
            return METHOD.respond();
        }
        if request.body.len() > BODY_BYTES_MAX {
            let message = format!("a body above {BODY_BYTES_MAX} bytes");
            core.record_violation(ViolationKind::Invalid, "§4.1", message);
            return TOO_LARGE.respond();
        }
        let used = Used {
            at: core.now,
            answered: fault.is_none_or(Action::leaves_answer_whole),
        };
        let answer = oauth_answer(core, endpoint, request, Some(used));
        answer.unwrap_or_else(|problem| oauth_refusal(core, endpoint, &problem))
    })
}

fn oauth_answer(
    core: &mut Sandbox,
    endpoint: Endpoint,
    request: &Request,
    used: Option<Used>,
) -> Result<Response, Problem> {
    if !request.is_of_type("application/x-www-form-urlencoded") {
        let reason = "without Content-Type application/x-www-form-urlencoded";
        let message = format!("{} {reason}", request.path);
        core.record_violation(ViolationKind::ContentType, "§4.1", message);
        return Err(Code::InvalidRequest.because("the body is not form-encoded"));
    }
    let form = &Form::read(&request.body)?;
    let application = &client_of(core, form)?;
    refuse_blocked(core, application, form)?;
    if endpoint == Endpoint::OauthRevoke {
        // Revokes a single access token, or a refresh token with all tokens issued from it. An
        // unknown token, or a token of another application, changes nothing (RFC 7009).
        let token = TokenKey::from_value(form.needed("token")?);
        let own = core.tokens.get(&token);
        if own.is_some_and(|own| own.application == Some(application.id)) {
            core.revoke_key(token);
        }
        let own = core.oauth.refreshes.get(&token);
        if own.is_some_and(|own| own.application == application.id) {
            connection::revoke_refresh(core, token);
        }
        return Ok(Success::default().respond("Success"));
    }
    // The success body is that of RFC 6749, without an envelope (§4.1.1).
    let tokens = match form.one("grant_type")?.unwrap_or_default() {
        "authorization_code" => exchange_code(core, application, form, used)?,
        "refresh_token" => exchange_refresh(core, application, form, used)?,
        "" => return Err(Code::UnsupportedGrantType.because("grant_type is missing")),
        _ => {
            let message = "grant_type is neither authorization_code nor refresh_token";
            return Err(Code::UnsupportedGrantType.because(message));
        }
    };
    Ok(Response::json(200, &tokens))
}

/// Returns the answer of a refusal: the envelope with `error` null and `errors` empty. The domain
/// code is only logged (§7.6). Records a violation if the client could know the error in advance.
fn oauth_refusal(core: &mut Sandbox, endpoint: Endpoint, problem: &Problem) -> Response {
    core.oauth.log.push(core.now, endpoint, problem);
    // A client cannot know these errors in advance, so they are no violations.
    use Code::{CompanyBlocked, InvalidClient, InvalidGrant};
    if !matches!(problem.code, CompanyBlocked | InvalidClient | InvalidGrant) {
        core.record_violation(ViolationKind::Invalid, "§7.6", problem.to_string());
    }
    let (status, message) = problem.code.answer();
    Refusal::Plain(status, message).respond()
}

/// Returns the application that `client_id` and `client_secret` in the form belong to. Refuses an
/// unknown id, and a wrong or missing secret, with the code 6905.
fn client_of(core: &mut Sandbox, form: &Form) -> Result<Application, Problem> {
    let client_id = form.needed("client_id")?;
    let secret = form.one("client_secret")?.unwrap_or_default();
    let both = TokenKey::from_value(&format!("{client_id}\n{secret}"));
    let message = match core.oauth.client(client_id).cloned() {
        Some(known) if known.secret == TokenKey::from_value(secret) => {
            core.client.rules.token_works(both);
            return Ok(known);
        }
        None => "unknown client_id",
        Some(_) if secret.is_empty() => "client_secret is missing",
        Some(_) => "wrong client_secret",
    };
    core.record_dead_token(both, "again with client credentials that are none");
    Err(Code::InvalidClient.because(message))
}

/// Refuses a request with 401 (code 2715) if its code or token belongs to a blocked company (§3.1).
/// A refused request neither uses up nor revokes anything.
fn refuse_blocked(
    core: &mut Sandbox,
    application: &Application,
    form: &Form,
) -> Result<(), Problem> {
    let mut blocked = None;
    for name in ["code", "refresh_token", "token"] {
        let value = form.one(name)?;
        let own =
            value.filter(|value| is_blocked(core, application.id, TokenKey::from_value(value)));
        // This key is not the token's own, so these refusals and 401s of the API are counted
        // separately.
        blocked = own.map(|value| format!("{name}\n{value}")).or(blocked);
    }
    let Some(blocked) = blocked else {
        return Ok(());
    };
    core.record_dead_token(
        TokenKey::from_value(&blocked),
        "again for a blocked company",
    );
    Err(Code::CompanyBlocked.because("the company is blocked"))
}

/// Returns `true` if the key is a code or token of the application in a blocked company.
fn is_blocked(core: &Sandbox, application: i64, key: TokenKey) -> bool {
    let (owner, company) = if let Some(code) = core.oauth.codes.get(&key) {
        (Some(code.application), code.company)
    } else if let Some(refresh) = core.oauth.refreshes.get(&key) {
        (Some(refresh.application), refresh.company)
    } else if let Some(access) = core.tokens.get(&key) {
        (access.application, access.company)
    } else {
        return false;
    };
    let company = core.companies.get(&company);
    owner == Some(application) && company.is_some_and(|company| company.blocked)
}

fn invalid_grant(message: &str) -> Problem {
    Code::InvalidGrant.because(message)
}

fn exchange_code(
    core: &mut Sandbox,
    application: &Application,
    form: &Form,
    used: Option<Used>,
) -> Result<Value, Problem> {
    let key = TokenKey::from_value(form.needed("code")?);
    let redirect_uri = form.needed("redirect_uri")?;
    let code = core
        .oauth
        .codes
        .get(&key)
        .filter(|code| code.application == application.id)
        .cloned()
        .ok_or_else(|| invalid_grant("unknown code"))?;
    if let Some(used) = code.used {
        judge_reuse(core, ViolationKind::CodeReused, "§5.6.3", used);
        return Err(invalid_grant("the code was used"));
    }
    if core.now >= code.issued_at.plus(CODE_LIFE) {
        return Err(invalid_grant("the code has expired"));
    }
    if code.redirect_uri != redirect_uri {
        return Err(invalid_grant("redirect_uri is not the one of the code"));
    }
    if application.suspended {
        return Err(invalid_grant("the application is suspended"));
    }
    let (connection, secrets) = connection::approved(core, application, code.company, &code.grants);
    let mut tokens = tokens(core, &connection, None);
    let codes = &mut core.oauth.codes;
    codes.insert(key, AuthorizationCode { used, ..code });
    for (name, secret) in secrets {
        tokens[name] = json!(secret);
    }
    Ok(tokens)
}

fn exchange_refresh(
    core: &mut Sandbox,
    application: &Application,
    form: &Form,
    used: Option<Used>,
) -> Result<Value, Problem> {
    let key = TokenKey::from_value(form.needed("refresh_token")?);
    let own = core
        .oauth
        .refreshes
        .get(&key)
        .filter(|own| own.application == application.id)
        .cloned()
        .ok_or_else(|| invalid_grant("unknown refresh token"))?;
    if let Some(used) = own.used {
        judge_reuse(core, ViolationKind::RefreshReused, "§5.6.6", used);
        return Err(invalid_grant("the refresh token was used"));
    }
    if own.revoked {
        return Err(invalid_grant("the refresh token was revoked"));
    }
    if core.now >= own.expires_at {
        return Err(invalid_grant("the refresh token has expired"));
    }
    if application.suspended {
        return Err(invalid_grant("the application is suspended"));
    }
    let connection = connection::live(core, application.id, own.company)
        .ok_or_else(|| invalid_grant("the company disconnected"))?;
    core.oauth.refreshes.insert(key, Refresh { used, ..own });
    Ok(tokens(core, &connection, Some(key)))
}

/// Records a violation because a code or a refresh token was used again. Records nothing if a fault
/// kept the answer to the first use from the client.
fn judge_reuse(core: &mut Sandbox, kind: ViolationKind, rule: &str, used: Used) {
    if used.answered {
        let after = core.now.since(used.at).as_millis();
        let message = format!("again {after} ms after its use was answered");
        core.record_violation(kind, rule, message);
    }
}

/// Issues an access token and a refresh token, and returns them as the answer of RFC 6749 (§4.1.1).
/// `parent` is the refresh token that was exchanged, if any.
fn tokens(core: &mut Sandbox, connection: &CompanyConnection, parent: Option<TokenKey>) -> Value {
    let (access, refresh) = pair(core, connection, parent);
    json!({
        "access_token": access,
        "token_type": "Bearer",
        "expires_in": core.settings.access_life.as_secs(),
        "refresh_token": refresh,
        "scope": scope(&connection.grants),
    })
}
