//! Codes, refresh tokens and connections, and what each change makes of them. All by fingerprint:
//! the book never holds a token's value.

use super::application::{Application, CompanyConnection};
use super::problem::Log;
use crate::token::{Grant, TokenKey};
use callbridge_call::{EpochSeconds, EventTime};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Lifetime of an authorization code (Limits).
pub const CODE_LIFE: Duration = Duration::from_secs(600);
/// Lifetime of a refresh token (Limits).
pub const REFRESH_LIFE: Duration = Duration::from_secs(30 * 86_400);
/// What is over for longer than this is forgotten; it is then unknown rather than used.
const KEPT_AFTER: Duration = Duration::from_secs(60 * 86_400);

/// The id of the first public application.
pub const FIRST_APPLICATION: i64 = 101;

/// How a code or a refresh token was used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// When.
    pub at: EventTime,
    /// The answer left whole and at once: the client has what it was exchanged for.
    pub answered: bool,
}

/// An authorization code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationCode {
    /// Of which application.
    pub application: i64,
    /// Which company approved.
    pub company: i64,
    /// Where the browser was sent; the exchange must name the same.
    pub redirect_uri: String,
    /// What was approved.
    pub grants: Vec<Grant>,
    /// From when its ten minutes run.
    pub issued_at: EventTime,
    /// Its one use.
    pub used: Option<Used>,
}

/// A refresh token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refresh {
    /// Of which application.
    pub application: i64,
    /// In which company.
    pub company: i64,
    /// The refresh token it was got for; `None` for the first of a consent.
    pub parent: Option<TokenKey>,
    /// From then on it does not work.
    pub expires_at: EventTime,
    /// It was revoked, or the company disconnected.
    pub revoked: bool,
    /// Its one use.
    pub used: Option<Used>,
}

/// What a pair of tokens was got for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PairOrigin {
    /// An authorization code.
    Code(TokenKey),
    /// A refresh token.
    Refresh(TokenKey),
    /// A person, past the consent page.
    Person,
}

/// An access token and its refresh token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The access token.
    pub access: TokenKey,
    /// Its end.
    pub access_expires_at: EpochSeconds,
    /// The refresh token.
    pub refresh: TokenKey,
    /// Its end.
    pub refresh_expires_at: EventTime,
    /// Of which application.
    pub application: i64,
    /// In which company.
    pub company: i64,
    /// What it was got for, which is used up by it.
    pub origin: PairOrigin,
    /// The answer leaves whole and at once.
    pub answered: bool,
}

/// A change of what outlives a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OAuthChange {
    /// A start with this application in the flags.
    Started(Application),
    /// An application, as it now is.
    Application(Application),
    /// A connection, as it now is.
    Connection(CompanyConnection),
    /// A company approved.
    Approved {
        /// The code's fingerprint.
        code: TokenKey,
        /// What is known of it.
        record: AuthorizationCode,
    },
    /// A pair of tokens was given out.
    Paired(Pair),
    /// A company disconnected an application: all its tokens are over for good.
    Disconnected {
        /// The application's id.
        application: i64,
        /// The company's id.
        company: i64,
    },
    /// A refresh token was revoked, with all that came of it.
    RefreshRevoked {
        /// Its fingerprint.
        token: TokenKey,
    },
}

/// Applications, connections, codes and refresh tokens.
#[derive(Clone, Debug, Default)]
pub struct OAuthState {
    /// Applications by their id.
    pub applications: BTreeMap<i64, Application>,
    /// Connections by application and company, ended ones included.
    pub connections: BTreeMap<(i64, i64), CompanyConnection>,
    /// Authorization codes.
    pub codes: BTreeMap<TokenKey, AuthorizationCode>,
    /// Refresh tokens.
    pub refreshes: BTreeMap<TokenKey, Refresh>,
    /// The application that the flags of the last start named.
    pub flags: Option<Application>,
    /// What was refused, with the codes that bodies do not carry.
    pub log: Log,
}

impl OAuthState {
    /// An application by its `client_id`.
    pub fn client(&self, client_id: &str) -> Option<&Application> {
        self.applications
            .values()
            .find(|application| application.client_id == client_id)
    }

