//! Which path is which endpoint, by which method, and what grant it needs (§4, §5.4).

use crate::{CALL_READ, CALL_SAVE};
use serde::Serialize;
use strum::VariantArray as _;

/// The path of the authorization page (§4.2).
pub(super) const CONSENT_PATH: &str = "/consent";
const PREFIX: &str = "/v1/open-api/";
const LEAD_READ: &str = "PERMISSION_OPEN_API_LEAD:READ";
const LEAD_SAVE: &str = "PERMISSION_OPEN_API_LEAD:SAVE";

/// The endpoints that the sandbox serves: those that a client for calls needs.
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Endpoint {
    /// The endpoint `GET token/info` (§4.3).
    TokenInfo,
    /// The endpoint `POST call-history` (§4.5).
    CallHistory,
    /// The endpoint `POST call-history/filter` (§4.5).
    Filter,
    /// The endpoint `GET request/{requestId}` (§4.6).
    Request,
    /// The endpoint `POST lead/filter` (§4.7).
    LeadFilter,
    /// The endpoint `GET lead/{leadId}` (§4.7).
    Lead,
    /// The endpoint `POST lead/{leadId}/field/list` (§4.4).
    LeadFields,
    /// The endpoint `GET crm-field` (§4.7).
    CrmField,
    /// The endpoint `POST oauth/token` (§4.1).
    OauthToken,
    /// The endpoint `POST oauth/revoke` (§4.1).
    OauthRevoke,
    /// The authorization page for browsers (§4.2).
    Consent,
    /// The destination of redirects that faults order: a request here has followed one.
    Moved,
    /// A path that is not served, or is not in the document.
    Unknown,
}

impl Endpoint {
    /// The one method where the sandbox judges it, and the grant.
    ///
    /// The document gives the grants of the upsert, of conversation submission and of token/info
    /// (§5.4.3); the others are ours, by the domains of §2.3. Those of the journal and of
    /// `request/{requestId}` can be chosen: `shape filter-grant`, `shape request-grant`.
    const fn facts(self) -> (Option<&'static str>, Option<&'static str>) {
        match self {
            Self::TokenInfo | Self::Request => (Some("GET"), None),
            Self::CallHistory => (Some("POST"), Some(CALL_SAVE)),
            Self::Filter => (Some("POST"), Some(CALL_READ)),
            Self::LeadFilter => (Some("POST"), Some(LEAD_READ)),
            Self::Lead | Self::CrmField => (Some("GET"), Some(LEAD_READ)),
            Self::LeadFields => (Some("POST"), Some(LEAD_SAVE)),
            Self::OauthToken | Self::OauthRevoke => (Some("POST"), None),
            Self::Consent | Self::Moved | Self::Unknown => (None, None),
        }
    }

    /// The word used in faults and counts.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// The endpoint of a word that a fault can be ordered for; `None` for others.
    pub fn from_word(word: &str) -> Option<Self> {
        let known: Option<Self> = word.parse().ok();
        known.filter(|endpoint| endpoint.method().is_some())
    }

    /// The words of all endpoints that a fault can be ordered for, for a message.
    pub fn words() -> String {
        let served = Self::VARIANTS.iter().filter(|it| it.method().is_some());
        served.map(|it| it.word()).collect::<Vec<_>>().join(", ")
    }

    /// Token and revoke: at an address of their own, without a token (§5.6.9).
    pub const fn is_oauth(self) -> bool {
        matches!(self, Self::OauthToken | Self::OauthRevoke)
    }

    /// A POST to it writes, or uses something up; other POSTs are questions.
    pub const fn is_write(self) -> bool {
        matches!(self, Self::CallHistory | Self::LeadFields) || self.is_oauth()
    }

    /// The method it takes; `None` where the sandbox does not judge.
    pub const fn method(self) -> Option<&'static str> {
        self.facts().0
    }

    /// The grant without which the endpoint answers 403; `None` where it needs none.
    pub const fn grant(self) -> Option<&'static str> {
        self.facts().1
    }

    /// The section whose rules a refused body broke.
    pub const fn section(self) -> &'static str {
        match self {
            Self::LeadFields => "§4.4",
            Self::CallHistory => "§2.6",
            _ => "§4.7",
        }
    }
}

/// The endpoint of a path and, where one stands in it, the id.
pub fn route(path: &str) -> (Endpoint, &str) {
    if path == CONSENT_PATH {
        return (Endpoint::Consent, "");
    }
    let rest = path.strip_prefix(PREFIX).unwrap_or_default();
    let parts: Vec<&str> = rest.split('/').collect();
    match parts.as_slice() {
        ["token", "info"] => (Endpoint::TokenInfo, ""),
        ["call-history"] => (Endpoint::CallHistory, ""),
        ["call-history", "filter"] => (Endpoint::Filter, ""),
        ["lead", "filter"] => (Endpoint::LeadFilter, ""),
        ["crm-field"] => (Endpoint::CrmField, ""),
        ["oauth", "token"] => (Endpoint::OauthToken, ""),
        ["oauth", "revoke"] => (Endpoint::OauthRevoke, ""),
        ["moved", ..] => (Endpoint::Moved, ""),
        [_, "", ..] => (Endpoint::Unknown, ""),
        ["request", id] => (Endpoint::Request, id),
        ["lead", id] => (Endpoint::Lead, id),
        ["lead", id, "field", "list"] => (Endpoint::LeadFields, id),
        _ => (Endpoint::Unknown, ""),
    }
}
