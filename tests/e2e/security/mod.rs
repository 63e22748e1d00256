//! Tests that secrets stay secret, and that unauthorized clients don't get anything.

mod echoed_secrets;
pub mod flood;
pub mod secrets;
