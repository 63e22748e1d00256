//! Public applications and their connections to companies (§5.4, §5.6.1), and codes and refresh
//! tokens. Only the fingerprint of a token is stored.

use crate::{Grant, TokenKey, oauth::problem::Log, pairs};
use callbridge_call::EventTime;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;
use url::{Host, Url};

/// An application that companies connect by consent (§5.6.1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Application {
    /// The id that tokens of the application report (§2.2 `application.id`).
    pub id: i64,
    /// The name that tokens of the application report (§2.2 `application.name`).
    pub name: String,
    /// The public id of the application: `svc_app_…`.
    pub client_id: String,
    /// Fingerprint of the client secret, `svc_sec_…`.
    pub secret: TokenKey,
    /// Addresses that the browser can return to after consent. A requested address must be exactly
    /// one of them.
    pub redirect_uris: Vec<String>,
    /// All grants that the application can request.
    pub allowed: Vec<Grant>,
    /// `true` if companies can connect to the application.
    pub published: bool,
    /// `true` if the application is suspended, so none of its codes and refresh tokens works (§7.6,
    /// 6906).
    pub suspended: bool,
    /// `true` if the application has an embedded page. The first exchange then issues a key for the
    /// page.
    pub embedded: bool,
}

impl Application {
    /// Creates a published application without grants, addresses to return to, or a secret.
    pub fn new(client_id: String) -> Self {
        Self {
            name: "callbridge for everybody".to_owned(),
            client_id,
            published: true,
            ..Self::default()
        }
    }
}

/// The connection of one application to one company (§5.4). A change of its grants applies to
/// existing tokens at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompanyConnection {
    /// The id of the connected application.
    pub application: i64,
    /// The id of the connected company.
    pub company: i64,
    /// Grants that the company approved, or that a person set later.
    pub grants: Vec<Grant>,
    /// The moment at which the connection was made: the exchange of its first authorization code.
    pub connected_at: EventTime,
    /// `true` if the company ended the connection, so none of its tokens works.
    pub disconnected: bool,
    /// `true` if the key of the embedded page was issued.
    pub embedded_given: bool,
}

/// A checked request of an application for a company's consent.
#[derive(Clone, Debug)]
pub(crate) struct ConsentRequest {
    pub(super) application: Application,
    pub(super) redirect_uri: String,
    pub(super) scope: Vec<Grant>,
    pub(super) state: Option<String>,
}

/// Joins grants into a scope string: `PERMISSION:SCOPE` with single spaces between (§2.3).
pub fn scope(grants: &[Grant]) -> String {
    let words: Vec<&str> = grants.iter().map(Grant::as_str).collect();
    words.join(" ")
}

/// Checks a redirect URI and returns it unchanged. It must be absolute and have no fragment, and it
/// must use HTTPS, or HTTP on loopback.
///
/// # Errors
/// A message with the reason.
pub fn redirect_uri(text: &str) -> Result<String, String> {
    let Ok(url) = Url::parse(text) else {
        return Err(format!("`{text}`: no absolute address"));
    };
    let loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => IpAddr::V4(ip).is_loopback(),
        Some(Host::Ipv6(ip)) => IpAddr::V6(ip).is_loopback(),
        None => false,
    };
    match url.scheme() {
        _ if url.fragment().is_some() => Err(format!("`{text}`: a fragment")),
        "https" => Ok(text.to_owned()),
        "http" if loopback => Ok(text.to_owned()),
        _ => Err(format!(
            "`{text}`: neither https:// nor http:// on loopback"
        )),
    }
}

/// Lifetime of an authorization code (Limits).
pub const CODE_LIFE: Duration = Duration::from_secs(600);
/// Lifetime of a refresh token (Limits).
pub const REFRESH_LIFE: Duration = Duration::from_secs(30 * 86_400);
/// How long codes are remembered after their issue, and refresh tokens after their expiry. Later,
/// both are unknown.
const KEPT_AFTER: Duration = Duration::from_secs(60 * 86_400);

