//! Which path is which endpoint, by which methods, and what grant it needs (§4, §5.4).
//!
//! The document names the paths of §4.3 to §4.6 and most of §4.7. Ours, after their neighbours:
//! `lead-task`, `lead-task/filter`, `lead-task/{id}`, `lead-history/{leadId}`, `employee/filter`,
//! `contract/{id}/payment`, `contract/{id}/schedule`, `GET lead-note/{leadId}/list` and one item of
//! notes and history below `/{itemId}`.

use super::oauth;
use super::token::{CALL_READ, CALL_SAVE};
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
    /// `POST lead` (§4.7)
    LeadSave,
    /// `POST lead/filter` (§4.7)
    LeadFilter,
    /// `GET` and `DELETE lead/{leadId}` (§4.7)
    Lead,
    /// `POST lead/{leadId}/field/list` (§4.4)
    LeadFields,
    /// `POST` and `GET lead-note/{leadId}/list` (§4.7)
    LeadNotes,
    /// `GET lead-note/{leadId}/{noteId}`
    LeadNote,
    /// `GET lead-history/{leadId}`
    LeadHistory,
    /// `GET lead-history/{leadId}/{itemId}`
    LeadHistoryItem,
    /// `POST lead-task/filter` (§4.7)
    LeadTasks,
    /// `POST lead-task`
    LeadTaskSave,
    /// `GET lead-task/{taskId}`
    LeadTask,
    /// `GET crm-field` (§4.7)
    CrmField,
    /// `POST employee/filter` (§4.7)
    Employees,
    /// `GET contract/{id}`, its payments and schedule (§4.7)
    Contract,
    /// `GET payment/{id}` (§4.7)
    Payment,
    /// `GET flat/{id}` (§4.7)
    Flat,
    /// `GET contract-field`, and `contrac-field` (§4.7)
    ContractField,
    /// `POST oauth/token` (§4.1)
    OauthToken,
    /// `POST oauth/revoke` (§4.1)
    OauthRevoke,
    /// The authorization page (§4.2)
    Consent,
    /// Where a redirect of ours leads: whoever comes followed it.
    Moved,
    /// Not in the document.
    Unknown,
}

/// All that a fault can be ordered for.
const PLAYED: [Endpoint; 23] = [
    Endpoint::TokenInfo,
    Endpoint::CallHistory,
    Endpoint::Filter,
    Endpoint::Request,
    Endpoint::LeadSave,
    Endpoint::LeadFilter,
    Endpoint::Lead,
    Endpoint::LeadFields,
    Endpoint::LeadNotes,
    Endpoint::LeadNote,
    Endpoint::LeadHistory,
    Endpoint::LeadHistoryItem,
    Endpoint::LeadTasks,
    Endpoint::LeadTaskSave,
    Endpoint::LeadTask,
    Endpoint::CrmField,
    Endpoint::Employees,
    Endpoint::Contract,
    Endpoint::Payment,
    Endpoint::Flat,
    Endpoint::ContractField,
    Endpoint::OauthToken,
    Endpoint::OauthRevoke,
];

