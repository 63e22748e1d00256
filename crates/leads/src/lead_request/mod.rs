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
//! | [`lead`] | what an answer means: to lookups, to fields of leads, to all others |
//! | [`memory`] | which kinds of them rest, and when the CRM's fields are read |
//! | [`failed`] | where a call that FAILED goes on, and what its letter says |

pub mod due;
pub mod failed;
pub mod lead;
pub mod memory;

pub use crate::lead_field::shows::FieldWrite;
pub use lead::{Finding, LeadChange, LeadOutcome, RequestKind, Settled, launched, settle};
