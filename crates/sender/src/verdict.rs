//! What an answer means for the call it is about: the table of the design as one match. Lead
//! requests about leads are judged by [`callbridge_leads::lead_request`].

use crate::{Fault, Outcome, by_chance};
use callbridge_crm::{
    ApiError, ApiReply, ApiResult, Endpoint, FailureWord, Page, TokenInfo, WriteStatus, answer,
};
use callbridge_model::Reason;
use serde_json::Value;

/// Failures of one call, while others pass, before it is given up as `server_error`. More if this
/// many are possible by chance.
pub const FAILURES_MAX: u32 = 5;

/// A call's failures are its own if chance causes them less often than this.
const CHANCE: f64 = 1e-6;

/// Facts of the call that the verdict depends on, in addition to the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Context {
    /// Failures of the call so far after which others passed.
    pub failures: u32,
    /// The share of other calls' submissions that fails by chance.
    pub share: f64,
    /// Others also fail at the moment.
    pub trouble: bool,
}

/// Meaning of an answer for its call, or for the sender.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Accepted. The outcome can be polled with this requestId for 24 hours.
    Submitted(String),
    /// The journal holds the call.
    Journaled,
    /// Not decided yet. Ask again later.
    NotYet,
    /// The token is valid. This is its record.
    Known(TokenInfo),
    PageShown(Page),
    /// The journal cannot be reconciled in this way, with the CRM's message. The obstacle decides
    /// what is tried next.
    PageRefused(Bar, String),
    /// The call becomes a dead letter for this reason, with a message (the CRM's if it has one),
    /// and the CRM's `errors[]`, or null.
    Dead(Reason, String, Value),
    /// The token has no right to poll (403), with the CRM's message. Other ways must confirm the
    /// call.
    Unpolled(String),
    /// The requestId is invalid, with the message of the CRM or a proxy. The call is now
    /// unresolved.
    Lost(String),
    /// Tried again later. The connection or the CRM failed, not the call, with a message. Outages
    /// are detected by the kind of the fault.
    Fault(Fault, String),
    /// Nothing more is sent until a person has removed this obstacle, with the CRM's message.
    Stop(StopReason, String),
    /// The request came too early: 429.
    TooMany {
        /// The CRM's own limit refused it.
        own: bool,
    },
}

/// Reasons why a reconciliation is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bar {
    /// A page is too large (`MAX`, §7.5).
    TooLarge,
    /// The request itself. Its range is the only part that the document does not publish in full.
    Refused,
    /// No grant, or no filter at this address. Only polls can confirm.
    Barred,
}

/// Obstacles that stop all requests except probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopReason {
    /// The token is invalid (401, 406).
    TokenRefused,
    /// A grant is missing (403), for this endpoint.
    NoGrant(Endpoint),
    /// The CRM is not at this address.
    WrongAddress,
}

impl Verdict {
    /// The label for metrics: a fixed set of words.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Dead(reason, ..) => reason.word(),
            other => other.outcome().word(),
        }
    }

    /// The same without its data.
    pub const fn outcome(&self) -> Outcome {
        match self {
            Self::Submitted(_) => Outcome::Submitted,
            Self::Journaled => Outcome::Journaled,
            Self::NotYet => Outcome::NotYet,
            Self::Known(_) => Outcome::Known,
            Self::PageShown(_) => Outcome::PageShown,
            Self::PageRefused(..) => Outcome::PageRefused,
            Self::Dead(..) => Outcome::Dead,
            Self::Unpolled(_) | Self::Stop(StopReason::NoGrant(_), _) => Outcome::NoGrant,
            Self::Lost(_) => Outcome::Lost,
            Self::Fault(Fault::Unreached, _) => Outcome::Unreached,
            Self::Fault(Fault::Gateway | Fault::Unreadable | Fault::Request, _) => Outcome::Fault,
            Self::Stop(StopReason::TokenRefused, _) => Outcome::TokenRefused,
            Self::Stop(StopReason::WrongAddress, _) => Outcome::WrongAddress,
            Self::TooMany { .. } => Outcome::TooMany,
        }
    }
}

