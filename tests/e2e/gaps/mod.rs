//! Tests that periods without a connection are filled or reported, and that each missing call is
//! found.

mod audit;
mod audit_journal;
mod catch_up;
mod hearing;
mod unmatched;
