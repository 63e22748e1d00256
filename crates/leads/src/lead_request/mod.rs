//! Lead requests: requests beside the way of the calls, about leads. An answer in, changes to be
//! stored out; which lead request is due says the spool ([`due::DueRequests`]), when it goes out
//! the sender.
//!
//! A lead request never stops the calls: what is refused is the lead request's own affair. A dead
//! token, a 429 and a lost connection are the sender's as well.

//!
//! | module | what lives there |
//! |---|---|
//! | [`due`] | the requests, and which of them are due |
//! | [`lead`] | look-ups for failed calls, the CRM's fields, what leads show |
//! | [`memory`] | which kinds of them rest, and when the CRM's fields are read |
//! | [`failed`] | where a call that FAILED goes on, and what its letter says |

pub mod due;
pub mod failed;
pub mod lead;
pub mod memory;

pub use crate::lead_field::shows::FieldWrite;
pub use lead::{Finding, LeadOutcome, RequestKind};

use crate::directory::backfill::Heard;
use crate::lead_request::due::LeadRequest;
use callbridge_call::EventTime;
use callbridge_crm::LeadsPage;
use callbridge_crm::{ApiReply, ApiResult, WriteStatus};
use callbridge_model::TokenFingerprint;

/// What is to be stored of a request about leads.
#[derive(Clone, Debug, PartialEq)]
pub enum LeadChange {
    /// It leaves, or has its answer.
    Request {
        /// What is told.
        told: Box<LeadOutcome>,
        /// Now.
        at: EventTime,
    },
    /// A page of leads, or why there is none: what it tells is learned, and how far the backfill
    /// is remembered.
    Backfill {
        /// What was asked for.
        page: LeadsPage,
        /// What came.
        heard: Box<Heard>,
        /// Now.
        at: EventTime,
    },
}

/// What an answer means for a lead request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settled {
    /// To be committed. They change what is due: a lead request whose operations do not is not sent
    /// again within a minute.
    pub changes: Vec<LeadChange>,
    /// It did what it was for, or needs nothing more.
    pub done: bool,
    /// What the service or the transport said, where it refused or failed.
    pub words: String,
}

/// What is to be committed before a lead request leaves, so that a kill does not hide it; `write`
/// is of an [`LeadRequest::FieldWrite`].
pub fn launched(
    now: EventTime,
    lead_request: &LeadRequest,
    write: Option<FieldWrite>,
) -> Vec<LeadChange> {
    let told = match (lead_request, write) {
        (LeadRequest::FieldWrite(lead), Some(write)) => LeadOutcome::Writes(*lead, write),
        (LeadRequest::FieldWrite(_), None) => LeadOutcome::Back(lead_request.clone()),
        (LeadRequest::LookUp(_) | LeadRequest::Catalogue | LeadRequest::FieldPoll(_), _) => {
            LeadOutcome::Sent(lead_request.clone())
        }
        (LeadRequest::Backfill(_) | LeadRequest::Asked(..), _) => return Vec::new(),
    };
    vec![change(told, now)]
}

fn change(told: LeadOutcome, at: EventTime) -> LeadChange {
    let told = Box::new(told);
    LeadChange::Request { told, at }
}

/// Judges the answer to a lead request that was sent with this token.
pub fn settle(
    now: EventTime,
    lead_request: &LeadRequest,
    answer: &ApiResult,
    token: &TokenFingerprint,
) -> Settled {
    let (done, words) = match answer {
        Ok(ApiReply::Status(WriteStatus::Pending { word })) => (false, word.clone()),
        Ok(ApiReply::Status(WriteStatus::Failed { words, .. })) if words.is_empty() => {
            (false, "FAILED".to_owned())
        }
        Ok(ApiReply::Status(WriteStatus::Failed { words, .. })) => {
            (false, format!("FAILED: {words}"))
        }
        Ok(_) => (true, String::new()),
        Err(error) => (false, error.to_string()),
    };
    match lead_request {
        LeadRequest::LookUp(_)
        | LeadRequest::Catalogue
        | LeadRequest::FieldWrite(_)
        | LeadRequest::FieldPoll(_) => {
            let settled = lead::settle(lead_request, answer, token, now);
            settled.map_or_else(Settled::default, |settled| Settled {
                changes: vec![change(settled.told, now)],
                done: settled.done,
                words: settled.words,
            })
        }
        LeadRequest::Backfill(page) => Settled {
            changes: vec![LeadChange::Backfill {
                page: *page,
                heard: Box::new(Heard::of(answer)),
                at: now,
            }],
            done,
            words,
        },
        // whoever asked hears the answer itself
        LeadRequest::Asked(..) => Settled {
            changes: Vec::new(),
            done,
            words,
        },
    }
}