/// The id of the first public application.
pub const FIRST_APPLICATION: i64 = 101;

/// The exchange that used up a code or a refresh token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// Time at which the code was exchanged for tokens.
    pub at: EventTime,
    /// `true` if the answer was sent completely and without delay, so the client has the new
    /// tokens.
    pub answered: bool,
}

/// An authorization code, from a consent to its exchange.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationCode {
    /// The id of the application that can exchange the code.
    pub application: i64,
    /// The id of the company that approved.
    pub company: i64,
    /// The address that the browser was sent to. The exchange must name the same address.
    pub redirect_uri: String,
    /// Rights that the company approved.
    pub grants: Vec<Grant>,
    /// The moment of issue, from which the ten minutes of validity count.
    pub issued_at: EventTime,
    /// The exchange that used it up; `None` until then.
    pub used: Option<Used>,
}

/// A refresh token and its place in the rotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refresh {
    /// The id of the application that can use the token.
    pub application: i64,
    /// The id of the connected company.
    pub company: i64,
    /// The refresh token that was exchanged for this token. `None` for the first token after a
    /// consent.
    pub parent: Option<TokenKey>,
    /// The moment from which the token does not work.
    pub expires_at: EventTime,
    /// `true` if the token was revoked, or the company disconnected.
    pub revoked: bool,
    /// The exchange that used it up; `None` until then.
    pub used: Option<Used>,
}

/// Applications, connections, codes and refresh tokens.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OAuthState {
    /// Public applications by their id.
    pub applications: BTreeMap<i64, Application>,
    /// Connections by application and company, including ended connections.
    #[serde(with = "pairs")]
    pub connections: BTreeMap<(i64, i64), CompanyConnection>,
    /// Authorization codes by their fingerprint, including used codes.
    pub codes: BTreeMap<TokenKey, AuthorizationCode>,
    /// Refresh tokens by their fingerprint, including used and revoked tokens.
    pub refreshes: BTreeMap<TokenKey, Refresh>,
    /// The application as the flags of the last start described it. A difference shows that the
    /// flags have changed.
    pub flags: Option<Application>,
    /// Refusals of the OAuth endpoints, with their domain codes, which OAuth answers do not show.
    #[serde(skip)]
    pub log: Log,
}

impl OAuthState {
    /// Finds an application by its `client_id`.
    pub fn client(&self, client_id: &str) -> Option<&Application> {
        let mut all = self.applications.values();
        all.find(|application| application.client_id == client_id)
    }

    /// Iterates over the refresh tokens of a connection.
    pub fn refreshes(
        &self,
        application: i64,
        company: i64,
    ) -> impl Iterator<Item = (&TokenKey, &Refresh)> {
        let pair = (application, company);
        (self.refreshes.iter()).filter(move |(_, own)| (own.application, own.company) == pair)
    }

    /// Returns this refresh token and all refresh tokens that were issued from it by rotation.
    pub fn descent(&self, token: TokenKey) -> BTreeSet<TokenKey> {
        let mut children: BTreeMap<TokenKey, Vec<TokenKey>> = BTreeMap::new();
        for (key, own) in &self.refreshes {
            if let Some(parent) = own.parent {
                children.entry(parent).or_default().push(*key);
            }
        }
        let mut found = BTreeSet::from([token]);
        let mut open = vec![token];
        while let Some(next) = open.pop() {
            for child in children.get(&next).into_iter().flatten() {
                if found.insert(*child) {
                    open.push(*child);
                }
            }
        }
        found
    }

    /// Removes codes and refresh tokens that have been useless for a long time (see `KEPT_AFTER`).
    pub(super) fn forget(&mut self, at: EventTime) {
        self.codes
            .retain(|_, code| at < code.issued_at.plus(KEPT_AFTER));
        self.refreshes
            .retain(|_, refresh| at < refresh.expires_at.plus(KEPT_AFTER));
    }
}
