//! The reply or error in each response. A single function without I/O determines both from the HTTP
//! status and the body.

use super::envelope::{Envelope, FailureWord, Page, SUCCESS, TokenInfo, is_own};
use super::request::Endpoint;
use callbridge_call::redact::Redactor;
use serde_json::Value;
use std::fmt;

/// The outcome of an exchange, as determined by the HTTP status (§7.1). `message` is only meant for
/// humans.
pub type ApiResult = Result<ApiReply, ApiError>;

/// A successful response, in its endpoint's form.
#[derive(Clone, Debug, PartialEq)]
pub enum ApiReply {
    /// Submit and field list: accepted but not written yet (§4.5.2), with the ID for polling the
    /// outcome.
    Accepted(String),
    /// Poll: the outcome of an accepted write.
    Status(WriteStatus),
    /// Filter: a page of the call journal.
    Page(Page),
    /// Token/info: the token is valid (§4.3).
    TokenInfo(TokenInfo),
    /// Leads and fields: the whole envelope, because the document doesn't describe its payload
    /// (§2.8).
    Data(Value),
}

/// The status of an accepted write (§3.2).
#[derive(Clone, Debug, PartialEq)]
pub enum WriteStatus {
    /// The write is done.
    Success,
    /// The write won't be done. Contains the status word, the CRM's text (which may be empty), and
    /// any `errors[]` (§7.5) next to or inside the status, or null.
    Failed(FailureWord, String, Value),
    /// The status isn't final yet or is unknown. Contains the CRM's word in uppercase.
    Pending(String),
}

/// Why a request failed, classified by what a client can do next, with a message from the CRM or
/// the transport.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ApiError {
    /// 401, 406: there's no such token, or the company is blocked (§7.2, §7.3). A 401 doesn't count
    /// toward the limit.
    #[error("{}", status_text(.status, .message))]
    TokenRefused {
        /// 401 or 406.
        status: u16,
        /// The CRM's message, which is empty for a 401.
        message: String,
    },
    /// 403: the grant is missing. Contains the CRM's message, which may be empty.
    #[error("{}", status_text(403, .0))]
    Forbidden(String),
    /// 404: for a poll, the requestId is unknown or older than 24 hours (§4.6).
    #[error("{}", status_text(404, .message))]
    NotFound {
        /// Whether the response is in the CRM's envelope (§2.1), since a proxy's response says
        /// nothing about requestIds and leads.
        own: bool,
        /// The CRM's message, which may be empty.
        message: String,
    },
    /// 405, 415, or any 3xx: this may not be the CRM's URL.
    #[error("{status}")]
    WrongAddress {
        /// The HTTP status.
        status: u16,
        /// Whether the response is in the CRM's envelope (§2.1). If it isn't, it may come from a
        /// proxy.
        own: bool,
    },
    /// 400, 409, and any other 4xx: the request mustn't be repeated unchanged (§7.4, §7.7).
    #[error("{}", status_text(.status, .message))]
    Rejected {
        /// 400, 409, or another 4xx.
        status: u16,
        /// The CRM's message, which may be empty.
        message: String,
        /// The CRM's `errors[]` (§7.5), or null.
        errors: Value,
    },
    /// 429: the request came too early. It's `true` if the response is in the CRM's envelope
    /// (§7.2), which means that the token's limit is used up, whereas proxies have limits of their
    /// own.
    #[error("429")]
    TooMany(bool),
    /// A 5xx, a 200 whose envelope says `accept: false`, or a 4xx without an envelope, which must
    /// come from a proxy that doesn't know anything about tokens, grants, and calls (§7.1).
    #[error("{}", status_text(of_server(*.status), .message))]
    Server {
        /// A 5xx, a 200 with `accept: false`, or a proxy's 4xx.
        status: u16,
        /// Whether the response is in the CRM's envelope (§2.1) and therefore doesn't come from a
        /// proxy.
        own: bool,
        /// The CRM's message, which may be empty.
        message: String,
    },
    /// A 2xx with unusable content, or an invalid HTTP status, as a message.
    #[error("{0}")]
    Unreadable(String),
    /// There was no response in time, or a 408. The request may have arrived.
    #[error("no answer in time")]
    TimedOut,
    /// The connection broke during the exchange, and the request may have arrived. Contains the
    /// transport's message, truncated to 300 characters.
    #[error("connection lost: {0}")]
    Lost(String),
    /// No connection could be established, so nothing was sent. Contains the transport's message,
    /// including the host and port if they're known.
    #[error("no connection: {0}")]
    NotConnected(String),
    /// The TLS handshake failed, so nothing was sent. Contains the certificate or handshake error,
    /// and the fix if there is one.
    #[error("TLS refused: {0}")]
    TlsRefused(String),
    /// The request couldn't be written soon enough after its slot was stored, so nothing was sent.
    /// Either the process or the machine was suspended, or the connection took too long.
    #[error("not sent, because it was too late for its slot")]
    TooLate,
}

impl ApiError {
    /// The error for a 401, which has no message.
    pub const UNAUTHORIZED: Self = Self::TokenRefused {
        status: 401,
        message: String::new(),
    };
}

