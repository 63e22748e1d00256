//! Judges responses. An endpoint's response is mapped to a [`Verdict`], and the verdict to its
//! [`Effect`]s on the breakers, the pause, the call, and the token. Both mappings are exhaustive
//! matches.

use crate::breaker::pause::Pause;
use callbridge_crm::{
    ApiError, ApiReply, ApiResult, Endpoint, FailureWord, Page, TokenInfo, WriteStatus, answer,
};
use callbridge_model::Reason;
use serde_json::Value;

/// Message for a FAILED call if the response has none. §3.2 lists the causes.
const FAILED: &str = "FAILED: the CRM does not know its lead or its employee";

/// What a response means.
#[derive(Clone, Debug, PartialEq, strum::EnumDiscriminants)]
#[strum_discriminants(
    name(VerdictKind),
    doc = "A verdict without its data. The label of metrics is a fixed set of words.",
    derive(PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray),
    strum(serialize_all = "snake_case")
)]
pub enum Verdict {
    /// The call was accepted. Its outcome can be polled under this requestId for 24 hours.
    #[strum_discriminants(strum(serialize = "submitted"))]
    Accepted(String),
    /// The call is in the journal.
    Journaled,
    /// The call hasn't been written yet.
    #[strum_discriminants(strum(serialize = "pending"))]
    Pending,
    /// The token is valid and has this record.
    #[strum_discriminants(strum(serialize = "token_valid"))]
    Record(TokenInfo),
    #[strum_discriminants(strum(serialize = "page_read"))]
    Page(Page),
    /// The CRM refused a page because it has too many records (400 `MAX`, §7.5).
    #[strum_discriminants(strum(serialize = "page_refused"))]
    PageTooLarge(String),
    /// The CRM refused a page for another reason, so pages can't be read at the moment.
    #[strum_discriminants(strum(serialize = "page_refused"))]
    PageRefused(String),
    /// The requestId is unknown or too old (§4.6).
    Lost(String),
    /// The call was refused, with the reason, the CRM's message, and its `errors[]` or null.
    #[strum_discriminants(strum(serialize = "dead"))]
    Refused(Reason, String, Value),
    /// The grant for this endpoint is missing (403).
    #[strum_discriminants(strum(serialize = "no_grant"))]
    NotGranted(String),
    /// The CRM refuses the token (401 or 406).
    TokenRefused(String),
    /// The CRM's API isn't at this URL.
    WrongAddress(String),
    /// The CRM or a proxy failed, but the request may have arrived.
    #[strum_discriminants(strum(serialize = "failure"))]
    Failed(String),
    /// The request didn't arrive: no connection, no DNS name, or no valid certificate.
    #[strum_discriminants(strum(serialize = "failure"))]
    Unreachable(String),
    /// The request wasn't sent, because it was too late for its slot.
    TooLate(String),
    /// The CRM or a proxy is rate limiting us (429).
    RateLimited,
}

impl Verdict {
    pub fn kind(&self) -> VerdictKind {
        self.into()
    }

    /// Returns the label for metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Refused(reason, ..) => reason.word(),
            other => other.kind().into(),
        }
    }

    /// Returns the message from the CRM or the transport, which is empty for a success.
    pub fn message(&self) -> &str {
        match self {
            Self::PageTooLarge(message)
            | Self::PageRefused(message)
            | Self::Lost(message)
            | Self::Refused(_, message, _)
            | Self::NotGranted(message)
            | Self::TokenRefused(message)
            | Self::WrongAddress(message)
            | Self::Failed(message)
            | Self::Unreachable(message)
            | Self::TooLate(message) => message,
            Self::Accepted(_)
            | Self::Journaled
            | Self::Pending
            | Self::Record(_)
            | Self::Page(_)
            | Self::RateLimited => "",
        }
    }
}

impl VerdictKind {
    /// Returns `true` if the request must be repeated.
    pub const fn is_again(self) -> bool {
        match self {
            Self::PageTooLarge
            | Self::PageRefused
            | Self::Lost
            | Self::NotGranted
            | Self::TokenRefused
            | Self::WrongAddress
            | Self::Failed
            | Self::Unreachable
            | Self::TooLate
            | Self::RateLimited => true,
            Self::Accepted
            | Self::Journaled
            | Self::Pending
            | Self::Record
            | Self::Page
            | Self::Refused => false,
        }
    }
}

/// Judges the response to a request about calls or the token. `accepted_before` tells whether the
/// CRM has accepted a call at this URL, in which case a proxy's 404 doesn't mean that the URL is
/// wrong.
pub fn judge(endpoint: Endpoint, answer: ApiResult, accepted_before: bool) -> Verdict {
    let error = match answer {
        Ok(reply) => return judge_reply(reply),
        Err(error) => error,
    };
    let message = error.to_string();
    match error {
        ApiError::TokenRefused { .. } => Verdict::TokenRefused(message),
        // `token/info` needs no grant (§4.3), so its 403 says nothing about grants.
        ApiError::Forbidden(_) if endpoint == Endpoint::TokenInfo => Verdict::Failed(message),
        ApiError::Forbidden(_) => Verdict::NotGranted(message),
        ApiError::NotFound { own, .. } | ApiError::WrongAddress { own, .. } => {
            let is_not_found = matches!(error, ApiError::NotFound { .. });
            match endpoint {
                Endpoint::Poll if own && is_not_found => Verdict::Lost(message),
                Endpoint::Filter if own => Verdict::PageRefused(message),
                Endpoint::Submit | Endpoint::TokenInfo if own || !accepted_before => {
                    Verdict::WrongAddress(message)
                }
                _ => Verdict::Failed(message),
            }
        }
        ApiError::Rejected { status, errors, .. } => match endpoint {
            Endpoint::Submit if status == 409 => {
                Verdict::Refused(Reason::Conflict, message, errors)
            }
            Endpoint::Submit => Verdict::Refused(Reason::Rejected, message, errors),
            Endpoint::Poll => Verdict::Lost(message),
            Endpoint::Filter if answer::names_max(&errors) => Verdict::PageTooLarge(message),
            Endpoint::Filter => Verdict::PageRefused(message),
            _ => Verdict::Failed(message),
        },
        ApiError::TooMany(_) => Verdict::RateLimited,
        ApiError::Server { .. }
        | ApiError::Unreadable(_)
        | ApiError::TimedOut
        | ApiError::Lost(_) => Verdict::Failed(message),
        ApiError::NotConnected(_) | ApiError::TlsRefused(_) => Verdict::Unreachable(message),
        ApiError::TooLate => Verdict::TooLate(message),
    }
}

