//! The whole program: recorded calls in, records in the CRM out. The CRM is the sandbox, which
//! follows the CRM's document.
//!
//! Each module asks whether one promise is kept.

mod calls;
mod gaps;
mod hub;
mod leads;
mod loss;
mod operations;
mod pauses;
mod security;
mod tokens;
mod webhooks;
