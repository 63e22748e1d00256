//! What follows from the responses to lead requests, as changes for the spool.
//!
//! A lead request never stops any calls. If the token isn't allowed to make a request, or the CRM
//! rejects it, requests of that kind are paused for an hour, and the reason is stored.

use crate::directory::{ChangeKind, rows};
use crate::lead_field::shows::FieldWrite;
use crate::lead_field::{Catalog, Refusal, RefusedPart, catalog};
use crate::lead_request::due::LeadRequest;
use callbridge_call::EventTime;
use callbridge_crm::{ApiError, ApiReply, ApiResult, FailureWord, LeadsPage, WriteStatus};
use callbridge_model::{LeadId, TokenFingerprint};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// How long a kind of lead request is paused after the CRM rejected it.
pub const REST: Duration = Duration::from_secs(3600);

/// The result of looking up a lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum Finding {
    /// The lead exists. So if the call has an employee, it's the employee that the CRM doesn't
    /// know.
    LeadExists,
    /// The lead doesn't exist.
    LeadMissing,
    /// The CRM's response doesn't show either.
    Unclear,
}

impl Finding {
    /// Returns the word stored for the finding.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Parses the word for a finding, or returns `None` for an unknown one.
    pub fn from_word(word: &str) -> Option<Self> {
        word.parse().ok()
    }
}

/// Kinds of lead requests that can be paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Looking up leads, `GET lead/{id}`.
    LookUps,
    /// Writing leads' fields, `POST lead/{id}/field/list`.
    Fields,
}

/// A step or an outcome of a lead request, to be applied by the spool.
#[derive(Clone, Debug, PartialEq)]
pub enum LeadOutcome {
    /// The request is about to be sent. This is committed first, along with its slot in the budget.
    Sent(LeadRequest),
    /// A field write with these values is about to be sent. If none of the values can be written,
    /// nothing is sent.
    Writes(LeadId, FieldWrite),
    /// A lead was looked up. Its dead letters show the finding, or are sent without their employee.
    LookedUp(LeadId, Finding),
    /// A lead was looked up and turned out to have been merged into the second one.
    MergedInto(LeadId, LeadId),
    /// The catalog, or why there is none.
    Catalog(Catalog),
    Accepted(LeadId, String, TokenFingerprint),
    /// A field write isn't finished yet.
    NotYet(LeadId),
    /// This lead's field write is done.
    Written(LeadId),
    /// The field write was rejected or FAILED, and the values that caused this are given up.
    Refused(LeadId, Refusal),
    /// The outcome is unknown for this reason. The request is sent again after a while, and given
    /// up after several attempts.
    Again(LeadRequest, String),
    /// The request wasn't sent or was stopped for a reason other than its content. It's due again.
    Back(LeadRequest),
    /// Requests of this kind are paused for [`REST`] for this reason, and this one is due again.
    Rest(RequestKind, LeadRequest, String),
    /// The token has a new permission, so paused requests and those waiting for a permission
    /// continue.
    Granted,
}

/// A change that the spool stores for a request about leads.
#[derive(Clone, Debug, PartialEq)]
pub enum LeadChange {
    /// The request is being sent or has its response.
    Request {
        outcome: Box<LeadOutcome>,
        at: EventTime,
    },
    /// A page of leads, or why there is none. The page's news is stored along with the backfill's
    /// progress.
    Backfill {
        page: LeadsPage,
        /// The CRM's response, or the error instead of one.
        answer: Box<ApiResult>,
        /// When the response arrived, by the sender's clock.
        at: EventTime,
    },
}

impl LeadChange {
    fn request(outcome: LeadOutcome, at: EventTime) -> Vec<Self> {
        let outcome = Box::new(outcome);
        vec![Self::Request { outcome, at }]
    }
}

/// What follows from the response to a lead request.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// Changes to commit, which also set when requests are due. A lead request without any changes
    /// isn't sent again within a minute.
    pub changes: Vec<LeadChange>,
    /// Whether the request was successful or needs nothing more.
    pub done: bool,
    /// The message from the CRM or the transport after a rejection or a failure, or else empty.
    pub message: String,
}

impl Settled {
    fn new(outcome: LeadOutcome, at: EventTime, done: bool, message: String) -> Self {
        Self {
            changes: LeadChange::request(outcome, at),
            done,
            message,
        }
    }
}

/// The kind of error in any request.
enum Sort {
    /// The token isn't allowed to make the request, or this URL has no such endpoint.
    Barred,
    /// 404 in the CRM's envelope, or 409, which means that the lead doesn't exist (§7.4).
    Missing,
    /// Any other 4xx from the CRM.
    Refused,
    /// A 5xx, no response, or an unreadable one.
    Trouble,
    /// The token was rejected, the rate limit was reached, or there's no connection, none of which
    /// is caused by the lead request.
    Stopped,
}

