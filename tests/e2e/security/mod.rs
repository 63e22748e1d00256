//! Do secrets stay secret, and do strangers get nothing?

mod echoed_secrets;
pub mod flood;
pub mod secrets;