/// Joins a status and the message that came with it.
fn status_text(status: impl fmt::Display, message: &str) -> String {
    match message {
        "" => status.to_string(),
        message => format!("{status}: {message}"),
    }
}

/// Formats a status from the CRM or from a proxy.
fn of_server(status: u16) -> String {
    match status {
        200..=299 => format!("{status} with accept: false"),
        400..=499 => format!("{status} from a proxy or gateway in between"),
        _ => status.to_string(),
    }
}

/// The result of an exchange, along with the CRM's warning that the token is about to expire.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiResponse {
    /// The reply to the request, or why there is none.
    pub answer: ApiResult,
    /// Number of days until the token expires, which is 0 on the last day (§5.5).
    pub token_days_left: Option<u32>,
}

impl From<ApiResult> for ApiResponse {
    /// Wraps a result without a warning about the token.
    fn from(answer: ApiResult) -> Self {
        Self {
            answer,
            token_days_left: None,
        }
    }
}

/// Reads a response with any status and any bytes.
pub fn read(endpoint: Endpoint, status: u16, body: &[u8]) -> ApiResponse {
    read_redacted(endpoint, status, body, &Redactor::default())
}

/// Reads a response, and removes its request's secrets from all texts.
pub fn read_redacted(
    endpoint: Endpoint,
    status: u16,
    body: &[u8],
    redactor: &Redactor,
) -> ApiResponse {
    let mut envelope = Envelope::read(body);
    if let Ok(envelope) = &mut envelope {
        redactor.redact_object(&mut envelope.0);
    }
    if (200..300).contains(&status) {
        return match envelope {
            Ok(envelope) => success(endpoint, envelope),
            Err(why) => Err(ApiError::Unreadable(format!("status {status}, {why}"))).into(),
        };
    }
    let (message, errors, own) = match &envelope {
        Ok(envelope) => (
            envelope.explanation(),
            envelope.errors(),
            is_own(&envelope.0),
        ),
        Err(_) => (String::new(), Value::Null, false),
    };
    Err(match status {
        300..=399 | 405 | 415 => ApiError::WrongAddress { status, own },
        404 => ApiError::NotFound { own, message },
        408 => ApiError::TimedOut,
        429 => ApiError::TooMany(own),
        401 if own => ApiError::UNAUTHORIZED,
        406 if own => ApiError::TokenRefused { status, message },
        403 if own => ApiError::Forbidden(message),
        400..=499 if own => ApiError::Rejected {
            status,
            message,
            errors,
        },
        400..=599 => ApiError::Server {
            status,
            own,
            message,
        },
        _ => ApiError::Unreadable(format!("status {status} is not an HTTP status")),
    })
    .into()
}

/// Returns `true` if one of the `errors[]` has the reason `MAX` (§7.5) and is about the field
/// `size` or doesn't specify a field.
pub fn names_max(errors: &Value) -> bool {
    let all = errors.as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().any(|error| {
        let field = error.get("field").and_then(Value::as_str);
        let reason = error.get("reason").and_then(Value::as_str);
        field.is_none_or(|field| field.ends_with("size"))
            && reason.is_some_and(|reason| reason.eq_ignore_ascii_case("MAX"))
    })
}

fn success(endpoint: Endpoint, envelope: Envelope) -> ApiResponse {
    if envelope.is_refused() {
        return Err(ApiError::Server {
            status: 200,
            own: true,
            message: envelope.message(),
        })
        .into();
    }
    ApiResponse {
        token_days_left: envelope.token_days_left(),
        answer: reply(endpoint, envelope).map_err(|why| ApiError::Unreadable(why.to_owned())),
    }
}

/// Reads an endpoint's response. The error says what's missing.
fn reply(endpoint: Endpoint, envelope: Envelope) -> Result<ApiReply, &'static str> {
    match endpoint {
        Endpoint::Submit | Endpoint::FieldList => {
            let accepted = envelope.request_id().map(ApiReply::Accepted);
            accepted.ok_or("accepted, but without a requestId")
        }
        Endpoint::Poll => {
            let (word, message) = envelope.status().ok_or("no status in the answer")?;
            Ok(ApiReply::Status(match word.parse() {
                Ok(word) => WriteStatus::Failed(word, message, envelope.errors_of_status()),
                Err(_) if word == SUCCESS => WriteStatus::Success,
                Err(_) => WriteStatus::Pending(word),
            }))
        }
        Endpoint::TokenInfo => {
            let info = envelope.token_info().map(ApiReply::TokenInfo);
            info.ok_or("no company in the token's record")
        }
        Endpoint::Filter => {
            let page = envelope.page().map(ApiReply::Page);
            page.ok_or("no rows in the page")
        }
        Endpoint::Lead | Endpoint::Leads | Endpoint::CrmFields => {
            Ok(ApiReply::Data(Value::Object(envelope.0)))
        }
    }
}

#[cfg(test)]
#[path = "answer_gateway_tests.rs"]
mod gateway_tests;
#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
