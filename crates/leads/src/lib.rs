//! Looks up and writes leads in the CRM, in addition to sending calls. This crate does no I/O. Its
//! input is news about leads, the CRM's responses, and `now`, and its output is the changes to
//! store and the requests to send.
//!
//! | module | contents |
//! |---|---|
//! | [`directory`] | phones and leads, as learned from the CRM's reports |
//! | [`lead_field`] | values of a lead's fields that show its calls, and values set manually |
//! | [`lead_request`] | the requests, and what follows from their responses |

pub mod directory;
pub mod lead_field;
pub mod lead_request;