const fn sort(error: &ApiError) -> Sort {
    match error {
        ApiError::NotFound { own: true, .. } | ApiError::Rejected { status: 409, .. } => {
            Sort::Missing
        }
        // A 404 from a proxy says nothing about the lead.
        ApiError::NotFound { .. } | ApiError::Forbidden(..) | ApiError::WrongAddress { .. } => {
            Sort::Barred
        }
        ApiError::Rejected { .. } => Sort::Refused,
        ApiError::Server { .. }
        | ApiError::Unreadable(..)
        | ApiError::TimedOut
        | ApiError::Lost(..) => Sort::Trouble,
        ApiError::TokenRefused { .. }
        | ApiError::TooMany(..)
        | ApiError::NotConnected(..)
        | ApiError::TlsRefused(..)
        | ApiError::TooLate => Sort::Stopped,
    }
}

/// Returns the message for an unexpected response, along with a rejected write's errors (which may
/// identify an item, §7.5), or null.
fn explain(result: &ApiResult) -> (String, &Value) {
    match result {
        Ok(ApiReply::Status(WriteStatus::Failed(word, text, errors))) => {
            let message = append_errors(text.clone(), errors);
            (failed(*word, message.trim()), errors)
        }
        Ok(_) => ("an answer to another request".to_owned(), &Value::Null),
        Err(error @ ApiError::Rejected { status, errors, .. }) => match status {
            409 => (error.to_string(), errors),
            _ => (append_errors(error.to_string(), errors), errors),
        },
        Err(error) => (error.to_string(), &Value::Null),
    }
}

fn append_errors(message: String, errors: &Value) -> String {
    match errors {
        Value::Null => message,
        errors => format!("{message} {errors}"),
    }
}

fn failed(word: FailureWord, message: &str) -> String {
    let word: &str = word.into();
    match message {
        "" => word.to_owned(),
        message => format!("{word}: {message}"),
    }
}

/// Returns the changes to commit before sending a lead request, so that the spool knows about the
/// request even if the process is killed. `write` belongs to a [`LeadRequest::FieldWrite`].
pub fn changes_before_send(
    now: EventTime,
    lead_request: &LeadRequest,
    write: Option<FieldWrite>,
) -> Vec<LeadChange> {
    let outcome = match (lead_request, write) {
        (LeadRequest::FieldWrite(lead), Some(write)) => LeadOutcome::Writes(*lead, write),
        (LeadRequest::FieldWrite(_), None) => LeadOutcome::Back(lead_request.clone()),
        (LeadRequest::LookUp(_) | LeadRequest::Catalog | LeadRequest::FieldPoll(_), _) => {
            LeadOutcome::Sent(lead_request.clone())
        }
        (LeadRequest::Backfill(_) | LeadRequest::Asked(..), _) => return Vec::new(),
    };
    LeadChange::request(outcome, now)
}