    /// A refresh token by its fingerprint.
    pub fn refresh(&self, key: TokenKey) -> Option<&Refresh> {
        self.refreshes.get(&key)
    }

    /// The refresh tokens of a connection.
    pub fn refreshes(
        &self,
        application: i64,
        company: i64,
    ) -> impl Iterator<Item = (TokenKey, &Refresh)> {
        self.refreshes
            .iter()
            .filter(move |(_, own)| (own.application, own.company) == (application, company))
            .map(|(key, own)| (*key, own))
    }

    /// A free id for an application; those of companies' own lie below.
    pub fn next_application(&self) -> i64 {
        let last = self.applications.keys().next_back().copied();
        last.map_or(FIRST_APPLICATION, |last| last.max(FIRST_APPLICATION) + 1)
    }

    /// Refresh tokens that came of this one by rotation, itself included.
    pub fn descent(&self, token: TokenKey) -> BTreeSet<TokenKey> {
        let mut children: BTreeMap<TokenKey, Vec<TokenKey>> = BTreeMap::new();
        for (key, own) in &self.refreshes {
            if let Some(parent) = own.parent {
                children.entry(parent).or_default().push(*key);
            }
        }
        let (mut found, mut open) = (BTreeSet::from([token]), vec![token]);
        while let Some(next) = open.pop() {
            for child in children.get(&next).into_iter().flatten() {
                if found.insert(*child) {
                    open.push(*child);
                }
            }
        }
        found
    }

    /// Something that came of this refresh token is not revoked yet.
    pub fn lives_on(&self, token: TokenKey) -> bool {
        let mut all = self.descent(token).into_iter();
        all.any(|key| self.refreshes.get(&key).is_some_and(|own| !own.revoked))
    }

    pub(super) fn apply(&mut self, at: EventTime, change: &OAuthChange) {
        match change {
            OAuthChange::Started(application) => {
                self.flags = Some(application.clone());
                self.applications
                    .insert(application.id, application.clone());
            }
            OAuthChange::Application(application) => {
                self.applications
                    .insert(application.id, application.clone());
            }
            OAuthChange::Connection(connection) => {
                let key = (connection.application, connection.company);
                self.connections.insert(key, connection.clone());
            }
            OAuthChange::Approved { code, record } => {
                self.forget(at);
                self.codes.insert(*code, record.clone());
            }
            OAuthChange::Paired(pair) => self.pair(at, pair),
            OAuthChange::Disconnected {
                application,
                company,
            } => {
                let key = (*application, *company);
                if let Some(connection) = self.connections.get_mut(&key) {
                    connection.disconnected = true;
                }
                for own in self.refreshes.values_mut() {
                    own.revoked |= (own.application, own.company) == key;
                }
                // A code of before must not bring the connection back.
                self.codes
                    .retain(|_, code| (code.application, code.company) != key);
            }
            OAuthChange::RefreshRevoked { token } => {
                for key in self.descent(*token) {
                    if let Some(own) = self.refreshes.get_mut(&key) {
                        own.revoked = true;
                    }
                }
            }
        }
    }

    fn pair(&mut self, at: EventTime, pair: &Pair) {
        self.forget(at);
        let used = Some(Used {
            at,
            answered: pair.answered,
        });
        let parent = match pair.origin {
            PairOrigin::Code(code) => {
                if let Some(code) = self.codes.get_mut(&code) {
                    code.used = used;
                }
                None
            }
            PairOrigin::Refresh(old) => {
                if let Some(old) = self.refreshes.get_mut(&old) {
                    old.used = used;
                }
                Some(old)
            }
            PairOrigin::Person => None,
        };
        let refresh = Refresh {
            application: pair.application,
            company: pair.company,
            parent,
            expires_at: pair.refresh_expires_at,
            revoked: false,
            used: None,
        };
        self.refreshes.insert(pair.refresh, refresh);
    }

    fn forget(&mut self, at: EventTime) {
        self.codes
            .retain(|_, code| at < code.issued_at.plus(KEPT_AFTER));
        self.refreshes
            .retain(|_, own| at < own.expires_at.plus(KEPT_AFTER));
    }
}