fn judge_reply(reply: ApiReply) -> Verdict {
    match reply {
        ApiReply::Accepted(request_id) => Verdict::Accepted(request_id),
        ApiReply::Status(WriteStatus::Success) => Verdict::Journaled,
        ApiReply::Status(WriteStatus::Pending(_)) => Verdict::Pending,
        ApiReply::Status(WriteStatus::Failed(FailureWord::Failed, message, errors)) => {
            if message.is_empty() {
                return Verdict::Refused(Reason::Failed, FAILED.to_owned(), errors);
            }
            Verdict::Refused(Reason::Failed, message, errors)
        }
        ApiReply::TokenInfo(info) => Verdict::Record(info),
        ApiReply::Page(page) => Verdict::Page(page),
        ApiReply::Data(_) => Verdict::Failed("the answer is for another endpoint".to_owned()),
    }
}

/// A change caused by a response.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// The endpoint works.
    EndpointWorks,
    /// The endpoint is failing, with a message.
    EndpointFails(String),
    /// The CRM is unreachable, with a message.
    CrmUnreachable(String),
    /// The sender sends nothing, or no calls, until the cause is gone.
    Pause(Pause),
    /// The endpoint isn't used until `token/info` is read again.
    RestEndpoint(String),
    /// The token has this record.
    ReadRecord(TokenInfo),
    /// The call was accepted with this requestId.
    CallAccepted(String),
    /// The call is journaled.
    CallJournaled,
    /// The call was refused, with the reason, message, and errors.
    CallRefused(Reason, String, Value),
    /// The CRM failed on the call, which is resent later or given up.
    CallFailed(String),
    /// The call's requestId is lost.
    RequestIdLost(String),
    /// The response says nothing about the call, which becomes ready again or is polled later.
    /// Comes with a message.
    GiveBack(String),
    /// This journal page was read.
    ReadPage(Page),
    /// Later pages are requested with fewer records.
    ShrinkPages,
    /// No pages are read for an hour.
    RestPages,
}

/// Returns the effects of a verdict, in the order in which they are applied.
pub fn effects(endpoint: Endpoint, verdict: Verdict) -> Vec<Effect> {
    match verdict {
        Verdict::Accepted(request_id) => {
            vec![Effect::EndpointWorks, Effect::CallAccepted(request_id)]
        }
        Verdict::Journaled => vec![Effect::EndpointWorks, Effect::CallJournaled],
        Verdict::Pending => vec![Effect::EndpointWorks, Effect::GiveBack(String::new())],
        Verdict::Record(info) => vec![Effect::EndpointWorks, Effect::ReadRecord(info)],
        Verdict::Page(page) => vec![Effect::EndpointWorks, Effect::ReadPage(page)],
        Verdict::PageTooLarge(_) => vec![Effect::EndpointWorks, Effect::ShrinkPages],
        Verdict::PageRefused(_) => vec![Effect::EndpointWorks, Effect::RestPages],
        Verdict::Lost(why) => vec![Effect::EndpointWorks, Effect::RequestIdLost(why)],
        Verdict::Refused(reason, message, errors) => vec![
            Effect::EndpointWorks,
            Effect::CallRefused(reason, message, errors),
        ],
        Verdict::NotGranted(why) => {
            let consequence = if endpoint == Endpoint::Submit {
                Effect::Pause(Pause::NoGrant(why.clone()))
            } else {
                Effect::RestEndpoint(why.clone())
            };
            vec![Effect::EndpointWorks, consequence, Effect::GiveBack(why)]
        }
        Verdict::TokenRefused(why) => vec![
            Effect::EndpointWorks,
            Effect::Pause(Pause::TokenRefused(why.clone())),
            Effect::GiveBack(why),
        ],
        Verdict::WrongAddress(why) => vec![
            Effect::EndpointWorks,
            Effect::Pause(Pause::WrongAddress(why.clone())),
            Effect::GiveBack(why),
        ],
        Verdict::Failed(why) if endpoint == Endpoint::Submit => {
            vec![Effect::EndpointFails(why.clone()), Effect::CallFailed(why)]
        }
        Verdict::Failed(why) => vec![Effect::EndpointFails(why.clone()), Effect::GiveBack(why)],
        Verdict::Unreachable(why) => {
            vec![Effect::CrmUnreachable(why.clone()), Effect::GiveBack(why)]
        }
        // The request wasn't sent, so its endpoint is neither working nor failing.
        Verdict::TooLate(why) => vec![Effect::GiveBack(why)],
        // The budget takes care of the wait.
        Verdict::RateLimited => vec![Effect::GiveBack("429".to_owned())],
    }
}

#[cfg(test)]
mod tests;
