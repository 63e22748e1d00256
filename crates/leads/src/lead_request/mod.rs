//! Lead requests, i.e., requests about leads in addition to those for calls. Their input is a
//! response, and their output is the changes to store. The spool decides which requests are due
//! ([`due::DueRequests`]), and the sender decides when to send them.
//!
//! A lead request never stops any calls, because a rejection only affects the request itself. A
//! dead token, a 429, or a lost connection is handled by the sender, as it is for calls.
//!
//! | module | contents |
//! |---|---|
//! | [`due`] | the requests, and which of them are due |
//! | [`lead`] | what follows from responses for lookups, lead fields, and all other requests |
//! | [`memory`] | pauses by kind, and when the CRM's fields are read |
//! | [`failed`] | the next step for a call that FAILED, and its dead letter's message |

pub mod due;
pub mod failed;
pub mod lead;
pub mod memory;

pub use crate::lead_field::shows::FieldWrite;
pub use lead::{
    Finding, LeadChange, LeadOutcome, RequestKind, Settled, changes_before_send, settle,
};
