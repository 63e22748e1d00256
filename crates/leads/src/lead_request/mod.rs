//! Lead requests: requests about leads, in addition to the calls. The input is an answer, and the
//! output is the changes to store. The spool decides which requests are due ([`due::DueRequests`]),
//! and the sender decides when they are sent.
//!
//! A lead request never stops the calls: a refusal only affects the request. The sender handles a
//! dead token, a 429, and a lost connection, as it does for calls.
//!
//! | module | content |
//! |---|---|
//! | [`due`] | the requests, and which of them are due |
//! | [`lead`] | the effects of answers, for lookups, fields of leads, and all others |
//! | [`memory`] | pauses by kind, and when the CRM's fields are read |
//! | [`failed`] | the next step of a call that FAILED, and the message of its dead letter |

pub mod due;
pub mod failed;
pub mod lead;
pub mod memory;

pub use crate::lead_field::shows::FieldWrite;
pub use lead::{
    Finding, LeadChange, LeadOutcome, RequestKind, Settled, changes_before_send, settle,
};
