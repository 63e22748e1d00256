//! What a person does in the CRM with an application and its connections.

use crate::{
    Application, Company, CompanyConnection, Grant, Refresh, Sandbox, Token, TokenKey, TokenKind,
    webhook::webhook_connected,
};
use callbridge_call::{EpochSeconds, EventTime};

/// Registers an application, or changes the one of this id.
pub fn register(sandbox: &mut Sandbox, application: Application) {
    sandbox.client.rules.application_changed();
    let known = &mut sandbox.oauth.applications;
    known.insert(application.id, application);
}

/// Begins with the application of the flags, if they changed since the last start.
pub fn begin_application(sandbox: &mut Sandbox) {
    let application = sandbox.settings.oauth.application.clone();
    if let Some(application) = application
        && sandbox.oauth.flags.as_ref() != Some(&application)
    {
        sandbox.oauth.flags = Some(application.clone());
        register(sandbox, application);
    }
}

/// A connection as it now is: its grants hold at once for the tokens there are (§5.4.1).
pub(super) fn connect(sandbox: &mut Sandbox, connection: CompanyConnection) {
    sandbox.client.rules.grants_changed();
    let key = (connection.application, connection.company);
    sandbox.oauth.connections.insert(key, connection);
}

/// The company disconnects: every token of the connection is over for good (§3.1). False: there
/// was none.
pub fn disconnect(sandbox: &mut Sandbox, application: i64, company: i64) -> bool {
    let Some(mut connection) = live_connection(sandbox, application, company) else {
        return false;
    };
    connection.disconnected = true;
    connect(sandbox, connection);
    let key = (application, company);
    for token in sandbox.tokens.values_mut() {
        token.revoked |= (token.application, token.company) == (Some(application), company);
    }
    for own in sandbox.oauth.refreshes.values_mut() {
        own.revoked |= (own.application, own.company) == key;
    }
    // A code of before must not bring the connection back.
    let codes = &mut sandbox.oauth.codes;
    codes.retain(|_, code| (code.application, code.company) != key);
    // Its deliveries stop (§6.1.6).
    let installation = sandbox.webhooks.installed(company, application);
    let installations = &mut sandbox.webhooks.installations;
    if let Some(own) = installation.and_then(|id| installations.get_mut(&id)) {
        own.revoked = true;
    }
    true
}

/// Sets the rights of a connection. Returns `false` where there is none.
pub fn set_connection_grants(
    sandbox: &mut Sandbox,
    application: i64,
    company: i64,
    grants: Vec<Grant>,
) -> bool {
    let connection = live_connection(sandbox, application, company);
    let there = connection.is_some();
    if let Some(changed) = connection {
        connect(sandbox, CompanyConnection { grants, ..changed });
    }
    there
}

/// Revokes every refresh token of a connection, with the access tokens issued from them.
pub fn revoke_refresh_tokens(sandbox: &mut Sandbox, application: i64, company: i64) {
    let own = sandbox.oauth.refreshes(application, company);
    let keys: Vec<TokenKey> = own.map(|(key, _)| key).collect();
    for token in keys {
        revoke_refresh(sandbox, token);
    }
}

/// A refresh token is over, with all that came of it.
pub(super) fn revoke_refresh(sandbox: &mut Sandbox, token: TokenKey) {
    let over = sandbox.oauth.descent(token);
    for (key, own) in &mut sandbox.oauth.refreshes {
        own.revoked |= over.contains(key);
    }
    for token in sandbox.tokens.values_mut() {
        token.revoked |= token.refresh.is_some_and(|from| over.contains(&from));
    }
}

/// Revokes an access or a refresh token of any application.
pub fn revoke_any(sandbox: &mut Sandbox, value: &str) {
    let token = TokenKey::of(value);
    if sandbox.oauth.refreshes.contains_key(&token) {
        revoke_refresh(sandbox, token);
    } else {
        sandbox.revoke_key(token);
    }
}

/// The connection as the company approved it: a new one, or the one there is with these grants.
/// The secrets come with its first exchange alone (§5.6.8).
pub(super) fn approved(
    sandbox: &mut Sandbox,
    application: &Application,
    company: i64,
    grants: &[Grant],
) -> (CompanyConnection, Vec<(&'static str, String)>) {
    let there = live_connection(sandbox, application.id, company);
    let mut connection = there.unwrap_or(CompanyConnection {
        application: application.id,
        company,
        grants: Vec::new(),
        connected_at: sandbox.now,
        disconnected: false,
        embedded_given: false,
    });
    let within = |grant: &&Grant| application.allowed.contains(grant);
    connection.grants = grants.iter().filter(within).cloned().collect();
    let mut secrets = Vec::new();
    if application.embedded && !connection.embedded_given {
        connection.embedded_given = true;
        secrets.push(("embedded_secret", sandbox.mint_key()));
    }
    connect(sandbox, connection.clone());
    // The installation's own key was shown when it was made.
    let installed = sandbox.webhooks.installed(company, application.id);
    let record = installed.and_then(|id| sandbox.webhooks.installations.get(&id));
    if record.is_none_or(|record| record.secret.is_none()) {
        let key = webhook_connected(sandbox, company, application.id);
        secrets.extend(key.map(|key| ("webhook_secret", key.expose().to_owned())));
    }
    (connection, secrets)
}

/// A pair past the consent page: access token, refresh token; without grants the connection may do
/// all that the application may ask for. `None`: no such application.
pub fn issue_pair(
    sandbox: &mut Sandbox,
    now: EventTime,
    application: i64,
    company: i64,
    grants: Option<Vec<Grant>>,
) -> Option<(String, String)> {
    sandbox.tick(now);
    let known = sandbox.oauth.applications.get(&application)?.clone();
    sandbox.ensure_company(company);
    let grants = grants.as_ref().unwrap_or(&known.allowed);
    let (connection, _) = approved(sandbox, &known, company, grants);
    Some(pair(sandbox, &connection, None))
}

/// Gives out an access and a refresh token; only their one answer shows the values. The parent is
/// the refresh token that they were got for.
pub(super) fn pair(
    sandbox: &mut Sandbox,
    connection: &CompanyConnection,
    parent: Option<TokenKey>,
) -> (String, String) {
    let minted = (sandbox.mint("svc_at_"), sandbox.mint("svcrt_"));
    let lives = &sandbox.settings.oauth;
    let seconds = i64::try_from(lives.access_life.as_secs()).unwrap_or(i64::MAX);
    let now = sandbox.now;
    let ends = now.floor_seconds().get().saturating_add(seconds);
    let refresh = TokenKey::of(&minted.1);
    let (application, company) = (connection.application, connection.company);
    let access = Token {
        kind: TokenKind::Access,
        company,
        application: Some(application),
        refresh: Some(refresh),
        expires_at: Some(EpochSeconds::new(ends)),
        revoked: false,
    };
    sandbox.tokens.insert(TokenKey::of(&minted.0), access);
    sandbox.oauth.forget(now);
    let record = Refresh {
        application,
        company,
        parent,
        expires_at: now.plus(lives.refresh_life),
        revoked: false,
        used: None,
    };
    sandbox.oauth.refreshes.insert(refresh, record);
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
pub(crate) fn connection_of<'a>(
    sandbox: &'a Sandbox,
    token: &Token,
) -> Option<(&'a Company, &'a [Grant])> {
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
