//! What an answer means for the call it is about: the table of the design as one match.

use crate::crm::{Answer, Endpoint, Page, TokenInfo};
use crate::journal::Reason;
use serde_json::Value;

/// Resubmissions after a lost requestId before a call is given up as `unconfirmed`.
pub const RESUBMITS_MAX: u32 = 3;

/// Failures of one call, while others pass, before it is given up as `server_error`.
pub const FAILURES_MAX: u32 = 5;

/// What the verdict must know of the call besides the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// How often it went from submitted back to ready.
    pub resubmits: u32,
    /// Its failures so far after which others passed.
    pub failures: u32,
}

/// What an answer means.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Accepted; the outcome is to be asked for.
    Submitted {
        /// To ask with.
        request_id: String,
    },
    /// It is in the journal.
    Journaled,
    /// Not decided yet: ask again later.
    NotYet,
    /// The token is alive, and this is what it is.
    Known(TokenInfo),
    /// A page of the journal.
    Swept(Page),
    /// The journal cannot be swept this way: poll instead.
    Unswept {
        /// The service's words.
        why: String,
    },
    /// A dead letter.
    Dead {
        /// Why.
        reason: Reason,
        /// In words, the service's where it has any.
        message: String,
        /// The service's `errors[]`, or null.
        errors: Value,
    },
    /// The requestId is worth nothing: to be sent again with the same uuid.
    Resubmit {
        /// Why.
        why: String,
    },
    /// Tried again later; a fault of the way or of the service, not of the call.
    Fault {
        /// What happened.
        why: String,
        /// No other call can fare better: no connection, no TLS.
        nothing_gets_through: bool,
    },
    /// Nothing more is to be sent until this is mended.
    Halt {
        /// What.
        halt: Halt,
        /// The service's words.
        why: String,
    },
    /// The limit is used up.
    TooMany,
}

/// What stops everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Halt {
    /// The token is dead (401, 406).
    TokenRefused,
    /// A grant is missing (403), for this endpoint.
    NoGrant(Endpoint),
    /// The service is not at this address.
    WrongAddress,
}

impl Verdict {
    /// The label of metrics: fixed words.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Submitted { .. } => "submitted",
            Self::Journaled => "journaled",
            Self::NotYet => "not_yet",
            Self::Known(_) => "known",
            Self::Swept(_) => "swept",
            Self::Unswept { .. } => "unswept",
            Self::Dead { reason, .. } => reason.word(),
            Self::Resubmit { .. } => "resubmit",
            Self::Fault { .. } => "fault",
            Self::Halt {
                halt: Halt::TokenRefused,
                ..
            } => "token_refused",
            Self::Halt {
                halt: Halt::NoGrant(_),
                ..
            } => "no_grant",
            Self::Halt {
                halt: Halt::WrongAddress,
                ..
            } => "wrong_address",
            Self::TooMany => "too_many",
        }
    }
}

