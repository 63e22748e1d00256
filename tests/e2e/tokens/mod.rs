//! Tests that tokens obtained by consent stay valid, secret, and with the right company.

mod companies;
pub mod consent;
mod refreshed;
mod takeover;
