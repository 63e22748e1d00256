//! Which path is which endpoint.

use super::oauth;
use serde::{Deserialize, Serialize};

const PREFIX: &str = "/v1/open-api/";

/// The endpoints that the sandbox plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Endpoint {
    /// `GET token/info` (§4.3)
    TokenInfo,
    /// `POST call-history` (§4.5)
    CallHistory,
    /// `POST call-history/filter` (§4.5)
    Filter,
    /// `GET request/{requestId}` (§4.6)
    Request,
    /// `POST oauth/token` (§4.1)
    OauthToken,
    /// `POST oauth/revoke` (§4.1)
    OauthRevoke,
    /// The authorization page (§4.2)
    Consent,
    /// Exists in the document and is not played here (§4.1, §4.4, §4.7).
    Unplayed,
    /// Where a redirect of ours leads: whoever comes followed it.
    Moved,
    /// Not in the document.
    Unknown,
}

impl Endpoint {
    /// The word used in faults and counts.
    pub const fn word(self) -> &'static str {
        match self {
            Self::TokenInfo => "token-info",
            Self::CallHistory => "call-history",
            Self::Filter => "filter",
            Self::Request => "request",
            Self::OauthToken => "oauth-token",
            Self::OauthRevoke => "oauth-revoke",
            Self::Consent => "consent",
            Self::Unplayed => "unplayed",
            Self::Moved => "moved",
            Self::Unknown => "unknown",
        }
    }

    /// The played endpoint of a word; `None` for others.
    pub fn from_word(word: &str) -> Option<Self> {
        [
            Self::TokenInfo,
            Self::CallHistory,
            Self::Filter,
            Self::Request,
            Self::OauthToken,
            Self::OauthRevoke,
        ]
        .into_iter()
        .find(|endpoint| endpoint.word() == word)
    }

    /// Token and revoke: at an address of their own, without a token (§5.6.9).
    pub const fn is_oauth(self) -> bool {
        matches!(self, Self::OauthToken | Self::OauthRevoke)
    }

    /// The one method it takes; `None` where the sandbox does not judge.
    pub const fn method(self) -> Option<&'static str> {
        match self {
            Self::TokenInfo | Self::Request => Some("GET"),
            Self::CallHistory | Self::Filter => Some("POST"),
            Self::OauthToken | Self::OauthRevoke => Some("POST"),
            Self::Consent | Self::Unplayed | Self::Moved | Self::Unknown => None,
        }
    }
}

/// The endpoint of a path and, for a request's status, the id.
pub fn route(path: &str) -> (Endpoint, &str) {
    if path == oauth::CONSENT_PATH {
        return (Endpoint::Consent, "");
    }
    let Some(rest) = path.strip_prefix(PREFIX) else {
        return (Endpoint::Unknown, "");
    };
    match rest {
        "token/info" => (Endpoint::TokenInfo, ""),
        "call-history" => (Endpoint::CallHistory, ""),
        "call-history/filter" => (Endpoint::Filter, ""),
        "oauth/token" => (Endpoint::OauthToken, ""),
        "oauth/revoke" => (Endpoint::OauthRevoke, ""),
        "moved" => (Endpoint::Moved, ""),
        _ => match rest.split_once('/') {
            Some(("request", id)) if !id.is_empty() && !id.contains('/') => (Endpoint::Request, id),
            Some(("moved", _)) => (Endpoint::Moved, ""),
            _ if unplayed(rest) => (Endpoint::Unplayed, ""),
            _ => (Endpoint::Unknown, ""),
        },
    }
}

fn unplayed(rest: &str) -> bool {
    const WHOLE: [&str; 4] = ["lead", "lead/filter", "crm-field", "employee/filter"];
    const UNDER: [&str; 8] = [
        "lead/",
        "lead-note/",
        "lead-task/",
        "contract/",
        "contract-field",
        "contrac-field",
        "payment/",
        "flat/",
    ];
    WHOLE.contains(&rest) || UNDER.iter().any(|start| rest.starts_with(start))
}
