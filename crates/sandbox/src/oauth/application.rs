//! Public applications, and their connections to companies (§5.4, §5.6.1).

use crate::token::{Grant, TokenKey};
use callbridge_call::EventTime;
use serde::{Deserialize, Serialize};

/// An application that companies connect by consent (§5.6.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Application {
    /// §2.2 `application.id`
    pub id: i64,
    /// §2.2 `application.name`
    pub name: String,
    /// `svc_app_…`
    pub client_id: String,
    /// Fingerprint of the client secret, `svc_sec_…`.
    pub secret: TokenKey,
    /// Where the browser may return to; compared exactly.
    pub redirect_uris: Vec<String>,
    /// The ceiling of what may be requested.
    pub allowed: Vec<Grant>,
    /// Companies can connect only to a published one.
    pub published: bool,
    /// No code and no refresh token of it works (§7.6, 6906).
    pub suspended: bool,
    /// It has an embedded page.
    pub embedded: bool,
}

impl Application {
    /// A published one that may ask for nothing, returns nowhere and has no secret yet.
    pub fn new(client_id: String) -> Self {
        Self {
            id: 0,
            name: "callbridge for everybody".to_owned(),
            client_id,
            // No text has this fingerprint.
            secret: TokenKey::NONE,
            redirect_uris: Vec::new(),
            allowed: Vec::new(),
            published: true,
            suspended: false,
            embedded: false,
        }
    }
}

/// One application in one company (§5.4): the grants are its own, and a change of them holds at
/// once for tokens that exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompanyConnection {
    /// The application's id.
    pub application: i64,
    /// The company's id.
    pub company: i64,
    /// What the company approved, or narrowed it to since.
    pub grants: Vec<Grant>,
    /// When it was made.
    pub connected_at: EventTime,
    /// The company ended it: nothing of it works any more.
    pub disconnected: bool,
    /// The embedded page's key was given out.
    pub embedded_given: bool,
}

impl CompanyConnection {
    /// A new one.
    pub const fn new(
        application: i64,
        company: i64,
        grants: Vec<Grant>,
        connected_at: EventTime,
    ) -> Self {
        Self {
            application,
            company,
            grants,
            connected_at,
            disconnected: false,
            embedded_given: false,
        }
    }
}

/// What the application asks a company for, checked.
#[derive(Clone, Debug)]
pub(super) struct ConsentRequest {
    pub(super) application: Application,
    pub(super) redirect_uri: String,
    pub(super) scope: Vec<Grant>,
    pub(super) state: Option<String>,
}

/// Grants as a scope string: `PERMISSION:SCOPE`, single spaces between (§2.3).
pub fn scope(grants: &[Grant]) -> String {
    let words: Vec<&str> = grants.iter().map(Grant::as_str).collect();
    words.join(" ")
}
