//! Everything that can come back, as one enum; made from status and body by one pure function.

use super::envelope::Envelope;
use super::request::Endpoint;
use callbridge_call::EpochSeconds;
use callbridge_model::CallUuid;
use serde_json::Value;

/// What came back. The HTTP status decides (§7.1); `message` is for people only.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Submit: 200 with a requestId. Accepted, not yet written (§4.5.2).
    Accepted {
        /// To poll with.
        request_id: String,
    },
    /// Submit: 200 without a requestId.
    AcceptedWithoutId,
    /// Any: 200 whose envelope says `accept: false`.
    NotAccepted {
        /// The service's words.
        message: String,
    },
    /// Poll: written.
    StatusSuccess,
    /// Poll: will not be written (§3.2).
    StatusFailed {
        /// The service's words, perhaps none.
        words: String,
        /// `errors[]` (§7.5) beside or inside the status, or null.
        errors: Value,
    },
    /// Poll: neither yet, or a status that is not known here.
    StatusPending {
        /// The status.
        word: String,
    },
    /// Filter: a page.
    Page(Page),
    /// Token/info: the token is alive (§4.3).
    TokenInfo(TokenInfo),
    /// Leads and fields: the whole envelope, whose payload is not published (§2.8).
    Told(Value),
    /// 400: not to be repeated unchanged (§7.7).
    Rejected {
        /// The service's words.
        message: String,
        /// `errors[]` (§7.5), or null.
        errors: Value,
    },
    /// 401: no such token, or the company is blocked (§7.2). Not counted by the limit.
    Unauthorized,
    /// 406: as 401 (§7.3).
    TokenState {
        /// The service's words.
        message: String,
    },
    /// 403: the grant is missing.
    Forbidden {
        /// The service's words.
        message: String,
    },
    /// 404: for a poll, the requestId is unknown or older than 24 hours (§4.6).
    NotFound {
        /// In the service's own envelope (§2.1), and not by something in between: that knows
        /// nothing of requestIds and leads.
        own: bool,
        /// The service's words.
        message: String,
    },
    /// 405, 415, any 3xx: this is not the service's address.
    WrongAddress {
        /// The HTTP status.
        status: u16,
    },
    /// 409 (§7.4).
    Conflict {
        /// The service's words.
        message: String,
        /// `errors[]`, or null.
        errors: Value,
    },
    /// Any other 4xx.
    OtherClientError {
        /// The HTTP status.
        status: u16,
        /// The service's words.
        message: String,
        /// `errors[]`, or null.
        errors: Value,
    },
    /// 429: the limit is used up.
    TooMany,
    /// 5xx.
    ServerError {
        /// The HTTP status.
        status: u16,
        /// In the service's own envelope (§2.1), and not by something in between.
        own: bool,
        /// The service's words, perhaps none.
        message: String,
    },
    /// 2xx whose body cannot be read, or a status that HTTP does not have.
    BrokenBody {
        /// What is wrong with it.
        why: String,
    },
    /// No answer in time, or 408; the request may have arrived.
    TimedOut,
    /// The connection ended in the middle; the request may have arrived.
    Lost {
        /// The transport's words.
        why: String,
    },
    /// No connection was made: nothing was sent.
    NotConnected {
        /// The transport's words.
        why: String,
    },
    /// The TLS handshake was refused: nothing was sent.
    TlsRefused {
        /// What is wrong with the certificate or the handshake.
        why: String,
    },
}

impl Answer {
    /// The service did what was asked, or told it.
    pub const fn is_good(&self) -> bool {
        matches!(
            self,
            Self::Accepted { .. } | Self::StatusSuccess | Self::Told(_)
        )
    }

    /// What the service or the transport said; nothing where all is well.
    pub fn words(&self) -> String {
        let said = |status: &str, message: &str| match message {
            "" => status.to_owned(),
            message => format!("{status}: {message}"),
        };
        match self {
            Self::Accepted { .. }
            | Self::StatusSuccess
            | Self::Page(_)
            | Self::TokenInfo(_)
            | Self::Told(_) => String::new(),
            Self::AcceptedWithoutId => "accepted, but without a requestId".to_owned(),
            Self::NotAccepted { message } => said("200 with accept: false", message),
            Self::StatusFailed { words, .. } => said("FAILED", words),
            Self::StatusPending { word } => word.clone(),
            Self::Rejected { message, .. } => said("400", message),
            Self::Unauthorized => "401".to_owned(),
            Self::TokenState { message } => said("406", message),
            Self::Forbidden { message } => said("403", message),
            Self::NotFound { message, .. } => said("404", message),
            Self::WrongAddress { status } => status.to_string(),
            Self::Conflict { message, .. } => said("409", message),
            Self::OtherClientError {
                status, message, ..
            }
            | Self::ServerError {
                status, message, ..
            } => said(&status.to_string(), message),
            Self::TooMany => "429".to_owned(),
            Self::BrokenBody { why } => why.clone(),
            Self::TimedOut => "no answer in time".to_owned(),
            Self::Lost { why } => format!("connection lost: {why}"),
            Self::NotConnected { why } => format!("no connection: {why}"),
            Self::TlsRefused { why } => format!("TLS refused: {why}"),
        }
    }
}

