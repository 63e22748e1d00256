//! What a person does in the CRM with an application and its connections.

use super::super::core::{self, Sandbox};
use super::super::envelope::{Refusal, Request, Response};
use super::super::routes::Endpoint;
use super::super::token::{Company, Grant, Token, TokenKey, TokenKind};
use super::super::violations::ViolationKind;
use super::application::{Application, CompanyConnection};
use super::state::{OAuthChange, Pair, PairOrigin};
use crate::token_gen;
use crate::webhook;
use callbridge_call::{EpochSeconds, EventTime};

/// The endpoints whose refused bodies may be tried again after something changed.
const ENDPOINTS: [Endpoint; 2] = [Endpoint::OauthToken, Endpoint::OauthRevoke];

pub(super) fn oauth_change(sandbox: &mut Sandbox, now: EventTime, change: OAuthChange) {
    sandbox.change(now, core::Change::Oauth(Box::new(change)));
}

/// Makes a change of the book, and of the tokens that it means.
pub(crate) fn apply_oauth(sandbox: &mut Sandbox, at: EventTime, change: &OAuthChange) {
    sandbox.oauth.apply(at, change);
    match change {
        OAuthChange::Paired(pair) => {
            sandbox.tokens.insert(pair.access, token_of(pair));
        }
        OAuthChange::Disconnected {
            application,
            company,
        } => {
            for token in sandbox.tokens.values_mut() {
                let own = (token.application, token.company);
                token.revoked |= own == (Some(*application), *company);
            }
        }
        OAuthChange::RefreshRevoked { token } => {
            let over = sandbox.oauth.descent(*token);
            for token in sandbox.tokens.values_mut() {
                token.revoked |= token.refresh.is_some_and(|from| over.contains(&from));
            }
        }
        OAuthChange::Started(_) | OAuthChange::Application(_) => {
            sandbox.client.rules.forget_refused(&ENDPOINTS)
        }
        OAuthChange::Connection(_) => sandbox.client.rules.grants_changed(),
        OAuthChange::Approved { .. } => {}
    }
}

/// Registers an application, or changes the one of this id.
pub fn register(sandbox: &mut Sandbox, now: EventTime, application: Application) {
    oauth_change(sandbox, now, OAuthChange::Application(application));
}

/// Begins with the application of the flags, if they changed since the last start.
pub fn begin_application(sandbox: &mut Sandbox, now: EventTime) {
    let Some(application) = sandbox.settings.oauth.application.clone() else {
        return;
    };
    if sandbox.oauth.flags.as_ref() != Some(&application) {
        oauth_change(sandbox, now, OAuthChange::Started(application));
    }
}

/// The company disconnects: every token of the connection is over (§3.1). False: there was
/// none.
pub fn disconnect(sandbox: &mut Sandbox, now: EventTime, application: i64, company: i64) -> bool {
    let there = live_connection(sandbox, application, company).is_some();
    if there {
        let change = OAuthChange::Disconnected {
            application,
            company,
        };
        oauth_change(sandbox, now, change);
        webhook::webhook_disconnected(sandbox, now, company, application);
    }
    there
}

/// Sets what a connection may do, at once for the tokens there are (§5.4.1). False: no
/// connection.
pub fn set_connection_grants(
    sandbox: &mut Sandbox,
    now: EventTime,
    application: i64,
    company: i64,
    grants: Vec<Grant>,
) -> bool {
    let Some(mut changed) = live_connection(sandbox, application, company) else {
        return false;
    };
    changed.grants = grants;
    oauth_change(sandbox, now, OAuthChange::Connection(changed));
    true
}

/// Revokes every refresh token of a connection, with what was issued from them.
pub fn revoke_refresh_tokens(
    sandbox: &mut Sandbox,
    now: EventTime,
    application: i64,
    company: i64,
) {
    // The first of each consent: the others came of them.
    let keys: Vec<TokenKey> = (sandbox.oauth.refreshes(application, company))
        .filter(|(_, own)| {
            own.parent
                .is_none_or(|of| sandbox.oauth.refresh(of).is_none())
        })
        .filter(|(key, _)| sandbox.oauth.lives_on(*key))
        .map(|(key, _)| key)
        .collect();
    for token in keys {
        oauth_change(sandbox, now, OAuthChange::RefreshRevoked { token });
    }
}

/// Revokes an access or a refresh token, whoever's it is.
pub fn revoke_any(sandbox: &mut Sandbox, now: EventTime, value: &str) {
    let token = TokenKey::of(value);
    if sandbox.oauth.refresh(token).is_some() {
        oauth_change(sandbox, now, OAuthChange::RefreshRevoked { token });
    } else {
        sandbox.revoke(now, value);
    }
}

