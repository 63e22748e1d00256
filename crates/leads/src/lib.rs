//! Lookups and writes of leads in the CRM, in addition to the calls. The code is pure: the input is
//! news about leads, answers of the CRM, and `now`. The output is the changes to store and the
//! requests to send.
//!
//! | module | content |
//! |---|---|
//! | [`directory`] | phones and leads, learned from reports of the CRM |
//! | [`lead_field`] | values of a lead's fields that show its calls, and values set by hand |
//! | [`lead_request`] | the requests, and the effects of their answers |

pub mod directory;
pub mod lead_field;
pub mod lead_request;
