//! What the answers to lead requests about failed calls and leads' fields mean for the spool.
//!
//! None of them stops calls: where the token may not do one, or the service refuses it, that kind
//! rests for an hour and says so.

use crate::directory::{What, rows};
use crate::lead_field::shows::FieldWrite;
use crate::lead_field::{Blames, Catalogue, Refusal, catalogue};
use crate::lead_request::due::LeadRequest;
use callbridge_call::EventTime;
use callbridge_crm::{ApiError, ApiReply, ApiResult, WriteStatus};
use callbridge_model::LeadId;
use callbridge_model::TokenFingerprint;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// How long a kind of lead request rests after the service refused it.
pub const REST: Duration = Duration::from_secs(3600);

/// What a look-up found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// The lead is there: the employee is not known.
    LeadExists,
    /// The lead is not there.
    LeadMissing,
    /// The service's answer says neither.
    Unclear,
}

impl Finding {
    /// Every finding.
    pub const ALL: [Self; 3] = [Self::LeadExists, Self::LeadMissing, Self::Unclear];

    /// The word stored.
    pub const fn word(self) -> &'static str {
        match self {
            Self::LeadExists => "lead_exists",
            Self::LeadMissing => "lead_missing",
            Self::Unclear => "unclear",
        }
    }

    /// The finding of a word; `None` for an unknown one.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|finding| finding.word() == word)
    }
}

/// Kinds of lead request that can rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// `GET lead/{id}`
    LookUps,
    /// `POST lead/:id/field/list`
    Fields,
}

/// What the spool is told of a lead request.
#[derive(Clone, Debug, PartialEq)]
pub enum LeadOutcome {
    /// It leaves: committed with its slot, before the request.
    Sent(LeadRequest),
    /// A field write leaves, with these; or nothing is left of it that could be written.
    Writes(LeadId, FieldWrite),
    /// A look-up's answer: the letters of that lead say so, or go on without their employee.
    LookedUp(LeadId, Finding),
    /// A look-up's answer: the first lead was merged into the second, which stands for it.
    MergedInto(LeadId, LeadId),
    /// The catalogue, or why there is none.
    Catalogue(Catalogue),
    /// A field write was accepted.
    Accepted(LeadId, String, TokenFingerprint),
    /// A field write is not carried out yet.
    NotYet(LeadId),
    /// It is carried out.
    Written(LeadId),
    /// It is refused or FAILED: what is to blame is given up.
    Refused(LeadId, Refusal),
    /// Nobody knows: asked again after a while, given up after several.
    Again(LeadRequest, String),
    /// It was not sent, or stopped by no fault of its own: due as before.
    Back(LeadRequest),
    /// This kind rests for [`REST`], and why; the lead request itself is due as before.
    Rest(RequestKind, LeadRequest, String),
    /// The token has a right that it had not before: what rests, or waits for one, goes on.
    Granted,
}

/// What an answer means.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// For the spool.
    pub told: LeadOutcome,
    /// It did what it was for, or needs nothing more.
    pub done: bool,
    /// In words, where it did not go well.
    pub words: String,
}

/// What kind of answer it is, whatever was asked.
enum Sort<'a> {
    /// 200 with what was asked for.
    Content(&'a Value),
    Accepted(String),
    Success,
    Pending,
    Failed(String),
    /// No grant, or nothing of the kind at this address.
    Barred(String),
    /// 404 in the service's own envelope.
    Gone(String),
    /// 409.
    Missing(String),
    /// Any other 4xx.
    Refused(String),
    /// 5xx, no answer.
    Trouble(String),
    /// Token, limit, no connection: nothing to do with the lead request.
    Stopped(String),
}

fn sort(answer: &ApiResult) -> Sort<'_> {
    let error = match answer {
        Ok(reply) => return sort_reply(reply),
        Err(error) => error,
    };
    let why = error.to_string();
    match error {
        // what stands in between knows of no lead
        ApiError::NotFound { own: true, .. } => Sort::Gone(why),
        ApiError::NotFound { .. } | ApiError::Forbidden { .. } | ApiError::WrongAddress { .. } => {
            Sort::Barred(why)
        }
        ApiError::Rejected { status: 409, .. } => Sort::Missing(why),
        ApiError::Rejected { errors, .. } if !errors.is_null() => {
            Sort::Refused(format!("{why} {errors}"))
        }
        ApiError::Rejected { .. } => Sort::Refused(why),
        ApiError::Server { .. }
        | ApiError::Unreadable { .. }
        | ApiError::TimedOut
        | ApiError::Lost { .. } => Sort::Trouble(why),
        ApiError::TokenRefused { .. }
        | ApiError::TooMany { .. }
        | ApiError::NotPermitted
        | ApiError::NotConnected { .. }
        | ApiError::TlsRefused { .. } => Sort::Stopped(why),
    }
}

fn sort_reply(reply: &ApiReply) -> Sort<'_> {
    match reply {
        ApiReply::Data(envelope) => Sort::Content(envelope),
        ApiReply::Accepted { request_id } => Sort::Accepted(request_id.clone()),
        ApiReply::Status(WriteStatus::Success) => Sort::Success,
        ApiReply::Status(WriteStatus::Pending { .. }) => Sort::Pending,
        ApiReply::Status(WriteStatus::Failed { words, errors }) => {
            let errors = match errors {
                Value::Null => String::new(),
                errors => errors.to_string(),
            };
            let said = format!("{words} {errors}");
            match said.trim() {
                "" => Sort::Failed("FAILED".to_owned()),
                said => Sort::Failed(format!("FAILED: {said}")),
            }
        }
        ApiReply::Page(_) | ApiReply::TokenInfo(_) => {
            Sort::Trouble("an answer to another question".to_owned())
        }
    }
}