/// The verdict on an answer.
pub fn judge(endpoint: Endpoint, answer: Answer, context: Context) -> Verdict {
    match answer {
        Answer::Accepted { request_id } => Verdict::Submitted { request_id },
        Answer::StatusSuccess => Verdict::Journaled,
        Answer::StatusPending { word: _ } => Verdict::NotYet,
        Answer::TokenInfo(info) => Verdict::Known(info),
        Answer::Page(page) => Verdict::Swept(page),
        Answer::StatusFailed { words } => dead(Reason::Failed, failed(words), Value::Null),
        Answer::Unauthorized => halt(Halt::TokenRefused, "401".to_owned()),
        Answer::TokenState { message } => halt(Halt::TokenRefused, said("406", &message)),
        Answer::Forbidden { message } => match endpoint {
            Endpoint::Filter => Verdict::Unswept {
                why: said("403", &message),
            },
            Endpoint::Submit | Endpoint::Poll | Endpoint::TokenInfo => {
                halt(Halt::NoGrant(endpoint), said("403", &message))
            }
        },
        Answer::WrongAddress { status } => halt(Halt::WrongAddress, status.to_string()),
        Answer::NotFound { message } => match endpoint {
            Endpoint::Poll => lost(said("404", &message), context),
            Endpoint::Submit | Endpoint::TokenInfo | Endpoint::Filter => {
                halt(Halt::WrongAddress, said("404", &message))
            }
        },
        Answer::Rejected { message, errors } => {
            refused(endpoint, 400, Reason::Rejected, message, errors, context)
        }
        Answer::Conflict { message, errors } => {
            refused(endpoint, 409, Reason::Conflict, message, errors, context)
        }
        Answer::OtherClientError {
            status,
            message,
            errors,
        } => refused(endpoint, status, Reason::Rejected, message, errors, context),
        Answer::TooMany => Verdict::TooMany,
        Answer::AcceptedWithoutId => {
            let why = "accepted, but without a requestId".to_owned();
            fault(endpoint, why, context)
        }
        Answer::NotAccepted { message } => {
            fault(endpoint, said("200 with accept: false", &message), context)
        }
        Answer::ServerError { status, message } => {
            fault(endpoint, said(&status.to_string(), &message), context)
        }
        Answer::BrokenBody { why } => fault(endpoint, why, context),
        Answer::TimedOut => fault(endpoint, "no answer in time".to_owned(), context),
        Answer::Lost { why } => fault(endpoint, format!("connection lost: {why}"), context),
        Answer::NotConnected { why } => {
            let why = format!("no connection: {why}");
            Verdict::Fault {
                why,
                nothing_gets_through: true,
            }
        }
        Answer::TlsRefused { why } => {
            let why = format!("TLS refused: {why}");
            Verdict::Fault {
                why,
                nothing_gets_through: true,
            }
        }
    }
}

/// 5xx and its like: the call's own fault only when others pass meanwhile, again and again.
fn fault(endpoint: Endpoint, why: String, context: Context) -> Verdict {
    match endpoint {
        Endpoint::Submit if context.failures + 1 >= FAILURES_MAX => {
            let message = format!(
                "the service failed {FAILURES_MAX} times on this call while others passed; \
                 the last time: {why}"
            );
            dead(Reason::ServerError, message, Value::Null)
        }
        Endpoint::Submit | Endpoint::Poll | Endpoint::TokenInfo | Endpoint::Filter => {
            Verdict::Fault {
                why,
                nothing_gets_through: false,
            }
        }
    }
}

/// A 4xx that speaks of the request itself.
fn refused(
    endpoint: Endpoint,
    status: u16,
    reason: Reason,
    message: String,
    errors: Value,
    context: Context,
) -> Verdict {
    match endpoint {
        Endpoint::Submit => dead(reason, said(&status.to_string(), &message), errors),
        Endpoint::Poll => lost(said(&status.to_string(), &message), context),
        Endpoint::Filter => Verdict::Unswept {
            why: said(&status.to_string(), &message),
        },
        Endpoint::TokenInfo => {
            let why = said(&status.to_string(), &message);
            Verdict::Fault {
                why,
                nothing_gets_through: true,
            }
        }
    }
}

/// The requestId cannot be read: whether the call was written is unknown, but sending it again
/// with its uuid makes no second record (§4.5.4).
fn lost(why: String, context: Context) -> Verdict {
    if context.resubmits < RESUBMITS_MAX {
        return Verdict::Resubmit { why };
    }
    let message = format!(
        "accepted {} times, and each time its requestId could not be read before it was settled; \
         the last time: {why}",
        RESUBMITS_MAX + 1
    );
    dead(Reason::Unconfirmed, message, Value::Null)
}

fn dead(reason: Reason, message: String, errors: Value) -> Verdict {
    Verdict::Dead {
        reason,
        message,
        errors,
    }
}

fn halt(halt: Halt, why: String) -> Verdict {
    Verdict::Halt { halt, why }
}

fn failed(words: String) -> String {
    if words.is_empty() {
        // §3.2 gives the causes, the answer none
        return "FAILED: the CRM does not know its lead or its employee".to_owned();
    }
    words
}

/// Status and message, or the status alone.
fn said(status: &str, message: &str) -> String {
    if message.is_empty() {
        status.to_owned()
    } else {
        format!("{status}: {message}")
    }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
