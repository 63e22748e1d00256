//! What is asked and written about leads, beside the way of the calls. Pure: in come news, answers
//! and `now`, out goes what is to be stored and sent.
//!
//! | module | what lives there |
//! |---|---|
//! | [`directory`] | phones and leads learned from what the CRM tells |
//! | [`lead_field`] | what a lead shows of its calls, and values by hand |
//! | [`lead_request`] | the requests, and what their answers mean |

pub mod directory;
pub mod lead_field;
pub mod lead_request;
