//! Errands: requests beside the way of the calls, about leads. An answer in, operations for the
//! spool out; which errand is due says the spool ([`crate::spool::Errands`]), when it goes out the
//! sender.
//!
//! An errand never stops the calls: what is refused is the errand's own affair. A dead token, a
//! 429 and a lost connection are the sender's as well.

use crate::crm::Answer;
use crate::spool::{Errand, Op, TokenPrint};
use callbridge_call::EventTime;

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

/// What is to be committed before an errand leaves, so that a kill does not hide it.
pub fn launched(_now: EventTime, errand: &Errand) -> Vec<Op> {
    match errand {
        Errand::LookUp(_)
        | Errand::Catalogue
        | Errand::FieldWrite(_)
        | Errand::FieldPoll(_)
        | Errand::Backfill(_)
        | Errand::Asked(..) => Vec::new(),
    }
}

/// Judges the answer to an errand that was sent with this token.
pub fn settle(_now: EventTime, errand: &Errand, answer: &Answer, _token: &TokenPrint) -> Settled {
    match errand {
        Errand::LookUp(_)
        | Errand::Catalogue
        | Errand::FieldWrite(_)
        | Errand::FieldPoll(_)
        | Errand::Backfill(_) => Settled::default(),
        // whoever asked hears the answer itself
        Errand::Asked(..) => Settled {
            ops: Vec::new(),
            done: answer.is_good(),
            words: answer.words(),
        },
    }
}
