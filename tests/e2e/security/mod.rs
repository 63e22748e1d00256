//! Tests that secrets stay secret, and that clients without rights get nothing.

mod echoed_secrets;
pub mod flood;
pub mod secrets;
