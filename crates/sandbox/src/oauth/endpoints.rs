//! The token and the revoke endpoint (§4.1): outside the authentication layer and its windows,
//! form-encoded, the refusals in the full envelope.

use super::super::apply_fault::{after_effect, instead};
use super::super::core::Sandbox;
use super::super::envelope::{BODY_BYTES_MAX, Refusal, Request, Response, Success};
use super::super::faults::Action;
use super::super::routes::Endpoint;
use super::super::token::TokenKey;
use super::super::violations::ViolationKind;
use super::form::Form;
use super::problem::{Code, Problem};
use super::{Application, misplaced};
use crate::oauth::exchange::{self, Exchange};
use callbridge_call::EventTime;

/// Answers the token and the revoke endpoint.
pub(crate) fn oauth_endpoint(
    sandbox: &mut Sandbox,
    now: EventTime,
    endpoint: Endpoint,
    request: &Request,
) -> Response {
    misplaced::judge_oauth(sandbox, now, request);
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
            exchange::revoke_for(sandbox, &application, &form)?;
            return Ok(Success::default().respond("Success"));
        }
        let asked = Exchange {
            now,
            application: &application,
            form: &form,
            answered: fault.is_none_or(Action::leaves_answer_whole),
        };
        let told = exchange::exchange(sandbox, &asked)?;
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
