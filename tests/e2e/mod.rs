//! Tests the whole program, from recorded calls to records in the CRM. The CRM is the sandbox,
//! which follows the CRM's document.
//!
//! Each module tests one promise.

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