impl Endpoint {
    /// The word used in faults and counts.
    pub const fn word(self) -> &'static str {
        match self {
            Self::TokenInfo => "token-info",
            Self::CallHistory => "call-history",
            Self::Filter => "filter",
            Self::Request => "request",
            Self::LeadSave => "lead-save",
            Self::LeadFilter => "lead-filter",
            Self::Lead => "lead",
            Self::LeadFields => "lead-fields",
            Self::LeadNotes => "lead-notes",
            Self::LeadNote => "lead-note",
            Self::LeadHistory => "lead-history",
            Self::LeadHistoryItem => "lead-history-item",
            Self::LeadTasks => "lead-tasks",
            Self::LeadTaskSave => "lead-task-save",
            Self::LeadTask => "lead-task",
            Self::CrmField => "crm-field",
            Self::Employees => "employees",
            Self::Contract => "contract",
            Self::Payment => "payment",
            Self::Flat => "flat",
            Self::ContractField => "contract-field",
            Self::OauthToken => "oauth-token",
            Self::OauthRevoke => "oauth-revoke",
            Self::Consent => "consent",
            Self::Moved => "moved",
            Self::Unknown => "unknown",
        }
    }

    /// The played endpoint of a word; `None` for others.
    pub fn from_word(word: &str) -> Option<Self> {
        PLAYED.into_iter().find(|endpoint| endpoint.word() == word)
    }

    /// The words of all played endpoints, for a message.
    pub fn words() -> String {
        PLAYED.map(Self::word).join(", ")
    }

    /// Token and revoke: at an address of their own, without a token (§5.6.9).
    pub const fn is_oauth(self) -> bool {
        matches!(self, Self::OauthToken | Self::OauthRevoke)
    }

    /// A POST to it writes, or uses something up; other POSTs are questions.
    pub const fn is_write(self) -> bool {
        match self {
            Self::CallHistory
            | Self::LeadSave
            | Self::LeadFields
            | Self::LeadNotes
            | Self::LeadTaskSave
            | Self::OauthToken
            | Self::OauthRevoke => true,
            Self::TokenInfo
            | Self::Filter
            | Self::Request
            | Self::LeadFilter
            | Self::Lead
            | Self::LeadNote
            | Self::LeadHistory
            | Self::LeadHistoryItem
            | Self::LeadTasks
            | Self::LeadTask
            | Self::CrmField
            | Self::Employees
            | Self::Contract
            | Self::Payment
            | Self::Flat
            | Self::ContractField
            | Self::Consent
            | Self::Moved
            | Self::Unknown => false,
        }
    }

    /// The methods it takes; none where the sandbox does not judge.
    pub const fn methods(self) -> &'static [&'static str] {
        match self {
            Self::TokenInfo
            | Self::Request
            | Self::LeadNote
            | Self::LeadHistory
            | Self::LeadHistoryItem
            | Self::LeadTask
            | Self::CrmField
            | Self::Contract
            | Self::Payment
            | Self::Flat
            | Self::ContractField => &["GET"],
            Self::CallHistory
            | Self::Filter
            | Self::LeadSave
            | Self::LeadFilter
            | Self::LeadFields
            | Self::LeadTasks
            | Self::LeadTaskSave
            | Self::Employees
            | Self::OauthToken
            | Self::OauthRevoke => &["POST"],
            Self::Lead => &["GET", "DELETE"],
            Self::LeadNotes => &["GET", "POST"],
            Self::Consent | Self::Moved | Self::Unknown => &[],
        }
    }

    /// The grant it needs. The document gives those of the upsert, of conversation submission and
    /// of token/info (§5.4.3); the others are ours, by the domains of §2.3: reading needs READ,
    /// writing SAVE, deleting DELETE. Employees have no domain, and need none. Those of the journal
    /// and of `request/{requestId}` can be chosen: `shape filter-grant`, `shape request-grant`.
    pub fn grant(self, method: &str) -> Option<&'static str> {
        let post = method == "POST";
        Some(match self {
            Self::CallHistory => CALL_SAVE,
            Self::Filter => CALL_READ,
            Self::LeadSave | Self::LeadFields => "PERMISSION_OPEN_API_LEAD:SAVE",
            Self::Lead if method == "DELETE" => "PERMISSION_OPEN_API_LEAD:DELETE",
            Self::Lead
            | Self::LeadFilter
            | Self::LeadHistory
            | Self::LeadHistoryItem
            | Self::CrmField => "PERMISSION_OPEN_API_LEAD:READ",
            Self::LeadNotes if post => "PERMISSION_OPEN_API_LEAD_NOTE:SAVE",
            Self::LeadNotes | Self::LeadNote => "PERMISSION_OPEN_API_LEAD_NOTE:READ",
            Self::LeadTaskSave => "PERMISSION_OPEN_API_LEAD_TASK:SAVE",
            Self::LeadTasks | Self::LeadTask => "PERMISSION_OPEN_API_LEAD_TASK:READ",
            Self::Contract | Self::Flat | Self::ContractField => {
                "PERMISSION_OPEN_API_CONTRACT:READ"
            }
            Self::Payment => "PERMISSION_OPEN_API_CONTRACT_PAYMENT:READ",
            Self::TokenInfo
            | Self::Request
            | Self::Employees
            | Self::OauthToken
            | Self::OauthRevoke
            | Self::Consent
            | Self::Moved
            | Self::Unknown => return None,
        })
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

/// The endpoint of a path and, where one stands in it, the id; of two the pair `1/2`.
pub fn route(path: &str) -> (Endpoint, &str) {
    if path == oauth::CONSENT_PATH {
        return (Endpoint::Consent, "");
    }
    let Some(rest) = path.strip_prefix(PREFIX) else {
        return (Endpoint::Unknown, "");
    };
    let whole = match rest {
        "token/info" => Some(Endpoint::TokenInfo),
        "call-history" => Some(Endpoint::CallHistory),
        "call-history/filter" => Some(Endpoint::Filter),
        "lead" => Some(Endpoint::LeadSave),
        "lead/filter" => Some(Endpoint::LeadFilter),
        "lead-task" => Some(Endpoint::LeadTaskSave),
        "lead-task/filter" => Some(Endpoint::LeadTasks),
        "crm-field" => Some(Endpoint::CrmField),
        "employee/filter" => Some(Endpoint::Employees),
        // The misspelling still works (Versioning 3).
        "contract-field" | "contrac-field" => Some(Endpoint::ContractField),
        "oauth/token" => Some(Endpoint::OauthToken),
        "oauth/revoke" => Some(Endpoint::OauthRevoke),
        "moved" => Some(Endpoint::Moved),
        _ => None,
    };
    if let Some(endpoint) = whole {
        return (endpoint, "");
    }
    match rest.split_once('/') {
        Some(("moved", _)) => (Endpoint::Moved, ""),
        Some((first, below)) => below_of(first, below).unwrap_or((Endpoint::Unknown, "")),
        None => (Endpoint::Unknown, ""),
    }
}

fn below_of<'a>(first: &str, below: &'a str) -> Option<(Endpoint, &'a str)> {
    let (id, tail) = match below.split_once('/') {
        Some((id, tail)) => (id, Some(tail)),
        None => (below, None),
    };
    if id.is_empty() || tail == Some("") {
        return None;
    }
    let deeper = tail.is_some_and(|tail| tail.contains('/'));
    Some(match (first, tail) {
        ("request", None) => (Endpoint::Request, id),
        ("lead", None) => (Endpoint::Lead, id),
        ("lead", Some("field/list")) => (Endpoint::LeadFields, id),
        ("lead-note", Some("list")) => (Endpoint::LeadNotes, id),
        ("lead-note", Some(_)) if !deeper => (Endpoint::LeadNote, below),
        ("lead-history", None) => (Endpoint::LeadHistory, id),
        ("lead-history", Some(_)) if !deeper => (Endpoint::LeadHistoryItem, below),
        ("lead-task", None) => (Endpoint::LeadTask, id),
        ("contract", None | Some("payment" | "schedule")) => (Endpoint::Contract, id),
        ("payment", None) => (Endpoint::Payment, id),
        ("flat", None) => (Endpoint::Flat, id),
        _ => return None,
    })
}