/// A pair past the consent page: access token, refresh token. A connection that is missing is
/// made with these grants. `None`: no such application.
pub fn issue_pair(
    sandbox: &mut Sandbox,
    now: EventTime,
    application: i64,
    company: i64,
    grants: Option<Vec<Grant>>,
) -> Option<(String, String)> {
    let allowed = sandbox
        .oauth
        .applications
        .get(&application)?
        .allowed
        .clone();
    sandbox.ensure_company(now, company);
    let there = live_connection(sandbox, application, company);
    let mut connection = there.unwrap_or(CompanyConnection {
        application,
        company,
        grants: allowed,
        connected_at: now,
        disconnected: false,
        embedded_given: false,
    });
    if let Some(grants) = grants {
        connection.grants = grants;
    }
    oauth_change(sandbox, now, OAuthChange::Connection(connection.clone()));
    if sandbox.webhooks.installed(company, application).is_none() {
        webhook::webhook_connected(sandbox, now, company, application);
    }
    let Minted { access, refresh } = pair(sandbox, now, &connection, PairOrigin::Person, true);
    Some((access, refresh))
}

/// A pair of tokens with the values that only its one answer shows.
pub(super) struct Minted {
    pub(super) access: String,
    pub(super) refresh: String,
}

/// Gives out a pair, which uses up what it was got for.
pub(super) fn pair(
    sandbox: &mut Sandbox,
    now: EventTime,
    connection: &CompanyConnection,
    origin: PairOrigin,
    answered: bool,
) -> Minted {
    let minted = Minted {
        access: token_gen::mint(sandbox, "svc_at_"),
        refresh: token_gen::mint(sandbox, "svcrt_"),
    };
    let lives = &sandbox.settings.oauth;
    let seconds = i64::try_from(lives.access_life.as_secs()).unwrap_or(i64::MAX);
    let ends = now.floor_seconds().get().saturating_add(seconds);
    let pair = Pair {
        access: TokenKey::of(&minted.access),
        access_expires_at: EpochSeconds::new(ends),
        refresh: TokenKey::of(&minted.refresh),
        refresh_expires_at: now.plus(lives.refresh_life),
        application: connection.application,
        company: connection.company,
        origin,
        answered,
    };
    oauth_change(sandbox, now, OAuthChange::Paired(pair));
    minted
}

pub(super) fn live_connection(
    sandbox: &Sandbox,
    application: i64,
    company: i64,
) -> Option<CompanyConnection> {
    let own = sandbox.oauth.connections.get(&(application, company))?;
    (!own.disconnected).then(|| own.clone())
}

/// The company of a token's connection, and what the connection may do; `None` when one of them is
/// not there, or ended.
fn connection_of<'a>(sandbox: &'a Sandbox, token: &Token) -> Option<(&'a Company, &'a [Grant])> {
    let company = sandbox.companies.get(&token.company)?;
    let (ended, grants) = match token.application {
        None => (company.disconnected, &company.grants),
        Some(application) => {
            let key = (application, token.company);
            let own = sandbox.oauth.connections.get(&key)?;
            (own.disconnected, &own.grants)
        }
    };
    (!ended).then_some((company, grants.as_slice()))
}

/// May the connection of this token do that (§5.4)?
pub(crate) fn granted(sandbox: &Sandbox, token: &Token, grant: &str) -> bool {
    connection_of(sandbox, token)
        .is_some_and(|(_, grants)| grants.iter().any(|own| own.as_str() == grant))
}

/// The company is there and not blocked, and its connection is not ended (§3.1).
pub(crate) fn connection_stands(sandbox: &Sandbox, token: &Token) -> bool {
    connection_of(sandbox, token).is_some_and(|(company, _)| !company.blocked)
}

/// An endpoint asked at the address of the others (§5.6.9).
pub(crate) fn wrong_host(sandbox: &mut Sandbox, now: EventTime, request: &Request) -> Response {
    let words = format!("{} {} at the other address", request.method, request.path);
    sandbox.violation(now, ViolationKind::WrongHost, "§5.6.9", words);
    Refusal::NotFound("Manzil topilmadi").respond()
}

const fn token_of(pair: &Pair) -> Token {
    Token {
        kind: TokenKind::Access,
        company: pair.company,
        application: Some(pair.application),
        refresh: Some(pair.refresh),
        expires_at: Some(pair.access_expires_at),
        revoked: false,
    }
}
