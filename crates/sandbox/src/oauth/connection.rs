//! Changes that a person makes to an application and its connections in the CRM.

use crate::{
    Application, Company, CompanyConnection, Grant, Refresh, Sandbox, Token, TokenKey, TokenKind,
    webhook::webhook_connected,
};
use callbridge_call::EventTime;

/// Registers an application, or replaces the application with the same id.
pub fn register(core: &mut Sandbox, application: Application) {
    core.client.rules.application_changed();
    let known = &mut core.oauth.applications;
    known.insert(application.id, application);
}

/// Stores a connection. Its grants apply to existing tokens at once (§5.4.1).
pub(super) fn connect(core: &mut Sandbox, connection: CompanyConnection) {
    core.client.rules.grants_changed();
    let key = (connection.application, connection.company);
    core.oauth.connections.insert(key, connection);
}

/// Disconnects a company from an application. Revokes every token, code, and webhook installation
/// of the connection for good (§3.1). Returns `false` if there was no connection.
pub fn disconnect(core: &mut Sandbox, application: i64, company: i64) -> bool {
    let Some(mut connection) = live(core, application, company) else {
        return false;
    };
    connection.disconnected = true;
    connect(core, connection);
    let key = (application, company);
    for token in core.tokens.values_mut() {
        token.revoked |= (token.application, token.company) == (Some(application), company);
    }
    for own in core.oauth.refreshes.values_mut() {
        own.revoked |= (own.application, own.company) == key;
    }
    // An earlier code must not restore the connection.
    let codes = &mut core.oauth.codes;
    codes.retain(|_, code| (code.application, code.company) != key);
    // The webhook deliveries of the connection stop (§6.1.6).
    for own in core.webhooks.installations.values_mut() {
        own.revoked |= (own.application, own.company) == key;
    }
    true
}

/// Sets the grants of a connection. Returns `false` if there is no such connection.
pub fn set_grants(core: &mut Sandbox, application: i64, company: i64, grants: Vec<Grant>) -> bool {
    let connection = live(core, application, company);
    let changed = connection.map(|own| connect(core, CompanyConnection { grants, ..own }));
    changed.is_some()
}

/// Revokes every refresh token of a connection, with the access tokens issued from them.
pub fn revoke_refresh_tokens(core: &mut Sandbox, application: i64, company: i64) {
    let own = core.oauth.refreshes(application, company);
    let keys: Vec<TokenKey> = own.map(|(key, _)| *key).collect();
    keys.into_iter().for_each(|key| revoke_refresh(core, key));
}

/// Revokes a refresh token, with all tokens that were issued from it.
pub(super) fn revoke_refresh(core: &mut Sandbox, token: TokenKey) {
    let over = core.oauth.descent(token);
    for (key, own) in &mut core.oauth.refreshes {
        own.revoked |= over.contains(key);
    }
    for token in core.tokens.values_mut() {
        token.revoked |= token.refresh.is_some_and(|from| over.contains(&from));
    }
}

/// Revokes an access or a refresh token of any application.
pub fn revoke_any(core: &mut Sandbox, value: &str) {
    let token = TokenKey::from_value(value);
    if core.oauth.refreshes.contains_key(&token) {
        revoke_refresh(core, token);
    } else {
        core.revoke_key(token);
    }
}

/// Creates the connection of an application and a company, or sets the grants of the existing one.
/// Also returns the names and values of new secrets, which only the first exchange shows (§5.6.8).
pub(super) fn approved(
    core: &mut Sandbox,
    application: &Application,
    company: i64,
    grants: &[Grant],
) -> (CompanyConnection, Vec<(&'static str, String)>) {
    let there = live(core, application.id, company);
    let mut connection = there.unwrap_or(CompanyConnection {
        application: application.id,
        company,
        grants: Vec::new(),
        connected_at: core.now,
        disconnected: false,
        embedded_given: false,
    });
    connection.grants = grants
        .iter()
        .filter(|grant| application.allowed.contains(grant))
        .cloned()
        .collect();
    let mut secrets = Vec::new();
    if application.embedded && !connection.embedded_given {
        connection.embedded_given = true;
        secrets.push(("embedded_secret", core.mint_key()));
    }
    connect(core, connection.clone());
    // A key that the installation already has was shown when it was made.
    let installed = core.webhooks.installed(company, application.id);
    let record = installed.and_then(|id| core.webhooks.installations.get(&id));
    if record.is_none_or(|record| record.secret.is_none()) {
        let key = webhook_connected(core, company, application.id);
        secrets.extend(key.map(|key| ("webhook_secret", key.expose().to_owned())));
    }
    (connection, secrets)
}

/// Issues an access token and a refresh token without the consent page. Without `grants`, the
/// connection gets all grants that the application can request. Returns `None` if there is no such
/// application.
pub fn issue_pair(
    core: &mut Sandbox,
    now: EventTime,
    application: i64,
    company: i64,
    grants: Option<Vec<Grant>>,
) -> Option<TokenPair> {
    core.tick(now);
    let known = core.oauth.applications.get(&application)?.clone();
    core.ensure_company(company);
    let grants = grants.as_ref().unwrap_or(&known.allowed);
    let (connection, _) = approved(core, &known, company, grants);
    Some(pair(core, &connection, None))
}

/// The values of an access token and a refresh token. The sandbox stores only their fingerprints,
/// so only the answer that issues the tokens shows the values.
type TokenPair = (String, String);

/// Issues an access token and a refresh token. `parent` is the refresh token that was exchanged for
/// the new ones, if any.
pub(super) fn pair(
    core: &mut Sandbox,
    connection: &CompanyConnection,
    parent: Option<TokenKey>,
) -> TokenPair {
    let access = core.mint("svc_at_");
    let refresh = core.mint("svcrt_");
    let refresh_key = TokenKey::from_value(&refresh);
    let application = connection.application;
    let company = connection.company;
    let access_end = core.now.plus(core.settings.access_life).floor_seconds();
    let token = Token {
        kind: TokenKind::Access,
        company,
        application: Some(application),
        refresh: Some(refresh_key),
        expires_at: Some(access_end),
        revoked: false,
    };
    core.tokens.insert(TokenKey::from_value(&access), token);
    core.oauth.forget(core.now);
    let record = Refresh {
        application,
        company,
        parent,
        expires_at: core.now.plus(core.settings.refresh_life),
        revoked: false,
        used: None,
    };
    core.oauth.refreshes.insert(refresh_key, record);
    (access, refresh)
}

pub(super) fn live(core: &Sandbox, application: i64, company: i64) -> Option<CompanyConnection> {
    let own = core.oauth.connections.get(&(application, company))?;
    (!own.disconnected).then(|| own.clone())
}

/// Returns the company of a token's connection and the grants of the connection. Returns `None` if
/// the company or the connection is missing, or the connection has ended.
pub(crate) fn connection_of<'a>(
    core: &'a Sandbox,
    token: &Token,
) -> Option<(&'a Company, &'a [Grant])> {
    let company = core.companies.get(&token.company)?;
    let (ended, grants) = match token.application {
        None => (company.disconnected, &company.grants),
        Some(application) => {
            let key = (application, token.company);
            let own = core.oauth.connections.get(&key)?;
            (own.disconnected, &own.grants)
        }
    };
    if ended {
        None
    } else {
        Some((company, grants.as_slice()))
    }
}

/// Returns `true` if the connection of this token has the grant (§5.4).
pub(crate) fn granted(core: &Sandbox, token: &Token, grant: &str) -> bool {
    let connection = connection_of(core, token);
    connection.is_some_and(|(_, grants)| grants.iter().any(|own| own.as_str() == grant))
}
