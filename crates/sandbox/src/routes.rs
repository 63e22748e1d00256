//! Maps paths to endpoints, with the method and the grant of each (§4, §5.4).

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
    /// The destination of redirects that fault rules order. A request to this path shows that the
    /// client followed a redirect.
    Moved,
    /// A path that is not served, or is not in the document.
    Unknown,
}

impl Endpoint {
    /// Returns the method of an endpoint (`None` if the sandbox does not check it), and the grant
    /// that it needs.
    ///
    /// The document names the grants of the lead field upsert, call submission, and token/info
    /// (§5.4.3). The grants of the other endpoints are the sandbox's choice, by the domains of
    /// §2.3. The grants of the journal filter and of `request/{requestId}` can be chosen with
    /// `shape filter-grant` and `shape request-grant`.
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

    /// Returns the name of the endpoint in fault rules and counts.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Returns the endpoint with this name. Returns `None` if the name is unknown, or if fault
    /// rules cannot name the endpoint.
    pub fn from_word(word: &str) -> Option<Self> {
        let known: Option<Self> = word.parse().ok();
        known.filter(|endpoint| endpoint.method().is_some())
    }

    /// Returns the names of all endpoints that fault rules can name, separated by commas.
    pub fn words() -> String {
        let words: Vec<&str> = (Self::VARIANTS.iter())
            .filter(|endpoint| endpoint.method().is_some())
            .map(|endpoint| endpoint.word())
            .collect();
        words.join(", ")
    }

    /// Returns `true` for the token and revoke endpoints, which have a separate address and need no
    /// token (§5.6.9).
    pub const fn is_oauth(self) -> bool {
        matches!(self, Self::OauthToken | Self::OauthRevoke)
    }

    /// Returns `true` if a POST to the endpoint writes data, or uses up a code or a token. Other
    /// POSTs only query.
    pub const fn is_write(self) -> bool {
        matches!(self, Self::CallHistory | Self::LeadFields) || self.is_oauth()
    }

    /// Returns the method of the endpoint, or `None` if the sandbox does not check it.
    pub const fn method(self) -> Option<&'static str> {
        self.facts().0
    }

    /// Returns the grant without which the endpoint answers 403, or `None` if it needs none.
    pub const fn grant(self) -> Option<&'static str> {
        self.facts().1
    }

    /// Returns the section of the document with the rules for the endpoint's body.
    pub const fn section(self) -> &'static str {
        match self {
            Self::LeadFields => "§4.4",
            Self::CallHistory => "§2.6",
            _ => "§4.7",
        }
    }
}

/// Returns the endpoint of a path, and the id in the path (empty if there is none).
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