/// Returns what follows from the response to a lead request that was sent with `token`.
pub fn settle(
    now: EventTime,
    lead_request: &LeadRequest,
    result: &ApiResult,
    token: &TokenFingerprint,
) -> Settled {
    use ApiReply::{Accepted, Data, Page, Status, TokenInfo};
    use WriteStatus::{Failed, Pending, Success};
    let (message, errors) = explain(result);
    let answer = Answer {
        lead_request,
        at: now,
        message,
        errors,
    };
    match (lead_request, result.as_ref().map_err(sort)) {
        (LeadRequest::Backfill(page), _) => {
            let change = LeadChange::Backfill {
                page: *page,
                answer: Box::new(result.clone()),
                at: now,
            };
            report_success(result, vec![change])
        }
        // The command processes the response itself.
        (LeadRequest::Asked(..), _) => report_success(result, Vec::new()),
        (_, Err(Sort::Stopped)) => answer.continues(LeadOutcome::Back(lead_request.clone())),
        (LeadRequest::FieldPoll(poll), reply) => match reply {
            Ok(Status(Success)) => answer.succeeds(LeadOutcome::Written(poll.lead)),
            Ok(Status(Failed(..))) => answer.refuses(poll.lead, RefusedPart::ItemOrLead),
            Ok(Status(Pending(_)) | Accepted(_) | Data(_)) => {
                answer.succeeds(LeadOutcome::NotYet(poll.lead))
            }
            // A 5xx or a missing permission says nothing about the write, so the write is polled
            // again.
            Ok(Page(_) | TokenInfo(_)) | Err(Sort::Trouble | Sort::Barred) => {
                answer.continues(LeadOutcome::NotYet(poll.lead))
            }
            Err(Sort::Missing | Sort::Refused | Sort::Stopped) => answer.repeats(),
        },
        (_, Ok(Page(_) | TokenInfo(_)) | Err(Sort::Trouble)) => answer.repeats(),
        (LeadRequest::LookUp(lead), Ok(Data(envelope))) => {
            answer.succeeds(read_lead_record(*lead, envelope))
        }
        (LeadRequest::LookUp(lead), Err(Sort::Missing)) => {
            answer.succeeds(LeadOutcome::LookedUp(*lead, Finding::LeadMissing))
        }
        (LeadRequest::LookUp(_), Err(Sort::Barred)) => answer.pauses(RequestKind::LookUps),
        (LeadRequest::LookUp(lead), _) => {
            answer.ends(LeadOutcome::LookedUp(*lead, Finding::Unclear))
        }
        (LeadRequest::Catalog, Ok(Data(envelope))) => match catalog::rows(envelope) {
            Some((fields, whole)) => {
                let catalog = Catalog::read(fields, whole, now);
                answer.succeeds(LeadOutcome::Catalog(catalog))
            }
            None => unread_catalog("no fields in the answer".to_owned(), now),
        },
        (LeadRequest::Catalog, _) => unread_catalog(answer.message, now),
        (LeadRequest::FieldWrite(lead), Ok(Accepted(request_id))) => {
            let request_id = request_id.clone();
            answer.succeeds(LeadOutcome::Accepted(*lead, request_id, token.clone()))
        }
        (LeadRequest::FieldWrite(_), Err(Sort::Barred)) => answer.pauses(RequestKind::Fields),
        (LeadRequest::FieldWrite(lead), Err(Sort::Refused)) => {
            answer.refuses(*lead, RefusedPart::SomeItem)
        }
        (LeadRequest::FieldWrite(lead), _) => answer.refuses(*lead, RefusedPart::ItemOrLead),
    }
}

/// The response to a lead request, as a message along with a rejected write's errors.
struct Answer<'a> {
    lead_request: &'a LeadRequest,
    at: EventTime,
    message: String,
    errors: &'a Value,
}

impl Answer<'_> {
    fn succeeds(&self, outcome: LeadOutcome) -> Settled {
        Settled::new(outcome, self.at, true, String::new())
    }

    fn ends(&self, outcome: LeadOutcome) -> Settled {
        Settled::new(outcome, self.at, true, self.message.clone())
    }

    fn continues(&self, outcome: LeadOutcome) -> Settled {
        Settled::new(outcome, self.at, false, self.message.clone())
    }

    fn repeats(&self) -> Settled {
        let lead_request = self.lead_request.clone();
        self.continues(LeadOutcome::Again(lead_request, self.message.clone()))
    }

    fn pauses(&self, kind: RequestKind) -> Settled {
        let lead_request = self.lead_request.clone();
        self.ends(LeadOutcome::Rest(kind, lead_request, self.message.clone()))
    }

    fn refuses(&self, lead: LeadId, else_blames: RefusedPart) -> Settled {
        let refusal = Refusal::new(self.message.clone(), self.errors, else_blames);
        self.ends(LeadOutcome::Refused(lead, refusal))
    }
}

fn unread_catalog(reason: String, at: EventTime) -> Settled {
    let catalog = Catalog::unread(reason.clone(), at);
    Settled::new(LeadOutcome::Catalog(catalog), at, true, reason)
}

/// Settles a response that's processed elsewhere, by just reporting whether the request was
/// successful.
fn report_success(answer: &ApiResult, changes: Vec<LeadChange>) -> Settled {
    let (done, message) = match answer {
        Ok(ApiReply::Status(WriteStatus::Pending(word))) => (false, word.clone()),
        Ok(ApiReply::Status(WriteStatus::Failed(word, message, _))) => {
            (false, failed(*word, message))
        }
        Ok(_) => (true, String::new()),
        Err(error) => (false, error.to_string()),
    };
    Settled {
        changes,
        done,
        message,
    }
}

/// Reads the record of a lead that was looked up. If the record has a different ID, the lead was
/// merged into the one with that ID.
fn read_lead_record(lead: LeadId, envelope: &Value) -> LeadOutcome {
    let row = envelope.get("data");
    let outcome = row.and_then(|row| rows::read(row, ChangeKind::Read, None).lead);
    match outcome {
        Some(survivor) if survivor != lead => LeadOutcome::MergedInto(lead, survivor),
        Some(_) | None => LeadOutcome::LookedUp(lead, Finding::LeadExists),
    }
}

#[cfg(test)]
#[path = "lead_tests.rs"]
mod tests;
