//! Errands: requests beside the way of the calls, about leads. An answer in, changes to be stored
//! out; which errand is due says the spool ([`due::Errands`]), when it goes out the sender.
//!
//! An errand never stops the calls: what is refused is the errand's own affair. A dead token, a
//! 429 and a lost connection are the sender's as well.

//!
//! | module | what lives there |
//! |---|---|
//! | [`due`] | the requests, and which of them are due |
//! | [`lead`] | look-ups for failed calls, the CRM's fields, what leads show |
//! | [`failed`] | where a call that FAILED goes on, and what its letter says |

pub mod due;
pub mod failed;
pub mod lead;

pub use lead::{FieldWrite, Finding, Kind, Told};

use crate::directory::backfill::Heard;
use crate::errand::due::Errand;
use callbridge_call::EventTime;
use callbridge_crm::LeadsPage;
use callbridge_crm::{ApiReply, ApiResult, WriteStatus};
use callbridge_model::TokenPrint;

/// What is to be stored of a request about leads.
#[derive(Clone, Debug, PartialEq)]
pub enum LeadChange {
    /// It leaves, or has its answer.
    Request {
        /// What is told.
        told: Box<Told>,
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

/// What an answer means for an errand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settled {
    /// To be committed. They change what is due: an errand whose operations do not is not sent
    /// again within a minute.
    pub changes: Vec<LeadChange>,
    /// It did what it was for, or needs nothing more.
    pub done: bool,
    /// What the service or the transport said, where it refused or failed.
    pub words: String,
}

/// What is to be committed before an errand leaves, so that a kill does not hide it; `write` is of
/// an [`Errand::FieldWrite`].
pub fn launched(now: EventTime, errand: &Errand, write: Option<FieldWrite>) -> Vec<LeadChange> {
    let told = match (errand, write) {
        (Errand::FieldWrite(lead), Some(write)) => Told::Writes(*lead, write),
        (Errand::FieldWrite(_), None) => Told::Back(errand.clone()),
        (Errand::LookUp(_) | Errand::Catalogue | Errand::FieldPoll(_), _) => {
            Told::Sent(errand.clone())
        }
        (Errand::Backfill(_) | Errand::Asked(..), _) => return Vec::new(),
    };
    vec![change(told, now)]
}

fn change(told: Told, at: EventTime) -> LeadChange {
    let told = Box::new(told);
    LeadChange::Request { told, at }
}

/// Judges the answer to an errand that was sent with this token.
pub fn settle(now: EventTime, errand: &Errand, answer: &ApiResult, token: &TokenPrint) -> Settled {
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
    match errand {
        Errand::LookUp(_) | Errand::Catalogue | Errand::FieldWrite(_) | Errand::FieldPoll(_) => {
            let settled = lead::settle(errand, answer, token, now);
            settled.map_or_else(Settled::default, |settled| Settled {
                changes: vec![change(settled.told, now)],
                done: settled.done,
                words: settled.words,
            })
        }
        Errand::Backfill(page) => Settled {
            changes: vec![LeadChange::Backfill {
                page: *page,
                heard: Box::new(Heard::of(answer)),
                at: now,
            }],
            done,
            words,
        },
        // whoever asked hears the answer itself
        Errand::Asked(..) => Settled {
            changes: Vec::new(),
            done,
            words,
        },
    }
}