pub fn judge(endpoint: Endpoint, answer: ApiResult, context: Context) -> Verdict {
    let error = match answer {
        Ok(reply) => return granted(reply),
        Err(error) => error,
    };
    let why = error.to_string();
    match error {
        ApiError::TokenRefused { .. } => Verdict::Stop(StopReason::TokenRefused, why),
        ApiError::Forbidden(..) => stop(endpoint, StopReason::NoGrant(endpoint), why),
        // A 404 from a proxy says nothing about the requestId.
        ApiError::NotFound { own: false, .. } if endpoint == Endpoint::Poll => {
            Verdict::Fault(Fault::Gateway, why)
        }
        ApiError::NotFound { .. } if endpoint == Endpoint::Poll => Verdict::Lost(why),
        ApiError::NotFound { .. } | ApiError::WrongAddress(..) => {
            stop(endpoint, StopReason::WrongAddress, why)
        }
        ApiError::Rejected { status, errors, .. } => refused(endpoint, status, why, errors),
        ApiError::TooMany(own) => Verdict::TooMany { own },
        ApiError::Server {
            status: 502..=504,
            own: false,
            ..
        } => failed(endpoint, why, Fault::Gateway, context),
        ApiError::Unreadable(..) => failed(endpoint, why, Fault::Unreadable, context),
        ApiError::Server { .. } | ApiError::TimedOut | ApiError::Lost(..) => {
            failed(endpoint, why, Fault::Request, context)
        }
        ApiError::NotConnected(..) | ApiError::TlsRefused(..) => {
            Verdict::Fault(Fault::Unreached, why)
        }
    }
}

fn granted(reply: ApiReply) -> Verdict {
    match reply {
        ApiReply::Accepted(request_id) => Verdict::Submitted(request_id),
        ApiReply::Status(WriteStatus::Success) => Verdict::Journaled,
        ApiReply::Status(WriteStatus::Pending(_)) => Verdict::NotYet,
        ApiReply::Status(WriteStatus::Failed(word, words, errors)) => {
            let (reason, cause) = match word {
                // §3.2 lists the causes, the answer has none
                FailureWord::Failed => (
                    Reason::Failed,
                    "FAILED: the CRM does not know its lead or its employee",
                ),
            };
            let words = Some(words).filter(|words| !words.is_empty());
            Verdict::Dead(reason, words.unwrap_or_else(|| cause.to_owned()), errors)
        }
        ApiReply::TokenInfo(info) => Verdict::Known(info),
        ApiReply::Page(page) => Verdict::PageShown(page),
        ApiReply::Data(_) => {
            Verdict::Fault(Fault::Unreadable, "no answer to such a question".to_owned())
        }
    }
}

/// A missing grant or a wrong address stops everything. Exceptions are the filter, and polls
/// without their grant, because each can replace the other.
fn stop(endpoint: Endpoint, stop: StopReason, why: String) -> Verdict {
    match endpoint {
        Endpoint::Filter => Verdict::PageRefused(Bar::Barred, why),
        Endpoint::Poll if stop != StopReason::WrongAddress => Verdict::Unpolled(why),
        Endpoint::Submit | Endpoint::Poll | Endpoint::TokenInfo => Verdict::Stop(stop, why),
        Endpoint::Lead | Endpoint::Leads | Endpoint::CrmFields | Endpoint::FieldList => {
            Verdict::Fault(Fault::Request, why)
        }
    }
}

/// Handles a 5xx or a similar failure. The call causes it only if others pass meanwhile,
/// repeatedly, and chance does not explain it.
fn failed(endpoint: Endpoint, why: String, fault: Fault, context: Context) -> Verdict {
    let times = context.failures.saturating_add(1);
    let rare = times >= FAILURES_MAX && by_chance(context.share, times) <= CHANCE;
    if endpoint != Endpoint::Submit || context.trouble || !rare {
        return Verdict::Fault(fault, why);
    }
    let message = format!(
        "the service failed {times} times on this call while others passed; the last time: {why}"
    );
    Verdict::Dead(Reason::ServerError, message, Value::Null)
}

/// Handles a 4xx about the request itself.
fn refused(endpoint: Endpoint, status: u16, why: String, errors: Value) -> Verdict {
    match endpoint {
        Endpoint::Submit if status == 409 => Verdict::Dead(Reason::Conflict, why, errors),
        Endpoint::Submit => Verdict::Dead(Reason::Rejected, why, errors),
        Endpoint::Poll => Verdict::Lost(why),
        Endpoint::Filter if answer::names_max(&errors) => Verdict::PageRefused(Bar::TooLarge, why),
        Endpoint::Filter => Verdict::PageRefused(Bar::Refused, why),
        Endpoint::TokenInfo => Verdict::Fault(Fault::Unreached, why),
        Endpoint::Lead | Endpoint::Leads | Endpoint::CrmFields | Endpoint::FieldList => {
            Verdict::Fault(Fault::Request, why)
        }
    }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
