//! Errands: requests beside the way of the calls, about leads. An answer in, operations for the
//! spool out; which errand is due says the spool ([`crate::spool::Errands`]), when it goes out the
//! sender.
//!
//! An errand never stops the calls: what is refused is the errand's own affair. A dead token, a
//! 429 and a lost connection are the sender's as well.

//!
//! | module | what lives there |
//! |---|---|
//! | [`lead`] | look-ups for failed calls, the CRM's fields, what leads show |
//! | [`failed`] | where a call that FAILED goes on, and what its letter says |

pub mod failed;
pub mod lead;

pub use lead::{FieldWrite, Finding, Kind, Told};

use crate::crm::Answer;
use crate::people::directory::backfill::Heard;
use crate::spool::{Errand, Op};
use callbridge_call::EventTime;
use callbridge_model::TokenPrint;

/// What an answer means for an errand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settled {
    /// To be committed. They change what is due: an errand whose operations do not is not sent
    /// again within a minute.
    pub ops: Vec<Op>,
    /// It did what it was for, or needs nothing more.
    pub done: bool,
    /// What the service or the transport said, where it refused or failed.
    pub words: String,
}

/// What is to be committed before an errand leaves, so that a kill does not hide it; `write` is of
/// an [`Errand::FieldWrite`].
pub fn launched(now: EventTime, errand: &Errand, write: Option<FieldWrite>) -> Vec<Op> {
    let told = match (errand, write) {
        (Errand::FieldWrite(lead), Some(write)) => Told::Writes(*lead, write),
        (Errand::FieldWrite(_), None) => Told::Back(errand.clone()),
        (Errand::LookUp(_) | Errand::Catalogue | Errand::FieldPoll(_), _) => {
            Told::Sent(errand.clone())
        }
        (Errand::Backfill(_) | Errand::Asked(..), _) => return Vec::new(),
    };
    vec![op(told, now)]
}

fn op(told: Told, at: EventTime) -> Op {
    let told = Box::new(told);
    Op::Errand { told, at }
}

/// Judges the answer to an errand that was sent with this token.
pub fn settle(now: EventTime, errand: &Errand, answer: &Answer, token: &TokenPrint) -> Settled {
    match errand {
        Errand::LookUp(_) | Errand::Catalogue | Errand::FieldWrite(_) | Errand::FieldPoll(_) => {
            let settled = lead::settle(errand, answer, token, now);
            settled.map_or_else(Settled::default, |settled| Settled {
                ops: vec![op(settled.told, now)],
                done: settled.done,
                words: settled.words,
            })
        }
        Errand::Backfill(page) => Settled {
            ops: vec![Op::Backfilled {
                page: *page,
                heard: Box::new(Heard::of(answer)),
                at: now,
            }],
            done: answer.is_good(),
            words: answer.words(),
        },
        // whoever asked hears the answer itself
        Errand::Asked(..) => Settled {
            ops: Vec::new(),
            done: answer.is_good(),
            words: answer.words(),
        },
    }
}
