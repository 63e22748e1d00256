//! What a person does in the CRM with an application and its connections.

use super::super::breaches::Kind;
use super::super::core::{self, Sandbox};
use super::super::envelope::{Refusal, Request, Response};
use super::super::routes::Endpoint;
use super::super::token::{Grant, Token, TokenKey, TokenKind};
use super::application::{Application, Connection};
use super::book::{Book, Change, Origin, Pair};
use super::exchange::Minted;
use callbridge_call::EventTime;

/// The endpoints whose refused bodies may be tried again after something changed.
const ENDPOINTS: [Endpoint; 2] = [Endpoint::OauthToken, Endpoint::OauthRevoke];

impl Sandbox {
    /// Applications, connections, codes, refresh tokens, and the log of refusals.
    pub const fn oauth(&self) -> &Book {
        &self.oauth
    }

    pub(super) fn oauth_change(&mut self, now: EventTime, change: Change) {
        self.change(now, core::Change::Oauth(Box::new(change)));
    }

    /// Makes a change of the book, and of the tokens that it means.
    pub(crate) fn apply_oauth(&mut self, at: EventTime, change: &Change) {
        let over = match change {
            Change::RefreshRevoked { token } => Some(self.oauth.descent(*token)),
            Change::Started(_)
            | Change::Application(_)
            | Change::Connection(_)
            | Change::Approved { .. }
            | Change::Paired(_)
            | Change::Disconnected { .. } => None,
        };
        self.oauth.apply(at, change);
        match change {
            Change::Paired(pair) => {
                self.tokens.insert(pair.access, token_of(pair));
            }
            Change::Disconnected {
                application,
                company,
            } => {
                for token in self.tokens.values_mut() {
                    let own = (token.application, token.company);
                    token.revoked |= own == (Some(*application), *company);
                }
            }
            Change::RefreshRevoked { .. } => {
                for token in self.tokens.values_mut() {
                    let issued = token.refresh.zip(over.as_ref());
                    token.revoked |= issued.is_some_and(|(from, over)| over.contains(&from));
                }
            }
            Change::Started(_) | Change::Application(_) => self.conduct.forget_refused(&ENDPOINTS),
            Change::Connection(_) => self.conduct.grants_changed(),
            Change::Approved { .. } => {}
        }
    }

    /// Registers an application, or changes the one of this id.
    pub fn register(&mut self, now: EventTime, application: Application) {
        self.oauth_change(now, Change::Application(application));
    }

    /// Begins with the application of the flags, if they changed since the last start.
    pub fn begin_application(&mut self, now: EventTime) {
        let Some(application) = self.settings.oauth.application.clone() else {
            return;
        };
        if self.oauth.of_flags() != Some(&application) {
            self.oauth_change(now, Change::Started(application));
        }
    }

    /// A new client secret; the one before is over at once (§5.6.8). `None`: no such application.
    pub fn rotate_client_secret(&mut self, now: EventTime, application: i64) -> Option<String> {
        let mut changed = self.oauth.application(application)?.clone();
        let secret = self.mint("svc_sec_");
        changed.secret = TokenKey::of(&secret);
        self.register(now, changed);
        Some(secret)
    }

    /// The company disconnects: every token of the connection is over (§3.1). False: there was
    /// none.
    pub fn disconnect(&mut self, now: EventTime, application: i64, company: i64) -> bool {
        let there = self.live_connection(application, company).is_some();
        if there {
            let change = Change::Disconnected {
                application,
                company,
            };
            self.oauth_change(now, change);
            self.webhook_disconnected(now, company, application);
        }
        there
    }

    /// Sets what a connection may do, at once for the tokens there are (§5.4.1). False: no
    /// connection.
    pub fn set_connection_grants(
        &mut self,
        now: EventTime,
        application: i64,
        company: i64,
        grants: Vec<Grant>,
    ) -> bool {
        let Some(mut changed) = self.live_connection(application, company) else {
            return false;
        };
        changed.grants = grants;
        self.oauth_change(now, Change::Connection(changed));
        true
    }

    /// Revokes every refresh token of a connection, with what was issued from them.
    pub fn revoke_refresh_tokens(&mut self, now: EventTime, application: i64, company: i64) {
        // The first of each consent: the others came of them.
        let keys: Vec<TokenKey> = (self.oauth.refreshes(application, company))
            .filter(|(_, own)| own.parent.is_none_or(|of| self.oauth.refresh(of).is_none()))
            .filter(|(key, _)| self.oauth.lives_on(*key))
            .map(|(key, _)| key)
            .collect();
        for token in keys {
            self.oauth_change(now, Change::RefreshRevoked { token });
        }
    }

    /// Revokes an access or a refresh token, whoever's it is.
    pub fn revoke_any(&mut self, now: EventTime, value: &str) {
        let token = TokenKey::of(value);
        if self.oauth.refresh(token).is_some() {
            self.oauth_change(now, Change::RefreshRevoked { token });
        } else {
            self.revoke(now, value);
        }
    }

    /// A pair past the consent page: access token, refresh token. A connection that is missing is
    /// made with these grants. `None`: no such application.
    pub fn issue_pair(
        &mut self,
        now: EventTime,
        application: i64,
        company: i64,
        grants: Option<Vec<Grant>>,
    ) -> Option<(String, String)> {
        let allowed = self.oauth.application(application)?.allowed.clone();
        self.ensure_company(now, company);
        let there = self.live_connection(application, company);
        let mut connection = there.unwrap_or(Connection {
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
        self.oauth_change(now, Change::Connection(connection.clone()));
        if self.webhooks.installed(company, application).is_none() {
            self.webhook_connected(now, company, application);
        }
        let Minted { access, refresh } = self.pair(now, &connection, Origin::Person, true);
        Some((access, refresh))
    }

    pub(super) fn live_connection(&self, application: i64, company: i64) -> Option<Connection> {
        let own = self.oauth.connection(application, company)?;
        (!own.disconnected).then(|| own.clone())
    }

    /// May the connection of this token do that (§5.4)?
    pub(crate) fn granted(&self, token: &Token, grant: &str) -> bool {
        match token.application {
            None => {
                let company = self.companies.get(&token.company);
                company.is_some_and(|company| company.may(grant))
            }
            Some(application) => {
                let own = self.oauth.connection(application, token.company);
                own.is_some_and(|own| own.may(grant))
            }
        }
    }

    /// The company is there and not blocked, and its connection is not ended (§3.1).
    pub(crate) fn connection_stands(&self, token: &Token) -> bool {
        let Some(company) = self.companies.get(&token.company) else {
            return false;
        };
        let connected = match token.application {
            None => !company.disconnected,
            Some(application) => {
                let own = self.oauth.connection(application, token.company);
                own.is_some_and(|own| !own.disconnected)
            }
        };
        connected && !company.blocked
    }

    /// An endpoint asked at the address of the others (§5.6.9).
    pub(crate) fn wrong_host(&mut self, now: EventTime, request: &Request) -> Response {
        let words = format!("{} {} at the other address", request.method, request.path);
        self.breach(now, Kind::WrongHost, "§5.6.9", words);
        Refusal::NotFound("Manzil topilmadi").respond()
    }
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