/// An answer, and what it told besides.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    /// What came back.
    pub answer: Answer,
    /// The token ends soon (§5.5).
    pub expiry: Option<Expiry>,
}

/// An expiry warning (§5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// Days left; 0 on the last day.
    pub days: u32,
}

/// A page of the call journal (§4.5, §4.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Rows on it, of everybody's.
    pub rows: u32,
    /// The uuids that can be ours, without the prefix `oapi-`.
    pub uuids: Vec<CallUuid>,
    /// From 1.
    pub current: Option<u32>,
    /// Pages in all.
    pub total: Option<u32>,
}

/// The record of `token/info` (§2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenInfo {
    /// `company.id`
    pub company: i64,
    /// `company.name`
    pub company_name: String,
    /// `application.id`
    pub application: Option<i64>,
    /// `application.name`
    pub application_name: String,
    /// `PAT` or `ACCESS`.
    pub kind: String,
    /// `None`: no expiry date.
    pub expires_at: Option<EpochSeconds>,
    /// Days until then.
    pub expires_in_days: Option<i64>,
    /// What the connection may do; `None` when the service does not say.
    pub grants: Option<Vec<Grant>>,
}

impl TokenInfo {
    /// Whether it holds this grant; where the service does not say, it is taken to.
    pub fn may(&self, permission: &str, scope: &str) -> bool {
        self.grants.as_ref().is_none_or(|grants| {
            grants
                .iter()
                .any(|grant| grant.permission == permission && grant.scope == scope)
        })
    }
}

/// A permission and its scope (§2.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// `PERMISSION_OPEN_API_CALL`
    pub permission: String,
    /// `READ`, `SAVE`, `DELETE`
    pub scope: String,
}

impl std::fmt::Display for Grant {
    /// As in an OAuth scope: `PERMISSION_OPEN_API_CALL:SAVE`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.permission, self.scope)
    }
}

/// Reads an answer: any status, any bytes.
pub fn read(endpoint: Endpoint, status: u16, body: &[u8]) -> Heard {
    let envelope = Envelope::read(body);
    if (200..300).contains(&status) {
        return match envelope {
            Ok(envelope) => success(endpoint, envelope),
            Err(why) => silent(Answer::BrokenBody {
                why: format!("status {status}, {why}"),
            }),
        };
    }
    let message = envelope
        .as_ref()
        .map_or_else(|_| String::new(), Envelope::explained);
    let own = envelope.as_ref().is_ok_and(Envelope::is_own);
    let errors = || envelope.as_ref().map_or(Value::Null, Envelope::errors);
    silent(match status {
        300..=399 | 405 | 415 => Answer::WrongAddress { status },
        400 => Answer::Rejected {
            message,
            errors: errors(),
        },
        401 => Answer::Unauthorized,
        403 => Answer::Forbidden { message },
        404 => Answer::NotFound { own, message },
        406 => Answer::TokenState { message },
        408 => Answer::TimedOut,
        409 => Answer::Conflict {
            message,
            errors: errors(),
        },
        429 => Answer::TooMany,
        402..=499 => Answer::OtherClientError {
            status,
            message,
            errors: errors(),
        },
        500..=599 => Answer::ServerError {
            status,
            own,
            message,
        },
        _ => Answer::BrokenBody {
            why: format!("status {status} is not one of HTTP's"),
        },
    })
}

fn success(endpoint: Endpoint, envelope: Envelope) -> Heard {
    if envelope.refused() {
        return silent(Answer::NotAccepted {
            message: envelope.message(),
        });
    }
    let broken = |why: &str| Answer::BrokenBody {
        why: why.to_owned(),
    };
    let expiry = envelope.expiry();
    let answer = match endpoint {
        Endpoint::Submit | Endpoint::FieldList => match envelope.request_id() {
            Some(request_id) => Answer::Accepted { request_id },
            None => Answer::AcceptedWithoutId,
        },
        Endpoint::Poll => match envelope.status() {
            Some((word, _)) if word == "SUCCESS" => Answer::StatusSuccess,
            Some((word, words)) if word == "FAILED" => Answer::StatusFailed {
                words,
                errors: envelope.errors_of_status(),
            },
            Some((word, _)) => Answer::StatusPending { word },
            None => broken("no status in the answer"),
        },
        Endpoint::TokenInfo => match envelope.token_info() {
            Some(info) => Answer::TokenInfo(info),
            None => broken("no company in the token's record"),
        },
        Endpoint::Filter => match envelope.page() {
            Some(page) => Answer::Page(page),
            None => broken("no rows in the page"),
        },
        Endpoint::Lead | Endpoint::Leads | Endpoint::CrmFields => Answer::Told(envelope.whole()),
    };
    Heard { answer, expiry }
}

fn silent(answer: Answer) -> Heard {
    Heard {
        answer,
        expiry: None,
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