/// What an answer means for the spool; `None` for a lead request of another part. `token` is the
/// one that made the request.
pub fn settle(
    lead_request: &LeadRequest,
    heard: &ApiResult,
    token: &TokenFingerprint,
    now: EventTime,
) -> Option<Settled> {
    let again = |why: String| {
        settled(false, why, |why| {
            LeadOutcome::Again(lead_request.clone(), why)
        })
    };
    let back = |why: String| settled(false, why, |_| LeadOutcome::Back(lead_request.clone()));
    let settled = match (lead_request, sort(heard)) {
        (LeadRequest::Backfill(_) | LeadRequest::Asked(..), _) => return None,
        (_, Sort::Stopped(why)) => back(why),
        (LeadRequest::FieldPoll(poll), answer) => match answer {
            Sort::Success => well(LeadOutcome::Written(poll.lead)),
            Sort::Pending | Sort::Accepted(_) | Sort::Content(_) => {
                well(LeadOutcome::NotYet(poll.lead))
            }
            Sort::Failed(why) => refused(poll.lead, why, heard, Blames::ItemOrLead),
            // neither 5xx nor a missing right says anything of the write: it is asked for again
            Sort::Trouble(why) | Sort::Barred(why) => {
                settled(false, why, |_| LeadOutcome::NotYet(poll.lead))
            }
            Sort::Gone(why) | Sort::Missing(why) | Sort::Refused(why) | Sort::Stopped(why) => {
                again(why)
            }
        },
        (_, Sort::Trouble(why)) => again(why),
        (LeadRequest::LookUp(lead), answer) => looked_up(*lead, answer, lead_request),
        (LeadRequest::Catalogue, Sort::Content(envelope)) => match catalogue::rows(envelope) {
            Some((fields, whole)) => {
                well(LeadOutcome::Catalogue(Catalogue::read(fields, whole, now)))
            }
            None => unread("no fields in the answer".to_owned(), now),
        },
        (LeadRequest::Catalogue, answer) => unread(words(answer), now),
        (LeadRequest::FieldWrite(lead), Sort::Accepted(request_id)) => {
            well(LeadOutcome::Accepted(*lead, request_id, token.clone()))
        }
        (LeadRequest::FieldWrite(_), Sort::Barred(why)) => settled(true, why, |why| {
            LeadOutcome::Rest(RequestKind::Fields, lead_request.clone(), why)
        }),
        (LeadRequest::FieldWrite(lead), Sort::Refused(why)) => {
            refused(*lead, why, heard, Blames::SomeItem)
        }
        (LeadRequest::FieldWrite(lead), answer) => {
            refused(*lead, words(answer), heard, Blames::ItemOrLead)
        }
    };
    Some(settled)
}

fn unread(why: String, now: EventTime) -> Settled {
    settled(true, why, |why| {
        LeadOutcome::Catalogue(Catalogue::unread(why, now))
    })
}

fn looked_up(lead: LeadId, answer: Sort<'_>, lead_request: &LeadRequest) -> Settled {
    match answer {
        Sort::Content(envelope) => {
            let row = envelope
                .get("data")
                .map(|row| rows::read(row, What::Read, None));
            let told = match row.and_then(|row| row.lead).filter(|told| *told != lead) {
                Some(survivor) => LeadOutcome::MergedInto(lead, survivor),
                None => LeadOutcome::LookedUp(lead, Finding::LeadExists),
            };
            well(told)
        }
        Sort::Missing(_) | Sort::Gone(_) => well(LeadOutcome::LookedUp(lead, Finding::LeadMissing)),
        Sort::Barred(why) => settled(true, why, |why| {
            LeadOutcome::Rest(RequestKind::LookUps, lead_request.clone(), why)
        }),
        other => settled(true, words(other), |_| {
            LeadOutcome::LookedUp(lead, Finding::Unclear)
        }),
    }
}

/// A write that was not taken. Its errors may name an item (§7.5).
fn refused(lead: LeadId, why: String, heard: &ApiResult, else_blames: Blames) -> Settled {
    let errors = match heard {
        Ok(ApiReply::Status(WriteStatus::Failed { errors, .. }))
        | Err(ApiError::Rejected { errors, .. }) => errors,
        Ok(_) | Err(_) => &Value::Null,
    };
    settled(true, why, |why| {
        LeadOutcome::Refused(lead, Refusal::new(why, errors, else_blames))
    })
}

fn words(answer: Sort<'_>) -> String {
    match answer {
        Sort::Content(_) | Sort::Accepted(_) | Sort::Success | Sort::Pending => {
            "an answer to another question".to_owned()
        }
        Sort::Failed(why)
        | Sort::Barred(why)
        | Sort::Gone(why)
        | Sort::Missing(why)
        | Sort::Refused(why)
        | Sort::Trouble(why)
        | Sort::Stopped(why) => why,
    }
}

fn well(told: LeadOutcome) -> Settled {
    Settled {
        told,
        done: true,
        words: String::new(),
    }
}

fn settled(done: bool, words: String, told: impl FnOnce(String) -> LeadOutcome) -> Settled {
    Settled {
        told: told(words.clone()),
        done,
        words,
    }
}

#[cfg(test)]
#[path = "lead_tests.rs"]
mod tests;
